"""The privacy loss distribution of a sampled Gaussian, against dp_accounting's own, point by point."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from dp_accounting import dp_event as dpe
from dp_accounting import get_epsilon_gaussian
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dprl.accounting.accountant import _Losses, epsilon_of, gaussian_pld


@given(st.floats(-4.0, 0.0), st.floats(-0.3, 1.5))
@example(0.0, -0.1)
@example(0.0, 1.0)
@settings(max_examples=12)
def test_it_is_dp_accountings_own(log_rate, log_multiplier):
    rate, multiplier, grid = 10.0**log_rate, 10.0**log_multiplier, 1e-3
    ours = gaussian_pld(rate, multiplier, grid)
    theirs = from_gaussian_mechanism(multiplier, value_discretization_interval=grid, sampling_prob=rate)
    for one, other in ((ours._pmf_remove, theirs._pmf_remove), (ours._pmf_add, theirs._pmf_add)):
        one, other = one.to_dense_pmf(), other.to_dense_pmf()
        assert one._lower_loss == other._lower_loss
        assert one._infinity_mass == pytest.approx(other._infinity_mass, abs=1e-15)
        np.testing.assert_allclose(one._probs, other._probs, rtol=0.0, atol=1e-11)


@pytest.mark.parametrize("rate", [0.02, 0.5, 1.0 - 1e-12, 1.0])
def test_compositions_are_the_accountants(rate):
    """To the digits that a certificate is recomputed with; a rate next to one is the edge of both formulas."""
    inner = dpe.GaussianDpEvent(1.7)
    one, other = inner if rate == 1.0 else dpe.PoissonSampledDpEvent(rate, inner), dpe.PoissonSampledDpEvent(0.1, inner)
    event = dpe.ComposedDpEvent([dpe.SelfComposedDpEvent(one, 40), other, dpe.GaussianDpEvent(3.0)])
    direct = PLDAccountant(value_discretization_interval=1e-4)
    direct.compose(event)
    assert epsilon_of(event, 1e-6) == pytest.approx(direct.get_epsilon(1e-6), rel=2e-4)
    assert math.isfinite(epsilon_of(event, 1e-6))


@pytest.mark.parametrize("rate", [0.02, 1.0])
@pytest.mark.parametrize("way", list(AdjacencyType)[:2])
def test_its_normal_distribution_has_the_digits_of_scipys(rate, way):
    theirs = GaussianPrivacyLoss(1.7, sampling_prob=rate, adjacency_type=way)
    ours = _Losses(1.7, rate, way.name)
    x = np.concatenate([np.linspace(-60.0, 60.0, 2001), np.geomspace(1e-9, 1e3, 500)])
    np.testing.assert_array_equal(ours.mu_upper_cdf(x), theirs.mu_upper_cdf(x))
    np.testing.assert_array_equal(ours.mu_lower_log_cdf(x), theirs.mu_lower_log_cdf(x))
    assert ours.connect_dots_bounds() == theirs.connect_dots_bounds()


def test_what_takes_long_to_import_is_imported_when_it_is_called():
    lines = (
        "import sys, dprl.accounting.accountant, dp_accounting",
        "before = {'scipy.optimize', 'scipy.signal', 'scipy.stats'} & set(sys.modules)",
        "print(before, dp_accounting.get_epsilon_gaussian(1.3, 1e-5), 'scipy.stats' in sys.modules)",
    )
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    before, epsilon, after = done.stdout.rsplit(" ", 2)
    assert (before, after) == ("set()", "True\n")
    assert float(epsilon) == get_epsilon_gaussian(1.3, 1e-5)
