"""The baselines of paper 002 on records: what they minimise, what they spend, and what their noise is."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dprl.accounting import accountant, events
from dprl.accounting.budget import Budget
from dprl.errors import DprlError
from dprl_papers.baselines import agd, descent, objective_perturbation, output_perturbation
from dprl_papers.records import tables
from dprl_papers.records.losses import (
    LinearLoss,
    NetworkLoss,
    QuadraticLoss,
    Records,
    accuracy,
    objective,
)
from dprl_papers.records.tasks import START, Classification, Quadratics


def rows(n: int, d: int, seed: int = 0) -> Records:
    """Rows of norm 1 with labels that can mostly be told apart."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(n, d)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = np.where(x[:, 0] + 0.3 * draw.normal(size=n) > 0.0, 1.0, -1.0).astype(np.float32)
    return Records(jnp.asarray(x), jnp.asarray(y))


# --- losses -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "loss",
    [
        QuadraticLoss(),
        LinearLoss(features=5),
        LinearLoss(features=5, kind="svm"),
        pytest.param(NetworkLoss(features=5, hidden=3), marks=pytest.mark.slow),
    ],
    ids=["quadratic", "logistic", "svm", "network"],
)
def test_gradients_of_records_are_those_of_their_losses(loss):
    records = Quadratics().sample(jax.random.key(0)) if isinstance(loss, QuadraticLoss) else rows(40, 5)
    theta = jnp.asarray(np.random.default_rng(1).normal(size=loss.dimension), jnp.float32)
    gradients = jax.jit(loss.gradients)
    one = jax.jit(jax.jacrev(lambda p: loss.losses(p, records)))(theta)
    all_of_them = np.asarray(gradients(theta, records))
    np.testing.assert_allclose(all_of_them, one, rtol=2e-4, atol=2e-5)
    # a record's gradient does not know the others
    few = jax.tree.map(lambda a: np.asarray(a)[:7], records)
    np.testing.assert_allclose(gradients(theta, few), all_of_them[:7], rtol=1e-5, atol=1e-6)
    if isinstance(loss, LinearLoss):
        assert float(np.linalg.norm(all_of_them, axis=1).max()) <= loss.lipschitz + 1e-6
        # away from the kinks of the second derivative
        margins = jnp.linspace(-3.0, 3.0, 602)
        second = jax.jit(jax.vmap(jax.grad(lambda m: loss.slopes(m))))(margins)
        np.testing.assert_allclose(jax.jit(loss.curvatures)(margins), second, atol=1e-6)
        assert float(second.max()) == pytest.approx(loss.smoothness, rel=1e-3)


# --- descent ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_descent_without_noise_finds_the_normal_equations():
    family = Quadratics()
    task = family.sample(jax.random.key(3))
    x, y = np.asarray(task.x, np.float64), np.asarray(task.y, np.float64)
    best = np.linalg.solve(np.einsum("nij,nik->jk", x, x) + 0.001 * np.eye(2), np.einsum("nij,ni->j", x, y))
    start = jnp.asarray(START)
    path = descent.descend(descent.Descent(steps=200), family.record_loss, task, start, 0.0, 1e3, 0.1, 0)
    assert path.shape == (201, 2)
    np.testing.assert_array_equal(path[0], start)
    np.testing.assert_allclose(path[-1], best, atol=1e-4)
    run = agd.descend(agd.AGD(largest_loss=1e4), family.record_loss, 400, task, start, 1e12, 1e9, 1e3, 0.5, 0)
    assert (
        float(family.loss(task, run.parameters)) < float(objective(family.record_loss, jnp.asarray(best), task)) + 1e-2
    )


