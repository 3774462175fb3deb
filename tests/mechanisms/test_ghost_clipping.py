"""Ghost clipping against the gradients that it does without, and its sums in exact whole numbers."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dprl.errors import DprlError
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.ghost_clipping import CHUNK, SingleRowLayer, ghost_sum, reduced_clip_norm

INPUTS, HIDDEN, OUT = 5, 7, 3
SIZE = HIDDEN * INPUTS + OUT * HIDDEN + OUT


def user_sum(clip: float = 0.9, **changes: Any) -> GaussianSum:
    given = {"parts": ((SIZE, clip), (2, 0.3)), "steps": 4, "batch": 100, "noise_multiplier": 4.0}
    return GaussianSum(**{**given, **changes}, relation="zero-out")


def network(users: int, seed: int, scale: float = 1.0) -> tuple[list[SingleRowLayer], np.ndarray, np.ndarray]:
    """Layers, statistics, and the gradients themselves ``(m, SIZE)`` in float64; the second layer has biases."""
    rng = np.random.default_rng(seed)
    x, hidden = (rng.normal(size=(users, n)).astype(np.float32) for n in (INPUTS, HIDDEN))
    inner, outer = (rng.normal(size=(users, n)).astype(np.float32) * np.float32(scale) for n in (HIDDEN, OUT))
    inner *= np.geomspace(1e-3, 1.0, users)[:, None].astype(np.float32)
    first = np.einsum("mo,mi->moi", inner.astype(np.float64), x.astype(np.float64)).reshape(users, -1)
    second = np.einsum("mo,mi->moi", outer.astype(np.float64), hidden.astype(np.float64)).reshape(users, -1)
    gradients = np.concatenate([first, second, outer.astype(np.float64)], axis=1)
    return (
        [SingleRowLayer(x, inner), SingleRowLayer(hidden, outer, bias=True)],
        rng.normal(size=(users, 2)) * 0.2,
        gradients,
    )


def run(mechanism: GaussianSum, layers: list[SingleRowLayer], included: Any, statistics: Any = None) -> np.ndarray:
    biases = tuple(layer.bias for layer in layers)
    arrays = [(jnp.asarray(layer.inputs), jnp.asarray(layer.deltas)) for layer in layers]
    statistics = None if statistics is None else jnp.asarray(statistics)
    return np.asarray(_RUN(mechanism, biases, arrays, jnp.asarray(included), statistics))


def _of_arrays(mechanism: GaussianSum, biases: Any, arrays: Any, included: Any, statistics: Any) -> Any:
    layers = [SingleRowLayer(x, delta, bias) for (x, delta), bias in zip(arrays, biases, strict=True)]
    return ghost_sum(mechanism, layers, included, statistics)


_RUN = jax.jit(_of_arrays, static_argnums=(0, 1))


@pytest.mark.parametrize("scale", [1e-4, 30.0])
def test_it_is_the_sum_of_the_clipped_gradients(scale):
    mechanism = user_sum()
    layers, statistics, gradients = network(60, 0, scale)
    included = np.arange(60) % 5 > 0
    found = run(mechanism, layers, included, statistics) * mechanism.grid_step
    # two thousandths are taken off the clip for what rounding can do
    clip = reduced_clip_norm(mechanism, layers)
    assert 0.9 * 0.997 < clip < 0.9 * 0.999
    exact = user_sum(parts=((SIZE, clip), (2, 0.3)))
    wanted = exact.clipped_sum(jnp.asarray(np.concatenate([gradients, statistics], axis=1)), included)
    wanted = np.asarray(wanted) * exact.grid_step
    np.testing.assert_allclose(found[SIZE:], wanted[SIZE:], atol=1e-8)
    np.testing.assert_allclose(found, wanted, atol=2e-6 * np.abs(wanted).max())


def test_a_bias_is_a_weight_whose_input_is_one():
    rng = np.random.default_rng(6)
    inputs, deltas = rng.normal(size=(30, 4)).astype(np.float32), rng.normal(size=(30, 3)).astype(np.float32)
    widened = np.concatenate([inputs, np.ones((30, 1), np.float32)], axis=1)
    mechanism, everybody = user_sum(parts=((15, 1.0),)), np.ones(30, dtype=bool)
    apart = run(mechanism, [SingleRowLayer(inputs, deltas, bias=True)], everybody)
    together = run(mechanism, [SingleRowLayer(widened, deltas)], everybody).reshape(3, 5)
    wanted = np.concatenate([together[:, :4].ravel(), together[:, 4]])
    np.testing.assert_allclose(apart, wanted, atol=1e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("clip", [1e-3, 37.0])
def test_one_user_moves_the_sum_by_less_than_the_clip_norm(clip):
    """With and without each of some users among others, in whole numbers: clipped ones reach it nearly."""
    mechanism = user_sum(clip, parts=((SIZE, clip),))
    layers, _, gradients = network(40, 1, 1e4)
    everybody = np.ones(40, dtype=bool)
    whole = run(mechanism, layers, everybody)
    allowed, reached = (Fraction(clip) / Fraction(mechanism.grid_step)) ** 2, []
    for user in range(0, 40, 3):
        without = everybody.copy()
        without[user] = False
        squares = sum(int(x) ** 2 for x in whole - run(mechanism, layers, without))
        assert squares <= allowed
        if np.linalg.norm(gradients[user]) > clip:
            reached.append(math.sqrt(squares / allowed))
    assert min(reached) > 1.0 - 3e-3
    # alone along an axis there is nothing to round but to the grid
    x, delta = np.zeros((1, INPUTS), np.float32), np.zeros((1, HIDDEN), np.float32)
    x[0, 1], delta[0, 2] = 3.0, 1e5
    none = SingleRowLayer(np.ones((1, HIDDEN), np.float32), np.zeros((1, OUT), np.float32), bias=True)
    alone = run(mechanism, [SingleRowLayer(x, delta), none], everybody[:1])
    assert math.sqrt(sum(int(x) ** 2 for x in alone)) * mechanism.grid_step == pytest.approx(
        reduced_clip_norm(mechanism, layers)
    )


def test_what_rounding_adds_is_taken_off_the_clip():
    """The worst chunk: everybody alike, in single precision, against sums in double precision."""
    rng = np.random.default_rng(2)
    inputs, deltas = (np.tile(np.abs(rng.normal(size=n)), (CHUNK, 1)).astype(np.float32) for n in (30, 20))
    mechanism = user_sum(parts=((600, 1.0),))
    layer, everybody = SingleRowLayer(inputs, deltas), np.ones(CHUNK, dtype=bool)
    clip = reduced_clip_norm(mechanism, [layer])
    found = run(mechanism, [layer], everybody) * mechanism.grid_step
    wanted = np.einsum("mo,mi->oi", deltas.astype(np.float64), inputs.astype(np.float64)).ravel()
    error = np.linalg.norm(found - wanted * (CHUNK * clip / np.linalg.norm(wanted)))
    # in either of two neighbouring sums
    charged = 1.0 - clip
    assert 2.0**-30 < 2.0 * error < 0.2 * charged
    least = 2.0 * CHUNK**2 / math.sqrt(3.0) * 2.0**-24
    assert least < charged < 1.05 * least


def test_chunks_add_up():
    mechanism = user_sum(parts=((6, 1.0),))
    rng = np.random.default_rng(3)
    inputs, deltas = (rng.normal(size=(CHUNK + 9, n)).astype(np.float32) for n in (3, 2))
    everybody = np.ones(CHUNK + 9, dtype=bool)
    whole = run(mechanism, [SingleRowLayer(inputs, deltas)], everybody)
    parts = [
        run(mechanism, [SingleRowLayer(inputs[where], deltas[where])], everybody[where])
        for where in (slice(0, CHUNK), slice(CHUNK, None))
    ]
    assert np.abs(whole - sum(parts)).max() * mechanism.grid_step < 1e-5
    # whoever is in another chunk moves none of the digits of one
    other = deltas.copy()
    other[0] = 5.0
    moved = whole - run(mechanism, [SingleRowLayer(inputs, other)], everybody)
    rows = -(-(CHUNK + 9) // 2)
    alone = [run(mechanism, [SingleRowLayer(inputs[:rows], d[:rows])], everybody[:rows]) for d in (deltas, other)]
    np.testing.assert_array_equal(moved, alone[0] - alone[1])


@pytest.mark.parametrize("chunks", [8, 9, 20])
def test_groups_of_chunks_add_up(chunks):
    """Nobody is counted twice or forgotten, whatever the number of users comes to."""
    users = (chunks - 1) * CHUNK + 3
    mechanism, rng = user_sum(parts=((9, 1.0),)), np.random.default_rng(3)
    inputs, deltas = (rng.normal(size=(users, n)).astype(np.float32) for n in (2, 3))
    layer, included = SingleRowLayer(inputs, deltas, bias=True), np.arange(users) % 7 > 0
    found = run(mechanism, [layer], included) * mechanism.grid_step
    gradients = [np.einsum("mo,mi->moi", deltas, inputs).reshape(users, -1), deltas]
    rows = np.concatenate(gradients, axis=1).astype(np.float64)
    rows *= np.minimum(1.0, reduced_clip_norm(mechanism, [layer]) / np.linalg.norm(rows, axis=1))[:, None]
    np.testing.assert_allclose(found, rows[included].sum(0), atol=3e-6 * users)


def test_what_is_no_number_and_who_is_left_out_contribute_nothing():
    mechanism = user_sum()
    layers, statistics, _ = network(12, 4, 0.2)
    included = np.ones(12, dtype=bool)
    included[[1, 4]] = False
    wanted = run(mechanism, layers, included, statistics)
    x, inner, hidden, outer = (np.array(a) for layer in layers for a in layer[:2])
    x[1], inner[1], outer[4], hidden[4] = np.nan, np.inf, np.nan, -np.inf
    np.testing.assert_array_equal(
        wanted, run(mechanism, [SingleRowLayer(x, inner), SingleRowLayer(hidden, outer, True)], included, statistics)
    )
    # of those included too: a broken gradient, one of zero; the statistics stay
    included[[1, 4]] = True
    statistics[[1, 4]] = 0.0
    np.testing.assert_array_equal(
        wanted, run(mechanism, [SingleRowLayer(x, inner), SingleRowLayer(hidden, outer, True)], included, statistics)
    )
    x[1] = inner[1] = outer[4] = hidden[4] = 0.0
    outer[1] = 0.0
    zeroed = run(mechanism, [SingleRowLayer(x, inner), SingleRowLayer(hidden, outer, True)], included, statistics)
    assert np.any(zeroed != wanted)  # user 4 has a first layer after all
    # squares that leave float32 are no numbers, either
    inner[4] = x[4] = 1e30
    np.testing.assert_array_equal(
        wanted, run(mechanism, [SingleRowLayer(x, inner), SingleRowLayer(hidden, outer, True)], included, statistics)
    )
    inner[4] = x[4] = 1e15
    large = run(mechanism, [SingleRowLayer(x, inner), SingleRowLayer(hidden, outer, True)], included, statistics)
    assert abs(np.linalg.norm((large - wanted) * mechanism.grid_step) / 0.9 - 1.0) < 3e-3


def test_no_array_of_users_times_weights():
    mechanism = user_sum(parts=((50 * 40, 1.0),))
    arrays = [(jax.ShapeDtypeStruct((500, 50), jnp.float32), jax.ShapeDtypeStruct((500, 40), jnp.float32))]
    included = jax.ShapeDtypeStruct((500,), jnp.bool_)
    analysis = _RUN.lower(mechanism, (False,), arrays, included, None).compile().memory_analysis()
    assert analysis is not None
    assert analysis.temp_size_in_bytes < 500 * 50 * 40 * 4 / 3


def test_what_does_not_fit_is_refused():
    layers, statistics, _ = network(4, 5)
    everybody = np.ones(4, dtype=bool)
    for mechanism, given in (
        (user_sum(), None),
        (user_sum(), statistics[:, :1]),
        (user_sum(parts=((SIZE, 1.0),)), statistics),
        (user_sum(parts=((SIZE + 1, 1.0), (2, 0.3))), statistics),
    ):
        with pytest.raises(DprlError, match="the parts that its mechanism"):
            ghost_sum(mechanism, layers, everybody, given)
    with pytest.raises(DprlError, match="too small"):
        ghost_sum(user_sum(parts=((SIZE, 1e-7), (2, 0.3))), layers, everybody, statistics)
