"""Theorem 5.1's parameters against scipy, brute force, the accountant at other steps, and published figures."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from scipy.optimize import minimize_scalar
from scipy.special import ndtr

from dprl_papers.paper_000_dptd import privacy as p
from dprl_papers.paper_000_dptd.published import noise_multiplier, theorem_conditions

DELTA = 1e-5


def variance(beta, units, steps, epsilon):
    """sigma^2/G^2 as the theorem prints it."""
    order = math.log(1.0 / DELTA) / ((1.0 - beta) * epsilon) + 1.0
    return 14.0 * steps * order / (units**2 * beta * epsilon)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_the_best_beta_is_where_scipy_finds_the_least_noise(epsilon):
    found = minimize_scalar(lambda b: variance(b, 1000, 1000, epsilon), bounds=(1e-3, 1.0 - 1e-3), method="bounded")
    best = p.best_beta(epsilon, DELTA)
    assert best == pytest.approx(found.x, abs=1e-4)
    assert p.multiplier(1000, 1000, epsilon, DELTA) == pytest.approx(math.sqrt(found.fun), rel=1e-6)
    assert p.multiplier(1000, 1000, epsilon, DELTA, best) == pytest.approx(math.sqrt(found.fun), rel=1e-6)


def test_the_noise_of_a_thousand_transitions_and_steps():
    """To three digits; at epsilon = 0.1 the rates of Poisson sampling need 1.23."""
    found = [p.multiplier(1000, 1000, epsilon, DELTA) for epsilon in (0.1, 1.0, 10.0)]
    assert found == pytest.approx([8.05, 0.820, 0.0950], rel=1e-3)


def test_the_noise_of_figure_2a():
    """Of five trajectories of Cart Pole, 411 transitions, over 100 epochs."""
    found = [p.multiplier(411, 41_099, epsilon, DELTA) for epsilon in (0.1, 1.0, 10.0, 100.0)]
    assert found == pytest.approx([126.0, 12.8, 1.48, 0.26], rel=0.02)


@pytest.mark.parametrize("setting", [(1000, 1000, 1.0), (1000, 100_000, 1.0), (240, 240, 0.1), (1000, 1000, 10.0)])
def test_conditions_are_those_that_a_release_states(setting):
    units, steps, epsilon = setting
    ours = p.conditions(units, steps, epsilon, DELTA)
    theirs = [c.holds for c in theorem_conditions(steps, units, epsilon, DELTA)]
    assert [ours.noise, ours.order_as_printed, ours.order_scale_free] == theirs
    assert ours.sigma == noise_multiplier(steps, units, epsilon, DELTA)


@pytest.mark.parametrize(("reading", "factor"), [("as printed", 1.0), ("scale-free", 0.25)])
@pytest.mark.parametrize("setting", [(1000, 1000, 1.0), (1000, 1000, 0.1), (5000, 5000, 3.0), (1000, 100_000, 1.0)])
def test_the_feasible_beta_is_the_best_of_those_that_meet_both_conditions(setting, reading, factor):
    units, steps, epsilon = setting

    def meets(beta):
        square, order = variance(beta, *setting), math.log(1.0 / DELTA) / ((1.0 - beta) * epsilon)
        logarithm = math.log(units / ((order + 1.0) * (1.0 + square / 4.0)))
        return square / 4.0 >= 0.7 and order <= 2.0 / 3.0 * factor * square * logarithm

    grid = np.concatenate([np.geomspace(1e-6, 0.5, 3000), 1.0 - np.geomspace(1e-6, 0.5, 3000)])
    known = [variance(b, *setting) for b in grid if meets(b)]
    found = p.feasible_beta(units, steps, epsilon, DELTA, reading)
    if not known:
        assert found is None
        return
    assert found is not None
    assert meets(found)
    assert variance(found, *setting) <= min(known) * (1.0 + 1e-9)
    assert variance(found, *setting) == pytest.approx(min(known), rel=0.02)


def test_condition_one_asks_for_noise_that_does_not_fall_with_n():
    for units in (1000, 10_000, 100_000):
        beta = p.feasible_beta(units, units, 1.0, DELTA, "as printed")
        assert p.multiplier(units, units, 1.0, DELTA, beta) >= math.sqrt(2.8) - 1e-9


@pytest.mark.parametrize(("units", "sigma", "push"), [(1000, 0.82, p.JOINT), (1000, 0.82, p.HALVES), (200, 0.3, 2.0)])
def test_the_initial_release_against_the_accountant(units, sigma, push):
    def bound(pessimistic):
        found = privacy_loss_distribution.from_gaussian_mechanism(
            standard_deviation=sigma / push, value_discretization_interval=1e-3, sampling_prob=1.0 / units,
            pessimistic_estimate=pessimistic, use_connect_dots=pessimistic,
        )  # fmt: skip
        return found.get_epsilon_for_delta(DELTA)

    found = p.initial_release_epsilon(units, sigma, push, DELTA)
    assert bound(False) - 1e-6 <= found <= bound(True) + 1e-6
    # the hockey-stick divergence at that epsilon, by quadrature
    x = np.linspace(-12.0, 12.0 + push / sigma, 400_001)
    normal = lambda mean: np.exp(-0.5 * (x - mean) ** 2) / math.sqrt(2.0 * math.pi)  # noqa: E731
    excess = (1.0 - 1.0 / units) * normal(0.0) + normal(push / sigma) / units - math.exp(found) * normal(0.0)
    assert np.maximum(excess, 0.0).sum() * (x[1] - x[0]) == pytest.approx(DELTA, rel=1e-3)


def test_the_initial_release_alone_breaks_the_claim():
    """At n = 10,000 and T = 1,000 it has epsilon 318.5; what delta that epsilon has, by the normal tails."""
    sigma = p.multiplier(10_000, 1000, 1.0, DELTA)
    found = p.initial_release_epsilon(10_000, sigma, p.JOINT, DELTA)
    assert found == pytest.approx(318.5, abs=0.05)
    # e^epsilon of the larger tail is beyond what the density ratio has at 2 G: the whole of delta is that tail
    shift, x = 2.0 / sigma, (math.log(10_000) + found) * sigma / 2.0 + 1.0 / sigma
    assert ndtr(shift - x) / 10_000 >= DELTA
    # with much noise nothing is violated
    assert p.initial_release_epsilon(1000, p.multiplier(1000, 100_000, 1.0, DELTA), p.JOINT, DELTA) < 1e-3
    assert p.initial_release_epsilon(1000, 1e4, p.JOINT, DELTA) == 0.0


def test_weights_of_a_record():
    weights = p.weights(100)
    assert len(weights) == 101
    assert weights[:2] == pytest.approx([1.0, 3.0 / (4.0 * math.sqrt(3.0))])
    assert weights[100] == pytest.approx(3.0 / (4.0 * math.sqrt(102.0)))


def test_one_release_more_than_the_first_is_composed():
    """Few steps, so that the accountant takes an instant: no less than the first, no more than all at full weight."""
    low, high = p.pair_epsilon(200, 5, 0.5, p.JOINT, DELTA)
    first = p.initial_release_epsilon(200, 0.5, p.JOINT, DELTA)
    assert first <= low <= high
    assert high == pytest.approx(low, rel=0.02)
    without, _ = p.pair_epsilon(200, 5, 0.5, p.JOINT, DELTA, initial=False)
    assert without < low


@pytest.mark.slow
def test_a_hundred_epochs_show_no_violation():
    """E1: at n = 1,000 and T = 100,000 even a pair that is 2 G apart in every step has an epsilon below the claim."""
    shift = p.JOINT / p.multiplier(1000, 100_000, 1.0, DELTA)
    assert p._composed(1.0 / 1000, (shift,) * 100_000, DELTA)[1] == pytest.approx(0.26, abs=0.005)


def test_conditions_exclude_each_other_at_the_best_beta():
    """E3: with T = n, (i) needs n <= 240 at epsilon 1, and there (ii) asks for 23.5 <= 3.3."""
    assert p.conditions(239, 239, 1.0, DELTA).noise
    assert not p.conditions(242, 242, 1.0, DELTA).noise
    statement = theorem_conditions(240, 240, 1.0, DELTA)[1].statement
    assert "<= 3.27" in statement
    assert "it is 23.5" in statement


@pytest.mark.slow
def test_losses_beyond_the_accountant_leave_the_bound_of_the_first_release():
    low, high = p.pair_epsilon(6_000, 600_000, 0.0674, p.JOINT, DELTA)
    assert high >= low >= p.initial_release_epsilon(6_000, 0.0674, p.JOINT, DELTA) > 100.0


@pytest.mark.slow
def test_the_table():
    rows = {(r.units, r.steps, r.claimed): r for r in p.published_epsilons(((1000, 1000, 1.0), (10_000, 1000, 1.0)))}
    small, large = rows[1000, 1000, 1.0], rows[10_000, 1000, 1.0]
    assert (small.initial, small.initial_halves) == pytest.approx((1.347, 6.309), abs=1e-3)
    assert small.pair_at_most == pytest.approx(small.at_least, rel=0.01)
    assert large.at_least >= 318.49
    assert large.at_least_halves == pytest.approx(628.9, abs=0.1)
    assert p.pair_epsilon(1000, 1000, small.sigma, p.JOINT, DELTA, initial=False)[0] < 0.05
