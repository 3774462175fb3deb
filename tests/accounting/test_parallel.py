"""Events of two parts of the people, and pure ones: what they cost, how they are written, and where they may stand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dprl.accounting import events
from dprl.accounting.accountant import epsilon_of
from dprl.accounting.calibration import gaussian_delta
from dprl.errors import DprlError

multipliers, epsilons, deltas = st.floats(0.5, 20.0), st.floats(0.01, 20.0), st.floats(1e-9, 0.1)


@given(multipliers, multipliers, deltas)
def test_two_parts_cost_the_larger_epsilon_at_every_delta(one, other, delta):
    parts = [events.gaussian(z) for z in (one, other)]
    assert epsilon_of(events.parallel(parts), delta) == max(epsilon_of(part, delta) for part in parts)


@given(multipliers, multipliers, st.floats(0.1, 5.0))
def test_that_is_the_larger_delta_at_every_epsilon(one, other, epsilon):
    """Of Gaussians both are known exactly; the accountant's epsilon is an upper bound that is near."""
    delta = max(gaussian_delta(epsilon, z) for z in (one, other))
    if 1e-9 < delta < 0.5:
        found = epsilon_of(events.parallel([events.gaussian(one), events.gaussian(other)]), delta)
        assert epsilon <= found * (1.0 + 1e-9) <= epsilon * 1.01 + 1e-3


@given(epsilons, deltas)
def test_a_pure_event_costs_its_epsilon_at_every_delta(epsilon, delta):
    assert epsilon_of(events.pure(epsilon), delta) == epsilon


@given(epsilons, multipliers, st.integers(1, 50), st.floats(0.01, 0.99))
def test_what_is_written_is_read_back(epsilon, multiplier, steps, rate):
    sampled = events.poisson_gaussian(rate, multiplier, steps)
    event = events.parallel([events.pure(epsilon), events.compose([events.gaussian(multiplier), sampled])])
    again = events.from_json(events.to_json(event))
    assert again == event
    assert events.stated_parts(again) == [(epsilon,), (1.0, multiplier, 1), (rate, multiplier, steps)]
    assert events.branches(again) == event.events
    assert events.branches(sampled) == (sampled,)


PURE = {"type": "Pure", "epsilon": 1.0}
GAUSSIAN = {"type": "Gaussian", "noise_multiplier": 4.0}


@pytest.mark.parametrize(
    "data",
    [
        {"type": "Parallel", "events": [PURE]},
        {"type": "Parallel", "events": []},
        {"type": "Parallel"},
        {"type": "Pure", "epsilon": 0.0},
        {"type": "Pure", "epsilon": math.inf},
        {"type": "Pure", "epsilon": True},
        {"type": "Pure", "epsilon": 1.0, "delta": 0.0},
    ],
)
def test_what_is_no_event_is_refused(data):
    with pytest.raises(DprlError):
        events.from_json(data)


@pytest.mark.parametrize(
    "data",
    [
        {"type": "Composed", "events": [PURE, GAUSSIAN]},
        {"type": "SelfComposed", "count": 2, "event": PURE},
        {"type": "PoissonSampled", "sampling_probability": 0.1, "event": PURE},
        {"type": "Composed", "events": [{"type": "Parallel", "events": [PURE, GAUSSIAN]}, GAUSSIAN]},
        {"type": "Parallel", "events": [{"type": "Parallel", "events": [PURE, GAUSSIAN]}, GAUSSIAN]},
    ],
)
def test_neither_is_part_of_another_event(data):
    """No proof says what a sample of them, or a sum with others, costs."""
    with pytest.raises(DprlError):
        epsilon_of(events.from_json(data), 1e-5)
