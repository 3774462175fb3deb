"""Rules that people can read: one action for everybody, or an action that depends on one or two comparisons.

A class of rules is made from public facts only, in a fixed order: smaller rules first, and coarse cuts before fine
ones. A rule can describe itself in words, and is written to a file that ``--target-policy`` reads back.
"""

from __future__ import annotations

import itertools
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from dprl.arrays import state_rows
from dprl.bounds import Interval
from dprl.errors import DprlError
from dprl.untrusted_files import read_regular, strict_object

FILE = "policy.json"
_SCHEMA = "dprl.rule/1"
MOST_CODES = 8
"""Most values of a whole-numbered component that are told apart one by one."""
_HALVINGS = 3
DEEPEST = 64
"""Most comparisons that follow one another in a rule."""
Cut = tuple[int, float]
"""A component, and the value at which it is cut."""


class DeterministicPolicy(ABC):
    """A policy that takes one action in each state.

    Attributes:
        actions: number of actions.
        action_names: names of the actions; None where actions have only numbers.
    """

    actions: int
    action_names: tuple[str, ...] | None

    @abstractmethod
    def action(self, states: Any) -> Int[np.ndarray, " rows"]:
        """Return the policy's action ``(N,)`` in each of the states ``(N, d)``."""

    def __call__(self, states: Any, /) -> Float[np.ndarray, "rows actions"]:
        """Return probabilities ``(N, A)`` at states ``(N, d)``: one for the policy's action, zero for all others."""
        return np.eye(self.actions)[self.action(states)]

    def action_name(self, action: Any) -> str:
        """Return the name of an action, or ``action`` and its number where actions have no names."""
        return f"action {action}" if self.action_names is None else self.action_names[action]


@dataclass(frozen=True)
class Split:
    """A comparison: ``below`` applies where the component is below ``cut``, and ``above`` everywhere else."""

    component: int
    cut: float
    below: Split | int
    above: Split | int


@dataclass(frozen=True)
class Rule(DeterministicPolicy):
    """A policy that takes its action by comparisons; it does not depend on the precision of states.

    Attributes:
        tree: an action, or a comparison.
        actions: number of actions.
        names: names of the components of a state.
        action_names: names of the actions; None where actions have only numbers.
    """

    tree: Split | int
    actions: int
    names: tuple[str, ...]
    action_names: tuple[str, ...] | None = None

    def action(self, states: Any) -> np.ndarray:
        """Return the rule's action ``(N,)`` in each of the states ``(N, d)``."""
        rows = state_rows(states, len(self.names)).astype(np.float32)

        def decided(tree: Split | int) -> np.ndarray:
            if isinstance(tree, int):
                return np.full(len(rows), tree)
            is_below = rows[:, tree.component] < np.float32(tree.cut)
            return np.where(is_below, decided(tree.below), decided(tree.above))

        return decided(self.tree)

    @property
    def words(self) -> str:
        """The rule in words, for a sentence."""
        *cases, (_, last) = self.cases()
        said = [f"{self.action_name(action)} where {' and '.join(tests)}" for tests, action in cases if action != last]
        return (
            "; ".join([*said, f"else {self.action_name(last)}"]) if said else f"{self.action_name(last)} for everybody"
        )

    def cases(self) -> list[tuple[tuple[str, ...], int]]:
        """Return the rule's cases: for each, the comparisons that all hold in it, in words, and its action."""

        def within(tree: Split | int, tests: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
            if isinstance(tree, int):
                yield tests, tree
                return
            name = self.names[tree.component]
            yield from within(tree.below, (*tests, f"{name} < {digits(tree.cut)}"))
            yield from within(tree.above, (*tests, f"{name} >= {digits(tree.cut)}"))

        return list(within(self.tree, ()))

    def to_bytes(self) -> bytes:
        """Return the bytes of the rule's JSON file; the same rule gives the same bytes."""
        tree = self.tree if isinstance(self.tree, int) else asdict(self.tree)
        called = {} if self.action_names is None else {"action_names": list(self.action_names)}
        content = {
            "schema": _SCHEMA, "words": self.words, "actions": self.actions, **called, "components": list(self.names),
            "rule": tree,
        }  # fmt: skip
        return json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False).encode() + b"\n"


