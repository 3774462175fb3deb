"""Public bounds: what they accept, refuse and imply."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from dprl.bounds import Bounds
from dprl.errors import DprlError
from dprl.protocols import Policy

from .sample_log import BOUNDS

HUGE = 10**400


@pytest.mark.parametrize(
    ("change", "words"),
    [
        *(({name: value}, f"{name} must be a whole number")
          for name in ("units", "horizon", "actions") for value in (0, -1, 1.0, True, "1", HUGE)),
        *(({name: None}, f"{name} must be a whole number") for name in ("units", "horizon")),
        *(({"reward": value}, "reward must be \\[low, high\\]")
          for value in ((1.0, 0.0), (0.0,), (0, math.inf), (math.nan, 1), ("0", "1"), 5, (0, HUGE), (-1e300, 1),
                        (0, True))),
        ({"observation": ()}, "observation must list"),
        ({"observation": 5}, "observation must list"),
        ({"observation": (1.0, 2.0)}, "observation component 0 must be"),
        ({"observation": ((0.0, 1.0), (1.0, 0.0))}, "observation component 1 must be"),
        ({"action": ((0.0, 1.0),)}, "give either actions"),
        ({"actions": None}, "give either actions"),
        ({"actions": None, "action": ()}, "action must list"),
        ({"actions": None, "action": 5}, "action must list"),
        ({"actions": None, "action": ((0.0, math.nan),)}, "action component 0 must be"),
        *(({name: value}, f"{name} must be a finite number of at least 1")
          for name in ("max_importance_ratio", "max_cumulative_ratio")
          for value in (0.5, math.inf, math.nan, "2", True, HUGE)),
        ({"max_importance_ratio": None}, "max_importance_ratio must be a finite number of at least 1"),
        ({"return_range": (1.0, 0.0)}, "return_range must be \\[low, high\\]"),
        ({"actions": 2, "action_names": ("a", "a", "b")}, "action_names must be one text for each"),
    ],
)  # fmt: skip
def test_bounds_that_are_not_sound(change, words):
    with pytest.raises(DprlError, match=words):
        replace(BOUNDS, **change)


@pytest.mark.parametrize("name", ["units", "horizon", "reward", "observation", "max_importance_ratio"])
def test_a_missing_bound_is_named_and_never_inferred(name):
    with pytest.raises(DprlError, match=f"{name} is missing.*never inferred"):
        Bounds.from_mapping({k: v for k, v in BOUNDS.as_dict().items() if k != name})


def test_an_unknown_bound_is_named():
    with pytest.raises(DprlError, match="unknown name 'episodes'"):
        Bounds.from_mapping({**BOUNDS.as_dict(), "episodes": 5})


def test_bounds_survive_plain_data():
    full = replace(BOUNDS, max_cumulative_ratio=3.0, return_range=(-1.0, 2.0))
    assert Bounds.from_mapping(full.as_dict()) == full
    assert "action" not in full.as_dict()


def test_the_cumulative_ratio_defaults_to_the_step_s():
    assert BOUNDS.cumulative_ratio == 2.0
    assert replace(BOUNDS, max_cumulative_ratio=7.0).cumulative_ratio == 7.0


@pytest.mark.parametrize("discount", [0.0, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("reward", [(-1.0, 2.0), (1.0, 2.0), (-2.0, -1.0), (0.0, 1.0), (3.0, 3.0)])
def test_the_value_interval_is_what_the_extreme_trajectories_return(discount, reward):
    """Against every trajectory of extreme rewards that may end at any step."""
    horizon = 4
    returns = [
        sum(discount**t * r for t, r in enumerate(rewards))
        for length in range(1, horizon + 1)
        for rewards in itertools.product(reward, repeat=length)
    ]
    low, high = replace(BOUNDS, horizon=horizon, reward=reward).value_interval(discount)
    assert low == pytest.approx(min(returns))
    assert high == pytest.approx(max(returns))


def test_a_known_value_range_wins():
    assert replace(BOUNDS, return_range=(0.0, 0.5)).value_interval(0.9) == (0.0, 0.5)


def test_the_largest_bounds_keep_every_product_finite():
    large = replace(BOUNDS, reward=(-1e50, 1e50), horizon=10**12, max_importance_ratio=1e50)
    low, high = large.value_interval(1.0)
    assert math.isfinite((high - low) ** 2 * large.cumulative_ratio**2)


def test_a_plain_function_is_a_policy():
    assert isinstance(lambda states: np.ones((len(states), 1)), Policy)


def test_the_former_name_of_a_range_is_understood():
    told = BOUNDS.as_dict()
    assert Bounds.from_mapping(told | {"value": [0, 0.5]}) == Bounds.from_mapping(told | {"return_range": [0, 0.5]})
    with pytest.raises(DprlError, match="unknown name 'value'"):
        Bounds.from_mapping(told | {"value": [0, 0.5], "return_range": [0, 0.5]})
