"""Parametrised policies: functions of a flat parameter vector that JAX can differentiate, and their files.

Components of an observation, and of a continuous action, are scaled to [-1, 1] by their public bounds; nothing is
fitted on data. The policies of paper 003: tabular softmax (Definition 3), linear softmax, Gaussian, neural.

A release stores parameters and public facts, and nothing else. Whoever has the file may ask the policy anything, any
number of times, and may continue learning from it.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from dprl import x64 as x64
from dprl.arrays import slices, state_rows
from dprl.bounds import Interval
from dprl.errors import DprlError
from dprl.policies.greedy import SCHEMA as GREEDY
from dprl.policies.greedy import GreedyPolicy, greedy_policy_from_file
from dprl.untrusted_files import intervals, read_tensor_result, tensors_to_bytes

FILE = "policy.safetensors"
_SCHEMA = "dprl.policy/1"
_ROWS = 1 << 10  # states per call
KINDS = "tabular, softmax, softmax:fourier:K, gaussian, gaussian:fourier:K, mlp:H or mlp:H:gaussian"
_COUNT = "0*[1-9][0-9]{0,6}"
_KIND = re.compile(rf"(tabular)|(softmax|gaussian)(?::fourier:({_COUNT}))?|(mlp):({_COUNT})(?::gaussian)?")
CONSTANT = 0.3
"""Value of the constant feature, which gives each action a preference of its own. With 1, the constant would take a
larger part than the components of a score's length, hence of the clip norm, and of the noise in the preferences
(docs/papers/003.md)."""
_LARGEST = 2**22
_MOST_STATES = 2**16


@dataclass(frozen=True)
class Parametric:
    """A policy without its parameters ``theta`` ``(size,)``; hashable.

    Attributes:
        kind: ``tabular`` (one softmax per state, for one whole-numbered component), ``softmax`` (of linear
            preferences), ``gaussian`` (with a linear mean), either of the last two with ``:fourier:K`` for K cosines
            per component besides the component itself, ``mlp:H`` (a softmax of a network with H hidden units) or
            ``mlp:H:gaussian``.
        observation: public low and high of each component.
        actions: number of discrete actions, or None.
        action: public low and high of each component of a continuous action, or None.
        std: standard deviation of a Gaussian policy in each component of the scaled action; a public constant.
    """

    kind: str
    observation: tuple[Interval, ...]
    actions: int | None = None
    action: tuple[Interval, ...] | None = None
    std: float = 0.5

    def __post_init__(self) -> None:
        name, _, _, gaussian = self._parsed()
        if (self.actions is None) == (self.action is None):
            raise DprlError("A policy has either a number of actions or bounds of a continuous action.")
        if gaussian != (self.action is not None):
            which = "continuous" if gaussian else "discrete"
            raise DprlError(f"The policy {self.kind!r} needs {which} actions; the environment has others.")
        if not (math.isfinite(self.std) and 0.0 < self.std <= 10.0):
            raise DprlError("The standard deviation of a Gaussian policy must be above 0 and at most 10.")
        if name == "tabular":
            low, high = self.observation[0]
            whole = len(self.observation) == 1 and float(low).is_integer() and float(high).is_integer()
            if not whole or high - low >= _MOST_STATES:
                raise DprlError(f"A tabular policy needs one component with whole bounds, of at most {_MOST_STATES}.")
        if not 1 <= self.size <= _LARGEST:
            raise DprlError(f"The policy {self.kind!r} has between 1 and {_LARGEST} parameters.")

    def _parsed(self) -> tuple[str, int, int, bool]:
        """Return the name, the hidden units, the cosines per component, and whether the policy is Gaussian."""
        found = _KIND.fullmatch(self.kind)
        if found is None:
            raise DprlError(f"Unknown policy {self.kind!r}: use {KINDS}.")
        table, linear, cosines, network, hidden = found.groups("")
        return table or linear or network, int(hidden or 0), int(cosines or 0), "gaussian" in self.kind

    @property
    def gaussian(self) -> bool:
        """Whether actions are continuous."""
        return self.action is not None

    @property
    def hidden(self) -> int:
        """Number of hidden units; 0 for a policy that is linear in its features."""
        return self._parsed()[1]

    @property
    def outputs(self) -> int:
        """Number of preferences of a softmax, or of components of a Gaussian's mean."""
        return self.actions or len(self.action or ())

    @property
    def features(self) -> int:
        """Length of a row of :meth:`feature_rows`."""
        name, _, cosines, _ = self._parsed()
        if name == "tabular":
            return int(self.observation[0][1] - self.observation[0][0]) + 1
        return 1 + len(self.observation) * (1 + cosines)

    @property
    def size(self) -> int:
        """Number of parameters, d."""
        if self.hidden:
            return self.hidden * (self.features + self.outputs) + self.outputs
        return self.features * self.outputs

    # --- parameters ---------------------------------------------------------------------------------------------------

    @property
    def random_weights(self) -> int:
        """Number of standard normals that :meth:`initial` takes, one for each weight of the hidden units."""
        return self.hidden * self.features

    def initial(self, normals: Any) -> jax.Array:
        """Return the first parameters ``(size,)`` float32, from which actions are equally likely or a mean is central.

        The weights of hidden units are random, all other parameters zero.

        Args:
            normals: ``(random_weights,)`` float32 standard normals.
        """
        theta = jnp.zeros(self.size, jnp.float32)
        if not self.hidden:
            return theta
        return theta.at[: self.random_weights].set(jnp.asarray(normals, jnp.float32) * math.sqrt(1.0 / self.features))

    def layers(self, theta: Any) -> list[tuple[Any, Any | None]]:
        """Return weights ``(out, in)`` and biases ``(out,)`` or None, from the first layer to the last."""
        if not self.hidden:
            return [(theta.reshape(self.outputs, self.features), None)]
        first = self.hidden * self.features
        second = first + self.hidden * self.outputs
        inner = theta[:first].reshape(self.hidden, self.features)
        return [(inner, None), (theta[first:second].reshape(self.outputs, self.hidden), theta[second:])]

    # --- the function -------------------------------------------------------------------------------------------------

    def feature_rows(self, observations: Any) -> jax.Array:
        """Return the features ``(N, features)`` float32 of observations ``(N, d)``.

        They are :data:`CONSTANT`, the components in [-1, 1] and their cosines; a tabular policy has one-hot rows.
        """
        name, _, cosines, _ = self._parsed()
        low, high = np.array(self.observation, np.float64).T
        seen = jnp.asarray(observations)
        if name == "tabular":
            return jax.nn.one_hot(jnp.round(seen[:, 0] - low[0]).astype(jnp.int32), self.features, dtype=jnp.float32)
        middle = ((low + high) / 2.0).astype(np.float32)
        half = np.where(high > low, (high - low) / 2.0, 1.0).astype(np.float32)
        x = jnp.clip((seen.astype(jnp.float32) - middle) / half, -1.0, 1.0)
        columns = [jnp.full((x.shape[0], 1), CONSTANT, jnp.float32), x]
        columns += [jnp.cos(jnp.float32(math.pi / 2 * k) * (x + 1.0)) for k in range(1, cosines + 1)]
        return jnp.concatenate(columns, axis=1)

    def preferences(self, theta: Any, observations: Any) -> jax.Array:
        """Return ``(N, outputs)``: log-probabilities up to a constant, or the mean of the scaled action."""
        x = self.feature_rows(observations)
        *inner, (weights, bias) = self.layers(theta)
        for hidden, _ in inner:
            x = jnp.tanh(x @ hidden.T)
        return x @ weights.T / math.sqrt(max(self.hidden, 1)) + (0.0 if bias is None else bias)

    def probabilities(self, theta: Any, observations: Any) -> jax.Array:
        """Return the probabilities ``(N, A)`` of discrete actions."""
        if self.gaussian:
            raise DprlError("A Gaussian policy has densities, and no probabilities of actions.")
        return jax.nn.softmax(self.preferences(theta, observations), axis=-1)

    def log_prob(self, theta: Any, observations: Any, actions: Any) -> jax.Array:
        """Return ``(L,)`` log-probabilities, or log-densities up to a constant.

        Args:
            theta: ``(size,)``.
            observations: ``(L, d)``.
            actions: ``(L,)`` int, or ``(L, k)`` scaled actions as :meth:`draw` gives them.
        """
        out = self.preferences(theta, observations)
        if self.gaussian:
            return -0.5 * jnp.sum(((actions - out) / self.std) ** 2, axis=-1)
        # one-hot rather than an index, because the derivative is then a product and no scatter
        chosen = jax.nn.one_hot(actions, self.outputs, dtype=out.dtype)
        return jnp.sum(chosen * jax.nn.log_softmax(out, axis=-1), axis=-1)

    # --- acting -------------------------------------------------------------------------------------------------------

    def coins(self, key: Any, shape: tuple[int, ...]) -> jax.Array:
        """Return the coins that :meth:`draw` needs for ``shape`` actions.

        They are uniform numbers ``shape`` for discrete actions, and standard normals ``(*shape, k)`` for continuous
        ones.
        """
        if self.gaussian:
            return random.normal(key, (*shape, self.outputs), jnp.float32)
        return random.uniform(key, shape, jnp.float32)

    def draw(self, theta: Any, observations: Any, coins: Any) -> jax.Array:
        """Return actions drawn at observations ``(N, d)``.

        Discrete actions are ``(N,)`` int32. Continuous ones are ``(N, k)`` float32, scaled and not cut to their bounds.
        """
        out = self.preferences(theta, observations)
        if self.gaussian:
            return out + jnp.float32(self.std) * coins
        weights = jnp.exp(out - jnp.max(out, axis=-1, keepdims=True))
        cumulative = jnp.cumsum(weights, axis=-1)
        below = cumulative[:, :-1] <= (coins * cumulative[:, -1])[:, None]
        return jnp.sum(below, axis=-1).astype(jnp.int32)

    def greedy(self, theta: Any, observations: Any) -> jax.Array:
        """Return the likeliest action ``(N,)`` int32 at observations ``(N, d)``, or the mean ``(N, k)``."""
        out = self.preferences(theta, observations)
        return out if self.gaussian else jnp.argmax(out, axis=-1).astype(jnp.int32)

    def to_environment(self, actions: Any) -> Any:
        """Return actions in the form that an environment takes.

        Scaled actions ``(..., k)`` are cut to [-1, 1] and mapped to their bounds; discrete ones stay unchanged.
        """
        if self.action is None:
            return actions
        low, high = (np.array(side, np.float32) for side in zip(*self.action, strict=True))
        return low + (high - low) * (jnp.clip(actions, -1.0, 1.0) + 1.0) / 2.0


# --- with parameters, as a release stores it --------------------------------------------------------------------------


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
    return read_tensor_result(path, FILE, "a policy", misfit, {_SCHEMA: _from_file, GREEDY: greedy_policy_from_file})


def _from_file(tensors: dict[str, np.ndarray], metadata: dict[str, str]) -> ReleasedPolicy:
    actions, std = json.loads(metadata["actions"]), json.loads(metadata["std"])
    action = None if metadata["action"] == "null" else intervals(metadata["action"])
    numbers = (actions is None or type(actions) is int) and isinstance(std, float)
    weights = set(tensors) == {"theta"} and tensors["theta"].dtype == np.float32
    if not (numbers and weights and metadata["constant"] == json.dumps(CONSTANT)):
        raise ValueError
    parametric = Parametric(metadata["policy"], intervals(metadata["observation"]), actions, action, std)
    return ReleasedPolicy(parametric, tensors["theta"])
