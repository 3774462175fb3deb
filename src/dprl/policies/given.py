"""Policies as users give them: arrays, models of other libraries, and the types that are accepted.

Models are known by their methods, and types are protocols, so that no other library is imported for them. A module of
PyTorch (``forward`` and ``parameters``) is called with a tensor of the dtype and device of its parameters. A model that
cannot be called is asked for probabilities (``predict_proba`` of scikit-learn, ``calc_action_choice_probability`` of
SCOPE-RL), or for the action that it takes (``predict`` of scikit-learn and d3rlpy).
"""

# ruff: noqa: D102 (members of a protocol say what they are by their names)

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from dprl.errors import DprlError
from dprl.user_code import suppress_warnings

if TYPE_CHECKING:
    from dprl.policies.loading import ColumnPolicy, LoggedPolicy

_PROBABILITIES = ("predict_proba", "calc_action_choice_probability")


class Array(Protocol):
    """Array of NumPy, JAX or PyTorch."""

    def __array__(self) -> Any: ...


class ProbabilityModel(Protocol):
    """Classifier of scikit-learn."""

    @property
    def predict_proba(self) -> Any: ...


class ActionModel(Protocol):
    """Policy of d3rlpy, or a classifier without probabilities."""

    @property
    def predict(self) -> Any: ...


OnePolicy: TypeAlias = (
    "str | Path | ColumnPolicy | LoggedPolicy | Callable[[Any], Array] | ProbabilityModel | ActionModel"
)
"""Anything that is accepted as a policy."""
TargetPolicies: TypeAlias = "OnePolicy | Sequence[OnePolicy] | Mapping[str, OnePolicy]"
"""One policy, or several."""


# --- arrays ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TabularPolicy:
    """Policy that gives row ``s - low`` of a table for a state with the only component ``s``.

    States may be NumPy or JAX arrays; the result is of the same kind. Components are rounded to the nearest whole
    number and clamped to the rows of the table; a NaN state has NaN probabilities.

    Attributes:
        table: ``(S, A)`` probabilities, each row summing to 1.
        low: state of the first row.
    """

    table: np.ndarray
    low: int = 0

    def __post_init__(self) -> None:
        table = np.asarray(self.table, dtype=np.float64)
        if table.ndim != 2 or 0 in table.shape:
            raise DprlError("A tabular policy needs a table of shape (states, actions).")
        if not (np.all(table >= 0) and np.all(np.abs(table.sum(axis=1) - 1.0) <= 1e-6)):
            raise DprlError("Each row of a tabular policy must be non-negative and sum to 1.")
        object.__setattr__(self, "table", table)

    def __call__(self, states: Any, /) -> Any:
        """Return action probabilities ``(N, A)`` at ``states`` ``(N, d)``."""
        xp = states.__array_namespace__()
        component = xp.asarray(states[:, 0], dtype=xp.float64)
        known = ~xp.isnan(component)
        index = xp.clip(xp.round(xp.where(known, component, 0.0)) - self.low, 0, len(self.table) - 1)
        rows = xp.asarray(self.table)[index.astype(xp.int64)]
        return xp.where(known[:, None], rows, xp.nan)


@dataclass(frozen=True, eq=False)
class SoftmaxPolicy:
    """Policy ``softmax(features(states) @ weights / temperature)``.

    States may be NumPy or JAX arrays; the result is of the same kind.

    Attributes:
        weights: ``(n, A)`` preferences of each action, for each feature.
        features: map from states ``(N, d)`` to ``(N, n)``, row by row; by default a constant 1 and the components.
        temperature: a number above 0; towards 0 the policy becomes greedy.
    """

    weights: np.ndarray
    features: Callable[[Any], Any] | None = None
    temperature: float = 1.0

    def __post_init__(self) -> None:
        weights = np.asarray(self.weights, dtype=np.float64)
        if weights.ndim != 2 or 0 in weights.shape or not np.all(np.isfinite(weights)):
            raise DprlError("A softmax policy needs finite weights of shape (features, actions).")
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise DprlError("The temperature of a softmax policy must be a finite number above 0.")
        object.__setattr__(self, "weights", weights)

    def __call__(self, states: Any, /) -> Any:
        """Return action probabilities ``(N, A)`` at ``states`` ``(N, d)``."""
        xp = states.__array_namespace__()
        states = xp.asarray(states, dtype=xp.float64)
        if self.features is None:
            phi = xp.concatenate([xp.ones((states.shape[0], 1), dtype=xp.float64), states], axis=1)
        else:
            phi = self.features(states)
        # one feature at a time, because a matrix product may round a row differently beside other rows
        table = xp.asarray(self.weights)
        preferences = sum(phi[:, i : i + 1] * table[i] for i in range(phi.shape[1])) / self.temperature
        weights = xp.exp(preferences - xp.max(preferences, axis=1, keepdims=True))
        return weights / xp.sum(weights, axis=1, keepdims=True)


