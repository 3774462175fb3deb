"""Gradients of a unit against dense linear algebra, explicit Hessians and differences of the objective."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dprl.engine.layouts import padded_units
from dprl.engine.rows import rows_of
from dprl.evaluation import gpope
from dprl.evaluation.td_gradients import COLUMNS, objective, td_gradients, unit_gradients
from dprl.value_functions.features import make_features

from . import one_shot

ALL = slice(None)


def stepped(features_name: str):
    """An off-policy log of trajectories of 1 to 5 steps, in double precision."""
    log = one_shot.stepped(7)
    features = make_features(features_name, log.bounds.observation)
    rho = np.random.default_rng(1).uniform(0.0, 2.0, len(log.reward))
    value = log.bounds.value_interval(0.9)
    rows = rows_of(log, rho, features, 0.9, value, dtype=np.float64, columns=COLUMNS)
    return features, rows


def weights(features, seed: int = 2):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(2, features.size)))


def all_three(features, theta, w, block):
    """Joint gradients, semi-gradients and objectives, compiled together."""
    return jax.jit(
        lambda theta, w, block: (
            unit_gradients(features, 0.9, theta, w, block),
            td_gradients(features, 0.9, theta, block),
            objective(features, 0.9, theta, w, block),
        )
    )(theta, w, block)


def test_linear_values_give_the_gradients_of_gpope():
    features, rows = stepped("fourier:3")
    theta, w = weights(features)
    block = padded_units(rows).block(ALL)
    joint, semi, _ = all_three(features, theta, w, block)
    reference = jax.jit(gpope.unit_gradients)
    np.testing.assert_allclose(joint, reference(theta, w, block), atol=1e-12)
    np.testing.assert_allclose(semi, reference(theta, 0.0 * w, block)[:, features.size :], atol=1e-12)


def test_of_a_network_they_are_those_of_explicit_jacobians_and_hessians():
    """q (gamma Psi' - Psi) + e H w and e Psi of Eq. (2), with the ratio on delta; and central differences."""
    features, rows = stepped("mlp:3")
    theta, w = weights(features)
    block = padded_units(rows).block(ALL)
    value = lambda t, s: features.values(t, s[None], jnp)[0]  # noqa: E731
    of_rows = jax.jit(
        jax.vmap(lambda s: (value(theta, s), jax.grad(value)(theta, s), jax.hessian(value)(theta, s) @ w))
    )
    n = len(rows.reward) - 1
    (v, psi, hessian_w), (next_v, next_psi, _) = (
        map(np.asarray, of_rows(rows.columns[name][:n])) for name in ("states", "next_states")
    )
    alive = 0.9 * rows.alive[:n]
    q, delta, rho = psi @ w, rows.reward[:n] + alive * next_v - v, rows.rho[:n]
    e = rho * delta - q
    primal = (rho * q)[:, None] * (alive[:, None] * next_psi - psi) + e[:, None] * hessian_w
    each = rows.weight[:n, None] * np.concatenate([primal, -e[:, None] * psi], axis=1)
    expected = np.add.reduceat(each, rows.offsets[:-1], axis=0)
    found, semi_gradients, objectives = map(np.asarray, all_three(features, theta, w, block))
    np.testing.assert_allclose(found, expected, atol=1e-12)
    semi = np.add.reduceat((-rows.weight[:n] * rho * delta)[:, None] * psi, rows.offsets[:-1], axis=0)
    np.testing.assert_allclose(semi_gradients, semi, atol=1e-12)
    values = np.add.reduceat(rows.weight[:n] * (rho * delta * q - q * q / 2.0), rows.offsets[:-1])
    np.testing.assert_allclose(objectives, values, atol=1e-12)

    # along a random direction of both; w is ascended
    along, step = np.random.default_rng(5).normal(size=(2, features.size)), 1e-5
    of = jax.jit(lambda s: objective(features, 0.9, theta + s * along[0], w + s * along[1], block))
    up, down = np.asarray(of(step)), np.asarray(of(-step))
    slope = found @ np.concatenate([along[0], -along[1]])
    np.testing.assert_allclose((up - down) / (2.0 * step), slope, rtol=1e-6, atol=1e-7)
