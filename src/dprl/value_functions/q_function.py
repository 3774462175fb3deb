"""Action-value functions (a small network, cosine features or a table), and how a release stores them.

The file holds only weights and public facts: no replay memory, no answer of a mechanism and no key. Whoever has the
file may ask the function anything, any number of times, and gets the same bits for the same state.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dprl.arrays import slices, state_rows, unit_states
from dprl.bounds import Interval
from dprl.errors import DprlError
from dprl.untrusted_files import intervals, read_tensor_result, tensors_to_bytes
from dprl.value_functions.features import Fourier

FILE = "q_function.safetensors"
MAX_WEIGHTS = 2**20
_SCHEMA = "dprl.q-function/1"
_ACTOR = "actor."


def weight_shapes(network: str, inputs: int, actions: int) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of a network's weights; ``inputs`` is d, the number of observation components.

    Raises:
        DprlError: there is no such network, it has more than 2^20 weights, or it cannot take so many components.
    """
    kind, size = _parse(network)
    if kind == "mlp":
        shapes = {"W": (size, inputs), "b": (size,), "V": (actions, size), "c": (actions,)}
    elif kind == "fourier":
        shapes = {"V": (actions, _cosines(size, inputs).size)}
    elif inputs == 1 and size >= 2:
        shapes = {"V": (actions, size)}
    else:
        raise DprlError("table:POINTS needs at least two points, and an observation of one component.")
    if sum(math.prod(shape) for shape in shapes.values()) > MAX_WEIGHTS:
        raise DprlError(f"{network} has more than {MAX_WEIGHTS} weights here: choose a smaller network.")
    return shapes


def hidden_weights(network: str, inputs: int) -> int:
    """Return the number of weights of hidden units, which :func:`initial_weights` makes from random numbers."""
    kind, size = _parse(network)
    return size * (inputs + 1) if kind == "mlp" else 0


def initial_weights(network: str, uniforms: Any, inputs: int, actions: int) -> dict[str, Any]:
    """Return float32 start weights, which give a function that is 0 everywhere.

    Args:
        network: ``mlp:HIDDEN``, ``fourier:ORDER`` or ``table:POINTS``.
        uniforms: ``(n,)`` float32 in [0, 1), with n from :func:`hidden_weights`. The weights of hidden units are made
            from them, uniform within plus and minus 4 / sqrt(d), so that the units' kinks lie within the bounds.
        inputs: d, the number of observation components.
        actions: A, the number of actions.
    """
    import jax.numpy as jnp

    shapes = weight_shapes(network, inputs, actions)
    weights = {name: jnp.zeros(shape, jnp.float32) for name, shape in shapes.items()}
    if "W" in shapes:
        hidden = jnp.float32(4.0 / math.sqrt(inputs)) * (2.0 * jnp.asarray(uniforms) - 1.0)
        first = math.prod(shapes["W"])
        weights["W"], weights["b"] = hidden[:first].reshape(shapes["W"]), hidden[first:]
    return weights


def q_values(network: str, weights: Mapping[str, Any], states: Any, xp: Any = np) -> Any:
    """Return ``(N, A)`` outputs of the network; -1 and 1 are the ends of the value range.

    ``mlp:H`` is c_a + sum_h V_ah max(0, W_h . x + b_h) / sqrt(H), with x the state scaled to [-1, 1]. ``fourier:ORDER``
    is V_a . phi(s), with phi the products of cosines divided by the bound on their norm, so that |phi| <= 1.
    ``table:POINTS`` is linear interpolation between equally spaced points. There are no matrix products, so that a
    row's bits do not depend on other rows.

    Args:
        network: ``mlp:HIDDEN``, ``fourier:ORDER`` or ``table:POINTS``.
        weights: arrays by name, see :func:`weight_shapes`.
        states: ``(N, d)`` states scaled to [0, 1] by :func:`~dprl.arrays.unit_states`.
        xp: numpy or jax.numpy.
    """
    kind, size = _parse(network)
    if kind == "mlp":
        x = 2.0 * states - 1.0
        a = weights["b"]
        for i in range(states.shape[1]):
            a = a + x[:, i, None] * weights["W"][:, i]
        return _rows(xp.maximum(a, 0.0) / math.sqrt(size), weights["V"], xp) + weights["c"]
    if kind == "fourier":
        cosines = _cosines(size, states.shape[1])
        return _rows(cosines(states, xp) / cosines.norm_bound, weights["V"], xp)
    place = states[:, 0] * (size - 1)
    left = xp.clip(xp.floor(place), 0, size - 2)
    share, left = place - left, left.astype(np.int32)
    table = weights["V"]
    return xp.stack([(1.0 - share) * row[left] + share * row[left + 1] for row in table], axis=-1)


