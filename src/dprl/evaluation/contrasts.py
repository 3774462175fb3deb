"""Differences of policies in one release: which were asked, and their intervals from what was released of all.

Everything here is public, or post-processing of released numbers. Derivations: docs/proofs/contrasts.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
from jaxtyping import Float

from dprl.engine.value_query import ValueQuery
from dprl.errors import DprlError
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
        confounding: where propensities were estimated, how strong an unmeasured confounder must be to carry the
            ``interval`` to zero: by how many times it must change the odds of an action (Tan 2006); 1 where that holds
            zero.
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
        """1 or -1 where the simultaneous interval tells which policy is better, 0 where it holds zero."""
        low, high = self.simultaneous_interval
        return (low > 0.0) - (high < 0.0)

    def as_dict(self, names: Sequence[str]) -> dict[str, Any]:
        """Plain data, with the names of the policies."""
        both = {name: list(getattr(self, name)) for name in ("interval", "simultaneous_interval")}
        who = {"policy": names[self.policy], "against": names[self.against]}
        own = {name: value for name, value in asdict(self).items() if value is not None}
        return own | who | both | {"sign": self.sign}


def asked_pairs(compare: Sequence[str], names: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Return the contrasts that were asked for, as places of policies in ``names``, each once.

    Args:
        compare: ``"A:B"`` for what A is worth more than B, ``"all:B"`` for every other policy against B, or ``"all"``
            for all pairs.
        names: of the target policies.

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
    if len(pairs) > MOST:
        raise DprlError(f"compare: at most {MOST} differences fit in one release; these are {len(pairs)}.")
    return pairs


def contrasts_of(
    query: ValueQuery,
    mechanism: GaussianSum,
    noisy: Float[np.ndarray, " dim"],
    pairs: Sequence[tuple[int, int]],
    groups: int = 1,
) -> list[Contrast]:
    """Return the contrasts of policies at ``pairs`` of places from the released vector: post-processing.

    Args:
        query: around the released value function, if values are taken around one.
        noisy: ``(dim,)`` released vector of all values.
        groups: of people, whose contrasts at ``pairs`` are all to hold together.
    """
    confidence = query.config.confidence
    levels = confidence, 1.0 - (1.0 - confidence) / max(len(pairs) * groups, 1)
    queries, estimates = [query.at(level) for level in levels], query.decode(mechanism, noisy)
    out = []
    for a, b in pairs:
        alone, together = (of.difference(mechanism, noisy, a, b) for of in queries)
        value = estimates[a].value - estimates[b].value
        errors = alone.noise, alone.sampling, alone.confounding
        out.append(Contrast(a, b, value, alone.interval, together.interval, *errors))
    return out


def expected_noise(query: ValueQuery, mechanism: GaussianSum, pairs: Sequence[tuple[int, int]]) -> list[float]:
    """Return the largest standard deviation of the noise in each difference of ``pairs``, from public facts alone."""
    inverse, alone = np.linalg.inv(query.strategy), [privacy for privacy, *_ in query.expect(mechanism)]
    rows = inverse / np.linalg.norm(inverse, axis=1, keepdims=True) * np.array(alone)[:, None]
    return [float(np.linalg.norm(rows[a] - rows[b])) for a, b in pairs]
