"""What an algorithm's file ends with: its entry, of which registry, command line, audits and documents are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dprl.added import VERIFIED
from dprl.protocols import Attack


@dataclass(frozen=True)
class Setting:
    """One variant of an algorithm that the audits run.

    Attributes:
        config: its options.
        features: feature map of the value function, where one is learned.
        facts: public bounds of the audits' small log that this variant needs otherwise; none may be wider.
        compare: differences of the audits' policies that are released besides, as :func:`dprl.evaluate` takes them.
        subgroups: whose values are released besides, in the same words.
    """

    config: Any
    features: str = "columns"
    facts: Mapping[str, Any] = field(default_factory=dict)
    compare: tuple[str, ...] = ()
    subgroups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Algorithm:
    """An algorithm's entry: what the registry, the command line, the audits and the documents know about it.

    Attributes:
        config: the class of its options; its name is ``config.algorithm``.
        settings: variants that record and replay, and the neighbour generator, run, by name.
        attacks: standard attacks that docs/audits.md has rows of.
        canary: ``module:function`` that sets an attack up; the generic one finds the weakness of any program.
    """

    config: type[Any]
    settings: Mapping[str, Setting]
    attacks: tuple[Attack, ...] = (Attack(), Attack(epsilon=4.0, trials=100_000))
    canary: str = "dprl.audits.attacks.programs:program_canary"

    @property
    def name(self) -> str:
        """The algorithm's name in the registry, on the command line and in certificates."""
        return self.config.algorithm

    @property
    def verified(self) -> bool:
        """Whether the noise is calibrated by dprl. Another calibration may have an attack of its own."""
        return getattr(self.config, "calibration", VERIFIED) == VERIFIED
