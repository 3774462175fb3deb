"""``dprl train``: what it prints, and that what is wrong with a request is one sentence and exit code 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dprl.accounting.budget import Budget
from dprl.accounting.ledger import Ledger
from dprl.accounting.reward_relation import RewardRelation
from dprl.environments.bandit import Bandit
from dprl.learning import planned_q

from ..interruption import interrupted
from .conftest import flags

UNIT = "reward function"
SMOOTH = RewardRelation(0.01, 0.04).words()

# what is added to, or taken from, a request that is right -> what the sentence must say
MISTAKES = {
    "no environment": ({"environment": None}, "--environment is missing"),
    "no epsilon": ({"epsilon": None}, "--epsilon is missing"),
    "no delta": ({"delta": None}, "--delta is missing"),
    "no folder": ({"out": None}, "--out is missing"),
    "no radius": ({"reward-radius": None}, "give reward_radius, or people"),
    "unknown environment": ({"environment": "walk"}, "use interval-walk or gymnasium:ID"),
    "unknown algorithm": ({"algorithm": "gpope"}, "no algorithm 'gpope'; there are functional-q, dp-pg"),
    "another's option": ({"users": 100}, "--users is an option of dp-pg, not of functional-q: leave it out"),
    "another's setting": ({"set": "clip_norms=1"}, "no option 'clip_norms'"),
    "unknown variant": ({"variant": "magic"}, "variant of FunctionalQ must be functional or observed-reward"),
    "unknown option": ({"set": "radius=1"}, "no option 'radius'"),
    "small delta": ({"delta": 1e-14}, "delta is too small"),
    "no ledger": ({"dataset": "tutor"}, "give --ledger FILE"),
    "no dataset": ({"ledger": "l.db"}, "give --dataset NAME"),
    "absent ledger": (
        {"ledger": "absent.db", "dataset": "tutor"},
        f"no ledger at absent.db; make one with `dprl ledger create`, --unit '{UNIT}' and --relation '{SMOOTH}'",
    ),
    "unknown dataset": (
        {"ledger": "l.db", "dataset": "pupil"},
        f"declare it with `dprl ledger create`, --unit '{UNIT}' and --relation '{SMOOTH}'",
    ),
    "another radius": ({"ledger": "l.db", "dataset": "tutor", "reward-radius": 0.02}, "of the action, at most 0.02"),
    "overspent": ({"ledger": "l.db", "dataset": "tutor", "epsilon": 2}, "epsilon 1 and delta 0.0002 left for 'tutor'"),
    "full folder": ({"out": "full"}, "is not empty"),
    "no key": ({"sign": "absent.pem"}, "absent.pem"),
    "run file": ({"config": "absent.toml"}, "Cannot read the run file"),
}


def arguments(**changes: object) -> list[object]:
    options: dict[str, object] = {
        "environment": "interval-walk", "variant": "output", "reward-radius": 0.01, "epsilon": 0.9, "delta": 1e-4,
        "out": "q",
    }  # fmt: skip
    options |= changes
    algorithm = options.pop("algorithm", "functional-q")
    return ["train", algorithm, *flags(options)]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working folder with a ledger and a folder that is not empty."""
    monkeypatch.chdir(tmp_path)
    Ledger.create("l.db", "tutor", Budget(1.0, 2e-4), UNIT, SMOOTH)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note").write_text("x")
    return tmp_path


def test_what_is_printed(dprl, place):
    found = dprl(*arguments(ledger="l.db", dataset="tutor")).done()
    assert found.out.splitlines() == [
        "verified: epsilon 0.9, delta 0.0001 per reward function",
        f"neighbours: {SMOOTH}",
        "states, actions and transitions are not protected",
        "report: q/report.html",
    ]
    assert "Recomputed from its event" in dprl("verify", "q").out
    assert dprl("report", "q").out == "q/report.html\n"
    assert f"tutor  (unit: {UNIT}, {SMOOTH})" in dprl("ledger", "show", "l.db").out
    dprl(*arguments(ledger="l.db", dataset="tutor", out="again")).refused("epsilon 0.1 and delta 0.0001 left")
    seeded = dprl(*arguments(seed=1, out="s", json=True))
    printed = json.loads(seeded.out)
    assert (printed["status"], printed["returns"]) == ("not private", None)
    assert printed["neighbouring_relation"] == SMOOTH
    assert set(printed["paths"]) == {"training.json", "q_function.safetensors", "report.html", "statement.json"}
    (place / "run.toml").write_text('environment = "interval-walk"\nvariant = "output"\npeople = 50\nepsilon = 0.9\n')
    found = dprl("train", "--config", "run.toml", "--delta", "1e-4", "--out", "r")
    assert f"neighbours: {SMOOTH}" in found.out
    assert "no ledger: nothing was charged" in found.out


