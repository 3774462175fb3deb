"""The auditor, held against mechanisms whose epsilon is known in closed form."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import binom, norm

from dprl.accounting.calibration import gaussian_delta
from dprl.audits.lower_bound import (
    clopper_pearson,
    epsilon_lower_bound,
    gaussian_epsilon,
    gaussian_lower_bound,
    run_attack,
)
from dprl.errors import DprlError

DELTA = 1e-5


def gaussian_scores(rng, mu, n):
    return rng.normal(size=n), rng.normal(mu, 1.0, size=n)


class GaussianCanary:
    """One Gaussian release of a canary at distance ``mu``; ``noise`` below 1 is a mechanism that breaks its claim."""

    delta = DELTA
    gaussian = True
    description = "a Gaussian of known mu"
    preconditions = ()

    def __init__(self, mu: float, noise: float = 1.0):
        self.mu, self.noise = mu, noise
        self.epsilon = gaussian_epsilon(mu, DELTA)

    def scores(self, seed, trials, present, progress=None):
        rng = np.random.default_rng([seed, present])
        return self.mu * present + self.noise * rng.normal(size=trials)


# --- intervals --------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 400), st.data())
def test_clopper_pearson_solves_its_defining_equations(trials, data):
    k = data.draw(st.integers(0, trials))
    low, high = (float(x) for x in clopper_pearson(k, trials, 0.9))
    assert (low == 0.0) if k == 0 else binom.sf(k - 1, trials, low) == pytest.approx(0.05, rel=1e-6)
    assert (high == 1.0) if k == trials else binom.cdf(k, trials, high) == pytest.approx(0.05, rel=1e-6)


@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 4.0])
def test_gaussian_epsilon_is_the_inverse_of_delta(mu):
    assert gaussian_delta(gaussian_epsilon(mu, DELTA), 1.0 / mu) == pytest.approx(DELTA, rel=1e-6)


def test_gaussian_epsilon_of_nothing_is_zero():
    assert gaussian_epsilon(0.0, DELTA) == 0.0
    assert gaussian_epsilon(1e-7, DELTA) == 0.0


# --- coverage and strength --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mu", "fraction"), [(0.2683, 0.25), (1.0, 0.5), (3.0, 0.35)])
def test_bound_from_counts_holds_and_is_worth_something(mu, fraction):
    """At most the true epsilon in 95% of audits of 20,000 trials, and a stated part of it (counts end near log n)."""
    rng, true, audits = np.random.default_rng(1), gaussian_epsilon(mu, DELTA), 30
    bounds = [
        epsilon_lower_bound(
            gaussian_scores(rng, mu, 5_000), gaussian_scores(rng, mu, 20_000), delta=DELTA
        ).epsilon_lower
        for _ in range(audits)
    ]
    assert sum(b > true for b in bounds) <= binom.ppf(0.999, audits, 0.05)
    assert np.mean(bounds) >= fraction * true


@pytest.mark.parametrize("trials", [40, 1_000, 20_000])
@pytest.mark.parametrize("mu", [0.2683, 1.0])
def test_gaussian_bound_holds_at_its_level(mu, trials):
    """Two-sided at 80%: mu lies below the lower end in a tenth of audits, neither more nor far fewer."""
    rng, audits = np.random.default_rng(2), 500 if trials < 5_000 else 200
    found = [
        gaussian_lower_bound(*gaussian_scores(rng, mu, trials), delta=DELTA, confidence=0.8) for _ in range(audits)
    ]
    misses = sum(f.mu_lower > mu for f in found)
    # where the estimate is often clipped at zero it still misses no more often than that
    assert misses <= binom.ppf(0.9999, audits, 0.1)
    assert misses >= binom.ppf(0.0001, audits, 0.1)
    assert all(f.epsilon_lower <= gaussian_epsilon(f.mu_estimate, DELTA) + 1e-9 for f in found[:50])


@pytest.mark.parametrize(("epsilon", "fraction"), [(1.0, 0.9), (4.0, 0.95)])
def test_gaussian_bound_is_tight(epsilon, fraction):
    mu = brentq(lambda mu: gaussian_epsilon(mu, DELTA) - epsilon, 0.05, 3.0)
    result = run_attack(GaussianCanary(mu), trials=100_000, seed=5)
    assert result.gaussian is not None
    assert fraction * epsilon <= result.gaussian.epsilon_lower <= 1.001 * epsilon


@pytest.mark.parametrize("truth", [0.6, 0.75, 0.95])
@pytest.mark.parametrize("flipped", [False, True])
def test_randomised_response(truth, flipped):
    """epsilon = log(p / (1 - p)) exactly; either arm may be the one that gives it away."""
    rng, true, audits = np.random.default_rng(3), math.log(truth / (1.0 - truth)), 100

    def arms(n):
        absent, present = rng.random(n) < 1.0 - truth, rng.random(n) < truth
        return (~present, ~absent) if flipped else (absent, present)

    bounds = [epsilon_lower_bound(arms(1_000), arms(20_000), delta=0.0).epsilon_lower for _ in range(audits)]
    assert sum(b > true for b in bounds) <= binom.ppf(0.999, audits, 0.05)
    assert np.mean(bounds) >= 0.85 * true


def test_the_event_below_the_threshold_is_tried_too():
    """With delta, telling by absence can prove more: D gives 0 in one run of ten, D' never."""
    rng = np.random.default_rng(4)

    def arms(n):
        return 1.0 - (rng.random(n) < 0.1), np.ones(n)

    bound = epsilon_lower_bound(arms(1_000), arms(10_000), delta=DELTA)
    assert bound.direction == "below"
    assert bound.false_alarms == 0
    assert bound.epsilon_lower > 4.0


