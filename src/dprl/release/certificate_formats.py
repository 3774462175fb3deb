"""Export a certificate in other people's formats: a registry's record, a label, an evaluation's claims, a checklist.

``certificate_formats.toml`` has the fields of every form and the questions that only a curator can answer. The
certificate is verified first, and then the facts that it states are filled in. Fields that need an answer which the
curator has not given are listed as missing.
"""

from __future__ import annotations

import json
import string
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from dprl.accounting import accountant, events
from dprl.accounting.verification import VerifiedCertificate, verify
from dprl.errors import DprlError, explained, require
from dprl.report import guarantee
from dprl.report.fields import Fields
from dprl.untrusted_files import read_regular, strict_object

_TABLE = tomllib.loads(resources.files("dprl.release").joinpath("certificate_formats.toml").read_text("utf-8"))
QUESTIONS: dict[str, str] = _TABLE.pop("questions")
"""Name of an answer that only the curator can give -> the question."""
FORMATS: dict[str, Any] = _TABLE
"""The forms by name: ``title``, ``source``, ``form``, ``statements`` (whether it takes a statement) and ``fields``."""
_LISTS = ("curators", "registry_authors")
_NOT_ANSWERED = "[missing]"
_SECURITY = (
    "Noise is drawn as whole multiples of a power of two, so that no digit of a floating-point number tells of the "
    "data, and what its finite precision costs is in delta. Running time is not guarded."
)


@dataclass(frozen=True)
class Exported:
    """A certificate or statement, exported in another format.

    Attributes:
        fields: the form's fields, nested as in the form; a field that is only a missing answer is left out.
        missing: dotted place of each field that waits for the curator -> names of the answers that it lacks.
        text: the whole form as text, YAML or Markdown; it says which answers are missing.
    """

    fields: Mapping[str, Any]
    missing: Mapping[str, tuple[str, ...]]
    text: str


def export_certificate(
    results: str | Path, format: str = "opendp", curator: str | Path | Mapping[str, Any] | None = None
) -> Exported:
    """Verify the certificate of a results folder and return it in another format.

    Args:
        results: the results folder.
        format: ``opendp``, ``label``, ``nist`` or ``dp-fy-ml``.
        curator: answers to :data:`QUESTIONS` by name, or a TOML file of them; unanswered questions are listed as
            missing.

    Raises:
        DprlError: the folder does not pass verification, the format is unknown, the format takes no statement and the
            folder holds one, or the curator answers a question that no form asks.
    """
    require(format in FORMATS, f"There is no form {format!r}; choose one of: {', '.join(FORMATS)}.")
    form, found = FORMATS[format], verify(results)
    kept = f"{found.path} is a statement, which promises nothing: {form['title']} is for certificates alone."
    require(found.private or form["statements"], kept)
    answers = _read_answers(curator)
    facts = _facts(found, Path(results))
    missing: dict[str, tuple[str, ...]] = {}
    fields = _filled(form["fields"], facts | answers, (), missing)
    write = _yaml if form["form"] == "yaml" else _markdown
    return Exported(fields, missing, write(form, fields, missing, found))


def curator_template(format: str) -> str:
    """Return the text of a TOML file with the questions that a form asks its curator, each with an empty answer."""
    require(format in FORMATS, f"There is no form {format!r}; choose one of: {', '.join(FORMATS)}.")
    asked = json.dumps(FORMATS[format]["fields"])
    lines = [f"# Answers of the curator for: {FORMATS[format]['title']}. What stays empty is listed as missing."]
    for name, question in QUESTIONS.items():
        if f"{{{name}}}" in asked:
            lines += ["", f"# {question}", f"{name} = " + ("[]" if name in _LISTS else '""')]
    return "\n".join(lines) + "\n"


def _read_answers(curator: str | Path | Mapping[str, Any] | None) -> dict[str, Any]:
    answers: Any = curator or {}
    if isinstance(curator, str | Path):
        with explained(f"{curator} cannot be read"):
            raw = Path(curator).read_bytes()
        try:
            answers = tomllib.loads(raw.decode("utf-8-sig"))
        except ValueError as error:
            raise DprlError(f"{curator} is not TOML in UTF-8: {error}.") from error
    for name, answer in answers.items():
        require(name in QUESTIONS, f"The curator answers {name!r}, which no form asks; ask for the template.")
        kind, of = (list, "a list of texts") if name in _LISTS else (str, "text")
        sound = isinstance(answer, kind) and all(isinstance(one, str) for one in answer)
        require(sound, f"The curator's answer {name!r} must be {of}.")
    return {name: answer for name, answer in answers.items() if answer}


