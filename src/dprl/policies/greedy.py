"""Policies that take the action of the highest score, from a table over states or from scores linear in a public basis.

A score is a lower bound of an action's value: the estimate, less what sampling and privacy noise may have added. The
file of a policy holds only released numbers and public facts; ``--target-policy`` reads the file back.
"""

from __future__ import annotations

import itertools
import json
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from dprl.arrays import cell_numbers, state_rows, unit_states
from dprl.bounds import Interval
from dprl.errors import DprlError
from dprl.policies.rules import MOST_CODES, DeterministicPolicy, read_names
from dprl.untrusted_files import intervals, tensors_to_bytes

SCHEMA = "dprl.greedy-policy/1"
MOST_CHARACTERS = 160
"""Most characters of a policy in words."""


@dataclass(frozen=True)
class Basis:
    """A public map from states to numbers in which scores are linear.

    ``table`` has an indicator of each whole-numbered state. ``products:0`` is a constant; ``products:1`` also has each
    component, and ``products:2`` also the products of two components. A component is scaled to mean square one under
    the uniform distribution on its bounds. A component with three to eight values, all whole numbers of at least zero,
    has cosines instead, which tell its values apart.

    Attributes:
        bounds: bounds of each component of a state.
        kind: ``table``, ``products:0``, ``products:1`` or ``products:2``.
    """

    bounds: tuple[Interval, ...]
    kind: str

    def __post_init__(self) -> None:
        if self.kind not in ("table", "products:0", "products:1", "products:2"):
            raise DprlError(f"There is no basis called {self.kind!r}: use table, products:0, products:1 or products:2.")
        if self.is_table and any(end != int(end) for pair in self.bounds for end in pair):
            raise DprlError("A table needs states of whole numbers.")

    @property
    def is_table(self) -> bool:
        """Whether the basis is an indicator of each state."""
        return self.kind == "table"

    @cached_property
    def size(self) -> int:
        """Number of functions in the basis."""
        if self.is_table:
            return math.prod(int(high) - int(low) + 1 for low, high in self.bounds)
        return len(self.words([""] * len(self.bounds)))

    def index(self, states: Any, xp: Any = np) -> Any:
        """Return the table's number ``(...)`` of each state of ``(..., d)``; only for a table."""
        return cell_numbers(states, self.bounds, xp)

    def __call__(self, states: Any, xp: Any = np) -> Any:
        """Return the functions' values ``(N, size)`` at states ``(N, d)``; for a table they are indicators."""
        if self.is_table:
            return (self.index(states, xp)[:, None] == xp.arange(self.size)[None]).astype(states.dtype)
        own = self._columns(unit_states(states, self.bounds, xp), xp)
        return xp.stack([xp.ones_like(states[:, 0]), *self._products(own, operator.mul)], axis=1)

    def words(self, names: Sequence[str]) -> list[str]:
        """Return the names of the functions of a linear basis, made from the ``names`` of the components."""
        columns = self._columns(np.zeros((1, len(self.bounds))), np)
        own = [[f"{name} ({k})" for k in range(1, len(of) + 1)] if len(of) > 1 else [name] * len(of)
               for name, of in zip(names, columns, strict=True)]  # fmt: skip
        return ["1", *self._products(own, "{} x {}".format)]

    def _products(self, own: list[list[Any]], product: Callable[[Any, Any], Any]) -> list[Any]:
        """Return the columns of each component and products of columns of different components, as ``kind`` says."""
        pairs = [product(x, y) for first, second in itertools.combinations(own, 2) for x in first for y in second]
        single = list(itertools.chain(*own))
        return {"products:0": [], "products:1": single, "products:2": single + pairs}[self.kind]

    def _columns(self, x: Any, xp: Any) -> list[list[Any]]:
        """Return the columns of each component, for states in the unit cube; a component with one value has none."""
        out = []
        for i, pair in enumerate(self.bounds):
            if codes := _codes(pair):
                place = (xp.round(x[:, i] * (codes - 1)) + 0.5) * (math.pi / codes)
                out.append([math.sqrt(2.0) * xp.cos(place * k) for k in range(1, codes)])
            else:
                out.append([math.sqrt(3.0) * (2.0 * x[:, i] - 1.0)] * (pair[1] > pair[0]))
        return out


def _codes(pair: Interval) -> int:
    """Return the number of values of a component whose values are told apart one by one; 0 if it is scaled."""
    steps = pair[1] - pair[0]
    return int(steps) + 1 if are_codes(pair) and steps < MOST_CODES else 0


def are_codes(pair: Interval) -> bool:
    """Tell whether public bounds look like those of three or more whole numbers, none of them below zero."""
    low, high = pair
    return 0 <= low == int(low) and high == int(high) and high - low >= 2


