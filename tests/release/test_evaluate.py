"""The Python front door: what goes in, what comes out, and what it is called."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dprl
from dprl.accounting import verification
from dprl.accounting.events import from_json
from dprl.accounting.ledger import Ledger

from ..sample_log import BOUNDS, BOUNDS_TOML, columns, in_lists, write_parquet

LOG = columns()
BUDGET = dprl.Budget(1.0, 1e-5)
SAMPLING = dprl.ImportanceSampling()
RELATION = "add or remove one"


def mostly(states):
    p = np.where(states[:, 0] < 5.0, 0.9, 0.2)
    return np.stack([p, 1.0 - p], axis=1)


def evaluate(log=LOG, policy="uniform", **changes):
    options = {"budget": BUDGET, "bounds": BOUNDS, "person": "person_id", "algorithm": SAMPLING, "seed": 0} | changes
    return dprl.evaluate(log, policy, **options)


def test_the_example_of_the_readme():
    """Budget by keyword, a log in memory, nothing else said."""
    release = dprl.evaluate(LOG, mostly, budget=dprl.Budget(1.0, 1e-5), bounds=BOUNDS, algorithm=dprl.GPOPE(steps=4))
    assert release.interval[0] < release.value < release.interval[1]
    assert release.certificate["status"] == "verified"
    assert release.certificate["noise"]["secure"] is True
    assert release.certificate["privacy_unit"] == "person"  # the log has a column person_id
    values = release.value_function(np.array([[1.0, 2.0], [3.0, 4.0]]))
    low, high = BOUNDS.value_interval(0.99)
    assert values.shape == (2,)
    assert ((low <= values) & (values <= high)).all()


def test_opened_once_evaluated_later(tmp_path):
    bounds = tmp_path / "bounds.toml"
    bounds.write_text(BOUNDS_TOML)
    path = write_parquet(LOG, tmp_path / "log.parquet")
    log = dprl.read_log(path, bounds=bounds, person="person_id")
    release = dprl.evaluate(log, "uniform", BUDGET, algorithm=SAMPLING, seed=0)
    assert release.estimate["targets"] == evaluate().estimate["targets"]
    assert release.estimate["request"]["log"] == "log.parquet"


def test_trajectories_that_were_loaded_already():
    trajectories = dprl.read_log(LOG, bounds=BOUNDS, person="person_id", target_columns=["target_prob"]).load()
    assert isinstance(trajectories, dprl.Trajectories)
    release = dprl.evaluate(trajectories, ["uniform", "column"], BUDGET, algorithm=SAMPLING, seed=0)
    assert release.estimate["targets"] == evaluate(policy=["uniform", "column"]).estimate["targets"]
    assert release.certificate["privacy_unit"] == "person"
    with pytest.raises(dprl.DprlError, match="no target probabilities called 'other'"):
        dprl.evaluate(trajectories, "column:other", BUDGET, algorithm=SAMPLING)


def test_policies_of_every_kind():
    policies = {"a": "uniform", "b": mostly, "c": "column:target_prob", "d": dprl_policy()}
    release = evaluate(policy=policies)
    assert list(release.values) == list("abcd")
    assert release.certificate["assumed_public"]["policies"] == list("abcd")
    named = evaluate(policy=[mostly, mostly, "uniform"])
    assert list(named.values) == ["mostly", "mostly_1", "uniform"]
    assert named.value == named.values["mostly"].value


def dprl_policy():
    from dprl.policies import SoftmaxPolicy

    return SoftmaxPolicy(np.zeros((3, 2)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"policy": []}, "at least one target policy"),
        ({"policy": 5}, "must be a callable"),
        ({"bounds": None}, "bounds are missing"),
        ({"dataset": "x"}, "no ledger"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"budget": dprl.Budget(1.0, 0.5)}, "at least 1/units"),
    ],
)
def test_requests_that_make_no_sense(changes, words):
    with pytest.raises(dprl.DprlError, match=words):
        evaluate(**changes)


def test_a_log_opened_without_the_policy_s_column():
    log = dprl.read_log(LOG, bounds=BOUNDS)
    with pytest.raises(dprl.DprlError, match="target_columns"):
        dprl.evaluate(log, "column:target_prob", BUDGET, algorithm=SAMPLING)


def test_continuous_actions_need_a_column():
    log = {**{k: v for k, v in in_lists(LOG).items() if k != "action"}, "action": [[0.5]] * len(LOG["t"])}
    bounds = replace(BOUNDS, actions=None, action=((0.0, 1.0),))
    for policy in ("uniform", mostly):
        with pytest.raises(dprl.DprlError, match="column"):
            evaluate(log, policy, bounds=bounds)
    assert evaluate(log, "column:target_prob", bounds=bounds).estimate["targets"][0]["name"] == "target_prob"


# --- what a release is called -------------------------------------------------------------------------------------

STATUS = {
    "private": ({"seed": None}, "verified", "certificate.json"),
    "seeded": ({"seed": 7}, "not private", "statement.json"),
    "simulated": ({"seed": None, "simulated": True}, "not private", "statement.json"),
    "seeded and simulated": ({"seed": 7, "simulated": True}, "not private", "statement.json"),
    "as published": (
        {"seed": None, "algorithm": dprl.GPOPE(steps=4, calibration="as-published")}, "as published", "statement.json"),
    "as published and seeded": (
        {"seed": 7, "algorithm": dprl.GPOPE(steps=4, calibration="as-published")}, "not private", "statement.json"),
}  # fmt: skip


@pytest.mark.parametrize("kind", STATUS)
def test_the_status_and_the_file_that_carries_it(tmp_path, kind):
    changes, status, file = STATUS[kind]
    release = evaluate(**changes)
    paths = release.save(tmp_path / "results")
    assert set(paths) == {p.name for p in (tmp_path / "results").iterdir()}
    assert {"certificate.json", "statement.json"} & set(paths) == {file}
    for name in (file, "estimate.json"):
        assert json.loads(paths[name].read_text())["status"] == status
    references = [t["reference"] for t in release.estimate["targets"]]
    assert all((r is not None) == ("simulated" in kind) for r in references)
    found = verification.verify(tmp_path / "results")
    assert found.private == (status == "verified")
    assert found.path == tmp_path / "results" / file
    assert ("not a private release" in release.certificate["noise"]["source"]) == ("seeded" in kind)
    # the page says it in words
    assert status in paths["report.html"].read_text().lower()


def test_the_reference_is_the_estimate_without_noise():
    """For the mean of returns, each cut off at the bounds: the target policy is the behaviour policy."""
    release = evaluate(
        simulated=True, algorithm=dprl.ImportanceSampling(discount=1.0, estimator="trajectory"), person=None,
        unit="trajectory", bounds=replace(BOUNDS, max_importance_ratio=1.0, units=len(set(LOG["episode_id"]))),
    )  # fmt: skip
    returns: dict[str, float] = {}
    for episode, reward in zip(LOG["episode_id"], LOG["reward"], strict=True):
        returns[episode] = returns.get(episode, 0.0) + reward
    (target,) = release.estimate["targets"]
    assert target["reference"] == pytest.approx(np.mean(list(returns.values())))
    assert target["value"] != target["reference"]


def test_a_seed_makes_the_noise_and_nothing_else_reproducible():
    assert evaluate(seed=3).estimate == evaluate(seed=3).estimate
    assert evaluate(seed=3).value != evaluate(seed=4).value
    assert evaluate(seed=None).value != evaluate(seed=None).value


def test_the_certificate_says_what_was_done():
    release = evaluate(algorithm=dprl.GPOPE(steps=4, discount=0.9), features="fourier:1", seed=None)
    stated = release.certificate
    assert stated["event"] == json.loads(json.dumps(stated["event"]))
    assert from_json(stated["event"]) is not None
    assert stated["neighbouring_relation"] == RELATION
    assert stated["epsilon_of_event"] <= stated["epsilon"] == 1.0
    assert stated["delta_of_event"] + stated["delta_sampler"] <= stated["delta"] * (1 + 1e-12)
    assert stated["assumed_public"]["bounds"] == BOUNDS.in_force()
    options = stated["assumed_public"]["hyper_parameters"]
    assert options["discount"] == {"value": 0.9, "provenance": "set in code (stated public)"}
    assert options["confidence"]["provenance"] == "library default (public)"
    assert options["features"]["value"] == "fourier:1"
    assert all(entry["provenance"] for entry in options.values())
    assert [m["steps"] for m in stated["mechanisms"]] == [1, 4]
    assert sum(m["share"] for m in stated["mechanisms"]) == pytest.approx(1.0)
    assert set(stated["versions"]) >= {"dprl", "python", "jax", "dp_accounting", "numpy"}


# --- the ledger ---------------------------------------------------------------------------------------------------


@pytest.fixture
def ledger(tmp_path):
    return Ledger.create(tmp_path / "ledger.db", "trial", dprl.Budget(2.0, 2e-5), "person", RELATION)


@pytest.mark.parametrize("as_path", [True, False])
def test_charged_at_once_and_finished_when_saved(tmp_path, ledger, as_path):
    release = evaluate(seed=None, ledger=ledger.path if as_path else ledger, dataset="trial")
    (charge,) = ledger.history()
    assert charge.digest is None
    assert (float(charge.amount.epsilon), float(charge.amount.delta)) == (1.0, 1e-5)
    paths = release.save(tmp_path / "results")
    (charge,) = ledger.history()
    assert charge.digest == json.loads(paths["certificate.json"].read_text())["digest"]
    assert json.loads(paths["certificate.json"].read_text())["ledger"]["charge"] == charge.id


def test_the_third_release_of_a_budget_for_two_is_refused(ledger):
    for _ in range(2):
        evaluate(ledger=ledger, dataset="trial")
    with pytest.raises(dprl.OverspendError, match="epsilon 0 and delta 0 left"):
        evaluate(ledger=ledger, dataset="trial")
    assert len(ledger.history()) == 2


def exits(states):
    raise SystemExit(0)


@pytest.mark.parametrize(
    "changes",
    [{"policy": "greedy"}, {"features": "deep", "algorithm": dprl.GPOPE()}, {"budget": dprl.Budget(3.0, 1e-5)},
     {"person": "patient"}, {"person": None, "unit": "trajectory"}, {"dataset": "other"}, {"policy": lambda s: 1 / 0},
     {"policy": exits}, {"seed": -1},
     {"log": {k: v[:-1] if k == "t" else v for k, v in LOG.items()}},
     {"log": pa.table({**LOG, "reward": ["x"] * len(LOG["t"])})}],
)  # fmt: skip
def test_a_refused_request_costs_nothing(ledger, changes):
    with pytest.raises(dprl.DprlError):
        evaluate(**{"ledger": ledger, "dataset": "trial"} | changes)
    assert ledger.history() == []


def test_a_release_does_not_print_what_it_saw():
    release = evaluate()
    assert "person-0" not in repr(release)
    assert "person-0" not in json.dumps(release.estimate) + json.dumps(release.certificate)


def test_empty_outcomes_are_among_what_weights_below_one_may_come_from():
    rows = {"observation_0": [0.0, 1.0] * 500, "action": [0, 1] * 500, "behavior_prob": [0.5] * 1000}
    bounds = dprl.Bounds(
        units=1000, horizon=1, reward=(0.0, 1.0), observation=((0.0, 1.0),), actions=2, max_importance_ratio=2.0
    )
    asked = {"bounds": bounds, "person": None, "unit": "trajectory", "policy": "always:1"}
    for empty in (0, 600):
        release = evaluate(rows | {"reward": [0.5] * (1000 - empty) + [None] * empty}, **asked)
        (*weights,) = (said for said in release.estimate["cautions"] if "add up to" in said)
        assert len(weights) == (empty > 0)
    assert "to 1: rows that contribute nothing, such as empty outcomes" in weights[0]
    assert "`dprl data describe`" in weights[0]
    assert "`censored`" in weights[0]


def test_an_algorithm_may_be_given_by_its_name():
    asked: dict[str, Any] = {"bounds": BOUNDS, "person": "person_id", "seed": 3}
    one, other = (
        dprl.evaluate(columns(), "uniform", dprl.Budget(1.0, 1e-6), algorithm=algorithm, **asked)
        for algorithm in ("doubly-robust", dprl.DoublyRobust())
    )
    assert one.estimate == other.estimate
    with pytest.raises(dprl.DprlError, match="There is no algorithm 'double-robust'"):
        dprl.evaluate(columns(), "uniform", dprl.Budget(1.0, 1e-6), algorithm="double-robust", **asked)
