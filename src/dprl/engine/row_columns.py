"""Columns of a log's rows beyond features and rewards, for the programs that ask for them.

Each is made of a trajectory's own rows alone, to the last bit: one step of all trajectories at a time, never a prefix
sum over the log. Values are in public units (the value range is [-1, 1]).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dprl.data.trajectories import Trajectories
from dprl.errors import DprlError
from dprl.protocols import Interval
from dprl.value_functions.features import Features, Tabular

COLUMNS = ("returns", "starts", "visits", "states", "rewards", "ends")


def row_columns(
    names: Iterable[str],
    trajectories: Trajectories,
    ratios: np.ndarray,
    features: Features,
    discount: float,
    scale: tuple[float, float],
) -> dict[str, np.ndarray]:
    """The columns called ``names``; ``scale`` is centre and half-width of the public value range.

    Returns:
        ``returns``: ``returns`` ``(N,)``, see :func:`returns_to_go`; ``starts``: ``start`` ``(N,)``, one over the
        unit's number of trajectories in the first row of each; ``visits``: ``first`` ``(N,)``, the same in the first
        row of each public cell that a trajectory visits; ``states``: ``states``, ``next_states`` ``(N, d)`` and
        ``alive`` ``(N,)``; ``rewards``: ``raw_reward`` ``(N,)``, the reward mapped to [-1, 1]; ``ends``:
        ``to_end`` ``(N,)``, :func:`discounts_to_end` mapped from [0, 1] to [-1, 1],
        and ``early`` ``(N,)``, see :func:`rewards_before_the_end`.
    """
    asked, out = set(names), {}
    if unknown := sorted(asked - set(COLUMNS)):
        raise DprlError(f"Rows have no columns called {unknown[0]!r}; there are {', '.join(COLUMNS)}.")
    share = _share_of_trajectory(trajectories)
    if "returns" in asked:
        out["returns"] = returns_to_go(trajectories, ratios, discount, scale)
    if "starts" in asked:
        out["start"] = np.where(trajectories.time() == 0, share, 0.0)
    if "visits" in asked:
        out["first"] = np.where(_first_visits(trajectories, features), share, 0.0)
    if "states" in asked:
        out["states"], out["next_states"] = trajectories.observation, trajectories.next_observation
        out["alive"] = np.where(trajectories.has_next & ~trajectories.terminated, 1.0, 0.0)
    if "rewards" in asked:
        out["raw_reward"] = in_range(trajectories.reward, trajectories.bounds.reward)
    if "ends" in asked:
        out["to_end"] = 2.0 * discounts_to_end(trajectories, discount) - 1.0
        out["early"] = rewards_before_the_end(trajectories, scale[1])
    return out


def in_range(values: np.ndarray, interval: Interval) -> np.ndarray:
    """``values`` with the public ``interval`` mapped to [-1, 1]; zero where it is a point."""
    low, high = interval
    return (2.0 * values - (low + high)) / (high - low) if high > low else np.zeros_like(values)


def returns_to_go(
    trajectories: Trajectories, ratios: np.ndarray, discount: float, scale: tuple[float, float]
) -> np.ndarray:
    """``(N,)`` importance-weighted returns from each row on, over the largest cumulative ratio W, in [-1, 1].

    ``Y_t = rho_t (r'_t + gamma Y_{t+1})`` with centred rewards ``r' = (r - centre (1 - gamma [not terminal])) / half``
    is, on-policy, ``(G_t - centre) / half``; off-policy it is the per-decision weighted return, cut at the largest
    value that a return can have. ``E[W y | s] = (V(s) - centre) / half`` where nothing is cut. A trajectory that was
    cut short goes on, in place of what is not known, with its own mean reward over its last half, for ever.
    """
    centre, half = scale
    limit = trajectories.bounds.cumulative_ratio
    lengths, ends = trajectories.lengths(), trajectories.episode_offsets[1:]
    alive = ~trajectories.terminated
    reward = (trajectories.reward - centre * (1.0 - discount * alive)) / half
    out = np.zeros(len(reward))
    order = np.argsort(-lengths, kind="stable")
    running = _continuation(trajectories, discount, scale)[order]
    for back in range(int(lengths.max(initial=0))):
        count = int(np.searchsorted(-lengths[order], -back, side="left"))  # those longer than `back`
        rows = ends[order[:count]] - 1 - back
        running = np.clip(ratios[rows] * (reward[rows] + discount * alive[rows] * running[:count]), -limit, limit)
        out[rows] = running
    return out / limit


def discounts_to_end(trajectories: Trajectories, discount: float) -> np.ndarray:
    """``(N,)`` what a reward of 1 in the last step is worth in each row, ``gamma^(steps to the last)``.

    Zero in a trajectory that does not end in a terminal state.
    """
    episode = trajectories.episode_of()
    ended = trajectories.terminated[trajectories.episode_offsets[1:] - 1]
    left = trajectories.lengths()[episode] - 1 - trajectories.time()
    return np.where(ended[episode], discount**left, 0.0)


def rewards_before_the_end(trajectories: Trajectories, half: float) -> np.ndarray:
    """``(N,)`` in every row of a trajectory whether it has rewards before its terminal step, in [0, 1].

    The sum of their absolute values over a tenth of the value range's half-width, at most one: zero where all are
    zero, and one where they matter.
    """
    episode = trajectories.episode_of()
    early = np.where(trajectories.terminated, 0.0, np.abs(trajectories.reward))
    total = np.bincount(episode, early, minlength=trajectories.episodes)
    return np.minimum(total / (0.1 * half), 1.0)[episode]


def _continuation(trajectories: Trajectories, discount: float, scale: tuple[float, float]) -> np.ndarray:
    """``(E,)`` value after the last row of each trajectory, in public units; what a terminal state has is not used."""
    centre, half = scale
    nothing = np.full(trajectories.episodes, -centre / half)
    if discount == 1.0:
        return np.clip(nothing, -1.0, 1.0)
    episode, lengths = trajectories.episode_of(), trajectories.lengths()
    late = trajectories.time() >= (lengths // 2)[episode]
    total = np.bincount(episode[late], trajectories.reward[late], minlength=trajectories.episodes)
    mean = total / np.maximum(lengths - lengths // 2, 1)
    return np.clip((mean / (1.0 - discount) - centre) / half, -1.0, 1.0)


def _share_of_trajectory(trajectories: Trajectories) -> np.ndarray:
    """``(N,)`` one over the number of trajectories of the row's unit; zero in a trajectory that contributes nothing."""
    siblings = np.diff(trajectories.unit_offsets)
    share = np.where(trajectories.valid, np.repeat(1.0 / np.maximum(siblings, 1), siblings), 0.0)
    return share[trajectories.episode_of()]


def _first_visits(trajectories: Trajectories, features: Features) -> np.ndarray:
    """``(N,)`` whether the row is its trajectory's first in its public cell."""
    if not isinstance(features, Tabular):
        raise DprlError("First visits are counted in a finite set of states: use tabular features.")
    cell = trajectories.episode_of() * features.size + features.index(trajectories.observation)
    first = np.zeros(len(cell), dtype=bool)
    first[np.unique(cell, return_index=True)[1]] = True
    return first