# --- what a certificate states ----------------------------------------------------------------------------------------


def _facts(found: VerifiedCertificate, results: Path) -> dict[str, Any]:
    """Return the facts that the certificate states, by the names that the forms use."""
    content: dict[str, Any] = dict(found.content)
    file = next(name for name in ("estimate.json", "training.json") if name in content["artifacts"])
    data = strict_object(file, read_regular(results / file))
    stated = Fields(content)
    one, _, gloss = guarantee.unit_words(stated)
    name, meaning = guarantee.relation(stated, one)
    public = {key: content["assumed_public"].get(key) for key in ("bounds", "environment")}
    bounds = next((value for value in public.values() if value), {})
    signature = "signed" if found.signed else "unsigned, so that it shows accidents and not tampering"
    ledger = content["ledger"]
    charged = "No ledger was charged: nobody but the curator keeps count."
    if ledger:
        charged = (
            f"Charge {ledger['charge']} to the dataset {ledger['dataset']} of a ledger, which refuses overspending."
        )
    facts = {
        "unit": f"{one}: {gloss}", "neighbours": f"{name[:1].upper()}{name[1:]}. {meaning}",
        "product_type": "Machine learning model" if file == "training.json" else "Summary statistics",
        "data_domain": _listed(f"{key}: {json.dumps(value)}" for key, value in sorted(bounds.items())),
        "not_protected": _listed(content["not_protected"]), "released": content["released"],
        "mechanisms": _listed(map(_mechanism, content["mechanisms"])) or "No mechanism is stated.",
        "options": _listed(f"{a}: {b} ({c})" for a, b, c in guarantee.hyper_parameters(stated)) or "- none",
        "accountant": content["accountant"] or "None.", "ledger": charged,
        "post_processing": "All is computed from what the mechanisms release, and from public facts alone.",
        "versions": ", ".join(f"{key} {value}" for key, value in sorted(content["versions"].items())),
        "security": f"Noise: {content['noise'].get('source', 'not stated')}.", "tier": 3,
    }  # fmt: skip
    return facts | _claims(found, data, signature)


def _claims(found: VerifiedCertificate, data: dict[str, Any], signature: str) -> dict[str, Any]:
    """Return what a certificate promises, by the names that the forms use; for a statement, that nothing is claimed."""
    content: dict[str, Any] = dict(found.content)
    seal = f"Digest {content['digest']}, {signature}, made {content['created']} by dprl's {data['algorithm']}."
    if not found.private:
        nothing = f"None is claimed: this is a statement ({content['status']}), not a certificate."
        names = ("epsilon", "delta", "mu", "guarantee", "odds", "unit", "neighbours", "variant", "accounting")
        return dict.fromkeys((*names, "assumptions"), nothing) | {"attested": f"{nothing} {seal}"}
    event = events.from_json(content["event"])
    pair, mu = f"epsilon {content['epsilon']!r}, delta {content['delta']!r}", _mu(event)
    words = f"mu {mu:.6g}" if mu is not None else "no single mu describes it: not all of it is Gaussian, of everybody"
    stated = Fields(content)
    one, _, _ = guarantee.unit_words(stated)
    odds = guarantee.budget(Fields(), stated, one)["odds"]
    lines = guarantee.event_lines(stated.section("event"))
    recomputed = f"The accountant finds epsilon {found.epsilon:.6g} at delta {content['delta_of_event']:.6g}"
    sampler = f"delta {content['delta_sampler']:.3g} pays for the noise sampler's distance from exact"
    cautions = "".join(f" Caution: {caution}." for caution in found.cautions)
    return {
        "epsilon": content["epsilon"],
        "delta": content["delta"],
        "mu": words if mu is None else f"{mu:.6g}",
        "variant": "Approximate DP",
        "security": f"Noise: {content['noise'].get('source', 'not stated')}. {_SECURITY}",
        "guarantee": f"({pair}) per {one}, under {content['neighbouring_relation']}; as Gaussian DP, {words}.",
        "odds": _listed(f"The odds {what} change by a factor of at most {factor}." for what, factor in odds),
        "accounting": f"{_listed(lines)}\n\n{recomputed} ({content['accountant']}); {sampler}.",
        "assumptions": "The event above is what ran: batches are drawn by independent coins where it says Poisson, and "
        "no step is left out of it. The certificate was verified to agree with itself and with the accountant.",
        "attested": f"`dprl verify` recomputed the event's epsilon as {found.epsilon:.6g} and found every digest "
        f"unchanged. {seal}{cautions}",
    }


