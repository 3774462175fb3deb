"""A certificate in the forms of others: what it states is there, and what nobody answered is missing."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import norm
from typer.testing import CliRunner

import dprl
from dprl.cli import app
from dprl.release.certificate_formats import FORMATS, QUESTIONS, _number, curator_template, export_certificate

from ..verifiers.corpus import content_of, own_file, unpacked

ANSWERS: dict[str, Any] = {name: f"The curator says of {name}: \"it's so\"." for name in QUESTIONS} | {
    "curators": ["A & B", "C: D"], "registry_authors": ["E"], "publication_date": "2026-11-25", "sector": "Healthcare",
    "data_source": "Static", "slug": "a-trial",
}  # fmt: skip
CHOICES = {
    ("status",): ("Draft", "Pending"),
    ("tier",): (1, 2, 3),
    ("deployment", "basic", "data_product_type"): ("Summary statistics", "Machine learning model"),
    ("deployment", "dp_variant", "variant_name"): ("Pure DP", "Approximate DP"),
    ("deployment", "deployment_model", "model_name"): ("Local", "Central"),
    ("deployment", "deployment_model", "release_type"): ("One release", "Many releases"),
    ("deployment", "deployment_model", "access_type"): ("Interactive", "Non-interactive"),
}
"""Fields of the registry's schema for which it has a list of values, with those of the list that dprl can mean."""
REQUIRED = {"url_slug", "status", "tier", "deployment"}
BASIC = {
    "name", "data_curators", "description", "intended_use", "data_product_type", "data_product_region",
    "publication_date", "data_product_sector",
}  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    return unpacked("0.2.0", tmp_path_factory.mktemp("stored"))


