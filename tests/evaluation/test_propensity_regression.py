"""Propensity regression: maximum likelihood and the doubly robust value without noise, bounded vectors, refusals."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dprl
from dprl.bounds import Bounds
from dprl.errors import DprlError
from dprl.evaluation import propensity_regression, regression_values
from dprl.evaluation.plan import make_plan
from dprl.evaluation.propensities import PropensityModel
from dprl.evaluation.propensity_regression import RegressionTerms
from dprl.evaluation.stratified import Stratified

from . import one_shot
from .helpers import columns_of
from .test_stratified import check_saved

LINEAR = ("age:linear", "observation_1:linear", "site")
POLICIES = [lambda s, a=a: np.tile(np.eye(3)[a], (len(s), 1)) for a in range(3)]
BY_AGE = lambda s: np.where(s[:, :1] > 45.0, [[0.0, 0.5, 0.5]], [[1.0, 0.0, 0.0]])  # noqa: E731


def facts(**other: Any) -> Bounds:
    known = {
        "units": 900, "horizon": 1, "reward": (0.0, 2.0), "actions": 3, "max_importance_ratio": 8.0, "strata": LINEAR,
        "observation": ((20.0, 70.0), (-1.0, 1.0), (0.0, 1.0)), "observation_names": ("age", "observation_1", "site"),
    }  # fmt: skip
    return Bounds(**{**known, **other})


def people(count: int, seed: int) -> dict[str, Any]:
    """A log in which age, severity and site decide who gets which of three actions, and the outcome."""
    rng = np.random.default_rng(seed)
    age, ill, site = rng.uniform(20.0, 70.0, count), rng.uniform(-1.0, 1.0, count), rng.integers(0, 2, count)
    x = (age - 45.0) / 25.0
    logits = np.stack([0.0 * x, 0.3 + 0.8 * x - 0.5 * ill, -0.2 - 0.6 * x + 0.7 * site], axis=1)
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    action = (rng.random((count, 1)) > np.cumsum(chances, axis=1)).sum(axis=1)
    reward = np.clip(1.0 - 0.4 * x + 0.3 * ill * x + 0.2 * action + 0.3 * rng.normal(size=count), 0.0, 2.0)
    columns = columns_of(action, observation_0=age, observation_1=ill, observation_2=site.astype(float), reward=reward)
    return {name: values for name, values in columns.items() if name != "behavior_prob"}


def plan_of(bounds: Bounds, policies: Any = POLICIES, **options: Any) -> Any:
    config = Stratified(discount=1.0, **options)
    return make_plan(config, bounds, dprl.Budget(1.0, 1e-5), list(policies), contrasts=[(1, 0)])


def fitted(columns: dict[str, Any], bounds: Bounds, monkeypatch: Any) -> PropensityModel:
    """What is released of a log without noise, after as many steps as it takes."""
    monkeypatch.setattr(propensity_regression, "NEWTON_STEPS", 12)
    log, budget = one_shot.load(columns, bounds), dprl.Budget(50.0, 1e-5)
    program, _, data = one_shot.made(Stratified(discount=1.0), log, "columns", budget=budget)
    theta = one_shot.plain(program, data)[1]
    return PropensityModel(theta, RegressionTerms(bounds), (0.0, 0.0))


def terms_of(columns: dict[str, Any]) -> np.ndarray:
    """Terms as a statistician writes them: a constant, age and the second component from -1 to 1, and a site."""
    age = (columns["observation_0"] - 45.0) / 25.0
    return np.stack([np.ones_like(age), age, columns["observation_1"], columns["observation_2"]], axis=1)


def likeliest(x: np.ndarray, action: np.ndarray, actions: int = 3) -> np.ndarray:
    """``(A - 1, D)`` maximum likelihood coefficients, by Newton's method."""
    beta = np.zeros((actions - 1, x.shape[1]))
    for _ in range(30):
        odds = np.exp(np.column_stack([np.zeros(len(x)), x @ beta.T]))
        p = odds / odds.sum(axis=1, keepdims=True)
        score = (np.eye(actions)[action] - p)[:, 1:].T @ x
        spread = np.einsum("na,ab->nab", p, np.eye(actions)) - p[:, :, None] * p[:, None, :]
        information = np.einsum("nab,ni,nj->aibj", spread[:, 1:, 1:], x, x)
        beta += np.linalg.solve(information.reshape(beta.size, beta.size), score.ravel()).reshape(beta.shape)
    return beta