# --- models of other libraries ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelPolicy:
    """Policy that asks a model; public, as every policy.

    Attributes:
        model: model as the user gave it.
        actions: number of discrete actions.
        classes: numbers of the actions that the columns of the model's probabilities stand for; None for all actions.
        names: names of the actions.
    """

    model: Any = field(repr=False)
    actions: int
    classes: tuple[int, ...] | None = None
    names: tuple[str, ...] = ()

    @property
    def __name__(self) -> str:
        """Name of the kind of model."""
        return type(self.model).__name__

    def __call__(self, states: np.ndarray, /) -> np.ndarray:
        """Return probabilities ``(N, A)`` of the actions."""
        with suppress_warnings():  # such as scikit-learn's, that these columns have no names
            if _is_torch(self.model):
                tensor = next(iter(self.model.parameters())).new_tensor(states)
                return self.model(tensor).detach().cpu().numpy().astype(np.float64)
            ask = _probability_method(self.model)
            if ask is None:
                labels = np.asarray(self.model.predict(states)).ravel()
                return np.eye(self.actions)[_action_numbers(labels, self.names)]
            found = np.asarray(ask(states), dtype=np.float64)
        if self.classes is None:
            return found
        probabilities = np.zeros((len(found), self.actions))
        probabilities[:, self.classes] = found
        return probabilities


def is_model(spec: Any) -> bool:
    """Tell whether ``spec`` is a module of PyTorch, or cannot be called but has a method that a model is known by."""
    return _is_torch(spec) or (
        not callable(spec) and (_probability_method(spec) is not None or hasattr(spec, "predict"))
    )


def model_policy(model: Any, actions: int | None, names: Sequence[str] | None) -> ModelPolicy:
    """Return a model as a policy.

    Raises:
        DprlError: actions are continuous, or the model was fitted to classes that are no actions.
    """
    kind, called = type(model).__name__, tuple(names or ())
    if actions is None:
        raise DprlError(f"The model {kind} needs discrete actions; give a column of the log instead.")
    classes = getattr(model, "classes_", None)
    if classes is None or _probability_method(model) is None:
        return ModelPolicy(model, actions, None, called)
    try:
        known = tuple(_action_numbers(classes, called))
        if not all(0 <= action < actions for action in known):
            raise ValueError
    except (TypeError, ValueError):
        raise DprlError(
            f"The model {kind} was fitted to classes that are no actions: they must be numbers from 0 to "
            f"{actions - 1}, or action_names of the bounds."
        ) from None
    return ModelPolicy(model, actions, known, called)


def _action_numbers(labels: Any, names: Sequence[str]) -> list[int]:
    """Return the numbers of actions from their labels; raises ValueError for a label that is no action."""
    numbers = [names.index(label) if label in names else int(label) for label in labels]
    if min(numbers, default=0) < 0:
        raise ValueError("an action has a number from 0")
    return numbers


def _is_torch(spec: Any) -> bool:
    return callable(spec) and hasattr(spec, "forward") and hasattr(spec, "parameters")


def _probability_method(model: Any) -> Callable[[np.ndarray], Any] | None:
    """Return the model's method that gives probabilities, or None."""
    return next((getattr(model, name) for name in _PROBABILITIES if hasattr(model, name)), None)