def _mu(event: Any) -> float | None:
    """Return the mu of an event of Gaussian releases in which all units take part; None for any other event."""
    try:
        parts = accountant.parts_of(event)
    except DprlError:
        return None
    return 1.0 / parts[0][1] if [rate for rate, _, _ in parts] == [1.0] else None


def _mechanism(row: Mapping[str, Any]) -> str:
    shown = {key: value for key, value in row.items() if key not in ("name", "purpose")}
    return f"{row['name']}, {row['purpose']}: {', '.join(f'{key} {json.dumps(shown[key])}' for key in sorted(shown))}"


def _listed(lines: Any) -> str:
    return "\n".join(f"- {line}" for line in lines)


# --- filling in and writing -------------------------------------------------------------------------------------------


def _filled(
    form: Mapping[str, Any], known: Mapping[str, Any], place: tuple[str, ...], missing: dict[str, tuple[str, ...]]
) -> dict[str, Any]:
    """Return the fields of a form with their words filled in, and add to ``missing`` every field that lacks an answer.

    A field that consists of one missing answer is left out; in a longer text a mark stands in its place.
    """
    fields = {}
    for name, words in form.items():
        here = (*place, name)
        if isinstance(words, dict):
            inner = _filled(words, known, here, missing)
            fields |= {name: inner} if inner else {}
            continue
        asked = [field for _, field, _, _ in string.Formatter().parse(words) if field]
        lacking = tuple(field for field in asked if field not in known)
        if lacking:
            missing[".".join(here)] = lacking
        if asked and words == f"{{{asked[0]}}}":
            fields |= {name: known[asked[0]]} if not lacking else {}
        else:
            fields[name] = words.format_map({**dict.fromkeys(lacking, _NOT_ANSWERED), **known})
    return fields


def _yaml(form: Any, fields: Mapping[str, Any], missing: Mapping[str, Any], found: VerifiedCertificate) -> str:
    lines = [
        f"# {form['title']} ({form['source']}). Made by dprl from {found.path.name}; read it before you submit it."
    ]
    lines += _yaml_lines(fields, "")
    lines += [f"# MISSING {place}: {_asked(names)}" for place, names in missing.items()]
    return "\n".join(lines) + "\n"


def _yaml_lines(fields: Mapping[str, Any], indent: str) -> list[str]:
    lines = []
    for name, value in fields.items():
        if isinstance(value, dict):
            lines += [f"{indent}{name}:", *_yaml_lines(value, f"{indent}  ")]
        elif isinstance(value, list):
            lines += [f"{indent}{name}:", *(f"{indent}  - {json.dumps(one, ensure_ascii=False)}" for one in value)]
        elif isinstance(value, str) and "\n" in value:
            lines += [f"{indent}{name}: |", *(f"{indent}  {line}".rstrip() for line in value.strip().splitlines())]
        else:
            shown = _number(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
            lines.append(f"{indent}{name}: {shown}")
    return lines


def _number(value: float) -> str:
    """Return a number so that YAML 1.1 reads it as a number; it would read ``1e-05`` as text."""
    text = repr(value)
    return text if "e" not in text or "." in text else text.replace("e", ".0e")


def _markdown(form: Any, fields: Mapping[str, Any], missing: Mapping[str, Any], found: VerifiedCertificate) -> str:
    lines = [f"# {form['title']}", "", f"Fields: {form['source']}. Made by dprl from `{found.path.name}`."]
    if not found.private:
        reason = f"**This is a statement, not a certificate ({found.content['status']}): no privacy is promised.**"
        lines += ["", reason]
    for heading, items in form["fields"].items():
        lines += ["", f"## {heading}"]
        for name in items:
            value, lacking = fields.get(heading, {}).get(name, ""), missing.get(f"{heading}.{name}")
            shown = ", ".join(value) if isinstance(value, list) else str(value)
            lines += ["", f"**{name}.**", "", *([shown] if shown else [])]
            lines += ["", f"**Missing:** {_asked(lacking)}"] if lacking else []
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


def _asked(names: tuple[str, ...]) -> str:
    return " ".join(f"{QUESTIONS[name]} ({name})" for name in names)
