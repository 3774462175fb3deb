"""Theorems 2 and 3 of paper 004 as printed: against their own recursions, high precision and hand-made numbers."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import mpmath
import numpy as np
import pytest

from dprl.errors import DprlError
from dprl_papers.domains.chain import DOMAIN, Chain
from dprl_papers.paper_004_gpope.figures import moments
from dprl_papers.paper_004_gpope.recursion import Recursion, second_moment
from dprl_papers.paper_004_gpope.theory import Bound, theory_curves, theory_of

BOUND = Bound(
    smallest=0.5, largest=2.0, start=4.0, dimension=6, gradient_variance=3.0, clip_norm=0.0, epsilon=0.1, delta=1e-5
)
NOISY = replace(BOUND, clip_norm=0.01)


def test_theorem_2_at_points_that_can_be_checked_by_hand():
    # one update with beta = 1: (1 - 0.5)^2 4 + 1^2 3
    assert BOUND.theorem_2(1.0, 1, 10) == pytest.approx(4.0)
    # beta lambda = 1 - 0.5: the limit of many updates is C_0 = 3/(2 0.5 - 0.25) = 4
    assert BOUND.theorem_2(1.0, 10_000, 10) == pytest.approx(4.0)
    assert BOUND.theorem_2(1e-9, 1, 10) == pytest.approx(4.0)
    # beyond 1/lambda_min(Q) the theorem says nothing
    assert BOUND.theorem_2(2.0, 5, 10) == np.inf


def test_theorem_2_is_the_recursion_of_lemma_2_iterated():
    """x <- (1 - beta lambda)^2 x + beta^2 (G^2 + c N/m^2), Eq. (6.3)."""
    beta, N, m = 0.3, 17, 50
    variance = 3.0 + 6.0 * (0.01 * 2.0 * np.sqrt(N * np.log(1e5)) / (m * 0.1)) ** 2
    x = 4.0
    for _ in range(N):
        x = (1.0 - beta * 0.5) ** 2 * x + beta**2 * variance
    assert NOISY.theorem_2(beta, N, m) == pytest.approx(x, rel=1e-12)


def test_theorem_2_keeps_its_digits_where_steps_are_small_and_many():
    mpmath.mp.dps = 50
    bound = replace(NOISY, smallest=1.4e-5, start=20.0)
    for beta, N in ((0.1, 1000), (1e-6, 20_000), (10.0, 10**6)):
        variance = (
            mpmath.mpf(3) + 6 * mpmath.mpf("0.01") ** 2 * 4 * N * mpmath.log(10**5) / (N * mpmath.mpf("0.1")) ** 2
        )
        gain = mpmath.mpf(beta) * mpmath.mpf(1.4e-5)
        floor = mpmath.mpf(beta) * variance / (mpmath.mpf(1.4e-5) * (2 - gain))
        expected = (1 - gain) ** (2 * N) * (20 - floor) + floor
        assert bound.theorem_2(beta, N, N) == pytest.approx(float(expected), rel=1e-9)


def test_the_best_step_size_of_theorem_2_is_the_minimum():
    from scipy.optimize import minimize_scalar

    bound = replace(NOISY, smallest=0.01)
    value, step = bound.theorem_2_best(100, 100)
    found = minimize_scalar(
        lambda u: bound.theorem_2(np.exp(u), 100, 100), bounds=(-20.0, np.log(0.5)), method="bounded",
        options={"xatol": 1e-10},
    )  # fmt: skip
    assert value == pytest.approx(found.fun, rel=1e-9)
    assert step == pytest.approx(np.exp(found.x), rel=1e-3)
    assert bound.theorem_2(step, 100, 100) == value
    # where longer were better still, it is the longest that Lemma 2 allows
    assert replace(bound, gradient_variance=0.0, clip_norm=0.0).theorem_2_best(100, 100)[1] == pytest.approx(0.5)


def test_theorem_3_at_points_that_can_be_checked_by_hand():
    # eta^2 G^2/((eta - 1) lambda^2) = 4 3/0.25 = 48 is above 4
    assert BOUND.theorem_3(2.0, 10, 10) == pytest.approx((4.8, 4.8, 0.0))
    assert replace(BOUND, start=100.0).theorem_3(2.0, 10, 10) == pytest.approx((10.0, 10.0, 0.0))
    bound, third, fourth = NOISY.theorem_3(1.5, 10, 100)
    c = 6.0 * 0.01**2 * 4.0 * np.log(1e5) / 0.1**2
    assert fourth == pytest.approx(1.5**2 * c / (100**2 * 0.5 * 0.5**2))
    assert bound <= third + fourth
    with pytest.raises(DprlError, match="above 1"):
        BOUND.theorem_3(1.0, 10, 10)


def test_both_readings_of_the_constant_c():
    """E12: 2n h^2 c2^2 log(1/delta)/epsilon^2 by the trace; 2n h^4 c2^4 N log^2(1/delta)/(m^2 epsilon^4) as printed."""
    for N, m in ((10, 10), (30, 200)):
        log = np.log(1e5)
        assert NOISY.noise_variance(N, m) * m**2 / N == pytest.approx(6.0 * 0.01**2 * 4.0 * log / 0.01)
        printed = replace(NOISY, noise="printed").noise_variance(N, m) * m**2 / N
        assert printed == pytest.approx(6.0 * 0.01**4 * 16.0 * N * log**2 / (m**2 * 1e-4))
    assert replace(NOISY, c2=4.0).sigma(10, 10) == pytest.approx(2.0 * NOISY.sigma(10, 10))


def test_a_singular_problem_is_refused():
    with pytest.raises(DprlError, match="above zero"):
        replace(BOUND, smallest=0.0)


def test_the_curves_do_not_depend_on_the_units():
    """Plain indicators and rewards, or orthonormal features and public values: the same run has the same error."""
    moments = Chain().mspbe()
    plain = Recursion(moments.A, moments.b, moments.C)
    # theta_plain = half sqrt(39) theta_public, and gradients are in the features' squared norm
    h, beta, half, root = 0.4, 0.02, 0.5, np.sqrt(39.0)
    settings = {"trajectories": [50, 700], "epsilon": 0.1, "delta": 1e-5}
    public = theory_of(DOMAIN, step_sizes=[beta, 2.0 * beta], clip_norm=h, units=100, **settings)
    for i, factor in enumerate((1.0, 2.0)):
        std = half * root * h / 39.0 * public.sigma[i]
        expected = second_moment(plain, 39.0 * factor * beta, settings["trajectories"][i], std).mspbe
        assert public.curves[-1].mspbe[i] == pytest.approx(expected, rel=1e-9)
    variance = public.constants["G^2 at the start"] * half**2 / 39.0
    own = theory_curves(
        plain, step_sizes=[39.0 * beta, 78.0 * beta], clip_norm=half * h / root, variance_at_start=variance, **settings
    )
    for a, b in zip(public.curves, own.curves, strict=True):
        assert a.name == b.name
        np.testing.assert_allclose(a.mspbe, b.mspbe, rtol=1e-6)


def test_on_the_chain_no_step_size_makes_theorem_2_say_anything():
    """It never falls below the start's own distance by 1%, and as an MSPBE stays far above that of zero."""
    theory = theory_of(DOMAIN, trajectories=[1000, 5000], step_sizes=0.003, clip_norm=0.05, epsilon=0.1, delta=1e-5)
    curves = {curve.name: curve for curve in theory.curves}
    start, zero = theory.constants["squared error at the start"], theory.constants["MSPBE at the start"] * 0.25
    assert zero == pytest.approx(0.0367, abs=1e-4)  # of V = 0
    for name in ("theorem-2", "theorem-2-best", "theorem-3"):
        assert all(x > 0.99 * start for x in curves[name].distance)
        assert all(x > 40.0 * zero for x in curves[name].mspbe)
    assert all(x < zero for x in curves["second-moment"].mspbe)
    assert json.loads(json.dumps(asdict(theory)))["trajectories"] == [1000, 5000]


