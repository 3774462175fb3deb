"""Subgroups where propensities are estimated: a group's values are those of its strata, and its vectors bounded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dprl
from dprl.accounting.verification import verify
from dprl.bounds import Bounds
from dprl.errors import DprlError
from dprl.evaluation.plan import make_plan
from dprl.evaluation.propensities import Propensities
from dprl.evaluation.strata import Strata
from dprl.evaluation.stratified import StrataGroupedQuery, Stratified, with_subgroups_of_strata
from dprl.evaluation.subgroups import subgroups_of
from dprl.release.plan import plan_release

from . import one_shot

ACTIONS = 2
TREAT, LEAVE = (lambda states, p=p: np.tile([1.0 - p, p], (len(states), 1)) for p in (1.0, 0.0))
BUDGET = dprl.Budget(1.0, 1e-5)
SILENT = 1e-9


def facts(units: int = 600, strata: tuple[str, ...] = ("site", "age:30,50"), **other: Any) -> Bounds:
    return Bounds(
        units=units, horizon=1, reward=(0.0, 2.0), actions=ACTIONS, observation=((0.0, 3.0), (0.0, 90.0)),
        observation_names=("site", "age"), strata=strata, **other,
    )  # fmt: skip


def people(count: int, seed: int) -> dict[str, Any]:
    """A log in which some sites treat more often, and who is older gains more by it."""
    rng = np.random.default_rng(seed)
    site, age = rng.integers(0, 4, count), rng.uniform(0.0, 90.0, count)
    action = (rng.random(count) < 0.25 + 0.15 * site).astype(int)
    reward = np.clip(1.0 - 0.2 * site + action * (0.1 + 0.4 * (age >= 50.0)) + 0.3 * rng.normal(size=count), 0.0, 2.0)
    return {
        "episode_id": np.arange(count), "t": np.zeros(count, int), "observation_0": site.astype(float),
        "observation_1": age, "action": action, "reward": reward, "terminated": np.ones(count, bool),
    }  # fmt: skip


def asked(bounds: Bounds, subgroups: tuple[str, ...] = ("site", "age:50"), **options: Any) -> StrataGroupedQuery:
    config = Stratified(discount=1.0, **options)
    query = make_plan(config, bounds, BUDGET, [TREAT, LEAVE], contrasts=((0, 1),), subgroups=subgroups).query
    assert isinstance(query, StrataGroupedQuery)
    return query


def counted(log: Any, deviation: float = SILENT) -> Propensities:
    """What the first sum gives for a log of one trajectory a unit, without noise."""
    strata = Strata(log.bounds)
    cell = strata.cells(log.observation) * ACTIONS + log.action
    size = strata.count * ACTIONS
    sums = np.bincount(cell, log.reward - 1.0, minlength=size)
    return Propensities(np.concatenate([2.0 * np.bincount(cell, minlength=size), sums]), strata, deviation)


def decoded(query: StrataGroupedQuery, log: Any, deviation: float = SILENT) -> list[Any]:
    around = query.around(counted(log, deviation))
    noisy = around.unit_vectors(log, [TREAT, LEAVE]).sum(axis=0)
    return subgroups_of(around, one_shot.quiet(around), noisy, ((0, 1),))


def stratified_mean(columns: dict[str, Any], inside: np.ndarray, action: int) -> float:
    """Everybody's mean outcome under an action: the mean over strata of those who got it, by people."""
    cell = columns["observation_0"].astype(int) * 3 + np.searchsorted([30.0, 50.0], columns["observation_1"], "right")
    total = 0.0
    for c in np.unique(cell[inside]):
        own = inside & (cell == c)
        total += own.sum() * columns["reward"][own & (columns["action"] == action)].mean()
    return total / inside.sum()


@pytest.mark.parametrize("overlap", ["bound", "trim"])
def test_values_of_a_group_are_the_stratified_means_of_its_people(overlap):
    columns, bounds = people(1500, 3), facts(1500)
    log = one_shot.load(columns, bounds)
    site, age = columns["observation_0"], columns["observation_1"]
    inside = [site == s for s in range(4)] + [age < 50.0, age >= 50.0]
    found = decoded(asked(bounds, overlap=overlap), log)
    assert [group.name for group in found] == [*(f"site {s}" for s in range(4)), "age < 50", "age >= 50"]
    for group, own in zip(found, inside, strict=True):
        assert group.people == pytest.approx(own.sum(), abs=1e-6)
        for value, action in zip(group.values, (1, 0), strict=True):
            assert value.value == pytest.approx(stratified_mean(columns, own, action), abs=1e-6)
        effect = stratified_mean(columns, own, 1) - stratified_mean(columns, own, 0)
        assert group.contrasts[0].value == pytest.approx(effect, abs=1e-6)


