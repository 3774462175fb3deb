"""`dprl report`: a sealed folder is never broken, and every refusal is one sentence."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from dprl.cli.results import report
from dprl.errors import DprlError
from dprl.report import render, render_folder

Artifact = dict[str, Any]
Seal = Callable[..., Path]


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def refuse(match: str, results: Path, out: Path | None = None) -> None:
    before = contents(results) if results.is_dir() else None
    with pytest.raises(DprlError, match=match) as caught:
        render_folder(results, out)
    assert str(caught.value).count("\n") == 0
    assert str(caught.value).endswith(".")
    assert before is None or contents(results) == before


def test_a_lost_report_is_drawn_again_byte_for_byte(results: Path) -> None:
    before = contents(results)
    (results / "report.html").unlink()
    assert render_folder(results) == results / "report.html"
    assert contents(results) == before
    assert stat.S_IMODE((results / "report.html").stat().st_mode) == 0o644


def test_a_statement_folder_works_too(seal: Seal, estimate: Artifact, statement: Artifact) -> None:
    results = seal({**estimate, "status": "not private"}, statement)
    assert "This is not a private release" in render_folder(results).read_text(encoding="utf-8")


def test_a_page_that_would_break_the_seal_goes_elsewhere(
    results: Path, estimate: Artifact, certificate: Artifact, tmp_path: Path
) -> None:
    sealed = json.loads((results / "certificate.json").read_text())
    sealed["artifacts"]["report.html"] = "0" * 64  # as another version of the library would have drawn it
    (results / "certificate.json").write_text(json.dumps(sealed))
    refuse("use --out", results)
    refuse("use --out", results, results / "report.html")
    refuse("use --out", results, results)
    for name in ("estimate.json", "certificate.json", "statement.json"):
        refuse("use --out", results, results / name)
    before = contents(results)
    out = render_folder(results, tmp_path / "page.html")
    assert out.read_text(encoding="utf-8") == render(estimate, certificate)
    assert render_folder(results, tmp_path) == tmp_path / "report.html"
    assert contents(results) == before


def test_an_unlisted_report_is_not_written(results: Path) -> None:
    sealed = json.loads((results / "certificate.json").read_text())
    del sealed["artifacts"]["report.html"]
    (results / "certificate.json").write_text(json.dumps(sealed))
    refuse("use --out", results)


def test_an_altered_estimate_gets_no_report(results: Path, estimate: Artifact, tmp_path: Path) -> None:
    (results / "estimate.json").write_text(json.dumps({**estimate, "value": 99.0}))
    refuse("not the file that certificate.json lists", results, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("estimate.json", None, "cannot be read"),
        ("estimate.json", "{", "not strict JSON"),
        ("estimate.json", "\ud800".encode("utf-16-le", "surrogatepass").decode("latin-1"), "not strict JSON"),
        ("estimate.json", "[]", "not a JSON object"),
        ("certificate.json", '{"schema": "dprl.certificate/2"}', "schema dprl.certificate/1"),
        ("certificate.json", '{"schema": "dprl.certificate/1", "artifacts": 3}', "not the file"),
        ("certificate.json", None, "neither certificate.json nor statement.json"),
        ("statement.json", "{}", "both certificate.json and statement.json"),
    ],
)
def test_unsound_folders_are_refused(results: Path, name: str, content: str | None, match: str) -> None:
    if content is None:
        (results / name).unlink()
    else:
        (results / name).write_text(content, encoding="latin-1")
    refuse(match, results)


def test_places_that_cannot_be_read_or_written(results: Path, tmp_path: Path) -> None:
    refuse("is not a folder of results", tmp_path / "nowhere")
    refuse(f"certificate.json is a file: name the folder '{results}'", results / "certificate.json")
    refuse("cannot be written", results, tmp_path / "nowhere" / "page.html")


def test_the_command_prints_the_path(results: Path, tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(report)
    answer = CliRunner().invoke(app, [str(results), "--out", str(tmp_path / "page.html")])
    assert answer.exit_code == 0
    assert answer.output.strip() == str(tmp_path / "page.html")
    assert (tmp_path / "page.html").exists()
