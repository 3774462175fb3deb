"""``dprl audit``: what it prints, what it writes, and what it refuses."""

from __future__ import annotations

import json
import re

import pytest

from dprl.audits import audit
from dprl.registry import attackable_entries

PUBLISHED = ("audit", "gpope", "--calibration", "as-published", "--units", 200, "--steps", 200, "--epsilon", 1)


def test_what_can_be_audited(dprl):
    for arguments in (("audit",), ("audit", "--list")):
        found = dprl(*arguments).done()
        for name, entry in attackable_entries().items():
            assert f"{name}: {entry.summary}" in found.out
            assert f"{name}: {entry.summary}\n    calibrations: verified" in found.out
        assert "    calibrations: verified, as-published; 8 standard attacks" in found.out
    listed = dprl("audit", "--list", "--json").json()
    assert set(listed) == set(attackable_entries())


def test_a_claim_that_is_false(dprl):
    """Exit code 0: a finding is no error. The theorem's conditions stand beside it, with the numbers of the case."""
    found = dprl(*PUBLISHED, "--delta", "1e-5", "--trials", 4000).done()
    lines = found.out.splitlines()
    assert lines[0] == "gpope, as published, claims epsilon 1 at delta 1e-05"
    assert lines[1].startswith("attacked: all of 200 records push one way, and one of them is replaced")
    bound = re.fullmatch(
        r"epsilon is at least (\d\.\d{3}) \(95% confidence, by counting alone: 4000 runs on each of the two datasets, "
        r"after 1000 others chose the threshold\)",
        lines[2],
    )
    assert bound is not None
    assert float(bound[1]) > 3.0
    assert lines[3].startswith("Theorem 1's proof needs sigma >= 1.201, and sigma is 0.4799: this does not hold")
    assert "Gaussian" not in found.out
    assert lines[-2].startswith("verdict: violated.")
    assert re.fullmatch(r"\d+\.\d seconds", lines[-1])


def test_conditions_that_hold(dprl):
    found = dprl("audit", "gpope", "--calibration", "as-published", "--units", 20, "--steps", 20, "--trials", 200)
    assert "Theorem 1's proof needs sigma >= 1.201, and sigma is 1.517: this holds here" in found.out


def test_a_privacy_unit(dprl):
    found = dprl("audit", "td", "--unit", "person", "--steps", 3, "--trials", 200, "--json")
    result = json.loads(found.out)
    assert (found.code, result["unit"], result["verdict"]) == (0, "person", "not violated")
    assert "a person with 3 trajectories" in result["description"]
    refused = dprl("audit", "td", "--unit", "transition", "--trials", 200)
    refused.refused("no statement for the privacy unit transition")
    dprl("audit", "stratified", "--unit", "person").refused("is not attacked through columns, whose log has no strata")


def test_json_is_one_object(dprl):
    arguments = ("audit", "importance-sampling", "--trials", 20_000, "--seed", 3, "--confidence", 0.9, "--json")
    found = dprl(*arguments).done()
    assert found.out.count("\n") == 1
    result = json.loads(found.out)
    assert {"epsilon_lower", "claimed_epsilon", "delta", "trials", "verdict"} <= set(result)
    assert (result["algorithm"], result["calibration"], result["released"]) == (
        "importance-sampling",
        "verified",
        "all",
    )
    assert (result["claimed_epsilon"], result["delta"], result["confidence"]) == (1.0, 1e-5, 0.9)
    assert (result["trials"], result["selection_trials"], result["seed"]) == (20_000, 5_000, 3)
    assert result["verdict"] == "not violated"
    assert 0.2 < result["epsilon_lower"] < result["gaussian"]["epsilon_lower"] < 1.0
    assert result["preconditions"] == []
    again = dprl(*arguments).json()
    assert {k: v for k, v in again.items() if k != "seconds"} == {k: v for k, v in result.items() if k != "seconds"}
    words = dprl(*arguments[:-1]).out
    # rounded down: what is printed is a lower bound too
    for bound in (result["epsilon_lower"], result["gaussian"]["epsilon_lower"]):
        (printed,) = [x for x in re.findall(r"at least (\d\.\d+) \(", words) if abs(float(x) - bound) < 1e-3]
        assert float(printed) <= bound
    assert "verdict: not violated. This attack shows no more than the claim allows, which is no proof of it" in words


def test_options_are_those_of_the_algorithm(dprl):
    found = dprl(
            "audit", "gpope", "--steps", 3, "--sampling-rate", 0.5, "--set", "clip_norm=2",
            "--set", "value_budget_fraction=0.5",
            "--epsilon", 2, "--delta", "1e-4", "--units", 50, "--trials", 500, "--json",
        ).json()  # fmt: skip
    assert found["options"] == {"steps": 3, "sampling_rate": 0.5, "clip_norm": 2.0, "value_budget_fraction": 0.5}
    assert (found["units"], found["claimed_epsilon"], found["delta"]) == (50, 2.0, 1e-4)
    assert found["description"].startswith("one record at full clip norm is added to an empty log")
    assert found["gaussian"] is None