def test_an_interruption_releases_nothing(dprl, place):
    with interrupted(planned_q, "released_q"):
        found = dprl(*arguments(ledger="l.db", dataset="tutor"))
    assert (found.code, found.out) == (130, "")
    assert found.err == (
        "error: interrupted; nothing was released, and what was charged stays charged; the same command begins anew.\n"
    )
    assert not (place / "q").exists()
    (charge,) = Ledger.open("l.db").history()
    assert charge.digest is None


# --- learning from people -----------------------------------------------------------------------------------------

MISTAKES_WITH_PEOPLE = {
    "another's option": ({"samples": 100}, "--samples is an option of functional-q, not of dp-pg: leave it out"),
    "another's radius": ({"reward-radius": 0.1}, "--reward-radius is an option of functional-q, not of dp-pg"),
    "another's setting": ({"set": "variant=gradient"}, "DPPG has no option 'variant'"),
    "no environment": ({"environment": None}, "--environment is missing: interval-walk, cart-pole"),
    "no bounds": ({"bounds": None}, "bounds are missing"),
    "units": ({"users": 59}, "users must be the 60 units that the bounds declare"),
    "relation": ({"relation": "replace"}, "relation of DPPG must be zero-out or replace-one"),
    "delta": ({"delta": 0.1}, "at least 1/units"),
    "columns": ({"environment": "bandit:bounds.toml"}, "must be a .parquet or .csv file"),
    "unknown environment": ({"environment": "shop", "bounds": None}, "use acrobot, cart-pole, linear-bandit"),
    "another relation": (
        {"ledger": "p.db", "dataset": "shop", "relation": "replace-one"},
        "a release by relation 'replace one'",
    ),
}


@pytest.fixture
def shop(place):
    """With a file of arriving people, and their ledger."""
    names = ",".join(["person_id", "observation_0", "reward_0", "reward_1"])
    rows = [f"p{i},{i % 7 / 7},{i % 3 / 3},{i % 2}" for i in range(60)]
    (place / "b.csv").write_text("\n".join([names, *rows]) + "\n")
    (place / "bounds.toml").write_text("units = 60\nactions = 2\nreward = [0, 1]\nobservation = [[0, 1]]\n")
    Ledger.create("p.db", "shop", Budget(1.5, 2e-6), "person", "zero out one")
    return place


def asked_of_people(**changes: object) -> list[object]:
    own = {"algorithm": "dp-pg", "environment": "bandit:b.csv", "bounds": "bounds.toml", "variant": None, "epsilon": 1,
           "delta": 1e-6, "reward-radius": None, "out": "p"}  # fmt: skip
    return arguments(**own | changes)


WRONG = [("rewards", name) for name in MISTAKES] + [("people", name) for name in MISTAKES_WITH_PEOPLE]


@pytest.mark.parametrize(("of", "case"), WRONG)
def test_a_mistake_is_one_sentence_and_costs_nothing(dprl, shop, of, case, monkeypatch):
    for owner, name in ((planned_q, "released_q"), (Bandit, "batch")):
        monkeypatch.setattr(owner, name, lambda *_: pytest.fail("a reward, or a person, was asked for"))
    request, mistakes = (arguments, MISTAKES) if of == "rewards" else (asked_of_people, MISTAKES_WITH_PEOPLE)
    changes, sentence = mistakes[case]
    dprl(*request(**changes)).refused(sentence)
    assert not any((shop / out).exists() for out in ("q", "p"))
    assert Ledger.open("l.db").history() == Ledger.open("p.db").history() == []


def test_what_is_printed_of_people(dprl, shop):
    found = dprl(*asked_of_people(ledger="p.db", dataset="shop", steps=3)).done()
    assert found.out.splitlines() == [
        "verified: epsilon 1, delta 1e-06 per person, zero out one",
        "60 places in 3 batches of 20; noise multiplier 4.225 (standard deviation over sensitivity)",
        "People are told apart by name: each has one place, at the first visit, and answers there alone.",
        "report: p/report.html",
    ]
    assert "per person, zero out one; unsigned" in dprl("verify", "p").out
    assert dprl("report", "p").out == "p/report.html\n"
    dprl(*asked_of_people(ledger="p.db", dataset="shop", out="again")).refused("epsilon 0.5 and delta 1e-6 left")
    (shop / "run.toml").write_text('environment = "bandit:b.csv"\nbounds = "bounds.toml"\nsteps = 3\nepsilon = 1\n')
    flags = ["--relation", "replace-one", "--delta", "1e-6", "--seed", "1", "--out", "s", "--json"]
    printed = dprl("train", "dp-pg", "--config", "run.toml", *flags).json()
    assert (printed["status"], printed["neighbouring_relation"], printed["steps"]) == ("not private", "replace one", 3)
    assert set(printed["paths"]) == {"training.json", "policy.safetensors", "report.html", "statement.json"}
    released = dprl("simulate", "chain", "--policy", "p", "--episodes", "2", "--out", "c.csv")
    assert released.code == 2  # of another observation
    assert Path("p").is_dir()
