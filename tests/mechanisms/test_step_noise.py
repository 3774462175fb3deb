"""Strategies of correlated noise against dense linear algebra, exact fractions and jax_privacy."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from dprl.accounting import user_relation
from dprl.errors import DprlError
from dprl.mechanisms.step_noise import Correlation

KINDS = ["independent", "square-root", "banded:3"]


def matrix(noise: str, steps: int) -> np.ndarray:
    """The strategy, dense."""
    column = np.zeros(steps)
    found = Correlation(noise).coefficients(steps)
    column[: len(found)] = found
    return np.array([[column[t - s] if t >= s else 0.0 for s in range(steps)] for t in range(steps)])


def test_the_square_root_is_one():
    column = Correlation("square-root").coefficients(60)
    np.testing.assert_allclose(np.convolve(column, column)[:60], 1.0, rtol=1e-13)
    exact = [float(Fraction(math.comb(2 * k, k), 4**k)) for k in range(60)]
    np.testing.assert_allclose(column, exact, rtol=1e-14)
    dense = matrix("square-root", 60)
    np.testing.assert_allclose(dense @ dense, np.tril(np.ones((60, 60))), atol=1e-12)
    np.testing.assert_array_equal(Correlation("banded:7").coefficients(60), column[:7])
    np.testing.assert_array_equal(Correlation("banded:70").coefficients(60), column)
    assert Correlation("independent").coefficients(60).tolist() == [1.0]


@pytest.mark.parametrize("noise", KINDS)
def test_inverse_and_prefix_error_are_those_of_matrices(noise):
    dense = matrix(noise, 40)
    inverse = np.linalg.inv(dense)
    np.testing.assert_allclose(Correlation(noise).inverse(40), inverse[:, 0], atol=1e-13)
    error = np.linalg.norm(np.tril(np.ones((40, 40))) @ inverse) * np.linalg.norm(dense, axis=0).max()
    assert Correlation(noise).prefix_error(40) == pytest.approx(error / np.linalg.norm(np.tril(np.ones((40, 40)))))
    rounds = np.random.default_rng(0).normal(size=(40, 3))
    np.testing.assert_allclose(Correlation(noise).whitened(rounds), dense @ rounds, atol=1e-12)
    draws = jnp.asarray(rounds)
    np.testing.assert_allclose(Correlation(noise).in_float(draws), inverse @ rounds, atol=1e-12)


@pytest.mark.parametrize("noise", [*KINDS, "banded:50"])
def test_noise_is_what_the_recursion_says_in_exact_arithmetic(noise):
    steps, dimension = 30, 3
    rng = np.random.default_rng(1)
    draws = np.rint(rng.normal(size=(steps, dimension)) * 2.0**40).astype(np.int64)
    correlator = Correlation(noise).in_order(steps, dimension)
    found = np.stack([correlator.correlated(draw) for draw in draws])
    column = [Fraction(c) for c in user_relation.coefficients_of(noise, steps)]
    for t in range(steps):
        for j in range(dimension):
            wanted = sum((c * int(found[t - k, j]) for k, c in enumerate(column) if k <= t), Fraction(0))
            assert abs(wanted - int(draws[t, j])) <= Fraction(1, 2) + Fraction(1, 50)
    np.testing.assert_array_equal(np.asarray(Correlation(noise).at_once(jnp.asarray(draws))), found)
    dense = np.linalg.solve(matrix(noise, steps), draws.astype(np.float64))
    np.testing.assert_allclose(found, dense, atol=60.0)


@pytest.mark.parametrize("noise", ["square-root", "banded:8"])
def test_what_rounding_adds_is_within_the_norm_of_a_column(noise):
    """The largest noise that may be drawn, all of one sign in turn; the correction against exact fractions."""
    steps, multiplier = 64, 400.0
    clip_points = 2.0**32
    norm = Correlation(noise).column_norm(steps, 1, multiplier)
    column = Correlation(noise).coefficients(steps)
    plain = math.sqrt(column @ column)
    # charged for, but with less than a millionth a step
    assert plain < norm < np.sqrt(1.0 + np.sum((column[1:] + 1e-6) ** 2))
    # what one step is charged with beyond c_k, in grid points: of two roundings, hence twice
    allowed = (norm**2 - plain**2) / (2.0 * column[1:].sum()) * clip_points / 2.0
    largest = int(12.5 * multiplier * clip_points * norm)
    worst = Fraction(0)
    for signs in ([1], [1, -1], [1, 1, -1]):
        correlator = Correlation(noise).in_order(steps, 1)
        past: list[int] = []
        for t in range(steps):
            draw = np.array([largest * signs[t % len(signs)]])
            found = int(correlator.correlated(draw)[0])
            exact = sum((Fraction(column[k]) * past[-k] for k in range(1, len(column)) if k <= t), Fraction(0))
            worst = max(worst, abs((int(draw[0]) - found) - exact))
            past.append(found)
    assert Fraction(1, 4) < worst <= Fraction(float(allowed))


def test_the_norm_of_a_column_grows_as_it_must():
    assert Correlation("independent").column_norm(1000, 10**6, 4.0) == 1.0
    assert Correlation("banded:1").column_norm(1000, 10**6, 4.0) == 1.0
    for noise in ("square-root", "banded:16"):
        plain = np.linalg.norm(Correlation(noise).coefficients(1000))
        norms = [Correlation(noise).column_norm(1000, d, 4.0) for d in (1, 100, 10**6)]
        assert plain < norms[0] < norms[1] < norms[2] < 1.001 * plain
        assert Correlation(noise).column_norm(1000, 100, 40.0) > norms[1]
    with pytest.raises(DprlError, match="not exact enough"):
        Correlation("square-root").column_norm(2**16, 2**22, 100.0)


@pytest.mark.parametrize(
    "noise", ["", "square root", "banded", "banded:", "banded:0", "banded:-1", "banded:1.5", "banded:x", None, 3]
)
def test_what_is_no_noise_is_refused(noise: Any):
    with pytest.raises(DprlError, match="independent, square-root or banded"):
        Correlation(noise)
    with pytest.raises(DprlError, match="steps"):
        Correlation("square-root").coefficients(0)


def test_against_jax_privacy():
    toeplitz = pytest.importorskip("jax_privacy.matrix_factorization.toeplitz")
    for steps in (10, 100):
        ours = Correlation("square-root").coefficients(steps)
        theirs = toeplitz.optimal_max_error_strategy_coefs(steps)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
        for noise in ("square-root", "banded:4"):
            column = np.zeros(steps)
            column[: len(Correlation(noise).coefficients(steps))] = Correlation(noise).coefficients(steps)
            given = jnp.asarray(column)
            np.testing.assert_allclose(Correlation(noise).inverse(steps), toeplitz.inverse_coef(given), atol=1e-5)
            sensitivity = toeplitz.sensitivity_squared(given)
            assert Correlation(noise).column_norm(steps, 1, 4.0) ** 2 == pytest.approx(float(sensitivity), rel=1e-5)
            error = np.mean(np.asarray(toeplitz.per_query_error(strategy_coef=given))) * float(sensitivity)
            alone = np.mean(np.arange(1, steps + 1))
            assert Correlation(noise).prefix_error(steps) ** 2 == pytest.approx(float(error / alone), rel=1e-4)
