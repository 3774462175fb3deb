"""A learned policy as a release stores it: parameters and public facts, and nothing else.

Whoever has the file may ask the policy anything, any number of times, and may continue learning from it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dprl.arrays import slices, state_rows
from dprl.errors import DprlError
from dprl.policies.greedy import SCHEMA as GREEDY
from dprl.policies.greedy import GreedyPolicy, greedy_policy
from dprl.policies.parametric import CONSTANT, Parametric
from dprl.untrusted_files import intervals, read_tensor_result, tensors_to_bytes

FILE = "policy.safetensors"
_SCHEMA = "dprl.policy/1"
_ROWS = 1 << 10  # states per call


@dataclass(frozen=True, eq=False)
class ReleasedPolicy:
    """A policy with its parameters.

    Attributes:
        parametric: the policy without its parameters, with the public bounds of observations and actions.
        theta: ``(d,)`` float32 parameters.
    """

    parametric: Parametric
    theta: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        theta = np.asarray(self.theta, np.float32)
        if theta.shape != (self.parametric.size,) or not np.isfinite(theta).all():
            raise DprlError("These parameters do not fit their policy.")
        object.__setattr__(self, "theta", theta)

    def __call__(self, states: Any, /) -> np.ndarray:
        """Return probabilities ``(N, A)`` float64 at states ``(N, d)``, for discrete actions only.

        The probabilities of a state are the same to the last bit in any batch.
        """
        seen = self._states(states)
        # blocks of one size, because a matrix product of another size may round a row differently
        padded = np.pad(seen, ((0, _ROWS - len(seen) % _ROWS), (0, 0)))
        blocks = [
            self.parametric.probabilities(self.theta, padded[i : i + _ROWS]) for i in range(0, len(padded), _ROWS)
        ]
        found = np.concatenate(blocks)[: len(seen)].astype(np.float64)
        return found / found.sum(axis=1, keepdims=True)

    def greedy(self, states: Any) -> np.ndarray:
        """Return the likeliest action ``(N,)`` of each state, or the mean ``(N, k)`` of continuous ones, in bounds."""
        actions = self.parametric.greedy(self.theta, self._states(states))
        return np.asarray(self.parametric.to_environment(actions))

    def sample(self, states: Any, seed: int) -> np.ndarray:
        """Return a random action for each state, in the form in which :meth:`greedy` returns actions."""
        seen = self._states(states)
        coins = self.parametric.coins(jax.random.key(seed), (len(seen),))
        return np.asarray(self.parametric.to_environment(self.parametric.draw(self.theta, seen, coins)))

    def slices(self, points: int = 65, most: int = 12) -> list[dict[str, Any]]:
        """Return what the policy does along each of the first ``most`` components, with others at their midpoint.

        Returns:
            For each component: ``component``, ``grid`` (points,), ``values`` (for each action its probability, or for
            each component of a continuous action its mean: lists of points), and ``policy`` (points,), the likeliest
            action (zeros where actions are continuous).
        """
        if self.parametric.gaussian:
            curves = {"values": self.greedy, "policy": lambda states: np.zeros(len(states), int)}
        else:
            curves = {"values": self, "policy": lambda states: np.argmax(self(states), axis=1)}
        return slices(self.parametric.observation, points, most, **curves)

    def to_bytes(self) -> bytes:
        """Return the bytes of the policy's safetensors file; the same policy gives the same bytes."""
        of = self.parametric
        metadata = {
            "schema": _SCHEMA,
            "policy": of.kind,
            "observation": json.dumps(of.observation),
            "actions": json.dumps(of.actions),
            "action": json.dumps(of.action),
            "std": json.dumps(of.std),
            "constant": json.dumps(CONSTANT),
        }
        return tensors_to_bytes({"theta": self.theta}, metadata)

    def _states(self, states: Any) -> np.ndarray:
        return state_rows(states, len(self.parametric.observation))


def read_policy(path: str | Path) -> ReleasedPolicy | GreedyPolicy:
    """Read a policy back, from its file or from the results folder that holds the file.

    Raises:
        DprlError: the file is missing or damaged.
    """
    misfit = "its parameters do not fit what it says of its policy"
    return read_tensor_result(path, FILE, "a policy", misfit, {_SCHEMA: _made_of, GREEDY: greedy_policy})


def _made_of(tensors: dict[str, np.ndarray], metadata: dict[str, str]) -> ReleasedPolicy:
    actions, std = json.loads(metadata["actions"]), json.loads(metadata["std"])
    action = None if metadata["action"] == "null" else intervals(metadata["action"])
    numbers = (actions is None or type(actions) is int) and isinstance(std, float)
    weights = set(tensors) == {"theta"} and tensors["theta"].dtype == np.float32
    if not (numbers and weights and metadata["constant"] == json.dumps(CONSTANT)):
        raise ValueError
    parametric = Parametric(metadata["policy"], intervals(metadata["observation"]), actions, action, std)
    return ReleasedPolicy(parametric, tensors["theta"])
