"""ctCDP of paper 002 against closed forms, high precision and brute force, and beside the accountant."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest

from dprl.accounting.accountant import epsilon_of
from dprl.accounting.calibration import gaussian_delta
from dprl.accounting.events import gaussian
from dprl.errors import DprlError
from dprl_papers.paper_002_l2p import ctcdp

BUDGETS = list(itertools.product((0.01, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 8.0), (1e-3, 1e-5, 1e-8, 1e-12)))


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_the_definitions_in_high_precision(epsilon, delta):
    with mpmath.workdps(60):
        e, log = mpmath.mpf(epsilon), -mpmath.log(mpmath.mpf(delta))
        a = log / e
        root = mpmath.sqrt(a * (a + 1))
        omega = (1 + a) + root
        printed = e * root / (omega * (a + root))  # Eq. (12)
        assert abs(printed / (mpmath.sqrt(log + e) - mpmath.sqrt(log)) ** 2 - 1) < 1e-50
        assert ctcdp.omega_a(float(a)) == pytest.approx(float(omega), rel=1e-14)
        assert ctcdp.rho_a(epsilon, delta) == pytest.approx(float(printed), rel=1e-14)
        # Theorem A.1 has both of its cases at omega_a, and with rho_a both give epsilon
        assert abs((omega - 1) ** 2 * printed / log - 1) < 1e-50
        assert abs((printed + 2 * mpmath.sqrt(printed * log)) / e - 1) < 1e-50
        assert abs((printed * omega + log / (omega - 1)) / e - 1) < 1e-50
        for part in (0.01, 0.3, 1.0, 2.0):
            rho = part * printed
            found, at = ctcdp.epsilon_of_ctcdp(float(rho), float(a))
            assert found == pytest.approx(float((omega - 1) * omega * rho / (omega - a - 1)), rel=1e-13)
            assert at == pytest.approx(float(mpmath.exp(-a * found)), rel=1e-9)
            # the case of Theorem A.1 that Lemma A.7 uses applies at every rho, with equality
            assert abs((omega - 1) ** 2 * rho / (a * mpmath.mpf(found)) - 1) < 1e-12


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_unsubsampled_epsilon_is_never_below_the_accountant_s(epsilon, delta):
    """The Gaussian whose rho is rho_a, in one step or in many: ctCDP says epsilon, and the truth is less."""
    multiplier = math.sqrt(0.5 / ctcdp.rho_a(epsilon, delta))
    assert ctcdp.gaussian_rho(multiplier) == pytest.approx(ctcdp.rho_a(epsilon, delta))
    assert gaussian_delta(epsilon, multiplier) < delta
    if delta >= 1e-8:
        assert epsilon_of(gaussian(multiplier), delta) < epsilon


# --- Lemma A.6 and Algorithm 3 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [2, 3, 8])
def test_what_one_record_moves_the_norm_of_a_batch_by(batch):
    """The square's printed bound is of removal; the norm itself moves by C or 2C whatever the batch (C = 1, a line)."""
    others, v = np.meshgrid(np.linspace(1 - batch, batch - 1, 201), np.linspace(-1.0, 1.0, 41), indexing="ij")
    norms = np.abs(others + v)
    assert np.max(np.abs(norms**2 - others**2)) == pytest.approx(2 * batch - 1)
    replaced = norms[:, :, None] - norms[:, None, :]
    squares = norms[:, :, None] ** 2 - norms[:, None, :] ** 2
    assert np.max(squares) == pytest.approx(4 * (batch - 1))  # printed: 2 batch - 1
    assert np.max(np.abs(norms - np.abs(others))) == pytest.approx(1.0)
    assert np.max(replaced) == pytest.approx(2.0)


def conditions_as_printed(rho, q, a, limit):
    """Lemma A.6, Eqs. (9) and (10), one after the other."""
    omega = (1 + a) + math.sqrt(a * (a + 1))
    return (
        rho <= 0.1,
        q <= 0.1,
        np.log(1 / q) >= 3 * rho * (2 + np.log2(1 / rho)),
        rho < np.log(1 / q) / (4 * omega),
        rho < limit / (13 * q**2),
    )


def test_preconditions_are_those_of_the_lemma():
    seen = set()
    for rho, q, a in itertools.product((1e-6, 1e-3, 0.05, 0.1, 0.11, 3.0), (1e-4, 0.05, 0.1, 0.3), (0.5, 20.0, 2000.0)):
        found = ctcdp.subsampled(rho, q, a, rho_limit=0.02)
        truth = conditions_as_printed(rho, q, a, 0.02)
        assert tuple(condition.holds for condition in found.conditions) == tuple(map(bool, truth))
        assert found.holds == all(truth)
        assert found.rho == pytest.approx(13 * q**2 * rho)
        if truth[0] and truth[1]:
            assert truth[2]  # Eq. (9) is implied
        seen |= {i for i, holds in enumerate(truth) if not holds}
    assert seen == set(range(5))
    with pytest.raises(DprlError, match="sampling rate"):
        ctcdp.subsampled(0.01, 1.5, 1.0, 1.0)


@pytest.mark.parametrize("steps", [2, 20, 300, 2000])
@pytest.mark.parametrize("units", [60, 1000, 12_000])
def test_algorithm_3_finds_the_nearest_feasible_rate(steps, units):
    """Against all whole batches one after the other, with the conditions as printed."""
    outcomes = [nearest_or_refused(epsilon, delta, steps, units) for epsilon, delta in BUDGETS]
    assert (units, steps) != (12_000, 2000) or outcomes.count("found") > 25
    assert (units, steps) != (60, 2) or outcomes.count("refused") > 10


