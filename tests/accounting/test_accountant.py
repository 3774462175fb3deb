"""The accountant, held against closed forms, against RDP and against itself."""

from __future__ import annotations

import math

import pytest
from dp_accounting import dp_event as dpe
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.accounting.accountant import epsilon_of
from dprl.accounting.calibration import gaussian_delta
from dprl.accounting.events import gaussian, poisson_gaussian
from dprl.errors import DprlError


@pytest.mark.parametrize(("multiplier", "steps"), [(20.0, 1000), (300.0, 10_000), (2000.0, 50_000)])
def test_grid_keeps_many_small_losses_tight(multiplier, steps):
    """Sampling nearly everybody, step by step, is close to one Gaussian whose epsilon is known in closed form."""
    epsilon = epsilon_of(poisson_gaussian(1.0 - 1e-9, multiplier, steps), 1e-5)
    assert gaussian_delta(epsilon, multiplier / math.sqrt(steps)) == pytest.approx(1e-5, rel=0.02)
    assert gaussian_delta(epsilon, multiplier / math.sqrt(steps)) <= 1e-5 * (1 + 1e-4)


@settings(max_examples=12, deadline=None)
@given(
    rate=st.sampled_from([0.01, 0.1, 0.5, 1.0]),
    multiplier=st.floats(2.0, 500.0),
    factor=st.floats(1.001, 3.0),
    steps=st.sampled_from([1, 10, 1000]),
)
def test_more_noise_never_costs_more(rate, multiplier, factor, steps):
    less = epsilon_of(poisson_gaussian(rate, multiplier, steps), 1e-5)
    more = epsilon_of(poisson_gaussian(rate, multiplier * factor, steps), 1e-5)
    # rounding of the transforms aside
    assert more <= less * (1 + 1e-7) + 1e-12


@pytest.mark.parametrize(
    "event",
    [
        dpe.PoissonSampledDpEvent(0.1, dpe.SelfComposedDpEvent(dpe.GaussianDpEvent(1.0), 2)),
        dpe.GaussianDpEvent(0.0),
        dpe.SelfComposedDpEvent(dpe.GaussianDpEvent(1.0), 10**40),
    ],
)
def test_refuses_what_is_no_release_that_it_can_count(event):
    with pytest.raises(DprlError):
        epsilon_of(event, 1e-5)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, math.nan])
def test_refuses_a_delta_that_is_no_probability(delta):
    with pytest.raises(DprlError):
        epsilon_of(gaussian(1.0), delta)


@pytest.mark.parametrize("event", [gaussian(1e-3), poisson_gaussian(0.5, 0.5, 10**12)])
def test_hopeless_events_are_answered_at_once(event):
    assert epsilon_of(event, 1e-5) == math.inf
