"""Differences of policies in one release: which ones are asked for, and their intervals from the released vector.

Everything here is public, or post-processing of released numbers. Derivations: docs/proofs/contrasts.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
from jaxtyping import Float

from dprl.bounds import Interval
from dprl.engine.value_query import ValueQuery
from dprl.errors import DprlError
from dprl.mechanisms.gaussian_sum import GaussianSum

ALL = "all"
MOST_CONTRASTS = 200


@dataclass(frozen=True)
class Contrast:
    """Released difference: how much more one policy is worth than another.

    Attributes:
        policy, against: places of the two policies among the policies of the release.
        value: value of ``policy`` less that of ``against``.
        interval: at the nominal confidence, for this contrast only.
        simultaneous_interval: at the nominal confidence for all contrasts of the release together (Bonferroni).
        privacy_standard_error: of the value.
        sampling_standard_error: of the value; an upper bound where the joint error of the two policies is unknown.
        confounding: where propensities were estimated, how strong an unmeasured confounder must be to carry the
            ``interval`` to zero: the factor by which it must change the odds of an action (Tan 2006). It is 1 where the
            ``interval`` contains zero.
    """

    policy: int
    against: int
    value: float
    interval: Interval
    simultaneous_interval: Interval
    privacy_standard_error: float
    sampling_standard_error: float
    confounding: float | None = None

    @property
    def sign(self) -> int:
        """1 or -1 where the simultaneous interval tells which policy is better, 0 where it contains zero."""
        low, high = self.simultaneous_interval
        return (low > 0.0) - (high < 0.0)

    def as_dict(self, names: Sequence[str]) -> dict[str, Any]:
        """Return plain data, with the names of the policies."""
        both = {name: list(getattr(self, name)) for name in ("interval", "simultaneous_interval")}
        who = {"policy": names[self.policy], "against": names[self.against]}
        own = {name: value for name, value in asdict(self).items() if value is not None}
        return own | who | both | {"sign": self.sign}


def asked_pairs(compare: Sequence[str], names: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Return the contrasts that were asked for, as places of policies in ``names``, each once.

    Args:
        compare: ``"A:B"`` for what A is worth more than B, ``"all:B"`` for every other policy against B, or ``"all"``
            for all pairs.
        names: names of the target policies.

    Raises:
        DprlError: a policy is unknown or compared with itself, or there is nothing or too much to compare.
    """
    if isinstance(compare, str | Mapping) or not all(isinstance(asked, str) for asked in compare):
        raise DprlError('compare must be a list of texts, such as ["treated:untreated"].')
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
    if len(pairs) > MOST_CONTRASTS:
        raise DprlError(f"compare: at most {MOST_CONTRASTS} differences fit in one release; these are {len(pairs)}.")
    return pairs


def contrasts_of(
    query: ValueQuery,
    mechanism: GaussianSum,
    noisy: Float[np.ndarray, " dim"],
    pairs: Sequence[tuple[int, int]],
    groups: int = 1,
) -> list[Contrast]:
    """Return the contrasts of ``pairs`` of policies from the released vector: post-processing.

    Args:
        query: the values' query, around the released value function if there is one.
        noisy: ``(dim,)`` released vector of all values.
        pairs: places of the two policies of each contrast.
        groups: number of groups of people whose contrasts at ``pairs`` must all hold together.
    """
    confidence = query.config.confidence
    levels = confidence, 1.0 - (1.0 - confidence) / max(len(pairs) * groups, 1)
    queries, estimates = [query.with_confidence(level) for level in levels], query.decode(mechanism, noisy)
    out = []
    for a, b in pairs:
        alone, together = (of.difference(mechanism, noisy, a, b) for of in queries)
        value = estimates[a].value - estimates[b].value
        errors = alone.noise, alone.sampling, alone.confounding
        out.append(Contrast(a, b, value, alone.interval, together.interval, *errors))
    return out


def expected_noise(query: ValueQuery, mechanism: GaussianSum, pairs: Sequence[tuple[int, int]]) -> list[float]:
    """Return the largest standard deviation of the noise in each difference of ``pairs``, from public facts only."""
    inverse, alone = np.linalg.inv(query.strategy), [privacy for privacy, *_ in query.expect(mechanism)]
    rows = inverse / np.linalg.norm(inverse, axis=1, keepdims=True) * np.array(alone)[:, None]
    return [float(np.linalg.norm(rows[a] - rows[b])) for a, b in pairs]
