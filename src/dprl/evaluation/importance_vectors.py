"""A unit's numbers in importance sampling: its pairs and their public scale, the vector of them and its largest norm.

A unit's numbers are made of its own rows only, entry by entry. So no unit changes another's, not even in the last bit.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dprl.bounds import Bounds, Interval
from dprl.data.trajectories import Trajectories
from dprl.engine.columns import scale_of
from dprl.engine.ratios import cumulative_ratios, unit_means, usable
from dprl.evaluation.importance_intervals import PairScale, chord_of_square
from dprl.evaluation.intervals import product_weight

if TYPE_CHECKING:
    from dprl.evaluation.importance_sampling import ImportanceQuery


def per_decision_scale(bounds: Bounds, discount: float) -> PairScale:
    """Return the scale of rewards that are weighted one by one; after its end a trajectory has rewards of zero."""
    low, high = min(bounds.reward[0], 0.0), max(bounds.reward[1], 0.0)
    ratio, most, horizon = bounds.max_importance_ratio, bounds.cumulative_ratio, bounds.horizon
    growing = horizon if ratio == 1.0 else min(horizon, int(math.log(most) / math.log(ratio) + 1e-9))
    uncut = ratio * _geometric(discount * ratio, growing)
    total = _geometric(discount, horizon)
    largest = (uncut + most * (total - _geometric(discount, growing))) / total
    return scale_of_values((low * total, high * total), min(max(largest, 1.0), most))


def scale_of_values(value: Interval, largest: float) -> PairScale:
    """Return the scale of returns in the range ``value``; a range of one point is widened.

    With any width the noise is the same in proportion, and it is never zero.
    """
    centre, half = scale_of(value)
    return PairScale(*value, largest) if value[0] < value[1] else PairScale(centre - half, centre + half, largest)


def _geometric(factor: float, terms: Any) -> Any:
    """Return ``1 + factor + ... + factor^(terms - 1)``."""
    return terms * 1.0 if abs(factor - 1.0) < 1e-12 else (1.0 - factor**terms) / (1.0 - factor)


def unit_parts(query: ImportanceQuery, above: np.ndarray, below: np.ndarray) -> list[np.ndarray]:
    """Return the numbers of units that are released, each ``(U, K)``, from their pairs.

    The second moments are shifted: they vanish where a pair is largest, and so cost no norm. What is subtracted in them
    is released, or known.
    """
    scale = query.config.second_moment_weight
    if query.releases_pairs:
        return [above, below, scale * above * (above - 1.0), scale * below * (below - 1.0), scale * above * below]
    slope, intercept = chord_of_square(query.baseline)
    first, weight = _distances(query, above, below), above + below
    return [first, query.weight_scale * weight, scale * (first * first - slope * first - intercept * weight)]


def _distances(query: ImportanceQuery, above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Return ``(U, K)`` weighted distances to the baseline, in [-1, 1]."""
    u = query.baseline
    return ((1.0 - u) * above - u * below) / max(u, 1.0 - u)


def further_columns(query: ImportanceQuery, above: np.ndarray, below: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Return the further ``(U, n)`` columns, as far as they are released: a remainder, and the contrasts' products.

    The remainder is what the weights of all policies leave of a unit's presence. It vanishes where the weights are
    largest, so that it costs no norm; with the mean weights it gives a unit's presence. The products vanish where
    policies exclude one another.
    """
    columns = []
    if query.remainder_scale is not None:
        left = np.array(present)
        for k in range(above.shape[1]):
            left -= (above[:, k] + below[:, k]) / query.most_weight
        columns.append(query.remainder_scale * left)
    if not query.releases_pairs:
        first = _distances(query, above, below)
        columns += [product_weight(query.contrasts) * first[:, a] * first[:, b] for a, b in query.contrasts]
    return np.stack(columns, axis=1) if columns else np.zeros((len(above), 0))


def with_least_norm(query: ImportanceQuery) -> ImportanceQuery:
    """Return the query with the least clip norm that clips no vector of any pattern."""
    clip, patterns = 0.0, query.patterns
    for weight in np.linspace(0.0, 1.0, 9):
        for above in np.linspace(0.0, 1.0, 9):
            pair = patterns * weight * above, patterns * weight * (1.0 - above)
            parts = [part @ query.strategy.T for part in unit_parts(query, *pair)]
            vector = np.concatenate([*parts, further_columns(query, *pair, np.ones(len(patterns)))], axis=1)
            clip = max(clip, float(np.linalg.norm(vector, axis=1).max()))
    return replace(query, clip_norm=clip)


def mixed(part: np.ndarray, strategy: np.ndarray) -> np.ndarray:
    """Return ``part @ strategy.T``, computed one policy at a time.

    A matrix product may round a row differently beside other rows.
    """
    out = np.zeros_like(part)
    for k in range(part.shape[1]):
        out += part[:, k : k + 1] * strategy[:, k]
    return out


def unit_pairs(query: ImportanceQuery, trajectories: Trajectories, ratios: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the units' pairs for one policy: two ``(U,)`` arrays in [0, 1], whose sum is too; see :class:`PairScale`.

    A unit's pair is the mean over its episodes. Episodes that cannot be used count as zeros.
    """
    discount, (low, high, largest) = query.config.discount, query.scale
    product, discounts = cumulative_ratios(ratios, trajectories), discount ** trajectories.time()
    sound = usable(trajectories)
    last = np.zeros(trajectories.episodes)
    last[sound] = product[trajectories.episode_offsets[1:][sound] - 1]
    if query.estimator == "per-decision":
        total = _geometric(discount, query.bounds.horizon)
        share = discounts * product / (total * largest)
        # after its end a trajectory keeps its last weight
        rest = last * (total - _geometric(discount, trajectories.lengths())) / (total * largest)
        upper = _fraction(trajectories.reward, low / total, high / total)
        nothing = _fraction(np.zeros(1), low / total, high / total)
        above = _per_episode(trajectories, share * upper) + rest * nothing
        below = _per_episode(trajectories, share * (1.0 - upper)) + rest * (1.0 - nothing)
    else:
        upper = _fraction(_per_episode(trajectories, discounts * trajectories.reward), low, high)
        above, below = last / largest * upper, last / largest * (1.0 - upper)
    return unit_means(trajectories, above), unit_means(trajectories, below)


def _fraction(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return where ``values`` lie between ``low`` (0) and ``high`` (1), clipped to [0, 1]."""
    return np.clip((values - low) / (high - low), 0.0, 1.0)


def _per_episode(trajectories: Trajectories, values: np.ndarray) -> np.ndarray:
    return np.bincount(trajectories.episode_of(), values, minlength=trajectories.episodes)
