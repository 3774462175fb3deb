"""Projections of values on covariates against least squares and its sandwich, and what noise does to them."""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

import dprl
from dprl.accounting.budget import Budget
from dprl.bounds import Bounds
from dprl.cli.evaluate import release_lines
from dprl.data.readers import read_log
from dprl.errors import DprlError
from dprl.evaluation.best_linear_projection import MOST_COVARIATES, BestLinearProjection
from dprl.evaluation.plan import make_plan
from dprl.evaluation.projections import Moments, critical_value, load_projections, powers, solve, tensor
from dprl.policies.loading import load_policy

from .helpers import columns_of

BUDGET = Budget(1.0, 1e-5)
ONE = Bounds(
    units=3000, horizon=1, reward=(-1.0, 3.0), observation=((20.0, 80.0), (0.0, 10.0), (1.0, 1.0)), actions=2,
    max_importance_ratio=2.5, observation_names=("age", "score", "site"),
)  # fmt: skip
ARMS = [load_policy(f"always:{arm}", 2) for arm in range(2)]
NAMES = {"always_0": "always:0", "always_1": "always:1"}
PAIR = ((1, 0),)


def by_age(states):
    """A policy that treats the old more often."""
    second = 0.3 + 0.01 * (states[:, 0] - 20.0)
    return np.column_stack([1.0 - second, second])


def trial(people: int = 3000, seed: int = 0, steps: int = 1) -> dict[str, np.ndarray]:
    """Two arms with chances .4 and .6; the second is better for the old, and nothing is linear or of one variance."""
    rng = np.random.default_rng(seed)
    age, score, rows = rng.uniform(20.0, 80.0, people), 10.0 * rng.beta(2.0, 3.0, people), people * steps
    arm, age, score = (rng.random(rows) < 0.6).astype(np.int64), np.repeat(age, steps), np.repeat(score, steps)
    reward = np.clip(np.sin(age / 15.0) * (1.0 + arm) + rng.normal(size=rows) * score / 10.0, -1.0, 3.0)
    return columns_of(
        arm.reshape(people, steps), np.where(arm == 1, 0.6, 0.4), observation_0=age, observation_1=score,
        observation_2=1.0, reward=reward,
    )  # fmt: skip


def planned(config=None, policies=ARMS, bounds=ONE, contrasts=PAIR, budget=BUDGET) -> Any:
    return make_plan(config or BestLinearProjection(discount=1.0), bounds, budget, policies, contrasts=contrasts)


def total_of(plan, columns, policies=ARMS):
    return plan.query.unit_vectors(read_log(columns, bounds=plan.bounds).load(), policies).sum(axis=0)


def quiet(plan):
    """The plan's mechanism with next to no noise, which is not added either."""
    return replace(plan.value_mechanism, noise_multiplier=0.005)


def weighted_returns(columns, policies, bounds):
    """Importance-sampled returns of one decision or several, weighted as distances to the middle of the range."""
    people = len(np.unique(columns["episode_id"]))
    states = np.column_stack([columns[f"observation_{i}"] for i in range(3)])
    low, high = bounds.value_interval(1.0)
    total = columns["reward"].reshape(people, -1).sum(axis=1)
    found = []
    for policy in policies:
        chance = np.asarray(policy(states))[np.arange(len(states)), columns["action"]] / columns["behavior_prob"]
        found.append((low + high) / 2.0 + chance.reshape(people, -1).prod(axis=1) * (total - (low + high) / 2.0))
    first = columns["t"] == 0
    design = np.column_stack(
        [np.ones(people), (columns["observation_0"][first] - 50.0) / 30.0, columns["observation_1"][first] / 5.0 - 1.0]
    )
    return design, found


SEVERAL = replace(ONE, horizon=2, max_importance_ratio=2.5, max_cumulative_ratio=6.25)
CASES = {
    "arms": (ARMS, ONE, 1),
    "a policy that mixes": ([*ARMS, by_age], ONE, 1),
    "one policy": ([by_age], ONE, 1),
    "two steps": ([ARMS[0], by_age], SEVERAL, 2),
}


