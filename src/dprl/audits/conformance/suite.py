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
    def calibrations(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(("verified", *(attack.calibration for attack in self.attacks))))

    @property
    def settings(self) -> tuple[str, ...]:
        return tuple(self.algorithm.settings)

    @property
    def published_settings(self) -> tuple[str, ...]:
        return tuple(self.algorithm.published)

    def config(self, setting: str) -> Any:
        return self.algorithm.setting(setting).config

    def canary(
        self,
        calibration: str = "verified",
        *,
        units: int = UNITS,
        epsilon: float,
        delta: float,
        released: str = "all",
        unit: str | None = None,
        **options: Any,
    ) -> Canary:
        if calibration not in self.calibrations:
            raise DprlError(f"{self.name} has no calibration {calibration!r}; it has {', '.join(self.calibrations)}.")
        if released not in ("all", "last"):
            raise DprlError("An audit looks at all that is released, or at the last iterate: say 'all' or 'last'.")
        asked = {"units": units, "budget": Budget(epsilon, delta), "released": released, "unit": unit, **options}
        return self.attack(calibration, asked)

    def attack(self, calibration: str, asked: dict[str, Any]) -> Canary:
        """The attack that the entry names."""
        return load(self.algorithm.canary)(self.algorithm.config, calibration, **asked)


def load(target: str) -> Any:
    """What ``module:name`` names."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)
