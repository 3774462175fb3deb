"""Events: what is emitted can be read back, and nothing else can; what pure ones and those of two parts cost."""

from __future__ import annotations

import json
import math

import pytest
from dp_accounting import dp_event as dpe
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.accounting import events
from dprl.accounting.accountant import epsilon_of
from dprl.errors import DprlError

multipliers = st.floats(1e-3, 1e6)
leaves = st.one_of(
    multipliers.map(events.gaussian),
    st.builds(events.poisson_gaussian, st.floats(1e-9, 1.0), multipliers, st.integers(1, 10**6)),
)


@settings(max_examples=50, deadline=None)
@given(st.lists(leaves, min_size=1, max_size=4), st.floats(0.01, 20.0))
def test_json_and_back_is_the_same_event(parts, epsilon):
    sampled = events.compose(parts)
    for event in (sampled, events.parallel([events.pure(epsilon), sampled])):
        again = events.from_json(json.loads(json.dumps(events.to_json(event), allow_nan=False)))
        assert again == event
    assert events.stated_parts(again) == [(epsilon,), *events.stated_parts(sampled)]
    assert events.events_by_part(again) == event.events
    assert events.events_by_part(sampled) == (sampled,)


def test_the_parts_of_an_event_are_stated_in_order():
    event = events.compose([events.gaussian(2.0), events.poisson_gaussian(0.1, 3.0, 5)])
    assert events.stated_parts(event) == [(1.0, 2.0, 1), (0.1, 3.0, 5)]


def test_a_rate_of_one_samples_everybody():
    assert events.poisson_gaussian(1.0, 2.0, 3) == dpe.SelfComposedDpEvent(dpe.GaussianDpEvent(2.0), 3)


@pytest.mark.parametrize("multiplier", [0.0, -1.0, math.nan, math.inf])
def test_refuses_a_noise_multiplier_without_a_guarantee(multiplier):
    with pytest.raises(DprlError):
        events.gaussian(multiplier)


@pytest.mark.parametrize(("rate", "steps"), [(0.0, 1), (1.1, 1), (math.nan, 1), (0.5, 0)])
def test_refuses_a_rate_or_a_count_out_of_range(rate, steps):
    with pytest.raises(DprlError):
        events.poisson_gaussian(rate, 1.0, steps)


PURE = {"type": "Pure", "epsilon": 1.0}
GAUSSIAN = {"type": "Gaussian", "noise_multiplier": 4.0}


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"type": "Laplace", "noise_multiplier": 1.0},
        {"type": "Gaussian"},
        {"type": "Gaussian", "noise_multiplier": 0.0},
        {"type": "Gaussian", "noise_multiplier": "one"},
        {"type": "Gaussian", "noise_multiplier": None},
        {"type": "Gaussian", "noise_multiplier": 1.0, "extra": 1},
        {"type": "PoissonSampled", "sampling_probability": 1.5, "event": GAUSSIAN},
        {"type": "PoissonSampled", "sampling_probability": 0.0, "event": GAUSSIAN},
        {"type": "SelfComposed", "count": 0, "event": GAUSSIAN},
        {"type": "SelfComposed", "count": 2, "event": None},
        {"type": "Composed", "events": []},
        {"type": "Composed", "events": [{"type": "NoOp"}]},
        {"type": "Parallel", "events": [PURE]},
        {"type": "Parallel", "events": []},
        {"type": "Parallel"},
        {"type": "Pure", "epsilon": 0.0},
        {"type": "Pure", "epsilon": math.inf},
        {"type": "Pure", "epsilon": True},
        {"type": "Pure", "epsilon": 1.0, "delta": 0.0},
    ],
)
def test_refuses_to_read_anything_else(data):
    with pytest.raises(DprlError):
        events.from_json(data)


# --- pure events, and two parts of the people ---------------------------------------------------------------------

noise, epsilons, deltas = st.floats(0.5, 20.0), st.floats(0.01, 20.0), st.floats(1e-9, 0.1)


@settings(max_examples=25)
@given(noise, noise, deltas)
def test_two_parts_cost_the_larger_epsilon_at_every_delta(one, other, delta):
    parts = [events.gaussian(z) for z in (one, other)]
    assert epsilon_of(events.parallel(parts), delta) == max(epsilon_of(part, delta) for part in parts)


@given(epsilons, deltas)
def test_a_pure_event_costs_its_epsilon_at_every_delta(epsilon, delta):
    assert epsilon_of(events.pure(epsilon), delta) == epsilon


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
