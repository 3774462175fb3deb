"""Subgroups: what is asked, stated noise, values of a group as from its people alone, and intervals that hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dprl
from dprl.accounting.budget import Budget
from dprl.accounting.ledger import Ledger
from dprl.bounds import Bounds
from dprl.engine.plan import Plan
from dprl.errors import DprlError
from dprl.evaluation.plan import make_plan
from dprl.evaluation.strata import Axis, Strata, read_axis
from dprl.evaluation.subgroups import (
    MOST_GROUPS,
    GroupedQuery,
    first_states,
    least_noise_weights,
    subgroup_axes,
    subgroups_of,
    with_subgroups,
)
from dprl.mechanisms.gaussian_sum import RELATION

from . import one_shot
from .helpers import bandit_bounds, bandit_log

POLICIES = [lambda s, p=p: np.tile([1.0 - p, p], (len(s), 1)) for p in (1.0, 0.0)]
PAIRS = ((0, 1),)
AXIS = ("observation_0:0.2,0.5",)
BOUNDS = Bounds(
    units=500, horizon=1, reward=(0.0, 1.0), observation=((0.0, 4.0), (0.0, 90.0), (0.0, 9.5)), actions=2,
    max_importance_ratio=2.0, observation_names=("site", "age", "dose"),
)  # fmt: skip
CONFIGS = {
    "importance sampling": dprl.ImportanceSampling(discount=0.9),
    "self-normalised": dprl.ImportanceSampling(discount=0.9, estimator="self-normalised"),
    "doubly robust": dprl.DoublyRobust(discount=0.9),
    "blended": dprl.Recommended(discount=0.9),
}


LOGS = 500


def uniform(states: np.ndarray) -> np.ndarray:
    return np.full((len(states), 2), 0.5)


def plan_of(units: int = 4_000, epsilon: float = 1.0, subgroups: tuple[str, ...] = AXIS) -> Plan:
    return make_plan(
        dprl.ImportanceSampling(), bandit_bounds(units), Budget(epsilon, 1e-5), POLICIES, contrasts=PAIRS,
        subgroups=subgroups,
    )  # fmt: skip


def query_of(plan: Plan) -> GroupedQuery:
    assert isinstance(plan.query, GroupedQuery)
    return plan.query


def vectors_of(plan: Plan, units: int, seed: int = 0) -> np.ndarray:
    return plan.query.unit_vectors(one_shot.load(bandit_log(units, seed), bandit_bounds(units)), POLICIES)


def test_what_can_be_asked():
    axes = subgroup_axes(["site", "age: 30, 50"], BOUNDS, "person")
    assert [axis.labels() for axis in axes] == [
        ["site 0", "site 1", "site 2", "site 3", "site 4"],
        ["age < 30", "30 <= age < 50", "age >= 50"],
    ]
    assert subgroup_axes([], BOUNDS, "transition") == ()


@pytest.mark.parametrize(
    ("subgroups", "words"),
    [
        (["weight"], "subgroups: there is no component 'weight'; there are site, age, dose"),
        (["age:90.5"], "ascending cut points above 0 and up to 90"),
        (["age:50,30"], "ascending cut points"),
        (["age:old"], "ascending cut points"),
        (["dose"], "is not a whole number"),
        (["site", "site:2"], "name a component twice"),
        (["age"], f"at most {MOST_GROUPS} fit in one release; these are 91"),
        ("site", "must be a list"),
    ],
)
def test_what_is_refused_is_one_sentence_before_the_charge(tmp_path, subgroups, words):
    ledger = Ledger.create(tmp_path / "l.db", "trial", Budget(5.0, 1e-4), "trajectory", RELATION)
    log = bandit_log(500, 0) | {"observation": np.zeros((500, 3))}
    with pytest.raises(DprlError, match=words) as refused:
        dprl.evaluate(
            log, POLICIES, Budget(1.0, 1e-5), bounds=BOUNDS, ledger=tmp_path / "l.db", dataset="trial",
            subgroups=subgroups,
        )  # fmt: skip
    assert "\n" not in str(refused.value)
    assert ledger.history() == []


def test_a_transition_is_in_no_subgroup():
    with pytest.raises(DprlError, match="a transition has none"):
        subgroup_axes(["site"], BOUNDS, "transition")


def test_an_estimator_that_counts_nobody_is_refused():
    class Plain:
        bounds = BOUNDS
        around_function = False

    plain: Any = Plain()
    with pytest.raises(DprlError, match="somebody's gives no values of subgroups"):
        with_subgroups(plain, ["site"], "person", "somebody's")
    assert with_subgroups(plain, [], "person", "somebody's") is plain


@pytest.mark.parametrize("sizes", [(2,), (5,), (2, 5), (3, 3, 9)])
def test_no_other_allocation_has_less_noise(sizes):
    """For everybody's sum and a group's of each axis, over random others and those nearby."""
    axes = tuple(Axis(i, f"x{i}", tuple(map(float, range(n - 1))), codes=False) for i, n in enumerate(sizes))
    inner: Any = None

    def noise(weights: np.ndarray) -> float:
        shares = GroupedQuery(inner, ("",) * len(sizes), axes, weights).relative_noise
        return shares.whole**2 + sum(x**2 for x in shares.groups)

    best, rng = least_noise_weights(sizes), np.random.default_rng(0)
    assert best.sum() == pytest.approx(1.0)
    least = noise(best)
    for _ in range(200):
        other = rng.dirichlet(np.ones(len(sizes) + 1) * rng.uniform(0.5, 20.0))
        for moved in (other, 0.99 * best + 0.01 * other):
            assert noise(moved) >= least * (1.0 - 1e-9)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1_000), units=st.integers(20, 100))
def test_the_vector_is_as_long_as_that_of_the_values_alone_and_never_clipped(seed, units):
    plan = plan_of(units, epsilon=10.0)
    query, log = query_of(plan), one_shot.load(bandit_log(units, seed), bandit_bounds(units))
    own = np.linalg.norm(query.inner.unit_vectors(log, POLICIES), axis=1)
    np.testing.assert_allclose(np.linalg.norm(vectors_of(plan, units, seed), axis=1), own, rtol=1e-12)
    assert own.max() <= query.inner.clip_norm * (1.0 + 1e-12)
    assert plan.value_mechanism.clip_norm == query.inner.clip_norm


@pytest.mark.parametrize("largest", [2.5, 1.6**6], ids=["cut", "uncut"])
@pytest.mark.parametrize("name", CONFIGS)
def test_without_noise_a_group_is_the_release_of_its_people_alone(name, largest):
    """Oracle: the same estimator on the log of these people, with their true number declared; and all add up."""
    units, policies = 300, [one_shot.extreme_policy, uniform]
    columns, bounds = (
        one_shot.extreme_log(units, 4),
        replace(one_shot.extreme_bounds(units), max_cumulative_ratio=largest),
    )
    asked = {"features": "tabular", "contrasts": PAIRS}
    plan = make_plan(CONFIGS[name], bounds, Budget(50.0, 1e-5), policies, **asked, subgroups=["observation_0:2"])
    log = one_shot.load(columns, bounds, "person_id")
    function = plan.function_of(np.linspace(-0.5, 0.5, 5)) if plan.around_function else None
    query: Any = plan.query.around(function)
    total = query.unit_vectors(log, policies).sum(axis=0)
    whole, (parts,) = query.sums(total)
    np.testing.assert_allclose(parts.sum(axis=0), whole, atol=1e-9)
    np.testing.assert_allclose(whole, query.inner.unit_vectors(log, policies).sum(axis=0), atol=1e-9)
    quiet = replace(plan.value_mechanism, noise_multiplier=0.005)
    second = first_states(log)[:, 0] >= 2
    for place, found in enumerate(subgroups_of(query, quiet, total, PAIRS)):
        mine = np.isin(columns["person_id"], np.unique(columns["person_id"])[second == bool(place)])
        few = replace(bounds, units=int((second == bool(place)).sum()))
        log_of_group = one_shot.load({key: cells[mine] for key, cells in columns.items()}, few, "person_id")
        alone: Any = make_plan(CONFIGS[name], few, Budget(50.0, 1e-5), policies, **asked).query.around(function)
        mechanism = replace(quiet, parts=((alone.dimension, quiet.clip_norm),))
        sums = alone.unit_vectors(log_of_group, policies).sum(axis=0)
        direct = alone.decode(mechanism, sums)
        assert found.people == pytest.approx(few.units, abs=1e-6)
        assert [v.value for v in found.values] == pytest.approx([v.value for v in direct], abs=1e-3)
        for value, other in zip(found.values, direct, strict=True):
            assert value.interval == pytest.approx(other.interval, abs=5e-3)
        difference = alone.difference(mechanism, sums, *PAIRS[0])
        assert found.contrasts[0].interval == pytest.approx(difference.interval, abs=2e-2)


def test_the_noise_is_what_is_stated():
    """Of everybody, of groups, of their number and of differences, over draws."""
    plan, units = plan_of(epsilon=0.5), 4_000
    total, rng = vectors_of(plan, units).sum(axis=0), np.random.default_rng(1)
    query, mechanism = query_of(plan), plan.value_mechanism
    draws = [total + mechanism.noise_std * rng.normal(size=len(total)) for _ in range(1_500)]
    whole = np.std([query.sums(draw)[0] for draw in draws], axis=0) / mechanism.noise_std
    assert 0.97 < np.mean(whole) / query.relative_noise.whole < 1.03
    groups = np.std([query.sums(draw)[1][0] for draw in draws], axis=0) / mechanism.noise_std
    assert 0.98 < np.mean(groups) / query.relative_noise.groups[0] < 1.02
    found = [subgroups_of(query, mechanism, draw, PAIRS) for draw in draws[:300]]
    for place in range(3):
        mine = [f[place] for f in found]
        stated = mine[0].people_standard_error
        assert stated == pytest.approx(query.count_noise(mechanism)[0])
        assert 0.9 < np.std([g.people for g in mine]) / stated < 1.1
        for of in (lambda g: g.values[0], lambda g: g.values[1], lambda g: g.contrasts[0]):
            errors = np.median([of(g).privacy_standard_error for g in mine])
            assert 0.85 < np.std([of(g).value for g in mine]) / errors < 1.15


def test_the_interval_holds_where_the_number_of_people_is_noisy():
    """Everybody is rewarded alike, near an end of the range: all error is noise, and most of it in the number."""
    units, rng = 2_000, np.random.default_rng(5)
    bounds = replace(bandit_bounds(units), max_importance_ratio=1.0)
    log = bandit_log(units, 0) | {"reward": np.full(units, 0.9)}
    plan = make_plan(dprl.ImportanceSampling(), bounds, Budget(0.5, 1e-5), [uniform], subgroups=["observation_0:0.2"])
    total = plan.query.unit_vectors(one_shot.load(log, bounds), [uniform]).sum(axis=0)
    above, below = np.zeros(2), np.zeros(2)
    for _ in range(LOGS):
        draw = total + plan.value_mechanism.noise_std * rng.normal(size=len(total))
        for place, group in enumerate(subgroups_of(plan.query, plan.value_mechanism, draw, ())):
            low, high = group.values[0].interval
            above[place] += low > 0.9
            below[place] += high < 0.9
    assert (above + below).max() <= 0.08 * LOGS
    assert max(above.max(), below.max()) <= 0.05 * LOGS
    # and no wider than that asks for
    assert (above + below).min() >= 0.01 * LOGS


@pytest.mark.parametrize("name", CONFIGS)
def test_a_group_of_nobody_has_the_declared_range_and_nothing_else_tells(name):
    units = 60
    bounds = one_shot.extreme_bounds(units)
    columns = one_shot.extreme_log(units, 1)
    columns["x0"] = np.minimum(columns["x0"], 2.0)
    made = dprl.evaluate(
        one_shot.load(columns, bounds), [one_shot.extreme_policy], Budget(20.0, 1e-5), algorithm=CONFIGS[name],
        features="tabular", seed=3, subgroups=["observation_0:1,3"],
    )  # fmt: skip
    *_, nobody = made.subgroups
    assert nobody["targets"][0]["simultaneous_interval"] == [-2.0, 3.0]
    assert -2.0 <= nobody["targets"][0]["value"] <= 3.0
    assert len(made.subgroups) == 3
    assert np.isfinite(nobody["people"])


def test_a_person_is_in_the_group_of_the_first_state_of_their_first_trajectory():
    bounds = one_shot.extreme_bounds(3)
    columns = {
        "person_id": [0, 0, 0, 1, 1, 2], "episode_id": [0, 0, 1, 2, 3, 4], "t": [0, 1, 0, 0, 0, 0],
        "x0": [3.0, 0.0, 1.0, 2.0, 4.0, 1.0], "action": [0] * 6, "reward": [0.0, 0.0, 0.0, np.nan, 1.0, np.nan],
        "behavior_prob": [0.5] * 6, "terminated": [0, 1, 1, 1, 1, 1],
    }  # fmt: skip
    log = one_shot.load({name: np.array(cells) for name, cells in columns.items()}, bounds, "person_id")
    # one trajectory of the second person is broken, and the third person has no other
    np.testing.assert_array_equal(first_states(log)[:, 0], [3.0, 4.0, 0.0])


def test_intervals_of_all_groups_are_simultaneous():
    """Each is at the level of Bonferroni over groups and policies, or over groups and differences."""
    plan, units = plan_of(), 4_000
    total = vectors_of(plan, units).sum(axis=0)
    groups = subgroups_of(plan.query, plan.value_mechanism, total, PAIRS)
    values = subgroups_of(plan.query.with_confidence(1.0 - 0.05 / 6), plan.value_mechanism, total, PAIRS)
    differences = subgroups_of(plan.query.with_confidence(1.0 - 0.05 / 3), plan.value_mechanism, total, PAIRS)
    for group, wide, wider in zip(groups, values, differences, strict=True):
        assert list(group.simultaneous_intervals) == [v.interval for v in wide.values]
        assert group.contrasts[0].simultaneous_interval == pytest.approx(wider.contrasts[0].interval)


def test_a_release_says_which_subgroups_it_was_asked_for():
    made = dprl.evaluate(
        bandit_log(2_000, 0), {"treat": POLICIES[0], "leave": POLICIES[1]}, Budget(1.0, 1e-5),
        bounds=bandit_bounds(2_000), subgroups=AXIS, compare=["all"],
    )  # fmt: skip
    assert made.certificate["assumed_public"]["subgroups"] == list(AXIS)
    assert "of each subgroup" in made.certificate["released"]
    assert [g["name"] for g in made.subgroups] == [
        "observation_0 < 0.2", "0.2 <= observation_0 < 0.5", "observation_0 >= 0.5",
    ]  # fmt: skip
    assert {t["name"] for g in made.subgroups for t in g["targets"]} == {"treat", "leave"}
    assert all(g["contrasts"][0]["policy"] == "leave" for g in made.subgroups)


def test_of_two_components_of_one_name_the_first_is_meant():
    bounds = Bounds(
        units=9, horizon=1, reward=(0.0, 1.0), observation=((20.0, 90.0), (0.0, 1.0)), actions=2,
        observation_names=("age", "age"),
    )  # fmt: skip
    assert (read_axis("age:50", bounds).component, read_axis("observation_1:0.5", bounds).component) == (0, 1)


def test_a_category_tells_its_values_apart():
    names = ("age", "site = Basel", "site = Bern", "site = Genf", "sex")
    bounds = Bounds(
        units=9, horizon=1, reward=(0.0, 1.0), observation=((20.0, 90.0), *[(0.0, 1.0)] * 4), actions=2,
        observation_names=names, strata=("site", "age:50"),
    )  # fmt: skip
    axis = read_axis("site", bounds)
    assert axis.labels() == ["site Basel", "site Bern", "site Genf"]
    states = np.array([[30.0, 0.0, 1.0, 0.0, 1.0], [60.0, 0.0, 0.0, 1.0, 0.0], [60.0, 1.0, 0.0, 0.0, 0.0]])
    assert axis.cells(states).tolist() == [1, 2, 0]
    strata = Strata(bounds)
    assert strata.cells(states).tolist() == [2, 5, 1]
    assert strata.labels[5] == "site Genf, age >= 50"
    at_bern = strata.table([lambda s: np.stack([s[:, 2], 1.0 - s[:, 2]], axis=1)])
    assert at_bern[0, :, 0].tolist() == [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]
    with pytest.raises(DprlError, match="site is a category, with a cell for each value: write site without"):
        read_axis("site:30", bounds)


def test_a_category_whose_values_stand_apart_and_may_be_missing_has_a_cell_for_none():
    """A flag of what is missing is no value, and neither is the component between two values."""
    names = ("site = Basel", "age", "site = Bern")
    known: Any = {"observation": ((0.0, 1.0), (20.0, 90.0), (0.0, 1.0)), "observation_names": names}
    bounds = Bounds(
        units=9, horizon=1, reward=(0.0, 1.0), actions=2, fill=(0.0, None, 0.0), flag_missing=(0,), strata=("site",),
        **known,
    )  # fmt: skip
    axis = read_axis("site", bounds)
    assert axis.labels() == ["site Basel", "site Bern", "no site"]
    assert axis.cuts() == [(0, 0.5), (2, 0.5)]
    states = np.array([[1.0, 30.0, 0.0, 0.0], [0.0, 80.0, 1.0, 0.0], [0.0, 40.0, 0.0, 1.0]])
    assert axis.cells(states).tolist() == [0, 1, 2]
    nowhere = Strata(bounds).table([lambda s: np.eye(2)[(s[:, [0, 2]].max(axis=1) > 0.5).astype(int)]])
    assert nowhere[0, :, 0].tolist() == [0.0, 0.0, 1.0]
    sure = replace(bounds, fill=None, flag_missing=None)
    assert read_axis("site", sure).labels() == ["site Basel", "site Bern"]
    before = replace(sure, observation_names=tuple(f"previous {name}" if "=" in name else name for name in names))
    assert read_axis("previous site", before).labels() == [
        "previous site Basel", "previous site Bern", "no previous site",
    ]  # fmt: skip
    with pytest.raises(DprlError, match="subgroups name a component twice"):
        subgroup_axes(["site", "site = Bern"], bounds, "person")
