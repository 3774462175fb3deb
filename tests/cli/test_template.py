"""``dprl data template``: from a log of one's own to a first answer in four commands, and nothing overwritten."""

from __future__ import annotations

import pytest

from ..sample_log import columns, write_csv

PUBLIC = {
    "units": "40", "horizon": "3", "reward": "[0, 1]", "actions": "2", "max_importance_ratio": "2", "observation": "[",
}  # fmt: skip


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write_csv(columns(), tmp_path / "log.csv")


def test_a_first_answer(dprl, log, tmp_path):
    assert dprl("data", "template", log).code == 0
    bounds = tmp_path / "bounds.toml"
    asked = ("log.csv", "--bounds", bounds, "--target-policy", "uniform", "--epsilon", 1, "--delta", 1e-5)
    refused = dprl("plan", *asked)
    assert refused.code == 2
    assert 'still has "?" at units, horizon, reward, observation' in refused.err
    lines = [line.partition(" = ") for line in bounds.read_text().splitlines()]
    text = "\n".join(f"{a} = {PUBLIC[a]}" if a in PUBLIC else a + b + c for a, b, c in lines)
    bounds.write_text(text.replace('["?", "?"]', "[-100, 100]"))
    assert dprl("plan", *asked).code == 0
    found = dprl("evaluate", *asked, "--out", "results")
    assert found.code == 0, found.err
    assert (tmp_path / "results" / "report.html").is_file()


def test_a_file_that_is_there_is_kept(dprl, log, tmp_path):
    (tmp_path / "bounds.toml").write_text("units = 1")
    refused = dprl("data", "template", log)
    assert (refused.code, refused.out) == (2, "")
    assert "is there already" in refused.err
    assert (tmp_path / "bounds.toml").read_text() == "units = 1"
    assert dprl("data", "template", log, "--out", tmp_path / "no" / "bounds.toml").code == 2