def test_noise_of_a_step_is_the_multiplier_times_the_clip_over_the_records():
    loss, records = LinearLoss(features=4, ridge=0.0), rows(50, 4)
    run = lambda z, seed: descent.descend(  # noqa: E731
        descent.Descent(steps=1), loss, records, jnp.zeros(4), z, 0.5, 1.0, seed
    )[-1]
    noisy = jax.vmap(lambda s: run(3.0, s))(jnp.arange(1500))
    found = float(jnp.std(noisy - run(0.0, 0)))
    for factor, fits in ((1.0, True), (2.0 / 3.0, False), (1.5, False)):
        assert (abs(found / (factor * 3.0 * 0.5 / 50) - 1.0) < 0.05) == fits
    # the clip: no record's gradient is longer than it
    tight = descent.descend(descent.Descent(steps=1), loss, records, jnp.zeros(4), 0.0, 1e-3, 1.0, 0)[-1]
    assert float(jnp.linalg.norm(tight)) <= 1e-3 * (1.0 + 1e-5)


@pytest.mark.parametrize(("steps", "rate"), [(1, 1.0), (30, 1.0), (50, 0.05)])
def test_both_accountants_of_a_descent_hold_and_strong_composition_is_the_dearer(steps, rate):
    budget = Budget(0.5, 1e-8)
    z = {}
    for kind in ("pld", "strong-composition"):
        config = descent.Descent(steps=steps, sampling_rate=rate, accounting=kind)
        z[kind] = descent.noise_multiplier(config, budget)
        spent = accountant.epsilon_of(events.poisson_gaussian(rate, z[kind], steps), budget.delta)
        assert spent <= budget.epsilon
    assert z["strong-composition"] > 2.0 * z["pld"]
    each = descent.step_budget(budget, steps, rate)
    # back from the sample to everybody, and T of them together
    e = math.log1p(rate * math.expm1(each.epsilon))
    total = math.sqrt(2.0 * steps * math.log(2.0 / budget.delta)) * e + steps * e * math.expm1(e)
    assert total == pytest.approx(budget.epsilon, rel=1e-9)
    assert 2.0 * steps * rate * each.delta == pytest.approx(budget.delta)


# --- AGD --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_agd_never_spends_more_than_it_has_and_asks_before_each_draw():
    family = Quadratics()
    task, start = family.sample(jax.random.key(3)), jnp.asarray(START)
    config, budget = agd.AGD(largest_loss=20.0), Budget(0.4, 1e-8)
    rho, query = agd.budget_rho(budget), agd.query_rho(config, budget)
    assert rho + 2.0 * math.sqrt(rho * math.log(1e8)) == pytest.approx(0.4)
    rounds = agd.most_rounds(config, budget)
    run = jax.vmap(lambda s: agd.descend(config, family.record_loss, rounds, task, start, rho, query, 4.0, 0.3, s))(
        jnp.arange(30)
    )
    assert float(run.spent.max()) <= rho * (1.0 + 1e-12)
    assert float(run.spent.min()) > 0.9 * rho
    assert int(run.objective_queries.max()) <= rounds
    # steps that help, and some that do not: each of those is one more query
    assert int((run.objective_queries - run.steps).max()) > 0
    assert int(run.gradient_queries.min()) >= int(run.steps.min())
    for paid, asked in ((1.9, 0), (2.0, 1), (3.9, 1)):
        one = agd.descend(config, family.record_loss, 8, task, start, paid * query, query, 4.0, 0.3, 0)
        assert int(one.objective_queries) == asked
        if not asked:
            np.testing.assert_array_equal(one.parameters, start)
            assert float(one.spent) <= paid * query


