"""``dprl certificate``: a certificate in the form in which others register, label or question a guarantee."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def certificate(
    results: Annotated[Path, typer.Argument(help="Results folder, with certificate.json or statement.json.")],
    format: Annotated[str, typer.Option(help="opendp, label, nist or dp-fy-ml.")] = "opendp",
    curator: Annotated[
        Path | None, typer.Option(help="TOML file of answers that only you know; without it they are missing.")
    ] = None,
    template: Annotated[
        Path | None, typer.Option(help="Write a file of the form's questions here, to be answered, and end.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the form here instead of printing it.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="The fields and what is missing, as one JSON object.")
    ] = False,
) -> None:
    """Verify a certificate, and write it as a registry's record, a privacy label, claims, or a checklist.

    opendp is a record of the OpenDP deployments registry, label a privacy label (arXiv 2507.15997), nist the claims
    of NIST SP 800-226, dp-fy-ml the reporting checklist of arXiv 2303.00654. What the certificate states is filled
    in; what only the curator knows is asked for, and listed as missing where there is no answer.
    """
    from dprl.errors import require
    from dprl.files import write_atomically
    from dprl.release.certificate_formats import curator_template, export_certificate

    target = out if template is None else template
    require(target is None or not target.exists(), f"{target} is there already: give another name.")
    if template is not None:
        write_atomically(template, curator_template(format).encode())
        typer.echo(f"Answer the questions in {template}, then give it with --curator.")
        return
    found = export_certificate(results, format, curator)
    text = found.text
    if as_json:
        text = json.dumps({"format": format, "fields": found.fields, "missing": found.missing}, indent=2) + "\n"
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_atomically(out, text.encode())
    if found.missing:
        typer.echo(f"Missing, for the curator to answer: {len(found.missing)} fields.", err=True)
