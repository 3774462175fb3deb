"""Columns of rows, and the public ranges by which they are scaled.

Each number that an algorithm may ask for about a transition is declared once, here. Every bit of a column depends only
on the transitions of the row's unit: columns are computed for one step of all trajectories at a time, never as a prefix
sum over the log. Rewards and values are in public units: the value range [low, high] is mapped to [-1, 1]. Symbols:
docs/symbols.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import mul
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from dprl.bounds import Bounds, Interval
from dprl.data.trajectories import Trajectories
from dprl.errors import DprlError
from dprl.value_functions.features import Features, Tabular

Weighting = Literal["trajectory", "transition"]


@dataclass(frozen=True)
class RowInputs:
    """A log, its importance ratios and public facts: everything from which columns are computed.

    Attributes:
        log: the log; private.
        ratios: importance ratio of each step, already bounded.
        value: public value range.
        weighting: ``trajectory`` weights a transition by one over the length of its trajectory (paper 004, Eq. 2.2);
            ``transition`` weights it by one over the public horizon. Where the unit is a transition, each transition
            has weight one.
    """

    log: Trajectories
    ratios: Float[np.ndarray, " rows"]
    features: Features
    discount: float
    value: Interval
    weighting: Weighting = "trajectory"

    @property
    def alive(self) -> Bool[np.ndarray, " rows"]:
        """Whether each row has a next state to bootstrap from."""
        return self.log.has_next & ~self.log.terminated

    @property
    def usable(self) -> Bool[np.ndarray, " rows"]:
        """Whether each row counts."""
        return self.log.valid[self.log.episode_of()] & (self.alive | self.log.terminated)

    def one_per_unit(self, chosen: Bool[np.ndarray, " rows"]) -> Float[np.ndarray, " rows"]:
        """Return one over the unit's number of trajectories in ``chosen`` rows of valid trajectories; 0 elsewhere."""
        siblings = np.diff(self.log.unit_offsets)
        share = np.where(self.log.valid, np.repeat(1.0 / np.maximum(siblings, 1), siblings), 0.0)
        return np.where(chosen, share[self.log.episode_of()], 0.0)


# --- the columns ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """A column of rows.

    Attributes:
        meaning: what the column holds in a row, in words.
        compute: function that gives the column, ``(N, ...)``, from the whole log.
        of_transition: whether the column follows from the state before and the state after. Rows over a finite set of
            transitions then hold it once for all units; of every other column they hold sums, see :data:`COEFFICIENTS`.
    """

    meaning: str
    compute: Callable[[RowInputs], np.ndarray]
    of_transition: bool = False


def _weights(inputs: RowInputs) -> Float[np.ndarray, " rows"]:
    log, lengths = inputs.log, inputs.log.lengths()
    by_length = inputs.weighting == "trajectory" or log.unit == "transition"
    per_episode = 1.0 / np.maximum(lengths, 1) if by_length else np.full(len(lengths), 1.0 / log.bounds.horizon)
    # a unit with several trajectories counts once, as the mean over its trajectories
    siblings = np.repeat(np.diff(log.unit_offsets), np.diff(log.unit_offsets))
    return np.where(inputs.usable, (per_episode / np.maximum(siblings, 1))[log.episode_of()], 0.0)


def _rewards(inputs: RowInputs) -> Float[np.ndarray, " rows"]:
    """Return the rewards with which ``V = centre + half theta' phi`` solves the same Bellman equation."""
    centre, half = scale_of(inputs.value)
    return np.where(inputs.usable, (inputs.log.reward - centre * (1.0 - inputs.discount * inputs.alive)) / half, 0.0)


def weighted_returns_to_go(inputs: RowInputs) -> Float[np.ndarray, " rows"]:
    """Return the importance-weighted returns from each row on, divided by the largest cumulative ratio W, in [-1, 1].

    ``Y_t = rho_t (r'_t + gamma Y_{t+1})`` with centred rewards ``r' = (r - centre (1 - gamma [not terminal])) / half``
    is ``(G_t - centre) / half`` on-policy. Off-policy it is the per-decision weighted return, cut at W. Where nothing
    is cut, ``E[W y | s] = (V(s) - centre) / half`` for the column ``y``. The unknown rest of a trajectory that was cut
    short is replaced by its mean reward over its last half, received for ever.
    """
    log, ratios, discount = inputs.log, inputs.ratios, inputs.discount
    centre, half = scale_of(inputs.value)
    limit = log.bounds.cumulative_ratio
    alive = ~log.terminated
    reward = (log.reward - centre * (1.0 - discount * alive)) / half
    out, running = np.zeros(len(reward)), _continuation(inputs)
    for back, who in log.episodes_by_step():
        rows = log.episode_offsets[who + 1] - 1 - back
        after = reward[rows] + discount * alive[rows] * running[who]
        out[rows] = running[who] = np.clip(ratios[rows] * after, -limit, limit)
    return out / limit


