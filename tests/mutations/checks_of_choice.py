"""The checks of a choice among policies: the odds of the winner, who is in which part, and what a unit may move."""

from __future__ import annotations

import math

import numpy as np

from dprl.accounting.rows import KINDS
from dprl.audits.conformance.best import BEST
from dprl.audits.neighbours import Case
from dprl.mechanisms.noise import SecureNoise
from dprl.mechanisms.noisy_maximum import NoisyMaximum

from .checks_of_neighbours import hold
from .lab import Lab, check, require

_TRIALS = 2000


def _maximum() -> NoisyMaximum:
    return NoisyMaximum(candidates=2, spread=1000, epsilon=1.0)


@check
def odds_of_a_choice() -> None:
    """A candidate that is one spread behind wins with half of 1/e."""
    chooses = _maximum()
    keys = (SecureNoise(t.to_bytes(32, "little")) for t in range(_TRIALS))
    wins = sum(chooses.choose(key, np.array([1000, 0])) for key in keys)
    chance = math.exp(-1.0) / 2.0
    near = abs(wins - _TRIALS * chance) <= 5.0 * math.sqrt(_TRIALS * chance * (1.0 - chance))
    require(near, "the second wins too often or too seldom")


@check
def spread_of_one_unit() -> None:
    chooses = _maximum()
    moved = chooses.clipped_sum(np.array([[900.0, -900.0], [5.0, 5e9]]), np.array([True, False]))
    require(np.ptp(moved) <= chooses.spread, "one unit moves two scores further apart than is accounted for")


@check
def row_of_a_choice() -> None:
    row = _maximum().describe("choice")
    require(KINDS[row["name"]](**row).proved(), "the row states a smaller epsilon than its rate and spread cost")


@check
def neighbours_of_a_choice(lab: Lab) -> None:
    """People with two trajectories each; they choose, or they value."""
    hold(Case(BEST, "best of two, one decision", "arrays by person"), lab)
