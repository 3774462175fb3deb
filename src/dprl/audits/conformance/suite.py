"""What the audits of every algorithm have in common, made of its entry."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from dprl.accounting.budget import Budget
from dprl.engine.algorithm import Algorithm
from dprl.errors import DprlError
from dprl.protocols import Attack, Canary

UNITS = 200
"""Number of units in an attack that states none."""


@dataclass(frozen=True)
class Suite:
    """The audits of one algorithm; see :class:`dprl.protocols.Conformance`."""

    algorithm: Algorithm

    @property
    def name(self) -> str:
        return self.algorithm.name

    @property
    def attacks(self) -> tuple[Attack, ...]:
        return self.algorithm.attacks

    @property
    def verified(self) -> bool:
        """Whether the calibration is dprl's own."""
        return self.algorithm.verified

    @property
    def settings(self) -> tuple[str, ...]:
        return tuple(self.algorithm.settings)

    def config(self, setting: str) -> Any:
        return self.algorithm.settings[setting].config

    def canary(
        self,
        *,
        units: int = UNITS,
        epsilon: float,
        delta: float,
        released: str = "all",
        unit: str | None = None,
        **options: Any,
    ) -> Canary:
        if released not in ("all", "last"):
            raise DprlError("An audit looks at all that is released, or at the last iterate: say 'all' or 'last'.")
        asked = {"units": units, "budget": Budget(epsilon, delta), "released": released, "unit": unit, **options}
        return self.attack(asked)

    def attack(self, asked: dict[str, Any]) -> Canary:
        """The attack that the entry names."""
        return load(self.algorithm.canary)(self.algorithm.config, **asked)


def load(target: str) -> Any:
    """What ``module:name`` names."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)
