"""Units of a log wherever they are: in memory, in files, or on other machines."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np


class Units(Protocol):
    """What :func:`~dprl.engine.program.run_on_host` needs of a log that is not in memory.

    Sums are of int64 grid points, so they are exact: where the units are, and in which order they are added, changes
    no digit. Coins and noise are not drawn here.
    """

    @property
    def units(self) -> int:
        """How many there are; private."""
        ...

    def total(self, program: Any, stage: int, mechanism: Any, state: Any, included: np.ndarray) -> Any:
        """``(dimension,)`` int64: the sum of the mechanism's clipped vectors of the ``included`` ``(units,)``."""
        ...