def read_rule(path: str | Path) -> Rule:
    """Read a rule back, from its file or from the results folder that holds the file.

    Raises:
        DprlError: the file is missing or damaged.
    """
    path = Path(path)
    path = path / FILE if path.is_dir() else path
    content = strict_object(path, read_regular(path))
    if content.get("schema") != _SCHEMA:
        raise DprlError(f"{path.name!r} is not a rule of a version that this dprl reads.")
    actions: Any = content.get("actions")

    def tree(node: Any, depth: int = 0) -> Split | int:
        if not isinstance(node, dict):
            if type(node) is not int or not 0 <= node < actions:
                raise ValueError
            return node
        if depth == DEEPEST or set(node) != {"component", "cut", "below", "above"}:
            raise ValueError
        component, cut = node["component"], float(node["cut"])
        if type(component) is not int or not 0 <= component < len(names) or not math.isfinite(cut):
            raise ValueError
        return Split(component, cut, tree(node["below"], depth + 1), tree(node["above"], depth + 1))

    try:
        names, called = read_names(content.get("components"), content.get("action_names"))
        if type(actions) is not int or (called is not None and len(called) != actions):
            raise ValueError
        return Rule(tree(content["rule"]), actions, names, called)
    except (KeyError, TypeError, ValueError) as error:
        raise DprlError(f"{path.name!r} is damaged: it holds no rule.") from error


def read_names(components: Any, actions: Any) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """Return the names of a policy's components and of its actions (None if they have none) from a file's content.

    Raises:
        ValueError: names are not lists of texts, or there is no component.
    """
    for names in (components, [] if actions is None else actions):
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError
    if not components:
        raise ValueError
    return tuple(components), None if actions is None else tuple(actions)


def digits(cut: float) -> str:
    """Return a cut point in six digits if these are enough to tell it, and else in all of its digits."""
    return f"{cut:.6g}" if math.isclose(float(f"{cut:.6g}"), cut, rel_tol=1e-12) else repr(cut)


# --- a class of rules -------------------------------------------------------------------------------------------------


def public_cuts(state: Sequence[Interval]) -> tuple[Cut, ...]:
    """Return the default cuts of components, starting with the middle of each component.

    A component with a few whole numbers is cut between them, any other component at eighths of its range. A component
    from 0 to 1 may be of either kind, and is cut at quarters.
    """
    found = []
    for component, (low, high) in enumerate(state):
        steps = high - low
        if low == int(low) and 2 <= steps < MOST_CODES and steps == int(steps):
            middle = (low + high) / 2.0
            cuts = sorted((low + 0.5 + i for i in range(int(steps))), key=lambda cut: (abs(cut - middle), cut))
            found += [(place, component, cut) for place, cut in enumerate(cuts)]
        elif steps > 0.0:
            halvings = _HALVINGS - (low == 0.0 and high == 1.0)
            places = [(2 * i + 1) / 2.0**n for n in range(1, halvings + 1) for i in range(2 ** (n - 1))]
            found += [(place, component, low + steps * at) for place, at in enumerate(places)]
    return tuple((component, cut) for _, component, cut in sorted(found))


def fixed_actions(actions: int, names: Sequence[str]) -> Iterator[Rule]:
    """Yield for each action the rule that gives this action to everybody."""
    return (Rule(action, actions, tuple(names)) for action in range(actions))


def thresholds(actions: int, names: Sequence[str], cuts: Sequence[Cut]) -> Iterator[Rule]:
    """Yield every rule with one comparison, at one of these cuts."""
    for (component, cut), (below, above) in itertools.product(cuts, itertools.permutations(range(actions), 2)):
        yield Rule(Split(component, cut, below, above), actions, tuple(names))


def trees(actions: int, names: Sequence[str], cuts: Sequence[Cut]) -> Iterator[Rule]:
    """Yield once every rule with two comparisons, of which the second is made on one side of the first."""
    order = (pair for b in range(len(cuts)) for a in range(b) for pair in ((b, a), (a, b)))
    for (outer, inner), is_below in itertools.product(order, (True, False)):
        (component, cut), (other, at) = cuts[outer], cuts[inner]
        same = component == other
        if same and not (is_below and at < cut):  # a band comes once; else the second cut is idle
            continue
        for (below, above), rest in itertools.product(itertools.permutations(range(actions), 2), range(actions)):
            if (same and rest == above) or (not same and rest in (below, above) and outer > inner):
                continue  # one comparison is enough, or the rule is yielded with the comparisons swapped
            own = Split(other, at, below, above)
            pair = (own, rest) if is_below else (rest, own)
            yield Rule(Split(component, cut, *pair), actions, tuple(names))