def summed(query: Any, columns: dict[str, Any], bounds: Bounds, policies: Any = POLICIES) -> np.ndarray:
    return query.unit_vectors(one_shot.load(columns, bounds), policies).sum(axis=0)


def doubly_robust(columns: dict[str, Any], beta: np.ndarray, policy: Any, most: float = np.inf) -> float:
    """The mean score, with outcome models by least squares within each action."""
    x, action, y = terms_of(columns), columns["action"], columns["reward"] - 1.0
    odds = np.exp(np.column_stack([np.zeros(len(x)), x @ beta.T]))
    p = odds / odds.sum(axis=1, keepdims=True)
    m = np.stack([x @ np.linalg.lstsq(x[action == a], y[action == a], rcond=None)[0] for a in range(3)], axis=1)
    own, m = (np.arange(len(x)), action), np.clip(m, -1.0, 1.0)
    states = np.stack([columns[f"observation_{i}"] for i in range(3)], axis=1)
    chosen = policy(states)
    weight = np.minimum(chosen[own] / p[own], most)
    return float(np.mean((chosen * m).sum(axis=1) + weight * (y - m[own])))


def test_without_noise_it_is_maximum_likelihood_and_the_doubly_robust_value(monkeypatch):
    columns, bounds = people(900, 1), facts(max_importance_ratio=900.0)
    model = fitted(columns, bounds, monkeypatch)
    beta = likeliest(terms_of(columns), columns["action"])
    assert model.coefficients[1:] / model.terms.norm == pytest.approx(beta, abs=1e-5)
    query = plan_of(bounds, min_propensity=0.0).query.around(model)
    estimates = query.decode(one_shot.quiet(query), summed(query, columns, bounds))
    for estimate, policy in zip(estimates, POLICIES, strict=True):
        assert estimate.value - 1.0 == pytest.approx(doubly_robust(columns, beta, policy), abs=1e-5)


def test_a_weight_that_is_cut_moves_the_value_by_no_more_than_is_counted(monkeypatch):
    columns, bounds = people(900, 2), facts(max_importance_ratio=2.5)
    model = fitted(columns, bounds, monkeypatch)
    beta = likeliest(terms_of(columns), columns["action"])
    query = plan_of(bounds).query.around(model)
    estimates = query.decode(one_shot.quiet(query), summed(query, columns, bounds))
    for estimate, policy in zip(estimates, POLICIES, strict=True):
        assert estimate.value - 1.0 == pytest.approx(doubly_robust(columns, beta, policy, 2.5), abs=1e-5)
        moved = abs(doubly_robust(columns, beta, policy) - (estimate.value - 1.0))
        assert 0.0 < moved < estimate.bias_bound / 2.0
        assert estimate.notes == ("cut-weights",)


def test_noise_in_coefficients_moves_values_along_the_released_derivative(monkeypatch):
    """What is left is of second order, and no larger in the mean than what the interval counts."""
    columns, bounds = people(900, 3), facts(max_importance_ratio=900.0)
    model, policies = fitted(columns, bounds, monkeypatch), [*POLICIES[:2], BY_AGE]
    plan = plan_of(bounds, policies, min_propensity=0.0)
    noisy = PropensityModel(model.theta, model.terms, tuple(stage.mechanism.noise_std / 20.0 for stage in plan.stages))
    rng, c = np.random.default_rng(3), model.terms.coefficients
    place = len(model.theta) - c - model.terms.triangle * len(model.terms.pairs)
    for k in range(3):

        def at(theta: np.ndarray, k: int = k) -> Any:
            query = plan.query.around(PropensityModel(theta, model.terms, (0.0, 0.0)))
            vector = summed(query, columns, bounds, policies)
            return query.radius * vector[k] / 900.0, query, vector

        value, query, vector = at(model.theta)
        moves = vector[2 * 3 : 2 * 3 + 3 * c].reshape(3, c)[k]
        slope = query.radius * model.terms.longest_score / regression_values.DERIVATIVE * moves / 900.0
        left = []
        for _ in range(40):
            theta, moved = model.theta.copy(), rng.multivariate_normal(np.zeros(c), noisy.covariance)
            theta[place : place + c] += moved
            left.append(at(theta)[0] - value - slope @ moved)
        small = model.theta.copy()
        small[place] += 1e-5
        assert (at(small)[0] - value) / 1e-5 == pytest.approx(slope[0], abs=1e-4)
        assert abs(np.mean(left)) < 0.5 * (1.0 + model.largest_outcome) * noisy.log_odds_variance