def test_theorem_2_is_false_on_the_chain_without_any_noise():
    """E13: one noiseless update from zero at beta = 1/max|lambda| ends farther away than (6.4) allows."""
    moments = Chain().mspbe()
    recursion = Recursion(moments.A, moments.b, moments.C)
    beta, start = 1.0 / recursion.largest, float(recursion.xi @ recursion.xi)
    bound = replace(
        BOUND, smallest=recursion.smallest, largest=recursion.largest, start=start, gradient_variance=0.0
    ).theorem_2(beta, 1, 1)
    theta_w = beta * np.r_[np.zeros(39), moments.b]  # the first update, by hand: w moves to beta b
    moved = float(((theta_w - np.r_[recursion.theta, recursion.w]) ** 2).sum())
    assert bound < start < moved
    assert (bound, moved) == pytest.approx((20.217, 20.744), abs=1e-3)
    assert second_moment(recursion, beta, 1, 0.0).distance == pytest.approx(moved)


def test_the_simulation_beside_the_bounds_is_of_the_exact_recursion():
    """The mean of the trajectories' moments is the exact one; a step without noise is the recursion's in the mean."""
    recursion, parts = moments.plain_recursion(), moments._moments(0)
    assert recursion.largest == pytest.approx(0.0877, abs=5e-5)  # as the paper's page has it, of plain indicators
    for mean, exact in zip(parts, (recursion.A, recursion.b, recursion.C), strict=True):
        error = mean.std(axis=0) / np.sqrt(len(mean))
        assert np.all(np.abs(mean.mean(axis=0) - exact) <= 6.0 * error + 1e-12)
    # the same trajectory again and again is its own recursion, run by hand
    one = tuple(part[:1] for part in parts)
    theta, share = moments._last(one, recursion, 0.1, np.inf, 0.0, 0)
    alone, x = Recursion(one[0][0], one[1][0], one[2][0]), np.zeros(2 * recursion.features)
    for _ in range(moments.UNITS):
        x = x - 0.1 * (alone.Q @ x - np.concatenate([np.zeros(recursion.features), alone.b]))
    np.testing.assert_allclose(theta[0], x[: recursion.features], atol=1e-10)
    assert share == 0.0


def test_a_clip_is_a_length():
    recursion, parts = moments.plain_recursion(), moments._moments(0)
    theta, share = moments._last(parts, recursion, 0.1, 1e-6, 0.0, 0)
    assert share > 0.9
    assert np.linalg.norm(theta, axis=1).max() <= 0.1 * 1e-6 * moments.UNITS
