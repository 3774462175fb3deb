"""Sample split: a policy that is learned or chosen on one part of the people is valued on the other, for one budget.

A coin decides for each unit in which part it is. Coins are functions of the run key, a stream and the unit's place, and
do not depend on the rows. So for fixed coins one more person is in only one part. At each epsilon the releases of both
parts together cost the larger of their deltas, not the sum, although the second release may depend on the first. The
number of people in a part stays secret: sums are divided by the declared number times the part's public share.
Proof: docs/proofs/two-parts.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np

from dprl.accounting.budget import Budget
from dprl.accounting.events import DpEvent
from dprl.bounds import Bounds
from dprl.config import LIBRARY_DEFAULT
from dprl.data.trajectories import Trajectories
from dprl.errors import DprlError
from dprl.mechanisms.gaussian_sum import ADDS_ONE_UNIT
from dprl.protocols import NoiseSource


class FirstPartRelease(NamedTuple):
    """Release of the first part of the people.

    Attributes:
        name: name of the chosen or learned policy, in words.
        policies: policies that the second part values, by name; the chosen or learned policy is the first.
    """

    name: str
    policies: Mapping[str, Any]


STREAM = "two parts"
"""Stream of the noise source from which the coins come; no mechanism has this name."""
SHARE = 0.4
"""Default share of the people on whom a policy is chosen or learned; it was set on seeds of benchmarks/families.py."""
CHOSEN = "the chosen policy"
"""Name of the chosen policy before it is known."""


@dataclass(frozen=True)
class SampleSplit:
    """Division of the people into two parts, by coins.

    Attributes:
        units: declared number of all units.
        share: mean share of the units in the first part; rounded so that both parts have whole mean numbers.

    Raises:
        DprlError: the mean number of units in a part would be zero.
    """

    units: int
    share: float

    def __post_init__(self) -> None:
        if not (0.0 < self.share < 1.0 and 0 < self.first < self.units):
            raise DprlError(
                f"Of {self.units} declared units a share of {self.share:g} leaves one of two parts empty: take a share "
                "nearer to a half, or declare more units."
            )

    @property
    def first(self) -> int:
        """Mean number of units in the first part."""
        return round(self.units * self.share)

    @property
    def second(self) -> int:
        """Mean number of units in the second part."""
        return self.units - self.first

    def bounds_of(self, bounds: Bounds, first: bool) -> Bounds:
        """Return the public bounds of one part: the log's bounds, with the part's mean number of units."""
        return replace(bounds, units=self.first if first else self.second)

    def in_first(self, noise: NoiseSource, units: int, stability: Any = ADDS_ONE_UNIT) -> np.ndarray:
        """Return a mask ``(units,)`` of the units in the first part; all others are in the second. Private.

        Args:
            noise: noise source of the release, whose stream :data:`STREAM` has the coins.
            units: actual number of units.
            stability: stability of the source of units; one more person must add one unit and change no other unit.
        """
        if stability != ADDS_ONE_UNIT:
            raise DprlError("Two parts of the people need a source to which one more person adds one unit.")
        coins = noise.stream(STREAM)
        return np.asarray(coins.participation_mask(0, units, self.first / self.units), dtype=bool)


@dataclass(frozen=True)
class FirstPartQuestion:
    """Question to the first part of the people, whose answer the second part values; public facts only.

    Attributes:
        split: division of the people.
        further_policies: by name, policies that are valued in addition to the policy of the first part.
        policy_name: name of the first part's policy among the valued policies; None for :data:`CHOSEN`.
    """

    split: SampleSplit
    further_policies: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    policy_name: str | None = field(default=None, kw_only=True)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the valued policies, which are public before the policies are known."""
        return (self.policy_name or CHOSEN, *self.further_policies)

    @property
    def words(self) -> str:
        """Releases on both parts, in the words with which a certificate precedes the second part's release."""
        raise NotImplementedError

    @property
    def draws(self) -> int:
        """Number of Gaussian numbers that the first part draws; 0 where the first part uses only exact coins."""
        return 0

    def calibrated(self, budget: Budget) -> Self:
        """Return the same question with noise for this budget; unchanged where its coins have the budget's epsilon."""
        del budget
        return self

    def event(self) -> DpEvent:
        """Return the privacy event of the first part."""
        raise NotImplementedError

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of a certificate for the first part."""
        raise NotImplementedError

    def options(self) -> dict[str, dict[str, Any]]:
        """Return the options that were in force, each with ``value`` and ``provenance``."""
        given = LIBRARY_DEFAULT if self.split.share == SHARE else "stated public"
        return {"choosing_share": {"value": self.split.share, "provenance": given}}

    def described(self) -> dict[str, Any]:
        """Return what ``estimate.json`` says about the two parts, as plain data."""
        split = self.split
        return {"share": split.share, "units_that_choose": split.first, "units_that_value": split.second}

    def entering(self, log: Trajectories, behavior: Any) -> Iterator[Any]:
        """Yield what the first part computes from the rows, besides the log, for a run folder to bind. Private."""
        raise NotImplementedError

    def released(self, log: Trajectories, behavior: Any, noise: Any, journal: Any) -> FirstPartRelease:
        """Return the release of the units of ``log``, all of which are in the first part.

        Steps that ``journal`` holds are not drawn again. The stream :data:`STREAM` of ``noise`` is not used.
        """
        raise NotImplementedError


def checked_share(share: float | None) -> float:
    """Return the share of the people in the first part, by default :data:`SHARE`; refuse it outside of [0.05, 0.95]."""
    if share is None:
        return SHARE
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0.05 <= share <= 0.95:
        raise DprlError("choosing_share must be a share of the people, from 0.05 to 0.95.")
    return float(share)
