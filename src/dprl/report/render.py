"""The report: one HTML page, made only from a release's artifacts."""

from __future__ import annotations

import hashlib
import os
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template

from dprl.errors import require
from dprl.files import write_atomically
from dprl.report.answer import evaluation_view
from dprl.report.formatting import power_of_ten
from dprl.report.guarantee import CERTIFICATE_SCHEMA, cleaned, view_of_guarantee
from dprl.report.learned import policy_view, q_function_view
from dprl.untrusted_files import read_regular, strict_object

REPORT = "report.html"
ESTIMATE, TRAINING = "estimate.json", "training.json"
_SCHEMAS = {
    ESTIMATE: "dprl.estimate/1",
    TRAINING: "dprl.training/1",
    "certificate.json": CERTIFICATE_SCHEMA,
    "statement.json": "dprl.statement/1",
}


def render(content: dict[str, Any], certificate: dict[str, Any]) -> str:
    """Return the page of a release, from its two artifacts.

    It is one self-contained page: no script, no request, charts inline. Equal artifacts give equal bytes, and the seal
    (``artifacts``, ``digest``, ``signature``, ``created``) is not read, so the page can be made first and sealed
    after. Absent fields leave gaps, not errors. Anything but a verified release carries a banner that says so.

    Args:
        content: what was released, as in ``estimate.json`` or ``training.json``.
        certificate: the certificate or statement of the release.
    """
    released, sealed = cleaned(content, certificate)
    view = view_of_guarantee(released, sealed)
    if released.get("schema") != _SCHEMAS[TRAINING]:
        page, more = "evaluation", evaluation_view(released, sealed, view["units"])
    elif "policy" in released:
        page, more = "policy", policy_view(released, sealed)
    else:
        page, more = "q_function", q_function_view(released, sealed)
    return load_template("dprl.report", f"{page}.html.j2").render(view | more) + "\n"


def render_folder(results: Path, out: Path | None = None) -> Path:
    """Draw the report of a results folder again, and return the path written.

    Without ``out`` this is the folder's own ``report.html``, and it is written only if its bytes are those that
    the certificate lists, so that a sealed folder stays sealed.

    Args:
        results: the results folder.
        out: a file, or a folder to put the report in.

    Raises:
        DprlError: an artifact is missing, unreadable, altered, or would be overwritten with something else.
    """
    file = f"{results} is a file: name the folder {str(results.parent)!r} that it is in."
    require(not os.path.isfile(results), file)
    require(os.path.isdir(results), f"{results} is not a folder of results.")
    seals = [name for name in ("certificate.json", "statement.json") if (results / name).exists()]
    found = "both certificate.json and statement.json" if seals else "neither certificate.json nor statement.json"
    require(len(seals) == 1, f"{results} holds {found}, where a report needs exactly one of them.")
    name = TRAINING if (results / TRAINING).exists() and not (results / ESTIMATE).exists() else ESTIMATE
    content, digest = _read(results, name)
    certificate, _ = _read(results, seals[0])
    listed = certificate.get("artifacts")
    listed = {n: d for n, d in listed.items() if n.isprintable()} if isinstance(listed, dict) else {}
    altered = f"{results / name} is not the file that {seals[0]} lists: restore it, or run the release again."
    require(listed.get(name) == digest, altered)
    page = render(content, certificate).encode("utf-8")
    sealed = results / REPORT
    path = sealed if out is None else out / REPORT if out.is_dir() else out
    if path.resolve() == sealed.resolve():
        other = f"The report drawn now differs from the {REPORT} that {seals[0]} lists: use --out to write it aside."
        require(listed.get(REPORT) == hashlib.sha256(page).hexdigest(), other)
    else:
        artifacts = {(results / name).resolve() for name in (*listed, *_SCHEMAS)}
        is_new = path.resolve() not in artifacts
        require(is_new, f"{path} is an artifact of the release: use --out to write the report elsewhere.")
    write_atomically(path, page)
    return path


def _read(results: Path, name: str) -> tuple[dict[str, Any], str]:
    """Return the artifact and the SHA-256 of its bytes."""
    path = results / name
    raw = read_regular(path)
    data = strict_object(path, raw)
    require(data.get("schema") == _SCHEMAS[name], f"{path} does not follow the schema {_SCHEMAS[name]}.")
    return data, hashlib.sha256(raw).hexdigest()


@cache
def load_template(package: str, name: str) -> Template:
    """Return a page's template. HTML templates escape what they are given, and no template accepts undefined names."""
    environment = Environment(
        loader=FunctionLoader(lambda name: resources.files(package).joinpath(name).read_text(encoding="utf-8")),
        autoescape=".html" in name,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        newline_sequence="\n",
    )
    environment.filters["power_of_ten"] = power_of_ten
    return environment.get_template(name)
