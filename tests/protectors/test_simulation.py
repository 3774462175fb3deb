"""Simulated runs: exact gradients through checkpoints, Theorem B.2's covariance in closed form, the filter's stop."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dprl.protectors.projector import Architecture, HandSchedule
from dprl.protectors.simulation import (
    Simulation,
    noise_covariance,
    safe_norm,
    segment_of,
    segmented_scan,
    unroll,
)

from .small import CURVATURE, Bowl
from .test_projector import random_weights

KEY = jax.random.key(0)


def test_segments_change_neither_values_nor_gradients():
    def body(x, t):
        x = jnp.sin(1.3 * x) + 0.1 * t
        return x, (x * x, t)

    def both(x, segmented):
        last, out = segmented_scan(body, x, 7, 3, first=2) if segmented else jax.lax.scan(body, x, 2 + jnp.arange(7))
        return last + jnp.sum(out[0]), (last, out)

    found, plain = (jax.jit(jax.value_and_grad(both, has_aux=True), static_argnums=1)(0.4, s) for s in (True, False))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), found, plain)
    assert [segment_of(n) for n in (1, 16, 100, 1000)] == [1, 2, 4, 10]
    assert segment_of(31) == 2  # a prime has no divisor near its root
    assert jax.grad(safe_norm)(jnp.zeros(3)).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.slow
def test_the_gradient_is_that_of_the_whole_run():
    """Along a random direction, against the slope of the loss itself; no step's effect on later ones is missing."""
    architecture = Architecture(
        hidden=2, layers=1, scheduler="public", dense=1, knots=2, dimension=2, learned_clip=True
    )
    simulation = Simulation(family=Bowl(), architecture=architecture, std=0.2, segment=4)
    weights, direction = random_weights(architecture), random_weights(architecture, 1)
    final = jax.jit(lambda h: unroll(simulation, moved(h), jnp.asarray([0.5, -1.0], jnp.float32), KEY).final)

    def moved(h):
        return {name: weights[name] + h * direction[name] for name in weights}

    slope = jax.jit(jax.grad(final))(jnp.zeros((), jnp.float32))
    h = 3e-2
    differences = [(float(final(k * h)) - float(final(-k * h))) / (2 * k * h) for k in (1.0, 2.0)]
    richardson = (4.0 * differences[0] - differences[1]) / 3.0
    assert float(slope) == pytest.approx(richardson, rel=2e-2)
    assert abs(richardson) > 1e-3


@pytest.mark.slow
def test_the_noise_covariance_of_plain_descent_has_its_closed_form():
    """With ``theta' = theta - b (H theta + s nu)``: ``C_T = -b^2 s sum_t tr H (I - b H)^(T-1-t)``."""
    hand = HandSchedule(steps=5, sampling_rate=1.0, clip_norm=1.0, step_sizes=(0.5,), tail=0.0)
    simulation = Simulation(family=Bowl(hand=hand, still=True), architecture=Architecture(layers=0), std=0.3)
    count = 20_000
    keys = jax.random.split(KEY, count)
    found = jax.jit(lambda keys: noise_covariance(simulation, {}, jnp.zeros((count, 2), jnp.float32), keys))(keys)
    h = np.array(CURVATURE)
    powers = (1.0 - 0.5 * h)[None] ** np.arange(5)[:, None]
    assert float(found) == pytest.approx(-(0.5**2) * 0.3 * np.sum(h * powers), rel=0.05)


def test_deployed_a_run_ends_before_its_budget_would_be_exceeded():
    """Steps at half the noise cost 4 times as much: of 6 steps' budget one is drawn."""
    architecture = Architecture(hidden=1, layers=1, scheduler="adaptive")
    ratios = (0.5, 1.0, 1.5)
    simulation = Simulation(
        family=Bowl(), architecture=architecture, std=0.2, norm_std=0.1, ratios=ratios,
        costs=tuple(1.0 / 6.0 / r**2 for r in ratios), every=True,
    )  # fmt: skip
    still = {name: 0.0 * w for name, w in random_weights(architecture).items()}

    @jax.jit
    @jax.vmap
    def both(bias):
        weights = still | {"scheduler.out.b": bias[None]}
        task = jnp.zeros(2, jnp.float32)
        return [unroll(simulation, weights, task, KEY, deployed=deployed) for deployed in (True, False)]

    runs, unfiltered = both(jnp.asarray([-1e3, 0.0, 1e3], jnp.float32))
    for i, (ratio, drawn) in enumerate(zip(ratios, (1, 6, 6), strict=True)):
        cost = 1.0 / 6.0 / ratio**2
        np.testing.assert_allclose(runs.costs[i], np.where(np.arange(6) < drawn, cost, 0.0), rtol=1e-5)
        np.testing.assert_allclose(unfiltered.costs[i], cost, rtol=1e-5)
        assert float(runs.final[i]) == pytest.approx(float(unfiltered.losses[i, drawn - 1]), rel=1e-5)
