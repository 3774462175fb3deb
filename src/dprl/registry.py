"""Names of the algorithms, and where they live: lazy import strings, so that listing them loads nothing."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from dprl import added
from dprl.errors import DprlError

if TYPE_CHECKING:
    from dprl.protocols import Attack, Canary


@dataclass(frozen=True)
class Entry:
    """One algorithm: its configuration (``module:Class``), and what the conformance suite needs to attack it.

    ``conformance`` is that itself (``module:NAME``), or a table in which it stands under the algorithm's name. ``unit``
    is what is protected: the unit of a log, the reward function, or a user of whom is learned. ``calibration`` is
    dprl's own, or what another distribution calls the one that it brings.
    """

    name: str
    config: str
    conformance: str
    summary: str
    unit: Literal["unit of the log", "reward function", "user"] = "unit of the log"
    calibration: str = added.VERIFIED

    def load_config(self) -> type[Any]:
        return _load(self.config)

    def load_conformance(self) -> Any:
        """A :class:`dprl.protocols.Conformance`: canary, event and a way to run the algorithm on small data."""
        found = _load(self.conformance)
        return found[self.name] if isinstance(found, dict) else found

    def load_canary(self, attack: Attack) -> Canary:
        """The pair of logs, and the attack on it, that a standard attack names."""
        return self.load_conformance().canary(
            units=attack.units,
            epsilon=attack.epsilon,
            delta=attack.delta,
            released=attack.released,
            **attack.options,
        )


def _evaluation(name: str, config: str, summary: str) -> Entry:
    conformance = "dprl.audits.conformance.evaluation_entries:CONFORMANCE"
    return Entry(name, f"dprl.evaluation.{config}", conformance, summary)


# importance sampling gives values and intervals; the others those, and a value function
ALGORITHMS: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        _evaluation(
            "gpope",
            "gpope:GPOPE",
            "gradient-perturbed off-policy evaluation (paper 004)",
        ),
        _evaluation(
            "importance-sampling",
            "importance_sampling:ImportanceSampling",
            "values and intervals of several policies from one Gaussian release (Precup, Sutton and Singh 2000)",
        ),
        _evaluation(
            "recommended",
            "recommended:Recommended",
            "the default: chosen by public facts alone, with nothing to tune",
        ),
        _evaluation(
            "td",
            "td:TD",
            "TD(0) with noised clipped steps, on and off policy (Sutton 1988)",
        ),
        _evaluation(
            "return-regression",
            "return_regression:ReturnRegression",
            "regression on Monte Carlo returns with noised clipped steps",
        ),
        _evaluation(
            "adassp",
            "adassp:AdaSSP",
            "ridge regression on returns from noised sufficient statistics (Wang 2018)",
        ),
        _evaluation(
            "lstd",
            "private_lstd:PrivateLSTD",
            "least-squares temporal differences from noised statistics (Bradtke and Barto 1996)",
        ),
        _evaluation(
            "noisy-counts",
            "noisy_counts:NoisyCounts",
            "a finite model from noised counts of transitions, solved (tabular)",
        ),
        _evaluation(
            "doubly-robust",
            "doubly_robust:DoublyRobust",
            "doubly robust value around a private value function (Jiang and Li 2016)",
        ),
        _evaluation(
            "constant",
            "private_constant:PrivateConstant",
            "the mean return as a constant value function: what every other has to beat",
        ),
        _evaluation(
            "dptd",
            "dptd:DPTD",
            "primal-dual temporal differences, of networks too (paper 000)",
        ),
        _evaluation(
            "neural-td",
            "neural_td:NeuralTD",
            "TD(0) with noised clipped steps, of networks too",
        ),
    )
}


DEFAULT = "recommended"
"""What evaluates where none is named."""


def find(name: str) -> Entry:
    """The entry called ``name``; raises one sentence with the known names."""
    return _find(name, ALGORITHMS if name in ALGORITHMS else evaluating())


LEARNING: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            "functional-q",
            "dprl.learning.functional_q:FunctionalQ",
            "dprl.audits.conformance.reward_functions:CONFORMANCE",
            "Q-learning that protects the reward function (paper 001)",
            "reward function",
        ),
        Entry(
            "dp-pg",
            "dprl.learning.policy_gradient.dp_pg:DPPG",
            "dprl.audits.conformance.users:CONFORMANCE",
            "policy gradient that learns from users of which each interacts once (paper 003)",
            "user",
        ),
    )
}
"""What learns by acting in an environment: no log, no data set, other questions than an evaluation's."""

