"""Do nominal intervals hold the truth? A quick form of ``make coverage``, and the checks of its oracles."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.coverage import laws, measure, page
from benchmarks.coverage.domains import Arms, Paths, Population, Process, TablePolicy
from benchmarks.coverage.rows import ROWS, Row
from benchmarks.coverage.standard import failures, overall
from scipy.stats import binom

from dprl.engine import rows

LOGS, LEAST = 120, 106
QUICK = {row.name: row for row in ROWS if row.quick}


def test_the_limit_accepts_what_is_promised_and_rejects_much_less():
    assert binom.cdf(LEAST - 1, LOGS, 0.95) < 1e-3
    assert binom.sf(LEAST - 1, LOGS, 0.8) < 0.015


@pytest.mark.parametrize("name", QUICK)
def test_intervals_hold_the_truth(name):
    record = measure.run(QUICK[name], LOGS, measure.QUICK, simulated=50_000)
    (found,) = record["policies"]
    assert found["hits"] >= LEAST
    assert found["hits"] + found["below"] + found["above"] == LOGS
    assert found["width_over_known"] < 1.8  # 1.5, and what 120 logs leave open
    flag = QUICK[name].flag
    assert flag is None or found["notes"][flag] >= LEAST


def test_the_page_says_what_the_results_hold():
    records = page.load()
    assert page.PAGE.read_text(encoding="utf-8") == page.render(records)
    assert records
    rows = {row.name: row for row in ROWS}
    for record in records:
        asked = json.loads(json.dumps(measure.facts_of(rows[record["row"]["name"]])))
        assert record["row"] == asked, asked["name"]
        assert (record["logs"], record["seeds"]) == (measure.LOGS, measure.TABLE)


def test_the_results_meet_the_standard():
    records = page.load()
    assert [r["row"]["name"] for r in records if failures(r)] == []
    hits, of = overall(records)
    assert hits >= 0.945 * of


GOOD = {
    "policy": "p", "hits": 475, "below": 12, "above": 13, "width_over_known": 1.1, "width_over_range": 0.1,
    "usable": True, "notes": {"weights-below-one": 480},
}  # fmt: skip


def record(flag: str | None = None, counted: bool = True, **changed: object) -> dict:
    return {"logs": 500, "row": {"flag": flag, "counted": counted}, "policies": [{**GOOD, **changed}]}


def test_the_standard_accepts_a_good_row_and_no_other():
    assert failures(record()) == failures(record(flag="weights-below-one")) == []
    assert failures(record(usable=False, width_over_range=0.9)) == []
    bad = [
        {"hits": 459}, {"below": 26}, {"above": 26}, {"width_over_known": 1.51}, {"width_over_range": 0.5},
        {"flag": "weights-above-one"},
    ]  # fmt: skip
    for changed in bad:
        (why,) = failures(record(**changed))
        assert why.startswith("p: ")
    assert failures(record(counted=False, hits=0)) == []
    assert overall([record(), record(hits=400), record(counted=False)]) == (875, 1000)


# --- the oracles --------------------------------------------------------------------------------------------------


def small() -> Process:
    """Two states, two actions, three steps; rewards that depend on both, and ends."""
    rng = np.random.default_rng(5)
    return Process(
        start=np.array([0.4, 0.6]),
        following=rng.dirichlet(np.ones(3), (2, 2)),
        outcomes=rng.dirichlet(np.ones(2), (2, 2)),
        rewards=rng.normal(size=(2, 2, 2)),
        behavior=np.array([[0.3, 0.7], [0.8, 0.2]]),
        targets={"target": np.array([[0.6, 0.4], [0.5, 0.5]])},
        horizon=3,
        discount=0.9,
        visits=np.array([1, 3]),
    )


def enumerated(law: Process) -> float:
    """The value by adding up every path of states and actions."""
    policy, mean, total = law.targets["target"], (law.outcomes * law.rewards).sum(axis=-1), 0.0
    for steps in range(1, law.horizon + 1):
        last = steps == law.horizon
        for states in itertools.product(range(2), repeat=steps):
            for actions in itertools.product(range(2), repeat=steps):
                chance = law.start[states[0]]
                for t, (s, a) in enumerate(zip(states, actions, strict=True)):
                    chance *= policy[s, a] * (law.following[s, a, states[t + 1]] if t + 1 < steps else 1.0)
                chance *= 1.0 if last else law.following[states[-1], actions[-1], 2]
                gains = (law.discount**t * mean[s, a] for t, (s, a) in enumerate(zip(states, actions, strict=True)))
                total += chance * sum(gains)
    return total


def test_a_value_is_that_of_every_path_added_up():
    assert small().value("target") == pytest.approx(enumerated(small()), abs=1e-12)


def weighted_return(law: Process | Population, paths: Paths, policy: str, discount: float) -> tuple[np.ndarray, ...]:
    """Weights and weighted returns of trajectories."""
    steps = np.arange(paths.action.shape[1])
    alive = steps < paths.length[:, None]
    weight = np.prod(np.where(alive, paths.ratio[policy], 1.0), axis=1)
    return weight, weight * np.where(alive, discount**steps * paths.reward, 0.0).sum(axis=1)


def agrees(found: np.ndarray, mean: float) -> bool:
    return abs(found.mean() - mean) < 5.0 * found.std() / len(found) ** 0.5


def test_logs_have_weights_of_mean_one_and_the_value_that_is_known():
    law = small()
    paths = law.draw(np.random.default_rng(1), 40_000)
    assert (np.bincount(paths.person) == law.visits[paths.state[np.r_[True, np.diff(paths.person) > 0], 0]]).all()
    person = [
        np.bincount(paths.person, x) / np.bincount(paths.person)
        for x in weighted_return(law, paths, "target", law.discount)
    ]
    assert agrees(person[0], 1.0)
    assert agrees(person[1], law.value("target"))
    wrong = replace(law, stated=np.full((2, 2), 0.5)).draw(np.random.default_rng(1), 40_000)
    assert not agrees(weighted_return(law, wrong, "target", law.discount)[1], law.value("target"))


def test_a_law_without_overlap_lacks_its_weight():
    law = laws.no_overlap()
    weight, gains = weighted_return(law, law.draw(np.random.default_rng(1), 40_000), "other", 1.0)
    assert agrees(weight, 0.8)
    assert agrees(gains, 0.8 * 0.5)
    assert law.value("other") == pytest.approx(0.8 * 0.5 + 0.2 * 0.9)


def test_a_trial_is_its_recorded_outcomes():
    trial = Arms((np.array([1.0, 3.0]), np.array([10.0, 10.0, 40.0])))
    assert [trial.value(name) for name in trial.policies] == [2.0, 20.0]
    paths = trial.draw(np.random.default_rng(2), 40_000)
    assert agrees(paths.ratio["arm_1"][:, 0] * paths.reward[:, 0], 20.0)
    assert set(paths.reward[paths.action == 0]) == {1.0, 3.0}


def test_a_population_is_drawn_with_replacement_and_its_value_is_a_sum():
    rng = np.random.default_rng(4)
    shape = (50, 3)
    ratio, length = rng.uniform(0.5, 2.0, shape), rng.integers(1, 4, 50)
    one = np.ones(shape)
    recorded = Paths(one, one, rng.random(shape), 1.0 / ratio, {"p": ratio}, length, np.arange(50), {"p": one})
    population = Population(recorded)
    by_hand = sum(
        recorded.reward[i, t] * np.prod(ratio[i, : t + 1]) for i in range(50) for t in range(length[i])
    ) / 50  # fmt: skip
    assert population.value("p") == pytest.approx(by_hand)
    paths = population.draw(rng, 20_000)
    alive = np.arange(3) < paths.length[:, None]
    drawn = np.where(alive, np.cumprod(paths.ratio["p"], axis=1) * paths.reward, 0.0).sum(axis=1)
    assert agrees(drawn, by_hand)
    stated = Population(recorded, np.full(shape, 0.5)).draw(rng, 10)
    assert (stated.probability == 0.5).all()
    assert (stated.ratio["p"] == 2.0).all()


def test_columns_hold_the_steps_of_each_trajectory_and_no_more():
    paths = small().draw(np.random.default_rng(3), 20)
    columns = paths.columns()
    assert len(columns["t"]) == paths.length.sum()
    assert columns["terminated"].sum() == len(paths.length)
    policy = TablePolicy(small().targets["target"])
    states = columns["observation_0"][:, None]
    chosen = policy(states)[np.arange(len(states)), columns["action"].astype(int)]
    alive = np.arange(3) < paths.length[:, None]
    assert chosen / columns["behavior_prob"] == pytest.approx(paths.ratio["target"][alive])


def test_filling_rows_up_changes_no_digit(monkeypatch: pytest.MonkeyPatch):
    row = next(row for row in ROWS if row.name == "recommended-one-step")
    domain = row.domain()
    filled = measure._release(row, domain, np.random.default_rng(8)).estimate
    monkeypatch.setattr(rows, "_MOST_ROWS", 0)
    assert measure._release(row, domain, np.random.default_rng(8)).estimate == filled


def test_the_known_bias_bound_is_what_cutting_takes_away():
    """One decision, ratio 4 cut at 2: half of the target's weight is gone, and of 20 people in 100 all of it."""
    row = Row(
        name="x", title="x", domain=lambda: laws.one_decision((0.75, 0.25), {"other": (0.0, 1.0)}, (0.1, 0.5)),
        algorithm=QUICK["two-arms-small"].algorithm, units=100, people=80,
        bounds={"horizon": 1, "reward": (0.0, 1.0), "observation": ((0.0, 1.0),), "actions": 2,
                "max_importance_ratio": 2.0},
    )  # fmt: skip
    bound = measure._bias_bound(row, row.domain(), "other", True, 200_000, np.random.default_rng(0))
    assert bound == pytest.approx(1.0 - 0.8 * 0.5, abs=0.005)
