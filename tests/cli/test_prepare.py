"""``dprl data prepare`` and ``dprl data template``: from a table, or a log of one's own, to a release.

A release of the table itself is the same, and nothing is overwritten.
"""

from __future__ import annotations

import json
import random

import pytest

from ..sample_log import columns, write_csv

BOUNDS = """
units = 40
horizon = 2
reward = [0, 100]
observation = [[18, 90], [0, 100], [0, 1], [0, 1]]
actions = 2
max_importance_ratio = 2

[prepare]
person = "patient"
steps = ["1", "2", "3"]
observation = ["age", "score{step}", "site"]
action = "arm{step}"
reward = "score{next}"
outcome = "last"
behavior_prob = 0.5
[prepare.codes]
"arm{step}" = ["control", "drug"]
site = ["Basel", "Zürich"]
"""


@pytest.fixture
def trial(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = random.Random(0)
    lines = ["patient,site,age,arm1,arm2,score1,score2,score3"]
    for i in range(40):
        arms = [rng.choice(["control", "drug"]) for _ in range(2)]
        lines.append(f"PATIENT-{i},{rng.choice(['Basel', 'Zürich'])},{rng.randint(18, 90)},{','.join(arms)},1,2,{i}")
    (tmp_path / "trial.csv").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "bounds.toml").write_text(BOUNDS, encoding="utf-8")
    return tmp_path


def asked(log: str, *more: object) -> tuple[object, ...]:
    return (log, "--bounds", "bounds.toml", "--target-policy", "always:1", "--epsilon", 1, "--delta", 1e-5, *more)


def test_a_table_is_prepared_planned_and_evaluated(dprl, trial):
    prepared = dprl("data", "prepare", "trial.csv", "--bounds", "bounds.toml", "--out", "log.parquet").done()
    assert "observation_3: site = Zürich\n" in prepared.out
    assert "PATIENT" not in prepared.out
    plans = [dprl("plan", *asked(log)) for log in ("trial.csv", "log.parquet")]
    assert [plan.code for plan in plans] == [0, 0], plans
    assert plans[0].out == plans[1].out
    # the outcome is the return: where nobody says so, it could be twice as large
    advice = "returns are taken to lie between 0 and 199: declare return_range"
    assert advice in plans[0].out
    (trial / "tighter.toml").write_text("return_range = [0, 100]\n" + BOUNDS, encoding="utf-8")
    tighter = dprl("plan", *(arg if arg != "bounds.toml" else "tighter.toml" for arg in asked("trial.csv"))).done()
    assert advice not in tighter.out
    for outcome, advised in (("sum", True), ("each", False)):
        (trial / "other.toml").write_text(
            BOUNDS.replace('outcome = "last"', f'outcome = "{outcome}"'), encoding="utf-8"
        )
        other = dprl("plan", *(arg if arg != "bounds.toml" else "other.toml" for arg in asked("trial.csv"))).done()
        assert (advice in other.out) == advised
    values = []
    for log, out in (("trial.csv", "a"), ("log.parquet", "b")):
        dprl("evaluate", *asked(log, "--seed", 1, "--algorithm", "importance-sampling", "--out", out)).done()
        public = json.loads((trial / out / "statement.json").read_text())["assumed_public"]
        assert public["prepare"]["person"] == "patient"
        assert dprl("verify", out).code == 0
        values.append(json.loads((trial / out / "estimate.json").read_text())["targets"])
    assert values[0] == values[1]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('person = "patient"\n', "", "[prepare]: person is missing"),
        ('"patient"', '"name"', "no column 'name', which [prepare] names under person"),
        ("[prepare", "[prepared", "unknown name 'prepared'"),
    ],
)
@pytest.mark.parametrize("command", ["prepare", "plan", "evaluate"])
def test_what_is_declared_wrongly(dprl, trial, command, old, new, words):
    (trial / "bounds.toml").write_text(BOUNDS.replace(old, new), encoding="utf-8")
    before = sorted(trial.iterdir())
    evaluated = asked("trial.csv", *(("--out", "out") if command == "evaluate" else ()))
    prepared = ("data", "prepare", "trial.csv", "--bounds", "bounds.toml")
    found = dprl(*(prepared if command == "prepare" else (command, *evaluated)))
    found.refused(words)
    assert found.err.endswith(".\n")
    assert sorted(trial.iterdir()) == before


def test_what_the_cells_hold_is_never_said(dprl, trial):
    def outputs() -> tuple[int, str, str]:
        (trial / "log.parquet").unlink(missing_ok=True)
        prepared = dprl("data", "prepare", "trial.csv", "--bounds", "bounds.toml")
        return prepared.code, prepared.out, prepared.err

    header, _, rows = (trial / "trial.csv").read_text(encoding="utf-8").partition("\n")
    expected = outputs()
    assert expected[0] == 0
    for old, new in {"Basel": "Genf", "drug": "", "PATIENT-3": "", "1,2": "x,y", "\n": "\r\n\r\n", ",": ",,"}.items():
        (trial / "trial.csv").write_text(f"{header}\n{rows.replace(old, new)}", encoding="utf-8")
        assert outputs() == expected


def test_a_file_that_is_there_is_kept(dprl, trial):
    (trial / "log.parquet").write_text("mine")
    dprl("data", "prepare", "trial.csv", "--bounds", "bounds.toml").refused()
    assert (trial / "log.parquet").read_text() == "mine"
    dprl("data", "prepare", "trial.csv", "--bounds", "bounds.toml", "--out", "no/log.parquet").refused()


# --- bounds to fill in --------------------------------------------------------------------------------------------

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
    dprl("plan", *asked).refused('still has "?" at units, horizon, reward, observation')
    lines = [line.partition(" = ") for line in bounds.read_text().splitlines()]
    text = "\n".join(f"{a} = {PUBLIC[a]}" if a in PUBLIC else a + b + c for a, b, c in lines)
    bounds.write_text(text.replace('["?", "?"]', "[-100, 100]"))
    assert dprl("plan", *asked).code == 0
    dprl("evaluate", *asked, "--out", "results").done()
    assert (tmp_path / "results" / "report.html").is_file()


def test_bounds_that_are_there_are_kept(dprl, log, tmp_path):
    (tmp_path / "bounds.toml").write_text("units = 1")
    dprl("data", "template", log).refused("is there already")
    assert (tmp_path / "bounds.toml").read_text() == "units = 1"
    assert dprl("data", "template", log, "--out", tmp_path / "no" / "bounds.toml").code == 2
