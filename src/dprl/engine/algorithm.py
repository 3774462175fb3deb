"""Entry with which an algorithm's file ends; registry, command line, audits and documents are made from entries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dprl.entry_points import VERIFIED
from dprl.protocols import Attack


@dataclass(frozen=True)
class Setting:
    """One variant of an algorithm that the audits run.

    Attributes:
        config: its options.
        features: feature map of the value function, where one is learned.
        facts: public bounds that replace those of the audits' small log for this variant; none may be wider.
        compare: differences of the audits' policies that are also released, as :func:`dprl.evaluate` takes them.
        subgroups: subgroups whose values are also released, as :func:`dprl.evaluate` takes them.
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
        config: class of the algorithm's options; the algorithm's name is ``config.algorithm``.
        settings: by name, the variants with which record and replay, and the neighbour generator, run.
        attacks: standard attacks; docs/audits.md has a row for each of them.
        canary: ``module:function`` that sets an attack up; the generic function finds the weakness of any program.
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
        """Whether dprl calibrates the noise. For another calibration there may be a special attack."""
        return getattr(self.config, "calibration", VERIFIED) == VERIFIED
