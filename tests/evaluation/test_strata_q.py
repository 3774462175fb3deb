"""A rule over declared strata: comparisons that say what a table does, and which action noisy sums speak for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dprl
from dprl.bounds import Bounds
from dprl.errors import DprlError
from dprl.evaluation.learned_policy import plan_of_learned
from dprl.evaluation.strata import Strata
from dprl.evaluation.strata_q import StrataBasis, StrataQ
from dprl.policies.rules import read_rule

BOUNDS = Bounds(
    units=50_000, horizon=1, reward=(-1.0, 3.0), observation=((0.0, 3.0), (0.0, 1.0), (0.0, 1.0), (20.0, 80.0)),
    observation_names=("site", "ward = A", "ward = B", "age"), actions=3, strata=("site", "ward", "age:40,60"),
    max_importance_ratio=4.0,
)  # fmt: skip
STATES = np.array([
    [site, ward == 0, ward == 1, age] for site in range(4) for ward in range(3) for age in (20.0, 40.0, 59.0, 60.0)
])  # fmt: skip


def program(bounds: Bounds, min_propensity: float = 0.02, epsilon: float = 100.0) -> StrataQ:
    basis = StrataBasis(bounds.state, "strata", Strata(bounds))
    return StrataQ(bounds, basis, 1.0, min_propensity=min_propensity).calibrated(dprl.Budget(epsilon, 1e-5))


@given(st.data(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_rule_does_what_its_table_says_in_every_stratum(data, none):
    """A person may have none of a category's values; then they are a stratum of their own."""
    bounds = replace(BOUNDS, fill=(None, 0.0, 0.0, None)) if none else BOUNDS
    states, of = STATES if none else STATES[STATES[:, 1:3].any(axis=1)], program(bounds)
    cells = of.basis.size
    best = np.array(data.draw(st.lists(st.integers(0, 2), min_size=cells, max_size=cells)))
    rule = of.policy(np.eye(3)[best].T.ravel())
    np.testing.assert_array_equal(rule.action(states), best[of.basis.index(states)])
    assert Strata(bounds).table([rule]).shape == (1, cells, 3)  # the same action within each stratum


def test_a_deep_rule_is_read_back(tmp_path):
    values = 40
    bounds = replace(
        BOUNDS, observation=((0.0, 1.0),) * values, observation_names=tuple(f"code = {i}" for i in range(values)),
        strata=("code",),
    )  # fmt: skip
    of = program(bounds)
    rule = of.policy(np.eye(3)[np.arange(values) % 3].T.ravel())
    (tmp_path / "policy.json").write_bytes(rule.to_bytes())
    assert read_rule(tmp_path) == rule
    np.testing.assert_array_equal(rule.action(np.eye(values)), np.arange(values) % 3)
    many = replace(bounds, observation=((0.0, 1.0),) * 70, observation_names=tuple(f"code = {i}" for i in range(70)))
    with pytest.raises(DprlError, match="could have 70 comparisons that follow one another"):
        plan(many)


def actions_of(counts: np.ndarray, means: np.ndarray, **options: float) -> np.ndarray:
    """Return the action of each stratum, from sums that noise did not move."""
    cells, actions = counts.shape
    bounds = replace(
        BOUNDS, observation=((0.0, cells - 1.0),), observation_names=("site",), strata=("site",), actions=actions
    )
    of = program(bounds, **options)
    sums = of.kappa * counts * (means - 1.0) / 2.0  # outcomes in [-1, 1] of rewards in [-1, 3]
    told = of.update(0, of.init(), np.concatenate([counts.ravel(), sums.ravel()]), 0)
    return of.policy(np.asarray(told)).action(np.arange(cells, dtype=float)[:, None])


def test_clear_differences_between_strata_are_followed():
    means = np.array([[1.0, 2.0], [2.0, 1.0], [0.5, 1.5]])
    assert actions_of(np.full((3, 2), 2_000.0), means).tolist() == [1, 0, 1]


def test_what_chance_would_leave_is_drawn_to_one_action_for_everybody():
    """The second action is better, but in one stratum, where there is little of both, it looks a little worse."""
    means, counts = np.array([[1.0, 1.4], [1.1, 1.5], [1.3, 1.2], [0.8, 1.2]]), np.full((4, 2), 500.0)
    counts[2] = 25.0
    assert actions_of(counts, means).tolist() == [1, 1, 1, 1]
    assert np.argmax(means, axis=1).tolist() == [1, 1, 0, 1]


def test_what_a_stratum_does_not_show_is_not_proposed_there():
    counts = np.array([[900.0, 0.0], [500.0, 500.0], [600.0, 400.0]])
    means = np.array([[1.0, 0.0], [1.0, 2.0], [1.0, 2.0]])
    assert actions_of(counts, means).tolist() == [0, 1, 1]
    assert actions_of(np.array([[970.0, 30.0]] * 2), np.array([[1.0, 2.0]] * 2), min_propensity=0.1).tolist() == [0, 0]


def test_in_strata_that_show_nothing_it_is_the_action_that_is_best_elsewhere():
    counts = np.array([[0.0, 0.0], [500.0, 500.0], [600.0, 400.0]])
    assert actions_of(counts, np.array([[0.0, 0.0], [1.0, 2.0], [1.0, 2.0]])).tolist() == [1, 1, 1]


# --- the plan ---------------------------------------------------------------------------------------------------------


def plan(bounds=BOUNDS, config=None, **options):
    return plan_of_learned(config or dprl.Stratified(), bounds, dprl.Budget(1.0, 1e-5), 2.0**-49, **options)


def test_both_parts_may_spend_the_whole_budget_and_what_was_done_is_valued():
    found = plan()
    assert found.first.names == ("the learned policy", "logged", "always_0", "always_1", "always_2")
    assert found.contrasts == ((0, 1), (0, 2), (0, 3), (0, 4))
    first, second = found.event.events
    assert found.epsilon_of_event == pytest.approx(1.0, abs=1e-3)
    assert first == found.first.event()
    assert len(second.events) == 2  # counts and outcomes, and the values around them
    assert found.first.described()["learner"]["basis"] == "strata"


def test_whatever_is_learned_the_values_have_one_mechanism():
    """Their length and clip norm are those of the plan: one event for every policy that may come of the first part."""
    for bounds in (BOUNDS, replace(BOUNDS, horizon=3)):
        found = plan(bounds)
        known = list(found.first.further_policies.values())
        for action in range(3):
            rule = program(bounds).policy(np.eye(3)[np.full(program(bounds).basis.size, action)].T.ravel())
            query = found.query.with_policies([rule, *known])
            assert (query.dimension, query.clip_norm) == (found.query.dimension, found.query.clip_norm)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"learner": "rules"}, "a rule has an action for each stratum"),
        ({"basis": "table"}, "a rule has an action for each stratum"),
        ({"cuts": ["site"]}, "a rule has an action for each stratum"),
        ({"deviation": 0.5}, "a rule has an action for each stratum"),
        ({"config": dprl.ImportanceSampling()}, "either estimated within strata"),
        ({"bounds": replace(BOUNDS, strata=None)}, "either estimated within strata"),
        ({"bounds": replace(BOUNDS, censoring_hazard="estimate")}, "where people are lost"),
        ({"censored": True, "bounds": replace(BOUNDS, horizon=3)}, "where people are lost"),
    ],
)  # fmt: skip
def test_what_cannot_be_learned_within_strata_is_refused(changes, words):
    with pytest.raises(DprlError, match=words):
        plan(**changes)