def _continuation(inputs: RowInputs) -> Float[np.ndarray, " trajectories"]:
    """Return the value after each trajectory's last row, in public units. After a terminal state it is not used."""
    log, (centre, half) = inputs.log, scale_of(inputs.value)
    nothing = np.full(log.episodes, -centre / half)
    if inputs.discount == 1.0:
        return np.clip(nothing, -1.0, 1.0)
    episode, lengths = log.episode_of(), log.lengths()
    late = log.time() >= (lengths // 2)[episode]
    total = np.bincount(episode[late], log.reward[late], minlength=log.episodes)
    mean = total / np.maximum(lengths - lengths // 2, 1)
    return np.clip((mean / (1.0 - inputs.discount) - centre) / half, -1.0, 1.0)


def _logged_returns(inputs: RowInputs) -> Float[np.ndarray, " rows"]:
    """Return the scaled return from each row on, discounted to the row.

    The middle of the range of returns from that step on is subtracted, and the result is divided by half the width of
    the range of a whole trajectory.
    """
    log, known = inputs.log, remaining_return(inputs.log.bounds, inputs.discount)
    out, running = np.zeros(len(log.reward)), np.zeros(log.episodes)
    for back, who in log.episodes_by_step():
        rows = log.episode_offsets[who + 1] - 1 - back
        out[rows] = running[who] = log.reward[rows] + inputs.discount * running[who]
    middle = (known.low + known.high)[np.minimum(log.time(), log.bounds.horizon - 1)] / 2.0
    return np.clip((out - middle) / scale_of((known.low[0], known.high[0]))[1], -1.0, 1.0)


def _first_visits(inputs: RowInputs) -> Float[np.ndarray, " rows"]:
    if not isinstance(inputs.features, Tabular):
        raise DprlError("First visits are counted in a finite set of states: use tabular features.")
    log = inputs.log
    cell = log.episode_of() * inputs.features.size + inputs.features.index(log.observation)
    first = np.zeros(len(cell), dtype=bool)
    first[np.unique(cell, return_index=True)[1]] = True
    return inputs.one_per_unit(first)


def _actions(inputs: RowInputs) -> Int[np.ndarray, " rows"]:
    """Return the action of each row, or the number of actions if the person was lost and hazards are estimated."""
    log = inputs.log
    if log.stays is None or log.bounds.kinds == log.bounds.actions:
        return log.action
    return np.where(log.stays > 0.0, log.action, log.bounds.kinds - 1)


COLUMNS: Mapping[str, Column] = {
    "weight": Column("weight of the row within its unit; 0 in a row that does not count", _weights),
    "rho": Column("importance ratio of the step", lambda x: np.where(x.usable, x.ratios, 0.0)),
    "reward": Column("reward in public units, centred so that V = 0 is the middle of the value range", _rewards),
    "returns": Column("importance-weighted return from the row on, in [-1, 1]", weighted_returns_to_go),
    "logged_return": Column(
        "return from the row on as it was logged, less the middle of its public range, in [-1, 1]", _logged_returns
    ),
    "start": Column(
        "in the first row of a trajectory one over the unit's number of trajectories, and 0 elsewhere",
        lambda x: x.one_per_unit(x.log.time() == 0),
    ),
    "step": Column(
        "one over the unit's number of trajectories and the horizon",
        lambda x: x.one_per_unit(np.ones(len(x.log.reward), dtype=bool)) / x.log.bounds.horizon,
    ),
    "first": Column(
        "one over the unit's number of trajectories in the first row of each public cell that a trajectory visits",
        _first_visits,
    ),
    "raw_reward": Column(
        "reward with its public range mapped to [-1, 1]",
        lambda x: to_public_units(x.log.reward, x.log.bounds.reward),
    ),
    "actions": Column("number of the action, negative where it is none of the declared", _actions, True),
    "states": Column("state before the step", lambda x: x.log.observation, of_transition=True),
    "next_states": Column("state after the step", lambda x: x.log.next_observation, of_transition=True),
    "alive": Column(
        "1 where the next state is known and not terminal", lambda x: np.where(x.alive, 1.0, 0.0), of_transition=True
    ),
}
"""All columns except the features ``phi`` and ``delta_phi``; a program asks by name for those that it needs."""

TRANSITION = ("states", "next_states", "alive")
"""Columns from which a value function that is not linear in its weights is learned."""
ALWAYS = ("reward", "rho", "weight")
"""Columns that all rows have, besides the features."""

COEFFICIENTS: Mapping[str, tuple[str, ...]] = {
    "weight": ("weight",),
    "weight_rho": ("weight", "rho"),
    "weight_rho_reward": ("weight", "rho", "reward"),
    "weight_return": ("weight", "returns"),
    "weight_raw_reward": ("weight", "rho", "raw_reward"),
    "start": ("start",),
    "start_return": ("start", "returns"),
    "step": ("step",),
    "step_raw_reward": ("step", "raw_reward"),
    "first": ("first",),
    "first_rho": ("first", "rho"),
    "first_rho_reward": ("first", "rho", "reward"),
    "first_return": ("first", "returns"),
}
"""Products of columns, each linear in a row: a unit's rows with the same features can be added up beforehand."""


@dataclass(frozen=True)
class Columns:
    """Columns by name, as attributes. Coefficients, which are products of columns, are attributes as well."""

    columns: Mapping[str, Any]

    def __getattr__(self, name: str) -> Any:
        columns = self.__dict__.get("columns", {})
        if name in columns:
            return columns[name]
        factors = COEFFICIENTS.get(name, (name,))
        if not set(factors) <= set(columns):
            raise AttributeError(f"These rows have no column {name!r}: a program names those that it needs.")
        return reduce(mul, (columns[factor] for factor in factors))

    def mapped(self, change: Callable[[Any], Any]) -> dict[str, Any]:
        """Return the columns, each changed by ``change``."""
        return {name: change(x) for name, x in self.columns.items()}


# --- public ranges ------------------------------------------------------------------------------------------------


def scale_of(value: Interval) -> tuple[float, float]:
    """Return centre and half-width of the public value range; the half-width for a single point v is max(|v|, 1).

    The noise multiplier is the same for any scale; this scale gives the noise a readable size.
    """
    low, high = value
    half = (high - low) / 2.0 if high > low else max(abs(low), 1.0)
    return (low + high) / 2.0, max(half, 1e-12)


def to_public_units(values: Float[np.ndarray, "*any"], interval: Interval) -> Float[np.ndarray, "*any"]:
    """Map ``values`` from the public ``interval`` to [-1, 1]; zero where the interval is a point."""
    low, high = interval
    return (2.0 * values - (low + high)) / (high - low) if high > low else np.zeros_like(values)


class ReturnRanges(NamedTuple):
    """Ranges of the return that an unfinished trajectory can still have from each step on, discounted to that step.

    Attributes:
        low, high: ends of the range at each step, ``(H,)``.
    """

    low: Float[np.ndarray, " horizon"]
    high: Float[np.ndarray, " horizon"]

    @property
    def width(self) -> Float[np.ndarray, " horizon"]:
        """Width of the range at each step, ``(H,)``.

        It is at most the width at the first step: values do not grow merely because rewards may come late.
        """
        return np.minimum(self.high - self.low, (self.high - self.low)[0])

    def part(self, start: float, end: float) -> ReturnRanges:
        """Return the part of every step's range between the fractions ``start`` and ``end`` of its width."""
        return ReturnRanges(self.low + start * self.width, self.low + end * self.width)


def remaining_return(bounds: Bounds, discount: float) -> ReturnRanges:
    """Derive the range of the remaining return from the bounds on rewards.

    If returns have bounds, too, these also limit the range, less what a trajectory can have earned before.
    """
    horizon, (least, most) = bounds.horizon, bounds.reward
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        power = discount ** np.arange(horizon, dtype=np.float64)
        before = np.append(0.0, np.cumsum(power)[:-1])
        left = np.cumsum(power)[::-1]
        low, high = (least * left if least < 0.0 else np.full(horizon, least)), most * left
        high = high if most > 0.0 else np.full(horizon, most)
        if bounds.return_range is not None:
            tighter = [
                (bounds.return_range[0] - most * before) / power,
                (bounds.return_range[1] - least * before) / power,
            ]
            low, high = np.fmax(low, np.fmin(tighter[0], high)), np.fmin(high, np.fmax(tighter[1], low))
            # widen the range again, so that its width, discounted to the start, never grows with time
            open_at = power * (high - low)
            missing = (np.maximum.accumulate(open_at[::-1])[::-1] - open_at) / (2.0 * power)
            low, high = low - np.nan_to_num(missing), high + np.nan_to_num(missing)
    return ReturnRanges(low, high)
