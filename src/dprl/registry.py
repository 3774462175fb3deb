"""Names of the algorithms and where they are defined, as import strings, so that listing them loads nothing."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal

from dprl import entry_points
from dprl.errors import DprlError

if TYPE_CHECKING:
    from dprl.bounds import Bounds
    from dprl.engine.algorithm import Algorithm
    from dprl.protocols import Attack, Canary


Unit = Literal["unit of the log", "reward function", "user"]
_SUITES: dict[Unit, str] = {
    "unit of the log": "dprl.audits.conformance.evaluation:EvaluationConformance",
    "reward function": "dprl.audits.conformance.reward_functions:LearningConformance",
    "user": "dprl.audits.conformance.users:PolicyGradientConformance",
}
"""Suites that run an algorithm's audits, by what the algorithm protects."""


@dataclass(frozen=True)
class Entry:
    """Entry of an algorithm: the module that ends with its ``ALGORITHM``, and what the tables of documents say.

    Attributes:
        name: name of the algorithm.
        module: module that defines the algorithm.
        summary: how the value function, or the policy, is made.
        unit: what the algorithm protects: the unit of a log, the reward function, or a user from whom it learns.
        calibration: dprl's own calibration, or the name that another distribution gives to the one that it adds.
        source: where the algorithm comes from, in Markdown.
        suite: ``module:name`` of the suite that runs the audits, where it is not the usual one for this ``unit``.
    """

    name: str
    module: str
    summary: str
    unit: Unit = "unit of the log"
    calibration: str = entry_points.VERIFIED
    source: str = ""
    suite: str = ""

    def load(self) -> Algorithm:
        """Return the algorithm as its module, or its suite, describes it."""
        if self.suite:
            return self.load_conformance().algorithm
        return resolve_name(f"{self.module}:ALGORITHM")

    def load_config(self) -> type[Any]:
        """Return the class of the algorithm's options."""
        return self.load().config

    def load_conformance(self) -> Any:
        """Return the :class:`dprl.audits.conformance.suite.Suite` of audits: canary, event, releases of small data."""
        return resolve_name(self.suite) if self.suite else resolve_name(_SUITES[self.unit])(self.load())

    def load_canary(self, attack: Attack) -> Canary:
        """Return the canary of a standard attack: the pair of logs, and the attack that tells them apart."""
        return self.load_conformance().canary(attack)


def entries(unit: Unit, package: str, *rows: tuple[str, str, str, str]) -> dict[str, Entry]:
    """Return a package's entries by name; each of the ``rows`` is name, module, summary and source."""
    return {
        name: Entry(name, f"{package}.{module}", summary, unit, source=source) for name, module, summary, source in rows
    }


# importance sampling gives values and intervals; most others also give a value function
ALGORITHMS: dict[str, Entry] = entries(
    "unit of the log",
    "dprl.evaluation",
    ("gpope", "gpope", "primal-dual gradients; also as published, for reproduction: that certifies nothing",
     "[004](docs/papers/004.md), Algorithm 1"),
    ("importance-sampling", "importance_sampling",
     "none: plain, per-decision, self-normalised values; several policies in one go", "Precup, Sutton, Singh (2000)"),
    ("recommended", "recommended",
     "the default, nothing to tune: returns, checked, then TD or statistics; off-policy TD, checked", "ours"),
    ("td", "td", "TD(0) with noisy clipped steps, on and off policy", "Sutton (1988)"),
    ("return-regression", "return_regression", "descent on Monte Carlo returns", "folklore"),
    ("adassp", "adassp", "ridge regression on returns from noisy statistics", "after Wang (2018)"),
    ("lstd", "private_lstd", "LSTD from noisy statistics", "after Bradtke, Barto (1996)"),
    ("noisy-counts", "noisy_counts", "a finite model from noisy counts of transitions, solved", "tabular"),
    ("doubly-robust", "doubly_robust", "returns, and doubly robust values of all policies around them",
     "after Jiang, Li (2016)"),
    ("stratified", "stratified",
     "none: values where behaviour probabilities are estimated, within declared strata or by a regression",
     "after Robins, Rotnitzky, Zhao (1994)"),
    ("survival", "survival",
     "none: event-free probabilities and curves of people who may leave early, from noisy counts",
     "Kaplan, Meier (1958)"),
    ("best-linear-projection", "best_linear_projection",
     "none: who benefits, each value and difference as a linear function of the first state, with a band",
     "after Semenova, Chernozhukov (2021)"),
    ("constant", "private_constant", "the mean return: what every other has to beat", "-"),
    ("dptd", "dptd", "nonlinear TDC or GTD2 with momentum, of networks too; also as published, which certifies nothing",
     "[000](docs/papers/000.md), Algorithm 1; Maei et al. (2009)"),
    ("neural-td", "neural_td", "TD(0) of a network", "Sutton (1988)"),
)  # fmt: skip


DEFAULT = "recommended"
"""Name of the algorithm for logs with behaviour probabilities where a user names none."""


def default_for(bounds: Bounds) -> str:
    """Return the name of the algorithm that evaluates a log with these public facts where a user names none."""
    return DEFAULT if bounds.strata is None else "stratified"