AUDITED = ALGORITHMS | LEARNING
"""All that are dprl's own: these alone certify."""


@cache
def of_others() -> dict[str, Entry]:
    """What other distributions add, by entry points that name tables of entries; no name of dprl's own means another.

    Their releases write statements: :func:`is_own` knows none of them.
    """
    tables = [added.load(added.ALGORITHMS, name, name) for name in added.names(added.ALGORITHMS)]
    return {name: entry for table in tables for name, entry in table.items() if name not in AUDITED}


def evaluating() -> dict[str, Entry]:
    """All that evaluate a log: dprl's own, and what is installed beside it."""
    return ALGORITHMS | {name: entry for name, entry in of_others().items() if entry.unit == "unit of the log"}


def audited() -> dict[str, Entry]:
    """All that can be audited: dprl's own, and what is installed beside it."""
    return AUDITED | of_others()


def find_learning(name: str) -> Entry:
    """The learning algorithm called ``name``; raises one sentence with the known names."""
    if name not in LEARNING:
        raise DprlError(f"There is no learning algorithm {name!r}; there are {', '.join(LEARNING)}.")
    return LEARNING[name]


def find_audited(name: str, calibration: str = added.VERIFIED) -> Entry:
    """The entry called ``name`` in a calibration, whether it evaluates or learns."""
    entry = _find(name, AUDITED if name in AUDITED else audited())
    return entry if calibration == entry.calibration else added.calibrated(name, calibration)


def in_every_calibration() -> list[Entry]:
    """All that can be audited, each followed by the calibrations of it that are installed beside dprl."""
    tables = [added.load(added.CALIBRATIONS, name, name) for name in added.names(added.CALIBRATIONS)]
    return [
        found
        for name, entry in audited().items()
        for found in (entry, *(table[name] for table in tables if name in table))
    ]


def _find(name: str, known: Mapping[str, Entry]) -> Entry:
    if name not in known:
        more = "" if of_others() else "; baselines of papers come with the distribution dprl-papers"
        raise DprlError(f"There is no algorithm {name!r}; there are {', '.join(known)}{more}.")
    return known[name]


_ROOMS = ("dprl.evaluation.", "dprl.learning.", "dprl.protectors.")
_OWN = frozenset(entry.config for entry in AUDITED.values())
"""Where dprl's own configurations are, as this file has them: what is registered later is not among them."""


def is_own(config: object, program: object = None) -> bool:
    """Whether a configuration and the program it made are dprl's own, which alone are proved and may certify.

    Judged by identity of the exact classes. A subclass may override what a person's vector is, so it is a stranger; and
    so is a class that was registered, or put in another's place, while the program runs.

    Args:
        config: an instance.
        program: that it made, or None where it makes none; a protector's has another one inside.
    """
    if not is_own_kind(type(config)):
        return False
    while program is not None:
        kind = type(program)
        module = sys.modules.get(kind.__module__)
        inside = kind.__module__.startswith(_ROOMS)
        if not inside or getattr(module, kind.__qualname__, None) is not kind:
            return False
        program = getattr(program, "base", None)
    return True


def is_own_kind(config: type[Any]) -> bool:
    """Whether the class of a configuration is dprl's own; see :func:`is_own`."""
    target = f"{config.__module__}:{config.__qualname__}"
    return target in _OWN and _load(target) is config


def _load(target: str) -> Any:
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)
