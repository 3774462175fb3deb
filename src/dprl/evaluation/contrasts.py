"""Differences of policies in one release: which were asked, and their intervals from what was released of all.

Everything here is public, or post-processing of released numbers. Derivations: docs/proofs/contrasts.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
from jaxtyping import Float

from dprl.engine.value_query import ValueQuery
from dprl.errors import DprlError
from dprl.evaluation.intervals import ValueEstimate, quantile
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.protocols import Interval

ALL = "all"
MOST = 200


@dataclass(frozen=True)
class Contrast:
    """How much more one policy is worth than another, released.

    Attributes:
        policy, against: places of the policies among those of the release.
        value: value of ``policy`` less that of ``against``.
        interval: at the nominal confidence, of this contrast alone.
        simultaneous_interval: at the nominal confidence for all contrasts of the release together (Bonferroni).
        privacy_standard_error: of the value.
        sampling_standard_error: of the value; where the errors of the two are not known together, at most.
    """

    policy: int
    against: int
    value: float
    interval: Interval
    simultaneous_interval: Interval
    privacy_standard_error: float
    sampling_standard_error: float

    @property
    def sign(self) -> int:
        """1 or -1 where the simultaneous interval tells which policy is better, 0 where it holds zero."""
        low, high = self.simultaneous_interval
        return (low > 0.0) - (high < 0.0)

    def as_dict(self, names: Sequence[str]) -> dict[str, Any]:
        """Plain data, with the names of the policies."""
        both = {name: list(getattr(self, name)) for name in ("interval", "simultaneous_interval")}
        who = {"policy": names[self.policy], "against": names[self.against]}
        return asdict(self) | who | both | {"sign": self.sign}


def asked_pairs(compare: Sequence[str], names: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Return the contrasts that were asked for, as places of policies in ``names``, each once.

    Args:
        compare: ``"A:B"`` for what A is worth more than B, ``"all:B"`` for every other policy against B, or ``"all"``
            for all pairs.
        names: of the target policies.

    Raises:
        DprlError: a policy is unknown or compared with itself, or there is nothing or too much to compare.
    """
    if isinstance(compare, str):
        raise DprlError('compare must be a list, such as ["treated:untreated"].')
    found: list[tuple[int, int]] = []
    for asked in compare:
        if asked == ALL:
            found += [(a, b) for b, a in combinations(range(len(names)), 2)]
            continue
        policy, colon, against = asked.rpartition(":")
        unknown = [name for name in (policy, against) if name not in names and not (name == policy == ALL)]
        if not colon or unknown:
            raise DprlError(
                f"compare: {asked!r} names no two target policies: write A:B, all:B or all; there are "
                f"{', '.join(names)}."
            )
        if policy == against:
            raise DprlError(f"compare: {asked!r} compares a policy with itself.")
        others = [name for name in names if name != against] if policy == ALL else [policy]
        found += [(names.index(name), names.index(against)) for name in others]
    pairs = tuple(dict.fromkeys(found))
    if len({frozenset(pair) for pair in pairs}) < len(pairs):
        raise DprlError("compare: two policies are compared in both directions: ask for one of them.")
    if compare and not pairs:
        raise DprlError("compare: there is only one target policy, and nothing to compare it with.")
    if len(pairs) > MOST:
        raise DprlError(f"compare: at most {MOST} differences fit in one release; these are {len(pairs)}.")
    return pairs


def contrasts_of(
    query: ValueQuery,
    mechanism: GaussianSum,
    noisy: Float[np.ndarray, " dim"],
    pairs: Sequence[tuple[int, int]],
) -> list[Contrast]:
    """Return the contrasts of policies at ``pairs`` of places from the released vector: post-processing.

    Args:
        query: around the released value function, if values are taken around one.
        noisy: ``(dim,)`` released vector of all values.
    """
    confidence = query.config.confidence
    levels = confidence, 1.0 - (1.0 - confidence) / max(len(pairs), 1)
    decoded = [query.at(level).decode(mechanism, noisy) for level in levels]
    out = []
    for a, b in pairs:
        first, second = decoded[0][a], decoded[0][b]
        noise, covariance = query.together(mechanism, noisy, a, b)
        sampling = _sampling(first, second, covariance)
        alone, together = (
            _interval(query, estimates[a], estimates[b], noise, sampling, quantile(level))
            for estimates, level in zip(decoded, levels, strict=True)
        )
        if noise is None:
            noise = math.hypot(first.privacy_standard_error, second.privacy_standard_error)
        out.append(Contrast(a, b, first.value - second.value, alone, together, noise, sampling))
    return out


def _sampling(first: ValueEstimate, second: ValueEstimate, covariance: float | None) -> float:
    """Return the sampling standard error of a difference; where the covariance is not known, its largest."""
    a, b = first.sampling_standard_error, second.sampling_standard_error
    if covariance is None:
        return a + b
    return math.sqrt(min(max(a * a + b * b - 2.0 * covariance, 0.0), (a + b) ** 2))


def _interval(
    query: ValueQuery, first: ValueEstimate, second: ValueEstimate, noise: float | None, sampling: float, t: float
) -> Interval:
    """Return the interval of a difference.

    Where ends bound the values, whatever was cut, it is the difference of the intervals. Elsewhere the normal parts of
    both errors add as one normal error; what the intervals have besides (margins, people who may be missing) adds up.
    """
    (low, high), (least, most) = first.interval, second.interval
    if noise is None:
        return low - most, high - least
    normal = t * math.hypot(noise, sampling)
    own = [t * math.hypot(e.privacy_standard_error, e.sampling_standard_error) for e in (first, second)]
    below, above = (
        sum(max(arm - part, 0.0) for arm, part in zip(arms, own, strict=True))
        for arms in ((first.value - low, most - second.value), (high - first.value, second.value - least))
    )
    value = first.value - second.value
    start, end = query.bounds.value_interval(query.config.discount)
    low, high = max(value - normal - below, start - end), min(value + normal + above, end - start)
    return (low, high) if low <= high else (start - end, end - start)
