"""Events: what is emitted can be read back, and nothing else can."""

from __future__ import annotations

import json
import math

import pytest
from dp_accounting import dp_event as dpe
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.accounting import events
from dprl.errors import DprlError

multipliers = st.floats(1e-3, 1e6)
leaves = st.one_of(
    multipliers.map(events.gaussian),
    st.builds(events.poisson_gaussian, st.floats(1e-9, 1.0), multipliers, st.integers(1, 10**6)),
)


@settings(max_examples=50, deadline=None)
@given(st.lists(leaves, min_size=1, max_size=4))
def test_json_and_back_is_the_same_event(parts):
    event = events.compose(parts)
    text = json.dumps(events.to_json(event), allow_nan=False)
    assert events.from_json(json.loads(text)) == event


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
        {"type": "PoissonSampled", "sampling_probability": 1.5, "event": {"type": "Gaussian", "noise_multiplier": 1.0}},
        {"type": "PoissonSampled", "sampling_probability": 0.0, "event": {"type": "Gaussian", "noise_multiplier": 1.0}},
        {"type": "SelfComposed", "count": 0, "event": {"type": "Gaussian", "noise_multiplier": 1.0}},
        {"type": "SelfComposed", "count": 2, "event": None},
        {"type": "Composed", "events": []},
        {"type": "Composed", "events": [{"type": "NoOp"}]},
    ],
)
def test_refuses_to_read_anything_else(data):
    with pytest.raises(DprlError):
        events.from_json(data)
