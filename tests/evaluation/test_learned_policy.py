"""A learned rule's plan: the class that public facts declare, what is valued beside it, and that nothing is cut."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dprl
from dprl.accounting import events
from dprl.bounds import Bounds
from dprl.errors import DprlError
from dprl.evaluation.importance_vectors import further_columns, mixed, unit_parts
from dprl.evaluation.intervals import ValueEstimate, difference_of_means
from dprl.evaluation.learned_policy import LEVELS, MOST_BESIDE, TOO_FAR, declared_cuts, plan_of_learned
from dprl.evaluation.least_noise import UnknownPolicy, public_patterns
from dprl.policies.loading import AlwaysPolicy, LoggedPolicy

BUDGET = dprl.Budget(1.0, 1e-5)
BOUNDS = Bounds(
    units=5_000, horizon=1, reward=(-1.0, 1.0), observation=((0.0, 10.0), (0.0, 3.0)), actions=3,
    max_importance_ratio=4.0, observation_names=("age", "site"),
)  # fmt: skip


def plan(budget=BUDGET, bounds=BOUNDS, **options):
    return plan_of_learned(dprl.ImportanceSampling(), bounds, budget, 2.0**-49, **options)


def levels(found):
    return found.first.made_of["levels"]


def test_both_parts_may_spend_the_whole_budget_and_all_actions_are_valued():
    found = plan()
    assert found.first.names == ("the learned rule", "logged", "always_0", "always_1", "always_2")
    assert found.contrasts == ((0, 1), (0, 2), (0, 3), (0, 4))
    assert found.event.events[0] == events.pure(1.0)
    assert found.epsilon_of_event == 1.0
    assert len(found.first.candidates) == sum(levels(found).values()) == 1000
    assert found.first.handicaps[:3] == (0, 0, 0)
    assert list(found.first.handicaps) == sorted(found.first.handicaps)  # the larger a level, the later it starts


def test_with_little_budget_it_is_one_action_for_everybody_and_says_why():
    found = plan(dprl.Budget(0.05, 1e-5), replace(BOUNDS, units=2_000))
    assert levels(found) == {LEVELS[0]: 3}
    assert found.first.made_of["left_out"]["level"] == LEVELS[1]
    assert found.first.made_of["left_out"]["handicap"] > TOO_FAR
    assert levels(plan(dprl.Budget(4.0, 1e-5))).keys() == set(LEVELS)


def test_rules_are_told_apart_in_words_or_refused():
    seconds = replace(BOUNDS, observation=((1.6e9, 1.6e9 + 1000.0), (0.0, 3.0)))
    assert len(plan(bounds=seconds).first.handicaps) == len(plan(bounds=seconds).first.candidates)
    with pytest.raises(DprlError, match="two of the rules and policies have the same words"):
        plan(bounds=replace(BOUNDS, observation_names=("age", "age")))
    with pytest.raises(DprlError, match="two of the rules and policies have the same words"):
        plan(candidates={"action 0 for everybody": AlwaysPolicy(0, 3)})
    with pytest.raises(DprlError, match="at most 1000 policies fit in one choice; there are 1200 actions, and 0 pol"):
        plan(bounds=replace(BOUNDS, actions=1200))


def test_of_many_actions_none_is_valued_by_itself():
    found = plan(bounds=replace(BOUNDS, actions=MOST_BESIDE + 1, units=50_000))
    assert found.first.names == ("the learned rule", "logged")


def test_with_a_declared_deviation_larger_levels_start_less_far_behind():
    """And whatever is declared, the winner is valued by the same mechanism for the same noise."""
    without, small, large = (plan(deviation=deviation) for deviation in (None, 0.1, 1.0))
    of = [np.array(found.first.handicaps) for found in (without, small, large)]
    assert (of[1] <= of[0]).all() and (of[1] < of[2]).any() and (of[1] <= of[2]).all()  # noqa: PT018
    assert small.value_mechanism == without.value_mechanism
    assert small.event == without.event
    assert small.first.described()["rules"]["return_deviation"] == 0.1
    assert "return_deviation" not in without.first.described()["rules"]
    for wrong in (0.0, -0.1, 1.1, float("nan"), "0.1", True):
        with pytest.raises(DprlError, match="return_deviation must be above 0"):
            plan(deviation=wrong)


def test_declared_cuts_are_those_of_the_class():
    assert declared_cuts(["age:3,5"], BOUNDS) == ((0, 3.0), (0, 5.0))
    assert declared_cuts(["site"], BOUNDS) == ((1, 0.5), (1, 1.5), (1, 2.5))
    found = plan(cuts=["age:3"])
    assert levels(found) == {LEVELS[0]: 3, LEVELS[1]: 6}
    for wrong in (["nobody"], ["age:11"], ["age:3", "age:5"], "age:3"):
        with pytest.raises(DprlError, match="cuts"):
            declared_cuts(wrong, BOUNDS)


def test_what_the_behaviour_policy_never_does_is_not_proposed():
    """The third action is never taken below an age of 5."""

    def behavior(states):
        young = states[:, :1] < 5.0
        return np.where(young, [[0.5, 0.5, 0.0]], [[0.25, 0.25, 0.5]])

    found = plan(cuts=["age:5"], behavior=behavior)
    assert found.first.names == ("the learned rule", "logged", "always_0", "always_1")
    young = np.array([[2.0, 1.0]])
    assert all(rule.action(young)[0] != 2 for rule in found.first.candidates.values())
    assert "action 0 where age < 5; else action 2" in found.first.candidates
    few = replace(BOUNDS, max_importance_ratio=1.5)  # nothing is as likely as that
    with pytest.raises(DprlError, match="never does at some states what any of these rules"):
        plan(bounds=few, behavior=behavior)


def test_what_cannot_be_learned_is_refused():
    continuous = replace(BOUNDS, actions=None, action=((0.0, 1.0),))
    with pytest.raises(DprlError, match="discrete actions"):
        plan(bounds=continuous)
    with pytest.raises(DprlError, match="there are 3 actions, and 998 policies of your own"):
        plan(candidates=dict.fromkeys(map(str, range(998))))


def test_over_several_steps_the_rule_and_what_was_done_are_valued():
    found = plan(bounds=replace(BOUNDS, horizon=3, max_importance_ratio=1.5), learner="rules")
    assert found.first.names == ("the learned rule", "logged")
    assert len(found.query.patterns) == 1


@cache
def query_of(actions: int, largest: float, fixed: tuple[int, ...]):
    bounds = replace(BOUNDS, actions=actions, max_importance_ratio=largest)
    policies = [UnknownPolicy(), LoggedPolicy(steady=True), *(AlwaysPolicy(a, actions) for a in fixed)]
    pairs = tuple((0, place) for place in range(1, len(policies)))
    return dprl.ImportanceSampling().value_query(bounds, policies, pairs)


@given(
    st.sampled_from([(2, 2.0, (0, 1)), (4, 8.0, (0, 1, 2, 3)), (3, 1.3, ()), (3, 4.0, (1,))]),
    st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.floats(-1.0, 1.0),
)  # fmt: skip
def test_no_unit_of_an_unknown_rule_is_cut(of, chance, rule, outcome):
    """Whatever the behaviour probability, the rule and the return, as long as ratios are as declared."""
    (actions, largest, fixed), query = of, query_of(*of)
    behaves = max(chance, 1.0 / largest)
    for done in range(actions):
        ratios = np.array([rule / behaves, 1.0, *((a == done) / behaves for a in fixed)])
        share = ratios / largest
        above, below = (share * x for x in ((1.0 + outcome) / 2.0, (1.0 - outcome) / 2.0))
        parts = unit_parts(query, above[None], below[None])
        vector = [mixed(part, query.strategy) for part in parts]
        vector.append(further_columns(query, above[None], below[None], np.ones(1)))
        assert np.linalg.norm(np.concatenate(vector, axis=1)) <= query.clip_norm * (1.0 + 1e-9)


def test_patterns_of_known_policies_stay_what_they_were():
    arms = [AlwaysPolicy(a, 3) for a in range(3)]
    np.testing.assert_array_equal(public_patterns(arms, BOUNDS), np.eye(3)[::-1][np.argsort([0, 1, 2])])
    # where people may be lost the ratio of what was done is not one
    np.testing.assert_array_equal(public_patterns([*arms, LoggedPolicy()], BOUNDS), np.ones((1, 4)))


@pytest.mark.parametrize("part", [1.0, 0.6])
def test_a_difference_in_a_part_counts_that_the_number_of_people_varies(part):
    """Its variance is that of a unit's difference, of which a coin decides whether it is there."""
    rng, units = np.random.default_rng(0), 1000
    distances = rng.uniform(-0.2, 0.9, (units, 2))
    means, product = distances.mean(axis=0), float(np.mean(distances[:, 0] * distances[:, 1]))
    errors = np.sqrt((np.mean(distances**2, axis=0) - part * means**2) / units)
    estimates = tuple(
        ValueEstimate(float(m), (-1.0, 1.0), 0.0, float(e), float(e)) for m, e in zip(means, errors, strict=True)
    )
    found = difference_of_means(
        estimates, tuple(means), product, unit=1.0, units=units, t=2.0, noise=0.0, product_noise=0.0, share=1.0,
        share_noise=0.0, largest=1.0, asked_share=part,
    )  # fmt: skip
    difference = distances[:, 0] - distances[:, 1]
    expected = np.sqrt((np.mean(difference**2) - part * np.mean(difference) ** 2) / units)
    assert found.sampling == pytest.approx(expected, rel=1e-9)