def test_choice_looks_at_the_selection_alone():
    rng = np.random.default_rng(6)
    selection = gaussian_scores(rng, 1.0, 2_000)
    a = epsilon_lower_bound(selection, gaussian_scores(rng, 1.0, 2_000), delta=DELTA)
    b = epsilon_lower_bound(selection, gaussian_scores(rng, 3.0, 2_000), delta=DELTA)
    assert (a.threshold, a.direction) == (b.threshold, b.direction)
    assert b.epsilon_lower > a.epsilon_lower
    # the count is that of the event
    assert a.trials == 2_000
    assert a.selection_trials == 2_000


def test_identical_arms_prove_nothing():
    rng = np.random.default_rng(7)
    bounds = [
        epsilon_lower_bound(gaussian_scores(rng, 0.0, 500), gaussian_scores(rng, 0.0, 2_000), delta=DELTA)
        for _ in range(100)
    ]
    assert sum(b.epsilon_lower > 0.0 for b in bounds) <= binom.ppf(0.999, 100, 0.05)


# --- verdicts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mu", [0.2683, 1.0])
def test_honest_mechanism_passes_and_a_broken_one_is_caught(mu):
    assert not run_attack(GaussianCanary(mu), trials=50_000, seed=8).violated
    broken = run_attack(GaussianCanary(mu, noise=0.8), trials=50_000, seed=8)
    assert broken.violated
    assert broken.gaussian is not None
    assert broken.gaussian.epsilon_lower > broken.claimed_epsilon


def test_verdict_in_words_and_as_data():
    honest, broken = (run_attack(GaussianCanary(1.0, noise=n), trials=20_000, seed=8) for n in (1.0, 0.5))
    assert (honest.verdict, broken.verdict) == ("not violated", "violated")
    found = broken.as_dict()
    assert {"epsilon_lower", "claimed_epsilon", "delta", "trials", "verdict"} <= set(found)
    assert found["epsilon_lower"] == broken.bound.epsilon_lower == broken.epsilon_lower
    assert found["trials"] == 20_000
    assert found["selection_trials"] == 5_000
    assert found["description"] == "a Gaussian of known mu"
    assert broken.gaussian is not None
    assert found["gaussian"]["epsilon_lower"] == broken.gaussian.epsilon_lower
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert broken.seconds > 0.0


@pytest.mark.slow
@pytest.mark.parametrize("mu", [0.2683, 1.0])
def test_gaussian_bound_covers_at_the_level_of_the_tables(mu):
    """As above at the 95% of a table, over more audits: 2.5% of them miss, and the bound is near mu."""
    rng, audits, trials = np.random.default_rng(12), 2_000, 6_000
    found = [gaussian_lower_bound(*gaussian_scores(rng, mu, trials), delta=DELTA) for _ in range(audits)]
    misses = sum(f.mu_lower > mu for f in found)
    assert binom.ppf(0.0001, audits, 0.025) <= misses <= binom.ppf(0.9999, audits, 0.025)
    # two standard errors of a difference of means below
    assert abs(float(np.mean([f.mu_lower for f in found])) - (mu - 1.96 * math.sqrt(2.0 / trials))) < 0.01


