"""Differences of policies: what is asked, the noise and the covariance of two values, and intervals that cover."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dprl
from dprl.accounting.budget import Budget
from dprl.engine.plan import Plan
from dprl.errors import DprlError
from dprl.evaluation.contrasts import asked_pairs, contrasts_of, expected_noise
from dprl.evaluation.importance_sampling import ImportanceQuery
from dprl.evaluation.least_noise import least_noise_strategy
from dprl.evaluation.plan import make_plan

from . import one_shot
from .helpers import bandit_bounds, bandit_log

NAMES = ["treat", "leave", "either"]
POLICIES = [lambda s, p=p: np.tile([1.0 - p, p], (len(s), 1)) for p in (1.0, 0.0, 0.4)]
PAIRS = ((0, 1), (2, 1))


def plan_of(units: int = 4_000, epsilon: float = 1.0, pairs: tuple[tuple[int, int], ...] = PAIRS) -> Plan:
    return make_plan(dprl.ImportanceSampling(), bandit_bounds(units), Budget(epsilon, 1e-5), POLICIES, contrasts=pairs)


def vectors_of(plan: Plan, units: int, seed: int = 0) -> np.ndarray:
    return plan.query.unit_vectors(one_shot.load(bandit_log(units, seed), bandit_bounds(units)), POLICIES)


def test_what_can_be_asked():
    assert asked_pairs(["treat:leave"], NAMES) == ((0, 1),)
    assert asked_pairs(["all:leave", "treat:leave"], NAMES) == ((0, 1), (2, 1))
    assert asked_pairs(["all"], NAMES) == ((1, 0), (2, 0), (2, 1))
    assert asked_pairs(["a.py:f:b"], ["a.py:f", "b"]) == ((0, 1),)
    assert asked_pairs([], NAMES) == ()


@pytest.mark.parametrize(
    ("compare", "words"),
    [
        (["treat:treat"], "compares a policy with itself"),
        (["treat:nobody"], "names no two target policies"),
        (["treat"], "names no two target policies"),
        ("treat:leave", "must be a list of texts"),
        ([("treat", "leave")], "must be a list of texts"),
        ({"treat:leave": True}, "must be a list of texts"),
        (["treat:leave", "leave:treat"], "in both directions"),
    ],
)
def test_what_is_refused(compare, words):
    with pytest.raises(DprlError, match=words):
        asked_pairs(compare, NAMES)


def test_one_policy_has_nothing_to_be_compared_with():
    with pytest.raises(DprlError, match="only one target policy"):
        asked_pairs(["all"], ["treat"])
    with pytest.raises(DprlError, match="at most 200"):
        asked_pairs(["all"], [str(k) for k in range(40)])


def test_differences_have_less_noise_where_they_are_asked_for():
    """For values and differences together the strategy beats the one for values; of two arms it is the best one."""
    arms = np.eye(2)
    plain, asked = least_noise_strategy(arms), least_noise_strategy(arms, [(0, 1)])
    workload = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, -1.0]])
    errors = [float(np.sum((workload @ np.linalg.inv(s)) ** 2)) for s in (plain, asked)]
    # the Gram matrix [[1, r], [r, 1]] makes 2 / (1 - r^2) + 2 / (1 + r) of it, least near r = .268
    best = min(2.0 / (1.0 - r * r) + 2.0 / (1.0 - r) for r in np.linspace(-0.99, 0.0, 5_000))
    assert errors[1] == pytest.approx(best, rel=1e-2)
    assert errors[1] < errors[0]
    np.testing.assert_allclose(np.linalg.norm(asked, axis=0), 1.0, rtol=1e-2)


def test_without_noise_a_difference_is_that_of_the_values_and_its_error_that_of_the_difference():
    """Oracle: the standard error of the mean of units' differences, from the rows."""
    units = 4_000
    plan, total = plan_of(units, epsilon=1e3), vectors_of(plan_of(units, epsilon=1e3), units).sum(axis=0)
    query = plan.query
    assert isinstance(query, ImportanceQuery)
    values = query.decode(plan.value_mechanism, total)
    distances = vectors_of(plan, units)[:, :3] @ np.linalg.inv(query.strategy).T * 2.0 * 0.5 * query.scale.width
    for found, (a, b) in zip(contrasts_of(query, plan.value_mechanism, total, PAIRS), PAIRS, strict=True):
        assert found.value == pytest.approx(values[a].value - values[b].value, abs=1e-12)
        direct = (distances[:, a] - distances[:, b]).std() / np.sqrt(units) / 2.0
        assert found.sampling_standard_error == pytest.approx(direct, rel=0.05)
        assert found.interval[0] < found.value < found.interval[1]
        # two are simultaneous at a higher level each
        assert found.simultaneous_interval[0] < found.interval[0]


def test_the_noise_of_a_difference_is_what_is_stated():
    """Over draws; two thirds and three halves of it are refused."""
    plan, units = plan_of(epsilon=0.3), 4_000
    total, rng = vectors_of(plan, units).sum(axis=0), np.random.default_rng(1)
    draws = total + plan.value_mechanism.noise_std * rng.normal(size=(300, len(total)))
    found = [contrasts_of(plan.query, plan.value_mechanism, draw, PAIRS) for draw in draws]
    # and what the plan said of it
    stated = [contrast.privacy_standard_error for contrast in found[0]]
    assert expected_noise(plan.query, plan.value_mechanism, PAIRS) == pytest.approx(stated)
    for place in range(len(PAIRS)):
        spread = np.std([f[place].value for f in found]) / found[0][place].privacy_standard_error
        assert 0.85 < spread < 1.17


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1_000), units=st.integers(20, 200))
def test_no_vector_is_clipped(seed, units):
    plan = plan_of(units, epsilon=5.0)
    assert np.linalg.norm(vectors_of(plan, units, seed), axis=1).max() <= plan.query.clip_norm * (1.0 + 1e-12)


@pytest.mark.parametrize("kind", [dprl.ImportanceSampling, pytest.param(dprl.DoublyRobust, marks=pytest.mark.slow)])
def test_where_products_are_cut_it_is_the_difference_of_the_intervals(kind):
    bounds, policies = one_shot.extreme_bounds(200), [one_shot.extreme_policy, lambda s: np.full((len(s), 2), 0.5)]
    made = dprl.evaluate(
        one_shot.load(one_shot.extreme_log(200, 1), bounds), policies, Budget(50.0, 1e-5),
        algorithm=kind(discount=0.9), features="tabular", seed=1, compare=["all"],
    )  # fmt: skip
    first, second = made.values.values()
    (found,) = made.contrasts
    low, high = found["interval"]
    assert (low, high) == (second.interval[0] - first.interval[1], second.interval[1] - first.interval[0])
    assert found["value"] == second.value - first.value


def test_sides_agree():
    """A difference and its opposite have opposite intervals; and the sign is told only where zero is outside."""
    plan, other = plan_of(pairs=((0, 1),)), plan_of(pairs=((1, 0),))
    total = vectors_of(plan, 4_000).sum(axis=0)
    (found,), (turned,) = (contrasts_of(p.query, p.value_mechanism, total, p.contrasts) for p in (plan, other))
    assert found.interval == pytest.approx((-turned.interval[1], -turned.interval[0]), abs=1e-9)
    assert found.sign == -turned.sign == (1 if found.interval[0] > 0 else 0)
