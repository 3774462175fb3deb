"""Models of other libraries as policies. Models are known by their methods, so that no such library is imported.

A module of PyTorch (``forward`` and ``parameters``) is called with a tensor of the dtype and device of its parameters.
A model that cannot be called is asked for probabilities (``predict_proba`` of scikit-learn,
``calc_action_choice_probability`` of SCOPE-RL), or for the action that it takes (``predict`` of scikit-learn and
d3rlpy).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dprl.errors import DprlError
from dprl.user_code import suppress_warnings

_PROBABILITIES = ("predict_proba", "calc_action_choice_probability")


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
            ask = _asked(self.model)
            if ask is None:
                labels = np.asarray(self.model.predict(states)).ravel()
                return np.eye(self.actions)[_numbers(labels, self.names)]
            found = np.asarray(ask(states), dtype=np.float64)
        if self.classes is None:
            return found
        probabilities = np.zeros((len(found), self.actions))
        probabilities[:, self.classes] = found
        return probabilities


def is_model(spec: Any) -> bool:
    """Tell whether ``spec`` is a module of PyTorch, or an object that cannot be called but has one of these methods."""
    return _is_torch(spec) or (not callable(spec) and (_asked(spec) is not None or hasattr(spec, "predict")))


def model_policy(model: Any, actions: int | None, names: Sequence[str] | None) -> ModelPolicy:
    """Return a model as a policy.

    Raises:
        DprlError: actions are continuous, or the model was fitted to classes that are no actions.
    """
    kind, called = type(model).__name__, tuple(names or ())
    if actions is None:
        raise DprlError(f"The model {kind} needs discrete actions; give a column of the log instead.")
    classes = getattr(model, "classes_", None)
    if classes is None or _asked(model) is None:
        return ModelPolicy(model, actions, None, called)
    try:
        known = tuple(_numbers(classes, called))
        if not all(0 <= action < actions for action in known):
            raise ValueError
    except (TypeError, ValueError):
        raise DprlError(
            f"The model {kind} was fitted to classes that are no actions: they must be numbers from 0 to "
            f"{actions - 1}, or action_names of the bounds."
        ) from None
    return ModelPolicy(model, actions, known, called)


def _numbers(labels: Any, names: Sequence[str]) -> list[int]:
    """Return the numbers of actions from their labels; raises ValueError for a label that is no action."""
    numbers = [names.index(label) if label in names else int(label) for label in labels]
    if min(numbers, default=0) < 0:
        raise ValueError("an action has a number from 0")
    return numbers


def _is_torch(spec: Any) -> bool:
    return callable(spec) and hasattr(spec, "forward") and hasattr(spec, "parameters")


def _asked(model: Any) -> Callable[[np.ndarray], Any] | None:
    """Return the model's method that gives probabilities, or None."""
    return next((getattr(model, name) for name in _PROBABILITIES if hasattr(model, name)), None)