def test_counts_alone_catch_a_mechanism_without_noise():
    result = run_attack(GaussianCanary(1.0, noise=0.1), trials=5_000, seed=9)
    assert result.epsilon_lower > result.claimed_epsilon
    assert result.violated


def test_infinite_scores_are_scores():
    absent, present = np.full(1_000, -np.inf), np.full(1_000, np.inf)
    bound = epsilon_lower_bound((absent, present), (absent, present), delta=DELTA)
    assert bound.epsilon_lower > math.log(0.99 / 0.005)


def test_scores_of_any_size_are_scores():
    rng = np.random.default_rng(13)

    def arms(n):
        far = 1e308 * rng.random(n)
        return -far, np.where(rng.random(n) < 0.5, far, np.inf)

    assert epsilon_lower_bound(arms(2_000), arms(4_000), delta=DELTA).epsilon_lower > 6.0


@pytest.mark.parametrize("scores", [np.zeros(0), np.array([0.0, np.nan])])
def test_scores_that_are_none_are_refused(scores):
    good = np.arange(20.0)
    with pytest.raises(DprlError, match="must be numbers"):
        epsilon_lower_bound((scores, good), (good, good), delta=DELTA)
    with pytest.raises(DprlError, match="must be numbers"):
        gaussian_lower_bound(good, scores, delta=DELTA)


def test_nonsense_is_refused():
    good = np.arange(20.0)
    with pytest.raises(DprlError, match="delta"):
        epsilon_lower_bound((good, good), (good, good), delta=1.0)
    with pytest.raises(DprlError, match="at least 12"):
        gaussian_lower_bound(good[:3], good[:3], delta=DELTA)
    with pytest.raises(DprlError, match="vary"):
        gaussian_lower_bound(np.zeros(20), np.ones(20), delta=DELTA)
    with pytest.raises(DprlError, match="at least 1 trial"):
        run_attack(GaussianCanary(1.0), trials=0)


def test_power_against_the_oracle_threshold():
    """At 100,000 trials the choice on a split of its own costs at most a tenth of the best possible event."""
    rng, mu, n = np.random.default_rng(10), 1.0, 100_000
    grid = np.linspace(-3.0, 6.0, 2_000)
    likely = clopper_pearson(norm.sf(grid - mu) * n, n, 0.95)[0]
    unlikely = clopper_pearson(norm.sf(grid) * n, n, 0.95)[1]
    best = float(np.max(np.log(np.maximum(likely - DELTA, 1e-300)) - np.log(unlikely)))
    found = [
        epsilon_lower_bound(gaussian_scores(rng, mu, n // 4), gaussian_scores(rng, mu, n), delta=DELTA).epsilon_lower
        for _ in range(8)
    ]
    assert np.mean(found) > 0.9 * best


def test_the_choice_is_no_lottery():
    """Smoothed, the chosen event hardly varies: from the same distribution always nearly the same threshold."""
    rng, mu, n = np.random.default_rng(11), 0.2683, 100_000
    absent, present = gaussian_scores(rng, mu, n)
    chosen = [epsilon_lower_bound(gaussian_scores(rng, mu, 25_000), (absent, present), delta=DELTA) for _ in range(12)]
    # telling by absence is the same event seen from the other side
    thresholds = [b.threshold if b.direction == "at or above" else mu - b.threshold for b in chosen]
    assert np.std(thresholds) < 0.1
    assert min(b.hits for b in chosen) > 200


def test_a_curve_that_does_not_fit_is_not_used():
    """Scores whose density ratio is far from a quadratic: an atom that only the counts see."""
    rng = np.random.default_rng(12)

    def arms(n):
        absent, present = rng.normal(size=n), rng.normal(size=n)
        # one run in twenty of D' gives a score just above the rest of an interval that both visit
        return absent, np.where(rng.random(n) < 0.05, 6.0, present)

    bound = epsilon_lower_bound(arms(10_000), arms(40_000), delta=DELTA)
    assert 3.5 < bound.threshold <= 6.0
    assert bound.epsilon_lower > 5.0
