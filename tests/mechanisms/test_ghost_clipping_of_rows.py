"""Ghost clipping of units of several rows against the gradients that it does without, layer by layer."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dprl.errors import DprlError
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.ghost_clipping import Dense, Lookup, Scale, ghost_sum_of_rows, norms_of

UNITS, LINES = 12, 6


def normal(seed: int, *shape: int) -> Any:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def taken(seed: int, rows: int) -> Any:
    return jnp.asarray(np.random.default_rng(seed).integers(0, LINES, (UNITS, rows)), jnp.int32)


def cases() -> dict[str, tuple[Any, Any, list[Any]]]:
    """By name: the layer, what it does with its weights, and those."""

    def dense(rows: int, bias: bool) -> tuple[Any, Any, list[Any]]:
        layer = Dense(normal(1, UNITS, rows, 5), normal(2, UNITS, rows, 7), bias)
        weights = [normal(3, 5, 7), *([normal(4, 7)] if bias else [])]
        return layer, lambda x, w, b=0.0: x @ w + b, weights

    table = Lookup(taken(5, 9), normal(6, UNITS, 9, 4), LINES)
    scale = Scale(normal(7, UNITS, 9, 4), normal(8, UNITS, 9, 4))
    return {
        "dense, few rows": dense(3, True),
        "dense, many rows": dense(20, True),
        "dense, no bias, few rows": dense(3, False),
        "dense, no bias, many rows": dense(20, False),
        "lookup": (table, lambda places, lines: lines[places], [normal(9, LINES, 4)]),
        "scale": (scale, lambda x, gains, shifts: x * gains + shifts, [normal(10, 4), normal(11, 4)]),
    }


def gradients(layer: Any, does: Any, weights: list[Any]) -> jax.Array:
    """Return ``(m, d)`` gradients by JAX of the objectives whose derivatives by what comes out are the deltas."""

    def objective(weights: list[Any], given: Any, deltas: Any) -> Any:
        return jnp.sum(does(given, *weights) * deltas)

    found = jax.vmap(jax.grad(objective), (None, 0, 0))(weights, layer[0], layer.deltas)
    return jnp.concatenate([part.reshape(UNITS, -1) for part in found], axis=1)


def mechanism(size: int, clip: float) -> GaussianSum:
    return GaussianSum(parts=((size, clip),), steps=4, batch=UNITS, noise_multiplier=4.0, relation="zero-out")


@pytest.mark.parametrize("name", cases())
def test_norms_and_sums_are_those_of_the_gradients(name):
    layer, does, weights = cases()[name]
    wanted = gradients(layer, does, weights)
    norms = jnp.linalg.norm(wanted, axis=1)
    np.testing.assert_allclose(norms_of([layer]), norms, rtol=3e-6)
    included = jnp.arange(UNITS) % 4 > 0
    by = mechanism(wanted.shape[1], float(jnp.median(norms))).in_float()
    found, total = ghost_sum_of_rows(by, [layer], included), by.clipped_sum(wanted, included)
    np.testing.assert_allclose(found, total, atol=3e-6 * float(jnp.abs(total).max()))


def test_layers_are_clipped_together():
    layers = [(layer, gradients(layer, does, weights)) for layer, does, weights in cases().values()]
    whole = jnp.concatenate([wanted for _, wanted in layers], axis=1)
    everybody = jnp.ones(UNITS, bool)
    exact = mechanism(whole.shape[1], 0.7 * float(jnp.linalg.norm(whole, axis=1).min()))
    found = ghost_sum_of_rows(exact.in_float(), [layer for layer, _ in layers], everybody)
    # what a release would sum up, on its grid
    total = np.asarray(exact.clipped_sum(whole, everybody)) * exact.grid_step
    np.testing.assert_allclose(found, total, atol=1e-5 * np.abs(total).max())
    free = ghost_sum_of_rows(exact.unclipped(), [layer for layer, _ in layers], everybody)
    np.testing.assert_allclose(free, whole.sum(0), atol=1e-5 * float(jnp.abs(whole).max()))


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_is_no_number_contributes_nothing(wrong):
    layer = cases()["dense, few rows"][0]
    by = mechanism(42, 1.0).in_float()
    spoilt = layer._replace(deltas=layer.deltas.at[2, 1, 0].set(wrong), inputs=layer.inputs.at[2, 0, 1].set(wrong))
    others = jnp.arange(UNITS) != 2
    wanted = ghost_sum_of_rows(by, [layer], others)
    np.testing.assert_array_equal(ghost_sum_of_rows(by, [spoilt], others), wanted)
    np.testing.assert_array_equal(ghost_sum_of_rows(by, [spoilt], jnp.ones(UNITS, bool)), wanted)


def test_a_release_and_a_sum_of_another_size_are_refused():
    layer = cases()["scale"][0]
    with pytest.raises(DprlError, match="for experiments"):
        ghost_sum_of_rows(mechanism(8, 1.0), [layer], jnp.ones(UNITS, bool))
    with pytest.raises(DprlError, match="made for"):
        ghost_sum_of_rows(mechanism(9, 1.0).in_float(), [layer], jnp.ones(UNITS, bool))