@dataclass(frozen=True)
class QFunction:
    """Action-value function Q(s, a) = centre + half * (a network's output).

    ``centre`` and ``half`` are the middle and the half-width of the public value range.

    Attributes:
        weights: float32 tensors by name, see :func:`weight_shapes`.
        network: ``mlp:HIDDEN``, ``fourier:ORDER`` or ``table:POINTS``.
        bounds: public low and high of each observation component.
        actions: A, the number of actions.
        value: public range of a discounted return.
        actor: weights of an actor of the same network; None without one.
    """

    weights: Mapping[str, np.ndarray] = field(repr=False)
    network: str
    bounds: tuple[Interval, ...]
    actions: int
    value: Interval
    actor: Mapping[str, np.ndarray] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        shapes = weight_shapes(self.network, len(self.bounds), self.actions)
        for weights in (self.weights, self.actor):
            if weights is not None and {name: np.shape(w) for name, w in weights.items()} != shapes:
                raise DprlError("These weights do not fit their network.")

    def __call__(self, states: Any) -> np.ndarray:
        """Return the values ``(N, A)``, in the reward's unit, of ``states`` ``(N, d)``, or ``(N,)`` for one component.

        Arithmetic is float64 on float32 weights; a row's bits are the same in any batch.
        """
        low, high = self.value
        return (low + high) / 2.0 + (high - low) / 2.0 * self._outputs(self.weights, states)

    def policy(self, states: Any) -> np.ndarray:
        """Return the best actions ``(N,)`` int64 by Q, or the actor's most likely ones; the first of several equals."""
        return np.argmax(self._outputs(self.weights if self.actor is None else self.actor, states), axis=1)

    def slices(self, points: int = 65, most: int = 12) -> list[dict[str, Any]]:
        """Return curves along each of the first ``most`` components, with all others at their public midpoint.

        Returns:
            For each component: ``component``, ``grid`` (points,), ``values`` (A lists of points), ``policy`` (points,).
        """
        return slices(self.bounds, points, most, values=self, policy=self.policy)

    def to_bytes(self) -> bytes:
        """Return the bytes of the function's safetensors file; the same function gives the same bytes."""
        metadata = {
            "schema": _SCHEMA,
            "network": self.network,
            "bounds": json.dumps(self.bounds),
            "actions": json.dumps(self.actions),
            "value": json.dumps(self.value),
        }
        tensors = dict(self.weights) | {_ACTOR + name: w for name, w in (self.actor or {}).items()}
        return tensors_to_bytes({name: np.asarray(w, np.float32) for name, w in tensors.items()}, metadata)

    def _outputs(self, weights: Mapping[str, np.ndarray], states: Any) -> np.ndarray:
        states = state_rows(states, len(self.bounds))
        wide = {name: np.asarray(w, dtype=np.float32).astype(np.float64) for name, w in weights.items()}
        return q_values(self.network, wide, np.ascontiguousarray(unit_states(states, self.bounds)))


def load_q_function(path: str | Path) -> QFunction:
    """Read an action-value function back, from its file or from the results folder that holds the file."""
    misfit = "its weights do not fit what it says of its network"
    return read_tensor_result(path, FILE, "a Q-function", misfit, {_SCHEMA: _from_file})


def _from_file(tensors: dict[str, np.ndarray], metadata: dict[str, str]) -> QFunction:
    actor = {name.removeprefix(_ACTOR): w for name, w in tensors.items() if name.startswith(_ACTOR)}
    weights = {name: w for name, w in tensors.items() if not name.startswith(_ACTOR)}
    bounds, (value,) = intervals(metadata["bounds"]), intervals(f"[{metadata['value']}]")
    actions = json.loads(metadata["actions"])
    sound = isinstance(actions, int) and actions >= 1
    if not sound or any(w.dtype != np.float32 or not np.isfinite(w).all() for w in tensors.values()):
        raise ValueError
    return QFunction(weights, metadata["network"], bounds, actions, value, actor or None)


def _parse(network: str) -> tuple[str, int]:
    found = re.fullmatch(r"(mlp|fourier|table):([0-9]{1,6})", network) if isinstance(network, str) else None
    if found is None or int(found[2]) < 1:
        raise DprlError(f"There is no network called {network!r}; use mlp:HIDDEN, fourier:ORDER or table:POINTS.")
    return found[1], int(found[2])


def _cosines(order: int, inputs: int) -> Fourier:
    return Fourier(((0.0, 1.0),) * inputs, order)


def _rows(features: Any, V: Any, xp: Any) -> Any:
    """Return ``(N, A)``: features ``(N, n)`` times each action's row of V ``(A, n)``, summed along the last axis."""
    return xp.stack([xp.sum(features * row, axis=-1) for row in V], axis=-1)