@given(seed=st.integers(0, 1000), ratio=st.sampled_from([1.5, 8.0, 60.0]))
@settings(max_examples=25, deadline=None)
def test_no_vector_is_longer_than_its_clip(seed, ratio):
    rng, bounds = np.random.default_rng(seed), facts(max_importance_ratio=ratio)
    columns, terms = people(100, seed), RegressionTerms(bounds)
    columns["reward"] = rng.choice([0.0, 2.0], 100)
    model = PropensityModel(30.0 * rng.normal(size=terms.released_size) ** 3, terms, (1.0, 1.0))
    policies = [*POLICIES[:2], BY_AGE]
    query = plan_of(bounds, policies).query.around(model)
    vectors = query.unit_vectors(one_shot.load(columns, bounds), policies)
    assert np.linalg.norm(vectors, axis=1).max() <= query.clip_norm


@given(seed=st.integers(0, 1000))
@settings(max_examples=10, deadline=None)
def test_no_sum_over_a_unit_is_longer_than_its_clip(seed):
    rng, columns = np.random.default_rng(seed), people(60, seed)
    columns |= {"observation_0": rng.choice([20.0, 70.0], 60), "observation_1": rng.choice([-1.0, 1.0], 60)}
    columns["reward"] = rng.choice([0.0, 2.0], 60)
    program, _, data = one_shot.made(Stratified(discount=1.0), one_shot.load(columns, facts()), "columns")
    state = program.init()
    one_shot.check_no_clip_binds(program, state._replace(beta=5.0 * rng.normal(size=state.beta.shape)), data)


def test_no_state_has_a_smaller_propensity_than_the_least():
    rng, terms = np.random.default_rng(0), RegressionTerms(facts())
    model = PropensityModel(rng.normal(size=terms.released_size), terms, (1.0, 1.0))
    states = np.column_stack([rng.choice([20.0, 45.0, 70.0], 500), rng.uniform(-1, 1, 500), rng.integers(0, 2, 500)])
    assert (model.probabilities(terms.of_states(states)).min(axis=0) >= model.least_probabilities).all()


@pytest.mark.parametrize(
    ("bounds", "options", "policies", "words"),
    [
        ({"strata": ("sex:linear",)}, {}, POLICIES, "there is no component 'sex'"),
        ({"strata": ("age:linear", "age:40")}, {}, POLICIES, "name a component twice"),
        ({"strata": ("age:" + ",".join(str(30.0 + i) for i in range(25)), "site:linear")}, {}, POLICIES, "at most 40"),
        ({"max_importance_ratio": 1.0}, {}, POLICIES, "declare max_importance_ratio"),
        ({"horizon": 3}, {}, POLICIES, "is for one decision"),
        ({"censoring_hazard": "estimate"}, {}, POLICIES, "knows nothing of people who are lost"),
        ({"return_range": (0.0, 1.0)}, {}, POLICIES, "leave return_range out"),
        ({}, {"overlap": "trim"}, POLICIES, "trims nobody"),
    ],
)
def test_what_cannot_be_served_is_refused(bounds, options, policies, words):
    with pytest.raises(DprlError, match=words):
        plan_of(facts(**bounds), policies, **options)


def test_a_release_estimates_by_a_regression_and_can_be_verified(tmp_path):
    columns, bounds = people(900, 5), facts()
    targets = {"first": POLICIES[0], "by age": BY_AGE}
    release = dprl.evaluate(columns, targets, dprl.Budget(4.0, 1e-5), bounds=bounds, compare=["by age:first"])
    files = check_saved(release, tmp_path)
    assert isinstance(release.propensities, PropensityModel)
    estimate = json.loads(files["estimate.json"].read_bytes())
    assert estimate["propensities"]["regression"] == ["constant", "age", "observation_1", "site 1"]
    assert any("a multinomial regression on age, observation_1, site 1" in one for one in estimate["cautions"])
    assert "multinomial regression" in files["report.html"].read_text()
    assert "site 1" in files["report.html"].read_text()