@pytest.mark.parametrize("name", CASES)
def test_without_noise_it_is_least_squares_with_its_sandwich(name):
    policies, bounds, steps = CASES[name]
    pairs = PAIR if len(policies) > 1 else ()
    config = BestLinearProjection(discount=1.0)
    plan, columns = planned(config, policies, bounds, pairs), trial(steps=steps)
    if steps > 1:  # of whole trajectories, as NumPy has it below
        assert plan.query.inner.estimator == "per-decision"
        inner = of_wholes(bounds, policies, pairs)
        plan = replace(plan, query=replace(plan.query, inner=inner))
    total = total_of(plan, columns, policies)
    found = plan.query.learned(quiet(plan), total).found
    design, returns = weighted_returns(columns, policies, bounds)
    asked = [*((a, None) for a in range(len(policies))), *pairs]
    assert [(p.policy, p.against) for p in found] == asked
    unit = plan.query.inner.scale.width / 2.0
    for projection, moments in zip(found, plan.query._moments(0.0, total, asked), strict=True):
        outcome = returns[projection.policy] - (0.0 if projection.against is None else returns[projection.against])
        weights = np.linalg.lstsq(design, outcome)[0]
        np.testing.assert_allclose(projection.weights, weights, rtol=1e-8, atol=1e-8)
        bread = np.linalg.inv(design.T @ design)
        scores = design * (outcome - design @ weights)[:, None]
        sandwich = bread @ scores.T @ scores @ bread  # HC0, as of any weighted regression
        solved = solve(moments, 1.0, 1.0)
        assert solved is not None
        exact = unit**2 / 3.0 * solved[1]
        np.testing.assert_allclose(exact, sandwich, rtol=1e-7, atol=1e-12)
        # noise that might have been there is counted
        assert (np.linalg.eigvalsh(projection.covariance - exact) > 0.0).all()


def of_wholes(bounds, policies, pairs):
    options = dprl.ImportanceSampling(discount=1.0, estimator="trajectory")
    return options.value_query(bounds, policies, pairs)


def test_values_and_differences_are_those_of_importance_sampling():
    plan, columns = planned(), trial()
    alone = make_plan(dprl.ImportanceSampling(discount=1.0), ONE, BUDGET, ARMS, contrasts=PAIR)
    mine, other = (
        plan.query.decode(quiet(plan), total_of(plan, columns)),
        alone.query.decode(quiet(alone), total_of(alone, columns)),
    )
    for one, two in zip(mine, other, strict=True):
        assert one.value == pytest.approx(two.value, rel=1e-6)
        assert one.interval == pytest.approx(two.interval, rel=1e-3)
    whole, share = (p.query.expect(p.value_mechanism)[0][0] for p in (alone, plan))
    assert share == pytest.approx(2.0 * whole, rel=1e-3)  # a quarter of mu^2