REFUSALS = {
    "unknown algorithm": (("nothing",), "There is no algorithm 'nothing'"),
    "steps of what has none": (("importance-sampling", "--steps", 4), "--steps is an option of gpope, td"),
    "rate of what has none": (("importance-sampling", "--sampling-rate", 0.5), "not of importance-sampling"),
    "last of what has none": (("importance-sampling", "--released", "last"), "all that it releases"),
    "calibration that is none": (
        ("gpope", "--calibration", "hoped"),
        "it has verified, as-published",
    ),
    "calibration that it lacks": (("importance-sampling", "--calibration", "as-published"), "no calibration"),
    "calibration set elsewhere": (("gpope", "--set", "calibration=as-published"), "give --calibration"),
    "rate as published": (("gpope", "--calibration", "as-published", "--sampling-rate", 0.1), "sampling_rate"),
    "released": (("gpope", "--released", "some"), "say 'all' or 'last'"),
    "no trials": (("gpope", "--trials", 0), "trials must be a whole number from 100"),
    "certainty": (("gpope", "--confidence", 1), "confidence must be above 0.5 and below 1"),
    "unknown option": (("gpope", "--set", "stepps=3"), "no option 'stepps'"),
    "multiplier that costs more": (("gpope", "--set", "noise_multiplier=0.5", "--steps", 9), "more than the budget"),
    "algorithm and all": (("gpope", "--all"), "Name one algorithm"),
    "option and all": (("--all", "--steps", 4), "--steps needs the name of an algorithm"),
    "option and list": (("--epsilon", 2), "--epsilon needs the name of an algorithm"),
    "trials and list": (("--trials", 200), "--trials needs the name"),
    "all and list": (("--all", "--list"), "one of --all, --neighbours and --list"),
    "all without trials": (("--all", "--trials", 3), "trials must be a whole number from 100"),
    "neighbours and trials": (("--neighbours", "--trials", "500"), "leaves nothing to chance"),
    "neighbours without a page": (("--neighbours", "--out", "no.md"), "There is no page"),
    "out without all": (("gpope", "--out", "x.md"), "--out is for the page"),
    "out nowhere": (("--all", "--out", "/no/such/folder/x.md"), "no such folder"),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_refusals_are_one_sentence(dprl, what):
    arguments, sentence = REFUSALS[what]
    dprl("audit", *arguments).refused(sentence)


@pytest.fixture(params=["a few", pytest.param("all", marks=pytest.mark.slow)])
def quick(request, monkeypatch):
    """The standard attacks of some algorithms, or of all: the first of each calibration."""
    few = ("gpope", "importance-sampling")
    # but for Algorithm 1 of paper 001, which takes long to compile
    long = ("functional-q", "as-published")
    everything = [
        (e, a)
        for e, a in audit.standard_attacks()
        if (e.name, e.calibration) != long and (request.param == "all" or e.name in few)
    ]
    first = {(entry.name, entry.calibration): (entry, attack) for entry, attack in reversed(everything)}
    monkeypatch.setattr(audit, "standard_attacks", lambda: iter(first.values()))
    return list(first.values())


def test_the_page_is_made_of_the_standard_attacks(dprl, tmp_path, quick):
    out = tmp_path / "audits.md"
    found = dprl("audit", "--all", "--trials", 300, "--out", out)
    assert (found.code, found.out, found.err) == (0, f"{out}\n", "")
    text = out.read_text()
    assert "`dprl audit --all --trials 300`" in text
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) == len(quick)
    for row, (entry, attack) in zip(rows, quick, strict=True):
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert cells[0] == f"`{entry.name}`"
        assert cells[1] == entry.calibration.replace("-", " ")
        assert cells[3] == attack.released
        assert cells[4] == f"{attack.epsilon:g}, {attack.delta:g}"
        assert cells[8] == "300"
    # and says of each how to run it alone, in words that the command line takes
    for line in re.search(r"```\n(.*)```", text, flags=re.DOTALL)[1].splitlines():  # type: ignore[index]
        assert dprl(*line.split()[1:-1], 300).code == 0


def test_all_as_json(dprl, quick):
    found = dprl("audit", "--all", "--trials", 300, "--json").json()["audits"]
    assert [(row["algorithm"], row["calibration"]) for row in found] == [(e.name, e.calibration) for e, _ in quick]
    assert all(row["trials"] == 300 for row in found)


def test_a_bar_only_on_a_terminal(dprl, monkeypatch):
    assert dprl("audit", "importance-sampling", "--trials", 200).err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert dprl("audit", "importance-sampling", "--trials", 200).code == 0


def test_a_whole_release_in_two_parts(dprl):
    """The command that the published page states, and what it refuses."""
    found = dprl("audit", "learn", "--set", "choosing_share=0.95", "--trials", 100, "--json")
    result = json.loads(found.out)
    assert (found.code, result["algorithm"], result["verdict"]) == (0, "learn", "not violated")
    assert result["options"] == {"choosing_share": 0.95}
    dprl("audit", "learn", "--set", "learner=nobody", "--trials", 100).refused("learner")
