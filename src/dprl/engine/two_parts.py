"""Two parts of the people: what is learned or chosen on one of them can be valued on the other, for one budget.

Each unit's coin says in which part it is. Coins are functions of the run key, a stream and the unit's place, and of
nothing in the rows. So for fixed coins one more person is in one part, and the releases of both cost the larger of
their deltas at each epsilon, not the sum, though the second may depend on what the first released. How many people are
in a part stays secret: sums are divided by the declared number times the part's public share.
Proof: docs/proofs/two-parts.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np

from dprl.accounting.budget import Budget
from dprl.accounting.events import DpEvent
from dprl.config import LIBRARY_DEFAULT
from dprl.data.trajectories import Trajectories
from dprl.errors import DprlError
from dprl.mechanisms.gaussian_sum import ADDS_ONE_UNIT
from dprl.protocols import Bounds, NoiseSource


class FromFirst(NamedTuple):
    """What the first part of the people released.

    Attributes:
        name: of what they chose or learned, in words.
        policies: what the second part values, by name: the chosen or learned policy first.
    """

    name: str
    policies: Mapping[str, Any]


STREAM = "two parts"
"""Of the noise source: no mechanism has this name."""
SHARE = 0.4
"""Of the people, on whom a policy is chosen or learned; it was chosen on seeds of benchmarks/families.py."""
CHOSEN = "the chosen policy"
"""What a policy is called before anybody knows which one it is."""


@dataclass(frozen=True)
class TwoParts:
    """Division of the people by coins.

    Attributes:
        units: declared number of all.
        share: of them that the first part has in the mean; rounded so that both parts have whole numbers.

    Raises:
        DprlError: a part would have nobody in the mean.
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
        """Return the public bounds of one part: those of the log, with the part's mean number of units."""
        return replace(bounds, units=self.first if first else self.second)

    def in_first(self, noise: NoiseSource, units: int, stability: Any = ADDS_ONE_UNIT) -> np.ndarray:
        """Return ``(units,)`` whether each unit is in the first part; all others are in the second. Private.

        Args:
            noise: source of the release, whose stream :data:`STREAM` has the coins.
            units: number of units that there are.
            stability: of their source; one more person must add one unit and change no other's.
        """
        if stability != ADDS_ONE_UNIT:
            raise DprlError("Two parts of the people need a source to which one more person adds one unit.")
        coins = noise.stream(STREAM)
        return np.asarray(coins.participation_mask(0, units, self.first / self.units), dtype=bool)


@dataclass(frozen=True)
class FirstPart:
    """Question to the first part of the people, of which comes what the second part values; public facts alone.

    Attributes:
        parts: division of the people.
        beside: policies that are valued besides what comes of the first part, by name.
        called: what that is called among those that are valued.
    """

    parts: TwoParts
    beside: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    called: str | None = field(default=None, kw_only=True)

    @property
    def names(self) -> tuple[str, ...]:
        """What the valued policies are called before anybody knows them."""
        return (self.called or CHOSEN, *self.beside)

    @property
    def words(self) -> str:
        """What is released of both parts, as a certificate says it before it names what the second releases."""
        raise NotImplementedError

    @property
    def draws(self) -> int:
        """Number of Gaussian numbers that the first part draws: none where its coins are exact."""
        return 0

    def calibrated(self, budget: Budget) -> Self:
        """Return the same question with noise for this budget: itself where its coins are of the budget's epsilon."""
        del budget
        return self

    def event(self) -> DpEvent:
        """Return the privacy event of the first part."""
        raise NotImplementedError

    def rows(self) -> list[dict[str, Any]]:
        """Return the first part's rows of a certificate."""
        raise NotImplementedError

    def options(self) -> dict[str, dict[str, Any]]:
        """Return the options that were in force, each with ``value`` and ``provenance``."""
        given = LIBRARY_DEFAULT if self.parts.share == SHARE else "stated public"
        return {"choosing_share": {"value": self.parts.share, "provenance": given}}

    def described(self) -> dict[str, Any]:
        """Return what an estimate says of it, as plain data."""
        parts = self.parts
        return {"share": parts.share, "units_that_choose": parts.first, "units_that_value": parts.second}

    def entering(self, log: Trajectories, behavior: Any) -> Iterator[Any]:
        """Yield what is made of the rows beside the log itself, for a run folder to bind. Private."""
        raise NotImplementedError

    def released(self, log: Trajectories, behavior: Any, noise: Any, journal: Any) -> FromFirst:
        """Return what the units of ``log``, all of the first part, release; what ``journal`` holds is not drawn again.

        It does not touch the stream :data:`STREAM` of ``noise``.
        """
        raise NotImplementedError


def checked_share(share: float | None) -> float:
    """Return the share of the people who choose, by default :data:`SHARE`; refuse one that is none."""
    if share is None:
        return SHARE
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0.05 <= share <= 0.95:
        raise DprlError("choosing_share must be a share of the people, from 0.05 to 0.95.")
    return float(share)