def find(name: str) -> Entry:
    """Return the entry called ``name``, which evaluates a log.

    Raises:
        DprlError: there is no such entry; the sentence has the name that may have been meant, or the known names.
    """
    return find_in(ALGORITHMS if name in ALGORITHMS else evaluation_entries(), name)


LEARNING: dict[str, Entry] = entries(
    "reward function",
    "dprl.learning",
    (
        "functional-q",
        "functional_q",
        "Q-learning that protects the reward function: `functional` (noise for the whole function, any number of "
        "questions; the default where its proof holds by declared facts), `observed-reward`, `gradient`, `output`; "
        "also as published",
        "[001](docs/papers/001.md), repaired",
    ),
) | entries(
    "user",
    "dprl.learning",
    (
        "dp-pg",
        "policy_gradient.dp_pg",
        "policy gradient from people of whom each interacts once: all batches cost what one noisy sum does; softmax, "
        "Gaussian and neural policies; also as published",
        "[003](docs/papers/003.md), Algorithm 1",
    ),
)
"""Algorithms that learn by acting in an environment: they have no log, and answer other questions than evaluations."""

AUDITED = ALGORITHMS | LEARNING
"""All algorithms of dprl's own; only these certify."""

_SAMPLE_SPLIT = "dprl.audits.conformance.sample_split"
IN_TWO_PARTS: dict[str, Entry] = {
    "best": Entry(
        "best", _SAMPLE_SPLIT, "the best policy of many and its value, together", suite=f"{_SAMPLE_SPLIT}:BEST"
    ),
    "learn": Entry("learn", _SAMPLE_SPLIT, "a learned policy and its values, together", suite=f"{_SAMPLE_SPLIT}:LEARN"),
}
"""Releases on two parts of the people. They are not algorithms, but each is audited as a whole."""


@cache
def entries_of_others() -> dict[str, Entry]:
    """Return the entries that other distributions add by entry points; they cannot replace a name of dprl's own.

    Releases of these algorithms write statements, not certificates: :func:`is_own` is false for them.
    """
    tables = [
        entry_points.load(entry_points.ALGORITHMS, name, name) for name in entry_points.names(entry_points.ALGORITHMS)
    ]
    return {name: entry for table in tables for name, entry in table.items() if name not in AUDITED}


def evaluation_entries() -> dict[str, Entry]:
    """Return all algorithms that evaluate a log: dprl's own, and those that other distributions add."""
    return ALGORITHMS | {name: entry for name, entry in entries_of_others().items() if entry.unit == "unit of the log"}


def auditable_entries() -> dict[str, Entry]:
    """Return all algorithms that can be audited: dprl's own, and those that other distributions add."""
    return AUDITED | entries_of_others()


def attackable_entries() -> dict[str, Entry]:
    """Return everything that can be audited: algorithms, and releases on two parts of the people."""
    return auditable_entries() | IN_TWO_PARTS


def find_audited(name: str, calibration: str = entry_points.VERIFIED) -> Entry:
    """Return the entry called ``name`` in a calibration: an algorithm, or a release on two parts of the people."""
    entry = find_in(AUDITED if name in AUDITED else attackable_entries(), name)
    return entry if calibration == entry.calibration else entry_points.entry_in_calibration(name, calibration)


def in_every_calibration() -> list[Entry]:
    """Return everything that can be audited, each entry followed by its calibrations from other distributions."""
    tables = [
        entry_points.load(entry_points.CALIBRATIONS, name, name)
        for name in entry_points.names(entry_points.CALIBRATIONS)
    ]
    return [
        found
        for name, entry in attackable_entries().items()
        for found in (entry, *(table[name] for table in tables if name in table))
    ]


def find_in(known: Mapping[str, Entry], name: str) -> Entry:
    """Return the entry called ``name``.

    Raises:
        DprlError: there is no such entry; the sentence has the name that may have been meant, or all known names.
    """
    if name in known:
        return known[name]
    close = get_close_matches(name, known, 1)
    more = "" if entries_of_others() else "; baselines of papers come with the distribution dprl-papers"
    hint = f": did you mean {close[0]}?" if close else f"; there are {', '.join(known)}{more}."
    raise DprlError(f"There is no algorithm {name!r}{hint}")


_ROOMS = ("dprl.evaluation.", "dprl.learning.", "dprl.protectors.")
_OWN = frozenset(entry.module for entry in AUDITED.values())
"""Modules of dprl's own algorithms, as this file lists them; an entry that is registered later does not count."""


def is_own(config: object, program: object = None) -> bool:
    """Tell whether a configuration and its program are dprl's own classes.

    Only these are proved, so only these may certify. The test is identity of the exact classes. A subclass may override
    what a person's vector is, so it is not dprl's own; neither is a class that was registered, or put in another's
    place, while the program runs.

    Args:
        config: instance of the options.
        program: the program that ``config`` made, or None where it makes none. A protector's program has another
            program inside, which is tested, too.
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
    """Tell whether the class of a configuration is dprl's own; see :func:`is_own`."""
    module = sys.modules.get(config.__module__)
    known = config.__module__ in _OWN and getattr(module, config.__qualname__, None) is config
    return known and resolve_name(f"{config.__module__}:ALGORITHM").config is config
