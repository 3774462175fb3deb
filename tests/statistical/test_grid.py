"""Clipping onto the integer grid: the norm bound holds exactly, in Python integers, whatever comes in."""

from __future__ import annotations

import math
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dprl.errors import DprlError
from dprl.mechanisms.arithmetic import MAX_UNITS, clip_to_grid, grid_step
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.rounded_gaussian import MAX_STD

CLIPS = st.floats(1e-100, 1e100) | st.integers(-300, 300).map(lambda e: 2.0**e) | st.floats(0.01, 100.0)
ANY = st.floats(allow_nan=True, allow_infinity=True, width=64)


def squared_norm(row) -> int:
    return sum(int(x) ** 2 for x in row)


def limit(clip_norm: float) -> Fraction:
    return (Fraction(clip_norm) / Fraction(grid_step(clip_norm))) ** 2


@settings(deadline=None, max_examples=300)
@given(CLIPS)
def test_the_grid_resolves_the_clip_norm(clip_norm):
    ratio = Fraction(clip_norm) / Fraction(grid_step(clip_norm))
    assert 2**32 <= ratio < 2**33
    assert math.frexp(grid_step(clip_norm))[0] == 0.5


@pytest.mark.parametrize("as_array", [jnp.asarray, np.asarray])
@settings(deadline=None, max_examples=500)
@given(CLIPS, arrays(np.float64, (3, 5), elements=ANY))
def test_norm_never_exceeds_the_clip(as_array, clip_norm, vectors):
    for row in np.asarray(clip_to_grid(as_array(vectors), clip_norm)):
        assert squared_norm(row) <= limit(clip_norm)


@settings(deadline=None, max_examples=200)
@given(CLIPS, arrays(np.float64, (7, 19), elements=ANY), st.permutations(range(7)), st.integers(1, 7))
def test_numpy_clips_a_row_alike_in_any_company_and_as_jax_does(clip_norm, vectors, order, some):
    whole, few = clip_to_grid(vectors, clip_norm), np.array(order[:some])
    assert isinstance(whole, np.ndarray)
    np.testing.assert_array_equal(whole[few], clip_to_grid(vectors[few], clip_norm))
    # the squares are added up in another order: a last digit of the norm, hence one grid point at most
    assert np.abs(whole - np.asarray(clip_to_grid(jnp.asarray(vectors), clip_norm))).max() <= 1


@settings(deadline=None, max_examples=300)
@given(CLIPS, arrays(np.float64, 4, elements=st.floats(-1.0, 1.0)), st.integers(-4, 60), st.floats(0.999999, 1.000001))
def test_norm_at_and_around_the_clip(clip_norm, direction, exponent, factor):
    """Vectors just inside, at, and far beyond the clip; those inside are only rounded, toward zero."""
    norm = float(np.linalg.norm(direction))
    if norm < 1e-3:
        return
    vector = direction / norm * clip_norm * factor * 2.0**exponent
    row = np.asarray(clip_to_grid(jnp.asarray(vector[None]), clip_norm))[0]
    assert squared_norm(row) <= limit(clip_norm)
    # and little is lost: the clipped vector keeps its length and direction
    wanted = (
        direction
        / norm
        * min(1.0, factor * 2.0**exponent)
        * float(Fraction(clip_norm) / Fraction(grid_step(clip_norm)))
    )
    np.testing.assert_allclose(row, wanted, atol=2.0**33 * 2.0**-29 + 1)


@settings(deadline=None, max_examples=100)
@given(arrays(np.float32, (4, 6), elements=st.floats(-2.0, 2.0, width=32)), st.permutations(range(4)))
def test_sums_do_not_depend_on_order_or_blocks(vectors, order):
    mechanism = GaussianSum(parts=((6, 1.0),), noise_multiplier=1.0)
    everybody = jnp.ones(4, dtype=bool)
    whole = np.asarray(mechanism.clipped_sum(jnp.asarray(vectors), everybody))
    shuffled = np.asarray(mechanism.clipped_sum(jnp.asarray(vectors[list(order)]), everybody))
    parts = [mechanism.clipped_sum(jnp.asarray(vectors[i : i + 1]), jnp.ones(1, dtype=bool)) for i in order]
    np.testing.assert_array_equal(whole, shuffled)
    np.testing.assert_array_equal(whole, sum(np.asarray(p) for p in parts))
    exact = [sum(int(x) for x in column) for column in np.asarray(clip_to_grid(jnp.asarray(vectors), 1.0)).T]
    assert whole.tolist() == exact


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e308, -1e308])
def test_a_broken_row_is_zero_and_changes_no_other(bad):
    vectors = np.random.default_rng(0).normal(size=(5, 3))
    broken = vectors.copy()
    broken[2, 1] = bad
    a, b = np.asarray(clip_to_grid(jnp.asarray(vectors), 1.0)), np.asarray(clip_to_grid(jnp.asarray(broken), 1.0))
    assert a.shape == b.shape
    assert not b[2].any()
    np.testing.assert_array_equal(np.delete(a, 2, axis=0), np.delete(b, 2, axis=0))


def test_the_largest_sum_and_its_noise_fit_in_int64():
    """MAX_UNITS vectors at the largest clip, and noise at its largest scale and farthest tail."""
    assert MAX_UNITS * 2**33 + int(13 * MAX_STD) < 2**63
    largest = np.nextafter(2.0, 0.0)
    point = int(np.asarray(clip_to_grid(jnp.array([[1e9]]), largest))[0, 0])
    assert point * MAX_UNITS < 2**63
    total = jnp.sum(jnp.full(4, point * (MAX_UNITS // 4), dtype=jnp.int64))
    assert int(total) == point * MAX_UNITS


def test_a_release_is_the_total_and_its_draw_on_the_grid():
    mechanism = GaussianSum(parts=((3, 0.3),), noise_multiplier=1.0)
    total, draw = np.array([5, -7, 2**40]), np.array([1, 2**50, -(2**41)])
    released = np.asarray(mechanism.release(jnp.asarray(total), jnp.asarray(draw)))
    assert [Fraction(float(x)) / Fraction(grid_step(0.3)) for x in released] == (total + draw).tolist()


def test_the_smallest_and_largest_clip_norms_still_clip():
    for clip_norm in (1e-100, 1e100):
        row = np.asarray(clip_to_grid(jnp.array([[3.0 * clip_norm, 4.0 * clip_norm]]), clip_norm))[0]
        assert 0.999 * limit(clip_norm) <= squared_norm(row) <= limit(clip_norm)


@pytest.mark.parametrize("clip_norm", [0.0, -1.0, math.nan, math.inf, 5e-324, 1e-200, 1e200])
def test_clip_norms_without_a_bound_are_refused(clip_norm):
    with pytest.raises(DprlError, match="clip norm"):
        grid_step(clip_norm)