def leaves(fields: Any, place: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    found = {}
    for name, value in fields.items():
        found |= leaves(value, (*place, name)) if isinstance(value, dict) else {(*place, name): value}
    return found


@pytest.mark.parametrize("name", ["gpope", "best", "people", "functional", "transition"])
@pytest.mark.parametrize("format", FORMATS)
def test_every_form_of_every_kind_of_certificate(folders, name, format):
    content, found = content_of(folders[name]), export_certificate(folders[name], format, ANSWERS)
    assert found.missing == {}
    assert "issing" not in found.text
    assert set(leaves(found.fields)) == set(leaves(FORMATS[format]["fields"]))
    assert repr(content["epsilon"]) in found.text
    assert content["digest"] in found.text
    for words in content["not_protected"] if format != "dp-fy-ml" else []:
        assert words in found.text
    words = json.dumps(FORMATS[format]["fields"])
    for question in (name for name in QUESTIONS if f"{{{name}}}" in words):
        answer = ANSWERS[question]
        for one in answer if isinstance(answer, list) else [answer]:
            assert one in found.text or json.dumps(one) in found.text


@pytest.mark.parametrize("format", FORMATS)
def test_what_nobody_answered_is_missing_and_never_made_up(folders, format):
    found = export_certificate(folders["td"], format)
    assert found.missing
    for place, names in found.missing.items():
        words = leaves(FORMATS[format]["fields"])[tuple(place.split("."))]
        assert all(f"{{{name}}}" in words for name in names)
        for name in names:
            assert QUESTIONS[name] in found.text
    filled = export_certificate(folders["td"], format, ANSWERS).text
    assert "The curator says" in filled
    assert "The curator says" not in found.text
    one = next(iter(found.missing.values()))[0]
    fewer = export_certificate(folders["td"], format, {one: ANSWERS[one]}).missing
    assert fewer.keys() < found.missing.keys() or len(fewer) < len(found.missing)


def test_a_record_of_the_registry(folders):
    yaml = pytest.importorskip("yaml")
    record = yaml.safe_load(export_certificate(folders["fitted-q"], "opendp", ANSWERS).text)
    assert set(record) == REQUIRED
    assert set(record["deployment"]["basic"]) == BASIC
    found = leaves(record)
    for place, choices in CHOICES.items():
        assert found[place] in choices
    content = content_of(folders["fitted-q"])
    assert record["deployment"]["privacy_loss"]["privacy_parameters"] == {
        name: content[name] for name in ("epsilon", "delta")
    }
    assert record["deployment"]["basic"]["data_curators"] == ANSWERS["curators"]
    assert record["deployment"]["basic"]["publication_date"] == "2026-11-25"
    assert ANSWERS["justification"] == record["deployment"]["implementation"]["justification"]
    empty = yaml.safe_load(export_certificate(folders["fitted-q"], "opendp").text)
    assert "name" not in empty["deployment"]["basic"]
    for delta in (1e-5, 1.5e-7, 0.001):
        assert yaml.safe_load(_number(delta)) == delta


def test_mu_is_that_of_the_gaussians(folders):
    """By the trade-off of a single draw: at its mu, the event has the epsilon that the certificate states."""
    text = export_certificate(folders["importance-sampling"], "label").text
    mu = float(re.search(r"\*\*Gaussian mu\.\*\*\s+([0-9.]+)", text).group(1))  # type: ignore[union-attr]
    content = content_of(folders["importance-sampling"])
    epsilon = content["epsilon_of_event"]
    delta = norm.sf(epsilon / mu - mu / 2.0) - math.exp(epsilon) * norm.sf(epsilon / mu + mu / 2.0)
    assert delta == pytest.approx(content["delta_of_event"], rel=1e-3)
    for name in ("gpope", "best", "greedy"):
        assert "no single mu describes it" in export_certificate(folders[name], "label").text


def test_a_statement_is_refused_or_exported_as_one(folders):
    for name in ("seeded", "q-published", "people-seeded"):
        for format, form in FORMATS.items():
            if not form["statements"]:
                with pytest.raises(dprl.DprlError, match="for certificates alone"):
                    export_certificate(folders[name], format)
                continue
            text = export_certificate(folders[name], format, ANSWERS).text
            assert "This is a statement, not a certificate" in text.split("## ")[0]
            assert "Approximate DP" not in text
            assert re.search(r"epsilon [0-9]", text) is None
            assert "dprl verify" not in text


def test_only_what_holds_is_exported(folders, tmp_path):
    changed = tmp_path / "r"
    changed.mkdir()
    for path in folders["td"].iterdir():
        (changed / path.name).write_bytes(path.read_bytes())
    own_file(changed).write_bytes(own_file(changed).read_bytes().replace(b'"epsilon": 1.0', b'"epsilon": 0.1'))
    with pytest.raises(dprl.DprlError, match="does not match its own digest"):
        export_certificate(changed)


@pytest.mark.parametrize(
    ("curator", "message"),
    [({"nobody": "asks"}, "which no form asks"), ({"name": 3}, "must be text"), ({"curators": "A"}, "list of texts")],
)
def test_answers_of_another_kind_are_refused(folders, curator, message):
    with pytest.raises(dprl.DprlError, match=message):
        export_certificate(folders["td"], "label", curator)
    with pytest.raises(dprl.DprlError, match="no form 'iso'"):
        export_certificate(folders["td"], "iso")


def test_the_command(folders, tmp_path):
    def said(*arguments: str | Path) -> Any:
        return CliRunner().invoke(app, ["certificate", str(folders["td"]), *map(str, arguments)])

    questions, out = tmp_path / "curator.toml", tmp_path / "label.md"
    assert said("--format", "label", "--template", questions).exit_code == 0
    assert questions.read_text() == curator_template("label")
    assert export_certificate(folders["td"], "label", questions).missing  # as long as nothing is answered
    answered = questions.read_text()
    for name, answer in ANSWERS.items():
        answered = re.sub(rf"^{name} = .*", lambda _, n=name, a=answer: f"{n} = {json.dumps(a)}", answered, flags=re.M)
    questions.write_text(answered, encoding="utf-8-sig")  # as editors on Windows save it
    made = said("--format", "label", "--curator", questions, "--out", out)
    assert (made.exit_code, made.output) == (0, "")
    assert out.read_text() == export_certificate(folders["td"], "label", questions).text
    assert isinstance(said("--format", "label", "--curator", questions, "--out", out).exception, dprl.DprlError)
    told = said("--format", "nist", "--json")
    assert "fields." in told.stderr
    assert json.loads(told.stdout)["missing"] == {
        place: list(names) for place, names in export_certificate(folders["td"], "nist").missing.items()
    }
    questions.write_text("name = ")
    assert isinstance(said("--curator", questions).exception, dprl.DprlError)
