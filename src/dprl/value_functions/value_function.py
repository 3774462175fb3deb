"""Released value functions, over public features or by a network, and how they are stored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from dprl.arrays import slices, state_rows
from dprl.bounds import Interval
from dprl.untrusted_files import MisfitError, intervals, read_tensor_result, tensors_to_bytes
from dprl.value_functions.features import Features, make_features

FILE = "value_function.safetensors"
_SCHEMA = "dprl.value-function/1"
_ROWS = 1 << 14  # most rows at a time


@dataclass(frozen=True)
class ValueFunction:
    """Value function V(s) = centre + half * theta' phi(s), clipped to the public value range.

    A network has its output in place of theta' phi(s).

    Attributes:
        theta: ``(n,)`` released weights.
        features: public feature map.
        value: public value range; ``centre`` and ``half`` are its middle and half-width.
    """

    theta: np.ndarray
    features: Features
    value: Interval

    file: ClassVar[str] = FILE
    kind: ClassVar[str] = "value_function"

    def __call__(self, states: Any) -> np.ndarray:
        """Return the values ``(N,)``, in the reward's unit, of ``states`` ``(N, d)``, or ``(N,)`` for one component."""
        states = state_rows(states, len(self.features.bounds))
        low, high = self.value
        values = (low + high) / 2.0 + (high - low) / 2.0 * (self.features.values(self.theta, states))
        return np.clip(values, low, high)

    def slices(self, points: int = 41, most: int = 12) -> list[dict[str, Any]]:
        """Return one curve along each of the first ``most`` components, with all others at their public midpoint."""
        return slices(self.features.bounds, points, most, whole=self.features.name == "tabular", values=self)

    def described(self, targets: Sequence[str], names: Sequence[str] | None) -> dict[str, Any]:
        """Return what ``estimate.json`` says about the value function, as plain data.

        Args:
            targets: names of the target policies; this is the value function of the first.
            names: names of the observation's components, if they have names.
        """
        slices = [
            piece | {"name": f"observation_{piece['component']}" if names is None else names[piece["component"]]}
            for piece in self.slices()
        ]
        features = {"name": self.features.name, "size": self.features.size}
        return {"target": targets[0], "features": features, "file": FILE, "slices": slices}

    def to_bytes(self) -> bytes:
        """Return the bytes of the function's safetensors file; the same value function gives the same bytes."""
        metadata = {
            "schema": _SCHEMA,
            "features": self.features.name,
            "bounds": json.dumps(self.features.bounds),
            "value": json.dumps(self.value),
        }
        return tensors_to_bytes({"theta": np.asarray(self.theta, np.float64)}, metadata)


def load_value_function(path: str | Path) -> ValueFunction:
    """Read a value function back, from its file or from the results folder that holds the file."""
    return read_tensor_result(
        path, FILE, "a value function", "it does not describe its features", {_SCHEMA: _from_file}
    )


def _from_file(tensors: dict[str, np.ndarray], metadata: dict[str, str]) -> ValueFunction:
    (value,) = intervals(f"[{metadata['value']}]")
    features = make_features(metadata["features"], intervals(metadata["bounds"]))
    if {name: (t.dtype, t.shape) for name, t in tensors.items()} != {"theta": (np.float64, (features.size,))}:
        raise MisfitError("its weights do not fit its features")
    return ValueFunction(tensors["theta"], features, value)


def in_public_units(function: ValueFunction, states: Float[np.ndarray, "rows d"]) -> Float[np.ndarray, " rows"]:
    """Return ``(N,)`` values at ``states`` on the scale of learning: -1 and 1 are the ends of the value range."""
    out = np.empty(len(states))
    for start in range(0, len(states), _ROWS):
        part = slice(start, start + _ROWS)
        # a matrix product may round a row differently beside other rows
        out[part] = (function.features(states[part]) * function.theta).sum(axis=1)
    return out