# --- a unit's vector ----------------------------------------------------------------------------------------------


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_coordinates_are_those_of_tensor_powers(size, power, seed):
    one, two = np.random.default_rng(seed).normal(size=(2, 1, size))
    inner = (powers(one, power) @ powers(two, power).T).item()
    assert inner == pytest.approx((one @ two.T).item() ** power, rel=1e-9, abs=1e-9)
    product = one[0]
    for _ in range(power - 1):
        product = np.multiply.outer(product, one[0])
    np.testing.assert_allclose(tensor(powers(one, power)[0], size, power), product, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("policies", [ARMS, [*ARMS, by_age]], ids=["arms", "a mixture too"])
def test_no_vector_is_longer_than_one_and_some_are_nearly(policies):
    bounds = replace(ONE, max_importance_ratio=2.0)
    plan, columns = planned(policies=policies, bounds=bounds), trial(400)
    columns |= {
        "observation_0": np.where(np.arange(400) % 2, 20.0, 80.0), "observation_1": np.full(400, 10.0),
        "reward": np.full(400, 3.0), "behavior_prob": np.full(400, 0.5),
    }  # fmt: skip
    norms = np.linalg.norm(plan.query.unit_vectors(read_log(columns, bounds=bounds).load(), policies), axis=1)
    assert norms.max() <= 1.0 + 1e-12
    assert norms.max() > 0.95


def test_whoever_cannot_be_used_adds_nothing():
    columns = trial(5)
    columns["reward"][2] = np.nan
    vectors = planned().query.unit_vectors(read_log(columns, bounds=ONE).load(), ARMS)
    assert not vectors[2].any()
    assert vectors[[0, 1, 3, 4]].any(axis=1).all()


# --- noise --------------------------------------------------------------------------------------------------------


def test_moments_have_the_noise_that_is_said():
    """The standard deviations are accepted, and two thirds or three halves of them are not."""
    plan, draws = planned(policies=[*ARMS, by_age], contrasts=((1, 0), (2, 0))), 600
    asked, rng = [(0, None), (2, None), (2, 0)], np.random.default_rng(3)
    std = plan.value_mechanism.noise_std
    found = [plan.query._moments(std, std * rng.normal(size=plan.query.dimension), asked) for _ in range(draws)]
    for place in range(len(asked)):
        every = [moments[place] for moments in found]
        for number in range(5):
            corner = np.array([np.ravel(moments[number])[[0, -1]] for moments in every])  # entries on the diagonal
            ratio = corner.std() / every[0].noises[number]
            assert 0.9 < ratio < 1.1, (asked[place], number)


def law(rng, size=3):
    """Moments of a law whose projection is known, in units of people, and the true weights."""
    root = rng.normal(size=(size, size)) / 4.0 + np.eye(size)
    return 400.0 * root @ root.T, np.array([0.5, -0.3, 0.2])


@pytest.mark.parametrize("loud", [4.0, 12.0])
def test_the_set_of_weights_holds_what_noise_alone_moves(loud):
    """Without sampling error the error is noise on both sides of the normal equations; nominal 95%, 400 draws."""
    rng, critical, hits, zero, some = np.random.default_rng(5), critical_value(0.95, 3), 0, np.zeros((3,) * 4), 0
    gram, true = law(rng)
    for _ in range(400):
        symmetric = rng.normal(size=(3, 3)) * loud
        noisy = gram + (symmetric + symmetric.T) / 2.0
        linear = gram @ true + loud * rng.normal(size=3)
        solved = solve(Moments(noisy, zero, linear, zero[0], zero[0, 0], (loud, 0.0, loud, 0.0, 0.0)), critical, 1.0)
        if solved is not None:
            error, some = solved[0] - true, some + 1
            hits += bool(error @ np.linalg.inv(solved[1]) @ error <= critical**2)
    assert some > 350
    assert hits >= 0.92 * some  # three standard deviations below .95 are .917


def test_without_noise_the_covariance_does_not_widen_and_with_it_it_does():
    rng = np.random.default_rng(6)
    gram, true = law(rng)
    zero = np.zeros((3,) * 4)
    widths = []
    for loud in (0.0, 1.0, 2.0, 4.0):
        moments = Moments(gram, zero, gram @ true, zero[0], gram, (loud, 0.0, loud, 0.0, 0.0))
        solved = solve(moments, 2.5, 1.0)
        assert solved is not None
        widths.append(np.sqrt(np.diag(solved[1])))
    assert (np.diff(widths, axis=0) > 0.0).all()


def test_where_noise_hides_the_covariates_there_is_no_band():
    gram, zero = np.diag([100.0, 1.0]), np.zeros((2,) * 4)
    for of_gram, there in ((0.1, True), (1.0, False)):
        moments = Moments(gram, zero, np.ones(2), zero[0], gram, (of_gram, 0.0, 0.0, 0.0, 0.0))
        assert (solve(moments, 2.0, 1.0) is not None) == there
    negative = Moments(-gram, zero, np.ones(2), zero[0], gram, (0.0, 0.0, 0.0, 0.0, 0.0))
    assert solve(negative, 2.0, 1.0) is None


@pytest.mark.parametrize(("confidence", "size"), [(0.95, 1), (0.99, 4), (0.975, 9)])
def test_the_critical_value_is_a_chi_square_quantile(confidence, size):
    assert critical_value(confidence, size) ** 2 == pytest.approx(chi2.ppf(confidence, size))


# --- the release --------------------------------------------------------------------------------------------------


def released(columns=None, bounds=ONE, budget=BUDGET, **options) -> Any:
    config = BestLinearProjection(discount=1.0, **options)
    return dprl.evaluate(
        trial() if columns is None else columns, NAMES, budget, algorithm=config, bounds=bounds, seed=1,
        compare=["always_1:always_0"],
    )  # fmt: skip


def test_a_release_says_who_benefits(tmp_path):
    release = released(budget=Budget(4.0, 1e-5))
    found = {
        " less ".join((x["policy"], *x.get("against", "").split())): x for x in release.estimate["projections"]["found"]
    }
    assert list(found) == ["always_0", "always_1", "always_1 less always_0"]
    assert release.estimate["projections"]["covariates"] == ["age", "score"]  # the site has a single value
    age, score = found["always_1"]["coefficients"]
    assert age["interval"][1] < 0.0  # the sine falls
    assert score["interval"][0] < 0.0 < score["interval"][1]
    assert not found["always_1"]["constant_only"]
    slices = found["always_1"]["slices"]
    assert [x["name"] for x in slices] == ["age", "score"]
    for one in slices:
        assert (np.array(one["low"]) < one["values"]).all()
        assert (np.array(one["values"]) < one["high"]).all()
    release.save(tmp_path / "out")
    again = load_projections(tmp_path / "out")
    assert again.to_bytes() == release.learned.to_bytes()
    band = again.band(1, np.array([[50.0, 5.0, 1.0]]))
    assert band is not None
    value, low, high = band
    middle = slices[0]["grid"].index(50.0)
    assert (value[0], low[0], high[0]) == tuple(slices[0][name][middle] for name in ("values", "low", "high"))
    assert release.value_function is None
    assert release.projections is release.learned


def test_the_budget_may_buy_a_constant_only():
    columns = trial()
    columns["reward"] = np.random.default_rng(2).choice([0.0, 1.0], 3000)
    found = released(columns).estimate["projections"]["found"]
    assert all(x["constant_only"] for x in found)


def test_where_weights_do_not_add_up_there_is_no_band():
    columns = trial()
    columns["behavior_prob"] = np.where(columns["action"] == 1, 0.5, 0.4)  # of .6 and .4
    release = released(columns, budget=Budget(8.0, 1e-5))
    assert [x["band"] for x in release.estimate["projections"]["found"]] == [True, False, False]
    assert "weights-above-one" in release.values["always_1"].notes
    assert release.projections.found[1].weights is None
    assert release.projections.band(1, np.zeros((1, 3))) is None


def test_a_plan_says_that_there_can_be_no_band():
    plan = planned(bounds=replace(ONE, units=60), budget=Budget(1.0, 1e-5))
    assert ["no band" in line for line in plan.query.cautions(plan.value_mechanism)] == [True]
    assert planned().query.cautions(planned().value_mechanism) == []


WRONG = {
    "would be cut": ({"horizon": 4, "max_cumulative_ratio": 3.0}, {}),
    "no component 'weight' has more than one value; there are age, score": ({}, {"covariates": "age,weight"}),
    "no component 'site' has more than one value": ({}, {"covariates": "site"}),
    "name a component twice": ({}, {"covariates": "age, age"}),
    f"at most {MOST_COVARIATES} are possible": ({"observation": ((0.0, 1.0),) * 9, "observation_names": None}, {}),
    "value_budget_fraction must be": ({}, {"value_budget_fraction": 1.0}),
}


@pytest.mark.parametrize("sentence", WRONG)
def test_what_cannot_be_projected_is_refused_before_anything_is_read(sentence):
    facts, options = WRONG[sentence]
    with pytest.raises(DprlError, match=sentence):
        planned(BestLinearProjection(**options), bounds=replace(ONE, **facts))


def test_subgroups_are_refused():
    with pytest.raises(DprlError, match="no values of subgroups"):
        make_plan(BestLinearProjection(), ONE, BUDGET, ARMS, subgroups=["age:50"])


def test_covariates_may_be_some_of_the_components():
    plan, columns = planned(BestLinearProjection(discount=1.0, covariates="score")), trial()
    (found, *_) = plan.query.learned(quiet(plan), total_of(plan, columns)).found
    design, returns = weighted_returns(columns, ARMS, ONE)
    np.testing.assert_allclose(found.weights, np.linalg.lstsq(design[:, [0, 2]], returns[0])[0], rtol=1e-5)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("{}", "holds no projections"),
        ('{"schema": "dprl.projections/1"}', "holds no projections"),
        ("", "is missing or damaged"),
        ("[]", "is missing or damaged"),
        ('{"schema": 1, "schema": 2}', "is missing or damaged"),
    ],
)
def test_a_broken_file_is_refused_in_one_sentence(tmp_path, broken, said):
    (tmp_path / "projections.json").write_text(broken)
    with pytest.raises(DprlError, match=said):
        load_projections(tmp_path)


def test_a_file_that_is_none_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "projections.json")
    for path in (tmp_path, tmp_path / "nowhere.json"):
        with pytest.raises(DprlError, match=r"Cannot read projections in .*: it is missing or damaged"):
            load_projections(path)


def test_what_is_written_is_plain_numbers():
    made = json.loads(released().learned.to_bytes())
    assert made["schema"] == "dprl.projections/1"
    assert math.isfinite(made["critical"])
    assert [len(x["weights"]) for x in made["found"]] == [3, 3, 3]


def test_the_command_line_says_in_a_line_who_benefits(tmp_path):
    columns = trial()
    columns["reward"] = np.where(columns["action"] == 1, columns["observation_0"] / 40.0 - 1.0, 0.0)
    said = [line for line in release_lines(released(columns)) if "by covariates" in line]
    assert said[0] == "always_0 by covariates: the budget buys a constant only"
    assert re.match(r"always_1 less always_0 by covariates: age 1\.\d+ \(\S+ to \S+\), score ", said[2])
    columns["behavior_prob"] = np.where(columns["action"] == 1, 0.5, 0.4)
    assert "always_1 by covariates: no band" in release_lines(released(columns, budget=Budget(8.0, 1e-5)))
