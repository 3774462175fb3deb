"""Faults of a choice among policies or rules: who chooses, who values, and how the winner is drawn."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from dprl.engine.sample_split import SampleSplit
from dprl.evaluation import least_noise
from dprl.evaluation.best_policy import PolicyChoice
from dprl.mechanisms import noisy_maximum
from dprl.mechanisms.noisy_maximum import NoisyMaximum
from dprl.release.private_rows import RowsInMemory

from .planting import fault

WINNER = "the winner has the probabilities of permute and flip"


@fault("a choice without noise", WINNER, (NoisyMaximum, "choose"))
def _(original: Any, self: Any, noise: Any, total: Any) -> int:
    return int(np.argmax(total))


@fault("coins of a choice at twice the rate", WINNER, (noisy_maximum, "heads_of_exponential"))
def _(original: Any, exponent: Any, words: Any) -> bool:
    return original(2 * exponent, words)


@fault("the first with heads wins, not each alike", WINNER, (noisy_maximum, "uniform_below"))
def _(original: Any, count: int, words: Any) -> int:
    return count - 1


@fault(
    "scores of both signs by the spread of those of one",
    "scores are rounded toward zero and only differences count",
    (NoisyMaximum, "clipped"),
)
def _(original: Any, self: Any, scores: Any) -> Any:
    return np.clip(np.trunc(np.nan_to_num(scores)), -self.spread, self.spread).astype(np.int64)


@fault("rate of a choice for scores that only grow by half of the spread", "row of a choice", (NoisyMaximum, "rate"))
def _(original: Any, self: Any) -> float:
    return 2.0 * original(self)


@fault("rate of a choice rounded up", "row of a choice", (NoisyMaximum, "rate"))
def _(original: Any, self: Any) -> float:
    return math.nextafter(original(self), 1.0)


@fault("a person chooses and values", "neighbours of a choice", (RowsInMemory, "after_first"))
def in_both_parts(original: Any, rows: Any, noise: Any, journal: Any) -> Any:
    place, second = original(rows, noise, journal)
    return place, replace(second, log=rows.log.of_units(np.ones(rows.log.units, bool), second.log.bounds))


@fault(
    "people are divided by order, up to a share of those who are there",
    "neighbours of a choice",
    (SampleSplit, "in_first"),
)
def _(original: Any, parts: Any, noise: Any, units: int, *more: Any) -> Any:
    return np.arange(units) < round(parts.share * units)


@fault("a coin for each trajectory of a person", "neighbours of a choice", (RowsInMemory, "after_first"))
def _(original: Any, rows: Any, noise: Any, journal: Any) -> Any:
    """Every other trajectory is the part's; those of a person are in both."""
    place, second = original(rows, noise, journal)
    log, everybody = rows.log, np.ones(rows.log.units, bool)
    odd = np.arange(log.episodes) % 2 == 1
    log = replace(log.of_units(everybody, second.log.bounds), valid=log.valid & odd)
    return place, replace(second, log=log)


@fault("rows are divided and not people", "neighbours of a choice", (RowsInMemory, "after_first"))
def rows_divided(original: Any, rows: Any, noise: Any, journal: Any) -> Any:
    """Each trajectory has a coin and is a unit, so a person may be in both parts, or twice in one."""
    log = rows.log
    return original(replace(rows, log=replace(log, unit_offsets=np.arange(log.episodes + 1))), noise, journal)


@fault("a policy is chosen by its sum without noise", "odds of a released choice", (PolicyChoice, "released"))
def _(original: Any, self: Any, log: Any, behavior: Any, noise: Any, journal: Any) -> Any:
    """The mechanism draws, too, but the winner is the one with the largest sum."""
    found = original(self, log, behavior, noise, journal)
    name = list(self.candidates)[int(np.argmax(self.total(log, behavior)))]
    return found._replace(
        name=name, policies={self.policy_name or name: self.candidates[name], **self.further_policies}
    )


@fault("scores are scaled by the largest of the part", "neighbours of a choice", (NoisyMaximum, "clipped"))
def _(original: Any, self: Any, scores: Any) -> Any:
    return original(self, scores / max(np.abs(scores).max(initial=0.0) / self.spread, 1e-3))


@fault("a learned rule is valued by those who chose it", "coverage of a lucky rule", (RowsInMemory, "after_first"))
def _(original: Any, rows: Any, noise: Any, journal: Any) -> Any:
    found, second = original(rows, noise, journal)
    chooses = rows.plan.first.split.in_first(noise, rows.log.units)
    return found, replace(second, log=rows.log.of_units(chooses, second.log.bounds))


@fault("an unknown rule is taken to agree with nobody", "norm of an unknown rule", (least_noise, "_with_unknown"))
def _(original: Any, policies: Any, *more: Any) -> Any:
    patterns = original(policies, *more)
    return patterns[patterns[:, 0] == 0.0]


@fault("larger classes of rules start ahead", "class of a learned rule", (PolicyChoice, "total"))
def _(original: Any, self: Any, log: Any, behavior: Any = None) -> Any:
    return original(self, log, behavior) + 2 * np.array(self.handicaps)
