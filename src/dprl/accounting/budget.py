"""A privacy budget: epsilon and delta, checked once."""

from __future__ import annotations

from dataclasses import dataclass

from dprl.accounting.schema import positive
from dprl.errors import require


@dataclass(frozen=True)
class Budget:
    """Pair of epsilon and delta that a release may spend, for one privacy unit.

    >>> Budget(1.0, 1e-5)
    Budget(epsilon=1.0, delta=1e-05)
    >>> Budget(0.0, 1e-5)
    Traceback (most recent call last):
    dprl.errors.DprlError: epsilon must be a finite number above 0.
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        require(positive(self.epsilon), "epsilon must be a finite number above 0.")
        require(positive(self.delta) and self.delta < 1.0, "delta must be above 0 and below 1.")

    def check_units(self, units: int) -> None:
        """Refuse a delta of 1/units or more, which would allow giving one unit away entirely; ``units`` is public."""
        least = f"delta = {self.delta:g} is at least 1/units = {1.0 / units:g}"
        require(self.delta < 1.0 / units, f"{least}: choose a delta well below one over the {units} declared units.")