def test_blocks_of_an_axis_add_up_to_everybody():
    log = one_shot.load(people(400, 1), facts(400))
    query = asked(facts(400)).around(counted(log))
    vectors = query.unit_vectors(log, [TREAT, LEAVE])
    whole, parts = query.sums(vectors.sum(axis=0))
    alone = query.inner.unit_vectors(log, [TREAT, LEAVE]).sum(axis=0)
    np.testing.assert_allclose(whole, alone, atol=1e-9)
    for part in parts:
        np.testing.assert_allclose(part.sum(axis=0), alone, atol=1e-9)


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.sampled_from(["trajectory", "person"]))
def test_no_unit_is_longer_than_the_clip_norm(seed, unit):
    """People with several trajectories, of several groups, too."""
    rng, bounds = np.random.default_rng(seed), facts(40)
    columns = people(80, seed) | {"reward": rng.choice([0.0, 2.0], 80), "person_id": rng.integers(0, 20, 80)}
    log = dprl.read_log(columns, bounds=bounds, unit=unit).load()
    released = counted(log)
    released = replace(released, theta=released.theta + rng.normal(0.0, 5.0, released.theta.shape))
    query = asked(bounds).around(released)
    assert np.linalg.norm(query.unit_vectors(log, [TREAT, LEAVE]), axis=1).max() <= query.clip_norm * (1.0 + 1e-12)


def test_a_group_whose_people_noise_hides_has_the_whole_range():
    columns = people(600, 5)
    columns["observation_0"][columns["observation_0"] == 3.0] = 2.0
    columns["observation_0"][:15] = 3.0
    found = decoded(asked(facts(strata=("site",)), ("site",)), one_shot.load(columns, facts(strata=("site",))), 10.0)
    assert found[3].values[0].interval == (0.0, 2.0)
    assert found[3].contrasts[0].interval == (-2.0, 2.0)
    assert found[2].values[0].interval != (0.0, 2.0)


@pytest.mark.parametrize(
    ("subgroups", "strata", "words"),
    [
        (("age:40",), ("site", "age:30,50"), "age:40 is not made of strata: declare age"),
        (("site",), ("age:30,50",), "site is not made of strata: declare site"),
        (("size",), ("site",), "there is no component 'size'"),
    ],
)
def test_a_group_that_divides_a_stratum_is_refused(subgroups, strata, words):
    with pytest.raises(DprlError, match=words):
        asked(facts(strata=strata), subgroups)


@pytest.mark.parametrize(
    "other",
    [
        {"strata": ("site", "age:linear"), "max_importance_ratio": 5.0},
        {"max_importance_ratio": 2.0, "strata": ("site",)},
    ],
)
def test_what_has_no_subgroups_yet_says_so(other):
    bounds = facts(**other)
    if "age:linear" not in other["strata"]:
        bounds = replace(bounds, horizon=3)
    with pytest.raises(DprlError, match="stratified gives no values of subgroups"):
        asked(bounds, ("site",))


def test_groups_are_unions_of_strata_however_they_are_cut():
    """A number that is no whole one stands where its stratum does."""
    query = asked(facts(strata=("site", "age:30,50,70")), ("site:2", "age:50"))
    log = one_shot.load(people(60, 0) | {"observation_0": np.full(60, 1.6)}, query.bounds)
    noisy = query.around(counted(log)).unit_vectors(log, [TREAT, LEAVE]).sum(axis=0)
    low, high = query.sums(noisy)[1][0]
    assert np.abs(low).max() < 1e-9 < np.abs(high).max()
    assert with_subgroups_of_strata(query.inner, (), "trajectory") is query.inner


def test_a_release_of_subgroups_and_what_a_plan_says_before(tmp_path):
    columns, bounds = people(3000, 7), facts(3000)
    log, policies = dprl.read_log(columns, bounds=bounds), {"treat": TREAT, "leave": LEAVE}
    how = {"compare": ["treat:leave"], "subgroups": ["age:50"]}
    release = dprl.evaluate(log, policies, BUDGET, seed=1, **how)
    release.save(tmp_path / "out")
    young, old = release.subgroups
    assert old["contrasts"][0]["interval"][0] > 0.2
    assert abs(young["people"] - (columns["observation_1"] < 50.0).sum()) < 5.0 * young["people_standard_error"]
    (planned,) = plan_release(None, policies, BUDGET, Stratified(discount=1.0), bounds=bounds, **how)["subgroups"]
    assert planned["people_standard_error"] == pytest.approx(young["people_standard_error"], rel=0.03)
    verify(tmp_path / "out")