@pytest.mark.slow
def test_agd_choice_of_a_step_follows_the_report_noisy_min():
    """Two candidates whose losses differ by g: the better one is chosen as often as two Laplace numbers say."""
    loss = QuadraticLoss(units=1, ridge=0.0)
    task = Records(jnp.asarray([[[1.0, 0.0], [0.0, 1.0]]]), jnp.zeros((1, 2)))
    scale = 1.0  # largest_loss / sqrt(2 query)
    query = 0.5 * (2.0 / scale) ** 2
    run = jax.vmap(
        lambda s: agd.descend(
            agd.AGD(largest_loss=2.0, candidates=1), loss, 1, task, jnp.asarray([1.0, 0.0]), 1e18, query, 1e4, 1.0, s
        )
    )
    taken = np.asarray(run(jnp.arange(4000)).steps)
    # with a clip of 1e4 a gradient is nothing but noise: a step of 1 from (1, 0) along u ends at 2 - 2 cos(u)
    cos = np.cos(np.random.default_rng(0).uniform(0.0, 2.0 * np.pi, 200_000))
    gap = np.minimum(2.0 - 2.0 * cos, 2.0) - 1.0
    x = np.abs(gap) / scale
    worse = np.exp(-x) * (2.0 + x) / 4.0
    chosen = np.where(gap < 0.0, 1.0 - worse, worse).mean()
    assert taken.mean() == pytest.approx(chosen, abs=4.0 * math.sqrt(0.25 / 4000))


# --- perturbed objectives and outputs ---------------------------------------------------------------------------------


def test_delta_of_objective_perturbation_bounds_what_integration_finds():
    """One dimension: the density of the minimiser is that of b, which is known, times |db/dtheta|."""
    loss, ridge, budget = LinearLoss(features=1), 2.0, Budget(1.0, 1e-2)
    std = objective_perturbation.noise_std(budget, loss, ridge)
    theta = np.linspace(-60.0, 60.0, 400_001)
    base = rows(3, 1)

    def density(records: Records) -> np.ndarray:
        margin = np.asarray(records.y)[:, None] * np.asarray(records.x) * theta
        slope = -1.0 / (1.0 + np.exp(margin)) * (np.asarray(records.y) * np.asarray(records.x)[:, 0])[:, None]
        b = -slope.sum(axis=0) - ridge * theta
        bend = (1.0 / (2.0 + np.exp(margin) + np.exp(-margin)) * np.asarray(records.x) ** 2).sum(axis=0) + ridge
        return np.exp(-0.5 * (b / std) ** 2) / math.sqrt(2.0 * math.pi) / std * bend

    found = []
    for sign in (1.0, -1.0):
        more = Records(jnp.concatenate([base.x, jnp.ones((1, 1))]), jnp.concatenate([base.y, jnp.asarray([sign])]))
        with_it, without = density(more), density(base)
        step = theta[1] - theta[0]
        assert with_it.sum() * step == pytest.approx(1.0, abs=1e-6)
        for p, q in ((with_it, without), (without, with_it)):
            found.append(np.maximum(p - math.e**budget.epsilon * q, 0.0).sum() * step)
    assert max(found) <= budget.delta
    # and the bound is not idle: with a third of the noise it would be broken
    std /= 3.0
    third = [density(base), density(more)]
    broken = max(np.maximum(p - math.e**budget.epsilon * q, 0.0).sum() * step for p, q in (third, third[::-1]))
    assert broken > budget.delta


@pytest.mark.slow
def test_perturbed_minimisers_are_minimisers_and_move_as_little_as_is_claimed():
    for kind in ("logistic", "svm"):
        loss, records, ridge = LinearLoss(features=6, kind=kind), rows(60, 6), 5.0
        tilt = jnp.asarray(np.random.default_rng(2).normal(size=6))
        theta = objective_perturbation.minimiser(loss, records, ridge, tilt)
        gradient = loss.gradients(theta, Records(*(a.astype(jnp.float64) for a in records))).sum(axis=0)
        np.testing.assert_allclose(gradient + ridge * theta + tilt, 0.0, atol=1e-9)
        still = objective_perturbation.minimiser(loss, records, ridge, jnp.zeros(6))
        worst = Records(
            jnp.concatenate([records.x, -still[None].astype(jnp.float32) / jnp.linalg.norm(still)]),
            jnp.concatenate([records.y, jnp.ones(1)]),
        )
        moved = objective_perturbation.minimiser(loss, worst, ridge, jnp.zeros(6))
        reach = output_perturbation.sensitivity(loss, ridge)
        assert 0.02 * reach < float(jnp.linalg.norm(moved - still)) <= reach
        std = output_perturbation.noise_std(Budget(0.3, 1e-6), loss, ridge)
        spent = accountant.epsilon_of(events.gaussian(std / reach), 1e-6)
        assert spent <= 0.3 * (1.0 + 1e-6)
        seeds = jnp.arange(400)
        draws = jax.vmap(output_perturbation.release, (None, None, None, None, 0))(loss, records, ridge, std, seeds)
        assert float(jnp.std(draws - still)) == pytest.approx(std, rel=0.08)
    with pytest.raises(DprlError, match="larger ridge"):
        objective_perturbation.noise_std(Budget(0.1, 1e-6), loss, 1.0)
    assert objective_perturbation.delta_of(0.1, 1e9, 1.0, 1.0, 1.0) == 1.0