def nearest_or_refused(epsilon, delta, steps, units):
    a, total = math.log(1 / delta) / epsilon, ctcdp.rho_a(epsilon, delta)
    q = np.arange(1, units + 1) / units
    with np.errstate(all="ignore"):
        feasible = np.flatnonzero(np.all(conditions_as_printed(total / steps / (13 * q**2), q, a, total), axis=0)) + 1
    feasible = feasible.tolist()
    if not feasible:
        with pytest.raises(DprlError, match="No sampling rate"):
            ctcdp.initialise(epsilon, delta, steps, units, 2.0)
        return "refused"
    made = ctcdp.initialise(epsilon, delta, steps, units, 2.0)
    assert made.batch in feasible
    assert feasible == list(range(feasible[0], feasible[-1] + 1))  # an interval: a smaller root would not do
    wanted = math.ceil((math.sqrt(units) + 10) - 1e-9)
    assert made.batch == min(max(wanted, feasible[0]), feasible[-1])
    assert made.q == made.batch / units
    assert made.rho_tot == total
    # spent step by step it is rho_tot again, and no step of the range breaks a condition
    assert steps * 13 * made.q**2 * (2.0 / made.sigma_g) ** 2 / 2 == pytest.approx(total)
    for sigma in (made.sigma_g, 2 * made.sigma_g, made.sigma_min * (1 + 1e-9)):
        assert ctcdp.subsampled((2.0 / sigma) ** 2 / 2, made.q, a, total).holds
    assert not ctcdp.subsampled((2.0 / made.sigma_min) ** 2 / 2 * (1 + 1e-9), made.q, a, total).holds
    return "found"


def test_the_rate_of_step_6_is_the_larger_lower_end():
    """At the smaller of the two roots, as it is printed, the other condition fails."""
    for epsilon, delta, steps in ((1.6, 1e-8, 500), (8.0, 1e-8, 1000)):
        a, total = math.log(1 / delta) / epsilon, ctcdp.rho_a(epsilon, delta)
        each = total / steps
        least = ctcdp.least_rate(each, a)
        assert least is not None
        ends = [math.sqrt(each / 1.3), brute_root(4 * ctcdp.omega_a(a) * each / 13)]
        assert least == pytest.approx(max(ends), rel=1e-9)
        holds = [all(conditions_as_printed(each / (13 * q**2), q, a, total)) for q in (least * 1.0001, min(ends))]
        assert holds == [True, False]
    assert ctcdp.least_rate(1.0, 1.0) is None


def brute_root(target):
    with mpmath.workdps(30):
        # q^2 log(1/q) = t: q = exp(W(-2t)/2) on the branch with the smaller q
        return float(mpmath.exp(mpmath.lambertw(-2 * mpmath.mpf(target), -1) / 2))


@pytest.mark.parametrize(
    "changes", [{"steps": 1}, {"units": 0}, {"sensitivity": 0.0}, {"epsilon": -1.0}, {"delta": 1.0}]
)
def test_what_makes_no_sense_is_refused(changes):
    with pytest.raises(DprlError):
        ctcdp.initialise(**{"epsilon": 1.0, "delta": 1e-5, "steps": 10, "units": 1000, "sensitivity": 2.0} | changes)


# --- the sinh-normal mechanism ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rho", "omega"), [(0.02, 4.0), (0.5, 3.0), (1.0, 10.0), (8.0, 2.0)])
def test_renyi_divergences_of_the_sinh_normal_mechanism(rho, omega):
    """Theorem A.2, by integration: at every order below omega at most rho alpha; just beyond, it need not hold."""
    sigma = math.sqrt(8.0 / rho)
    found = ctcdp.sinh_normal_rho(1.0, sigma, omega)
    assert found.holds
    assert found.rho == pytest.approx(rho)
    scale = 8.0 * omega

    def log_density(y):
        # x = A sinh(y/A) is N(0, sigma^2)
        x = scale * np.sinh(y / scale)
        return -0.5 * (x / sigma) ** 2 + np.log(np.cosh(y / scale)) - 0.5 * math.log(2 * math.pi * sigma**2)

    y = np.linspace(-60 * sigma, 60 * sigma, 400_001)
    step = y[1] - y[0]
    with np.errstate(over="ignore"):
        p, q = log_density(y - 1.0), log_density(y)
    p, q = np.maximum(p, -1e5), np.maximum(q, -1e5)
    assert np.exp(q).sum() * step == pytest.approx(1.0, abs=1e-9)
    for alpha in np.linspace(1.01, omega, 7):
        divergence = np.log(np.sum(np.exp(alpha * p + (1 - alpha) * q)) * step) / (alpha - 1)
        assert 0.0 < divergence <= rho * alpha


def test_conditions_of_the_sinh_normal_mechanism():
    assert [c.holds for c in ctcdp.sinh_normal_rho(1.0, 100.0, 2.0).conditions] == [False, True]
    assert [c.holds for c in ctcdp.sinh_normal_rho(1.0, 0.5, 2.0).conditions] == [True, False]
    with pytest.raises(DprlError, match="omega"):
        ctcdp.sinh_normal_rho(1.0, 1.0, 1.0)