@dataclass(frozen=True, eq=False)
class GreedyPolicy(DeterministicPolicy):
    """Policy that takes the action of the highest score, and the first of several actions with the same score.

    Attributes:
        basis: public basis.
        theta: ``(A, size)`` float64 released weights; for a table these are the scores.
        root: ``(A, size, size)`` float64; the norm of ``phi root`` is subtracted from a score. Empty for a table.
        names: names of the components of a state.
        action_names: names of the actions; None where actions have only numbers.
    """

    basis: Basis
    theta: np.ndarray = field(repr=False)
    root: np.ndarray = field(repr=False)
    names: tuple[str, ...]
    action_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        size, actions = self.basis.size, len(self.theta)
        square = (0,) if self.basis.is_table else (actions, size, size)
        fits = self.theta.shape == (actions, size) and self.root.shape == square and actions > 0
        named = self.action_names is None or len(self.action_names) == actions
        if not (fits and named and len(self.names) == len(self.basis.bounds)):
            raise DprlError("These weights do not fit their policy.")
        if not (np.isfinite(self.theta).all() and np.isfinite(self.root).all()):
            raise DprlError("The weights of a policy must be finite numbers.")

    @property
    def actions(self) -> int:  # type: ignore[override]
        """Number of actions."""
        return len(self.theta)

    def action(self, states: Any) -> Int[np.ndarray, " rows"]:
        """Return the policy's action ``(N,)`` in each of the states ``(N, d)``."""
        return np.argmax(self.scores(states), axis=1)

    def scores(self, states: Any) -> Float[np.ndarray, "rows actions"]:
        """Return scores ``(N, A)`` at states ``(N, d)``; the digits of a row do not depend on other rows."""
        rows = state_rows(states, len(self.names))
        if self.basis.is_table:
            return self.theta.T[self.basis.index(rows)]
        phi = self.basis(rows)
        return np.stack([_dot(phi, w) - np.sqrt(np.sum(_dot(phi, r) ** 2, axis=1))
                         for w, r in zip(self.theta, self.root, strict=True)], axis=1)  # fmt: skip

    @cached_property
    def words(self) -> str:
        """The policy in words, for a sentence."""
        if not self.basis.is_table:
            if self.basis.size == 1:
                return f"{self.action_name(self.action(np.zeros((1, len(self.names))))[0])} for everybody"
            return f"the action of the highest of {self.actions} scores, linear in {self.basis.size} features"
        chosen = np.argmax(self.theta, axis=0)
        if (chosen == chosen[0]).all():
            return f"{self.action_name(chosen[0])} for everybody"
        if len(self.names) == 1:
            low, cases = int(self.basis.bounds[0][0]), []
            for action in np.unique(chosen):
                cases.append(
                    f"{self.action_name(action)} at {_ranges((np.flatnonzero(chosen == action) + low).tolist())}"
                )
            said = f"by {self.names[0]}: {'; '.join(cases)}"
            if len(said) <= MOST_CHARACTERS:
                return said
        return f"a table of {len(chosen)} states"

    def described(self) -> dict[str, Any]:
        """Return the policy as plain data: the action of each state, or the weight of each feature."""
        known = {"components": list(self.names), "actions": self.actions, "basis": self.basis.kind}
        if self.basis.is_table:
            low = [int(pair[0]) for pair in self.basis.bounds]
            counts = [int(pair[1]) - int(pair[0]) + 1 for pair in self.basis.bounds]
            return known | {"lowest": low, "counts": counts, "table": np.argmax(self.theta, axis=0).tolist()}
        return known | {"features": self.basis.words(self.names), "weights": self.theta.tolist()}

    def to_bytes(self) -> bytes:
        """Return the bytes of the policy's safetensors file; the same policy gives the same bytes."""
        metadata = {
            "schema": SCHEMA, "basis": self.basis.kind,
            "bounds": json.dumps([[float(low), float(high)] for low, high in self.basis.bounds]),
            "components": json.dumps(list(self.names)), "words": self.words,
            "action_names": json.dumps(self.action_names),
        }  # fmt: skip
        return tensors_to_bytes({"theta": self.theta, "root": self.root}, metadata)


def greedy_policy_from_file(tensors: dict[str, np.ndarray], metadata: dict[str, str]) -> GreedyPolicy:
    """Return the policy from the contents of its file.

    Raises:
        DprlError: the contents do not fit each other.
        KeyError, TypeError, ValueError: the contents are not those of a policy.
    """
    names, called = read_names(json.loads(metadata["components"]), json.loads(metadata["action_names"]))
    if set(tensors) != {"theta", "root"} or any(t.dtype != np.float64 for t in tensors.values()):
        raise ValueError
    basis = Basis(intervals(metadata["bounds"]), metadata["basis"])
    return GreedyPolicy(basis, tensors["theta"], tensors["root"], names, called)


def _dot(phi: Float[np.ndarray, "rows n"], weights: Float[np.ndarray, "n ..."]) -> np.ndarray:
    """Return the products with ``weights``, summed feature by feature, so that no row's digits depend on others."""
    out = np.zeros((len(phi), *weights.shape[1:]))
    for column, weight in zip(phi.T, weights, strict=True):
        out += column.reshape(-1, *(1,) * weight.ndim) * weight
    return out


def _ranges(numbers: list[int]) -> str:
    """Return ascending whole numbers in words, such as ``0-3, 7``."""
    runs = [[number for _, number in run] for _, run in itertools.groupby(enumerate(numbers), lambda x: x[1] - x[0])]
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
