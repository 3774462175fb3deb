"""What the audits of all algorithms have in common; a suite is made from an algorithm's entry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np

from dprl.accounting.budget import Budget
from dprl.audits.neighbours import Group
from dprl.engine.algorithm import Algorithm
from dprl.errors import DprlError
from dprl.protocols import Attack, Canary


@dataclass(frozen=True)
class Suite:
    """The audits of one algorithm: how it is planned, released on neighbouring inputs, and attacked."""

    algorithm: Algorithm

    def config(self, setting: str) -> Any:
        """Return the options of a setting."""
        return self.algorithm.settings[setting].config

    def plan(self, setting: str) -> Any:
        """Return the plan of a release."""
        raise NotImplementedError

    def relation(self, setting: str) -> str:
        """Return the neighbouring relation in words."""
        raise NotImplementedError

    def sources(self, setting: str) -> tuple[str, ...]:
        """Return the names of the kinds of input that a release of this setting may read."""
        raise NotImplementedError

    def neighbours(self, setting: str, source: str, folder: Path, turn: int) -> Iterator[Group]:
        """Yield inputs with their neighbours.

        Args:
            setting: setting of the algorithm.
            source: one of :meth:`sources`.
            folder: folder for files.
            turn: number that selects the pairs; another number makes other pairs.
        """
        raise NotImplementedError

    def canary(self, attack: Attack) -> Canary:
        """Return the strongest attack known, with the arguments of ``attack``.

        The attack's options may name a ``unit``, the privacy unit by which the pair of logs is read from columns.
        Without a unit the pair is made as a program sees it.

        Raises:
            DprlError: an option does not belong to the algorithm, or means nothing to it.
        """
        if attack.released not in ("all", "last"):
            raise DprlError("An audit looks at all that is released, or at the last iterate: say 'all' or 'last'.")
        asked: dict[str, Any] = {"units": attack.units, "released": attack.released, "unit": None, **attack.options}
        return self.attack(asked | {"budget": Budget(attack.epsilon, attack.delta)})

    def attack(self, asked: dict[str, Any]) -> Canary:
        """Return the attack that the entry names."""
        return resolve_name(self.algorithm.canary)(self.algorithm.config, **asked)


def handed_out(release: Any, **arrays: Any) -> dict[str, np.ndarray]:
    """Return all that a release hands out: ``arrays``, and its records as text without their date and their log."""
    found = {name: np.asarray(value) for name, value in arrays.items()}
    for name in ("estimate", "training", "certificate"):
        if record := getattr(release, name, None):
            stated = {n: v for n, v in record.items() if n not in ("created", "log")}
            found[name] = np.frombuffer(json.dumps(stated, sort_keys=True, default=str).encode(), np.uint8)
    return found
