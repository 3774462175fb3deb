"""L2P as published against Algorithm 3 and zCDP written out; the sides of bound (20) against plain descent's own."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dprl.accounting import events
from dprl.accounting.budget import Budget
from dprl.accounting.calibration import noise_multiplier_for
from dprl.protectors.projector import Architecture, init_weights
from dprl.protectors.simulation import Simulation
from dprl_papers.harness.programmed import Run
from dprl_papers.harness.store import Store, as_json
from dprl_papers.paper_002_l2p import as_published, ctcdp, quadratics
from dprl_papers.paper_002_l2p.figures import as_published as figure
from dprl_papers.paper_002_l2p.figures import bounds
from dprl_papers.records.losses import Records
from dprl_papers.records.tasks import Quadratics


def test_samples_are_without_replacement_and_every_record_is_as_likely():
    rows = Records(jnp.zeros((12, 2, 2)), jnp.arange(12.0)[:, None] * jnp.ones(2))
    draw = jax.jit(jax.vmap(lambda k: as_published.sample_of(rows, jax.random.fold_in(jax.random.key(0), k), 12, 5)))
    drawn = np.asarray(draw(jnp.arange(6000)).y[:, :, 0]).astype(int)
    assert all(len(set(sample)) == 5 for sample in drawn[:500])
    counts = np.bincount(drawn.ravel(), minlength=12)
    assert np.abs(counts - 2500).max() < 5.0 * math.sqrt(6000 * (5 / 12) * (7 / 12))


@pytest.mark.parametrize("problem", [quadratics.MANY, quadratics.OWN])
def test_the_uniform_schedule_spends_the_claimed_budget(problem):
    """As the paper charges it, gradients alone: T steps of sigma_g, none of which is below sigma_min."""
    facts = as_published.calibrated(problem, 0.05)
    q, sigma_g = facts.batch / problem.units, facts.std * facts.batch
    factor = ctcdp.AMPLIFICATION * q**2 if facts.sampled else 1.0
    assert facts.sampled == (problem is quadratics.MANY)
    spent = quadratics.LONGEST * factor * ctcdp.gaussian_rho(sigma_g)
    assert spent == pytest.approx(ctcdp.rho_a(0.05, 1e-8), rel=1e-6)
    assert 0.0 < facts.least <= 1.0


def test_what_is_proved_is_more_than_what_is_claimed():
    whole, sampled = (as_published.calibrated(p, 0.05) for p in (quadratics.OWN, quadratics.MANY))
    # four times the cost, and one refused step's norm
    rho = 4.0 * ctcdp.rho_a(0.05, 1e-8) * 61.0 / 60.0
    assert as_published.proved_epsilon(whole, 0.05) == pytest.approx(rho + 2.0 * math.sqrt(rho * math.log(1e8)))
    assert as_published.proved_epsilon(sampled, 0.05) > 0.2
    # noise of which Lemma A.6 knows nothing
    assert math.isinf(as_published.proved_epsilon(as_published.calibrated(quadratics.MANY, 1.6), 1.6))


@pytest.mark.slow
def test_a_run_at_work_stops_within_its_budget():
    facts = as_published.calibrated(quadratics.MANY, 0.05)
    task = facts.family.sample(jax.random.key(1))
    weights = init_weights(facts.architecture, jax.random.key(0))
    run = partial(as_published.unrolled, facts, weights, task, jax.random.key(2), 1.0)
    losses, costs = (np.asarray(x, np.float64) for x in run(deployed=True))
    # weights before training have the uniform schedule, whose norms cost as much again; rounding may lose a step
    taken = int((costs > 0.0).sum())
    assert taken in (29, 30)
    assert costs.sum() == pytest.approx(taken / 30.0, rel=1e-5)
    assert np.all(losses[taken:] == losses[taken - 1])
    assert np.asarray(run()[1]).sum() == pytest.approx(2.0, rel=1e-5)


@pytest.mark.slow
def test_covariances_of_plain_descent_in_closed_form():
    """``E[V . grad] = -eta C^2 sigma tr(I - (I - eta H)^T)`` where nothing is clipped; sigma in units of C."""
    eta, clip, std, steps = 0.03, 1e3, 1e-3, 20
    family = Quadratics(steps=steps, clip_norm=clip, step_size=eta, spread=0.5)
    simulation = Simulation(family=family, architecture=Architecture(layers=0), std=std, every=True)
    task = family.sample(jax.random.key(0))
    run = jax.vmap(lambda key: bounds.terms(simulation, {}, task, key))
    _, _, products, update = (np.asarray(x, np.float64) for x in run(jax.random.split(jax.random.key(1), 4000)))
    x = np.asarray(task.x, np.float64)
    hessian = 2.0 / 60.0 * (np.einsum("nij,nik->jk", x, x) + 0.001 * np.eye(2))
    for k, t in enumerate((steps - 1, steps)):
        expected = -eta * clip**2 * std * np.trace(np.eye(2) - np.linalg.matrix_power(np.eye(2) - eta * hessian, t))
        error = products[:, k].std() / math.sqrt(len(products))
        assert abs(products[:, k].mean() - expected) < 5.0 * error < 0.2 * abs(expected)
    assert update.shape == (4000, 2)


def test_the_descent_step_of_theorem_b3_leaves_steps_out():
    """E19: m noisy steps from the minimum of x^2/2, where the printed right side has one."""
    variance, eta, steps = 0.0, 0.1, 20
    for _ in range(steps):
        variance = (1.0 - eta) ** 2 * variance + eta**2
    assert (0.5 * variance) / (0.5 * eta**2) == pytest.approx(5.185, abs=1e-3)


def test_losses_of_consecutive_steps_are_not_independent():
    """E20: 20 noisy steps on x^2/2, long after the start; B.4 divides the variance of a mean loss by their number."""
    draw, x, losses = np.random.default_rng(0), np.zeros(20_000), []
    for _ in range(120):
        x = 0.9 * x + 0.1 * draw.normal(size=x.shape)
        losses.append(x**2 / 2.0)
    last = np.array(losses[-20:])
    assert last.mean(axis=0).var() / (last.var(axis=1).mean() / 20.0) == pytest.approx(7.3157, rel=0.06)


def test_a_sampled_batch_knows_no_more():
    """Deviation 2: signal over noise of thirty steps, everybody or a tenth of them, at Figure 8's budget."""
    found = [
        noise_multiplier_for(partial(lambda q, z: events.poisson_gaussian(q, z, 30), q), Budget(0.05, 1e-8))
        for q in (1.0, 0.1)
    ]
    assert found == pytest.approx([487.9, 49.17], rel=1e-3)
    assert 60.0 / found[0] >= 6.0 / found[1]


def test_the_figures_say_what_invented_numbers_have(tmp_path, monkeypatch):
    """L2P as published is the best, and bound (20) fails where the descent lemma does not."""

    def kept(self, function, *given):
        if function is bounds.sides:
            sides = [[1.0, 1.2], [0.5, 0.6], [2.0, 2.1], *([[0.1, 0.2]] * 3)]
            return dict(zip(bounds.COLUMNS, sides, strict=True))
        best = function is as_published.measure
        return as_json({"losses": np.full((2, 3), 1.0 if best else 2.0) + 0.01 * np.arange(3), "steps": 30.0})

    monkeypatch.setattr(Run, "cached", kept)
    run = Run(values=(0.05, 0.4), epsilon=(0.05,), delta=1e-8, trials=3, store=Store(tmp_path / "cells", "002"))
    drawn = figure.draw(run)
    assert [c["verdict"] for c in drawn["claims"]] == ["holds", "does not hold"]
    assert "proved 0.101" in drawn["tables"][0]["rows"][8][1]
    assert [c["verdict"] for c in bounds.draw(run)["claims"]] == ["does not hold", "holds"]
