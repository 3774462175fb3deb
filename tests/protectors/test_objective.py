"""The objective's parts: weights within the budget, Lagrangians, Adam."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest

from dprl.errors import DprlError
from dprl.protectors.objective import Schedule, Training, adam, budget_weighted, lagrangian_terms, update_lagrangian


def test_losses_are_weighted_by_how_near_the_budget_is():
    losses, costs = jnp.asarray([5.0, 3.0, 2.0, 9.0]), jnp.asarray([0.5, 0.25, 0.25, 2.0])
    # I_t = 1 - |h_t| with h = -.5, -.25, 0, 2
    assert float(budget_weighted(losses, costs)) == pytest.approx((2.5 + 2.25 + 2.0) / 2.25)


def test_the_multiplier_follows_the_excess():
    z, mu = update_lagrangian(Schedule(shrink=0.5, least=0.3), *map(jnp.asarray, (0.2, 0.5, 0.1)))
    assert (float(z), float(mu)) == pytest.approx((0.2 - 0.1 / 0.5, 0.3))
    h, z, mu = 0.3, -0.7, 0.2
    assert float(lagrangian_terms(*map(jnp.asarray, (h, z, mu)))) == pytest.approx(-z * h + h * h / (2 * mu))


def test_adam_is_adam_on_a_clipped_gradient_and_ignores_what_is_not_finite():
    training = Training(gradient_clip=0.5)
    weights = {"a": jnp.asarray([1.0, 2.0], jnp.float32), "b": jnp.asarray(3.0, jnp.float32)}
    moments = tuple({n: jnp.zeros_like(w) for n, w in weights.items()} for _ in range(2))
    x, m, v = np.array([1.0, 2.0, 3.0]), np.zeros(3), np.zeros(3)
    for count, g in enumerate(([0.1, -0.2, 0.05], [3.0, 4.0, 0.0], [0.0, 0.0, 1e-3]), 1):
        gradient = {"a": jnp.asarray(g[:2], jnp.float32), "b": jnp.asarray(g[2], jnp.float32)}
        weights, moments, norm = adam(training, weights, moments, gradient, count, 0.1)
        assert float(norm) == pytest.approx(np.linalg.norm(g), rel=1e-5)
        g = np.array(g) * min(1.0, 0.5 / np.linalg.norm(g))
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        x = x - 0.1 * (m / (1 - 0.9**count)) / (np.sqrt(v / (1 - 0.999**count)) + 1e-8)
        np.testing.assert_allclose([*weights["a"], weights["b"]], x, rtol=1e-4)
    broken = {"a": jnp.asarray([math.nan, 0.0], jnp.float32), "b": jnp.asarray(0.0, jnp.float32)}
    kept, _, norm = adam(training, weights, moments, broken, 4, 0.1)
    assert not math.isfinite(norm)
    assert all(np.array_equal(kept[n], weights[n]) for n in kept)


def test_pre_training_comes_first_and_the_rate_falls():
    training = Training(epochs=100, incremental=(0.0, 0.5), share=0.2, learning_rate=1.0)
    assert [training.noise_factor_at(e) for e in (0, 19, 20, 39, 40, 99)] == [0.0, 0.0, 0.5, 0.5, 1.0, 1.0]
    assert training.learning_rate_at(0) == 1.0
    assert training.learning_rate_at(100) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"epochs": 0}, "epochs must be"),
        ({"tasks": 0}, "tasks must be"),
        ({"validate": 0}, "validate must be"),
        ({"learning_rate": 0.0}, "learning_rate must be"),
        ({"gradient_clip": 0.0}, "gradient_clip must be"),
        ({"penalty": -1.0}, "penalty must be"),
        ({"spread": 0.5}, "spread must be"),
        ({"incremental": (0.0,), "share": 1.0}, "incremental must leave"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_trainings_that_make_no_sense_are_refused(options, said):
    with pytest.raises(DprlError, match=said):
        Training(**options)