# --- families ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "family",
    [
        Quadratics(),
        pytest.param(Classification(records=30), marks=pytest.mark.slow),
        pytest.param(Classification(records=30, kind="svm", table="digits"), marks=pytest.mark.slow),
        pytest.param(Classification(records=20, kind="network"), marks=pytest.mark.slow),
    ],
    ids=["quadratics", "census", "digits", "network"],
)
def test_a_familys_mean_gradient_is_the_clipped_mean_and_the_penalty(family):
    task = family.sample(jax.random.key(4))
    again = family.sample(jax.random.key(4))
    jax.tree.map(np.testing.assert_array_equal, task, again)
    theta = family.initial(task) + 0.1
    clip = 0.3
    each = np.asarray(jax.jit(family.record_loss.gradients)(theta, task), np.float64)
    scale = np.minimum(1.0, clip / np.linalg.norm(each, axis=1, keepdims=True))
    penalty = np.asarray(jax.jit(jax.grad(family.record_loss.penalty))(theta))
    wanted = ((each * scale).mean(axis=0) + penalty) / clip
    found = jax.jit(family.mean_gradient)(task, theta, jax.random.key(0), jnp.float32(clip))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)
    assert found.dtype == jnp.float32
    assert len(family.blocks) == family.dimension == theta.shape[0]
    assert float(family.loss(task, theta)) > 0.0
    # far from the border gradients of a hinge are zero; meta-gradients go through their clip
    aim = lambda t: jnp.sum(family.mean_gradient(task, t, jax.random.key(0), jnp.float32(clip)))  # noqa: E731
    assert np.isfinite(jax.jit(jax.grad(aim))(100.0 * theta)).all()
    if not isinstance(family, Quadratics):
        assert float(jnp.linalg.norm(task.x, axis=1).max()) <= 1.0 + 1e-6
        assert set(np.unique(task.y)) == {-1.0, 1.0}
        assert 0.0 <= float(accuracy(family.record_loss, theta, task)) <= 1.0


def test_public_digits_are_others_than_the_private_ones(monkeypatch):
    pixels, labels = tables.digits()
    assert pixels.shape == (1797, 64)
    assert set(tables.digit_pairs((4, 6))) == {(4, 6), (6, 4)}
    one = tables.digit_pair((3, 5), (4, 6))
    assert len(one.y) == np.isin(labels, (3, 5)).sum()
    # the centre knows the public digits alone
    doctored = pixels.copy()
    doctored[np.isin(labels, (3, 5, 0))] = 0.5
    monkeypatch.setattr(tables, "digits", lambda: (doctored, labels))
    same = tables.digit_pair((3, 5), (4, 6))
    centre = pixels[np.isin(labels, (4, 6))].mean(axis=0)
    np.testing.assert_allclose(same.x[:, 1:], tables.bounded(np.full((len(one.y), 64), 0.5) - centre)[:, 1:], atol=1e-6)
    monkeypatch.undo()
    monkeypatch.setattr(tables, "distribution", lambda _: (_ for _ in ()).throw(OSError()))
    tables.digits.cache_clear()
    with pytest.raises(DprlError, match="scikit-learn"):
        tables.digits()
    with pytest.raises(DprlError, match="two of them"):
        Classification(table="digits", digits=(3,))
