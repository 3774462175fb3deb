"""``dprl reproduce``: what it lists, writes and refuses."""

from __future__ import annotations

import json

import pytest
from papers.tests.tiny import plugin_file

from dprl_papers.harness.spec import load_paper, papers


def test_what_can_be_reproduced(dprl):
    for arguments in (("reproduce",), ("reproduce", "--list"), ("reproduce", "004", "--list")):
        found = dprl(*arguments)
        assert (found.code, found.err) == (0, "")
        assert f"004: {load_paper('004').title}" in found.out
        assert "    1a: Figure 1(a)." in found.out
    listed = json.loads(dprl("reproduce", "--list", "--json").out)
    assert set(listed) == set(papers())
    assert set(listed["004"]["figures"]) == {f.name for f in load_paper("004").figures}


def test_a_figure_of_a_plugin(dprl, tmp_path):
    """The tiny domain: two trials of methods that compile nothing."""
    plugin, out = plugin_file(tmp_path), tmp_path / "out"
    arguments = ("reproduce", "004", "--figure", "table1", "--out", out, "--plugin", plugin, "--json")
    found = dprl(*arguments)
    assert (found.code, found.err) == (0, "")
    results = json.loads(found.out)
    first = results["figures"][0]["tables"][0]
    assert first["caption"].startswith("Theorem 1: ")
    assert json.loads((out / "results.json").read_text()) == results
    page = (out / "report.html").read_text()
    assert "Table 1. Relationships" in page
    assert 'class="minus"' in page
    # the paper's two examples in words: epsilon against delta, and m against epsilon
    rows = {name: dict(zip(first["heads"][1:], cells, strict=True)) for name, *cells in first["rows"]}
    assert rows["ε"]["δ"]["class"] == "minus"
    assert rows["m"]["ε"]["class"] == "minus"
    assert rows["N"]["σ"]["class"] == "plus"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("005",), "There is no reproduction of paper '005'; there are 000, 001, 002, 003, 004, beyond."),
        (("004", "--figure", "7"), "has no figure '7'"),
        (("004", "--trials", "0"), "--trials must be at least 1."),
        (("004", "--engine", "spark"), "--engine must be one of local, ray."),
        (("004", "--workers", "0"), "--workers must be from 1 to 4096."),
        (("004", "--address", "10.0.0.1:6379"), "--address is that of a Ray cluster: add --engine ray, or leave it"),
        (("004", "--plugin", "nowhere.py"), "There is no plugin file 'nowhere.py'."),
        (("004", "--plugin", "nowhere.txt"), "A plugin is a Python file"),
        (("004", "--figure", "7", "--plugin", "empty.py"), "defines neither METHODS nor DOMAIN"),
        (("004", "--figure", "table1", "--out", "taken"), "is not a folder of this command"),
        (("004", "--figure", "table1", "--out", "empty.py"), "is not a folder of this command"),
    ],
)
def test_mistakes_are_one_sentence(dprl, tmp_path, monkeypatch, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.py").write_text("x = 1\n")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.tex").write_text("x")
    found = dprl("reproduce", *arguments)
    assert found.code == 2
    assert found.out == ""
    assert sentence in found.err
    assert found.err.count("\n") == 1
