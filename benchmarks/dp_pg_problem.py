"""One private step of policy gradient on users of one action, the same for all candidates. Needs only NumPy.

The policy has one hidden layer of tanh units and a softmax over actions. User ``i`` has a context ``x_i``, an action
``a_i`` and a weight ``w_i`` (the reward less a baseline). The user's vector is ``w_i`` times the gradient of the
logarithm of ``pi(a_i | x_i)``, clipped to C. A step is the noisy sum over the users.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

USERS, ACTIONS, CLIP = 1000, 4, 1.0
NOISE_MULTIPLIER = 4.22
# number of weights -> components of a context, hidden units
SIZES = {"1e4": (100, 95), "1e5": (300, 328), "1e6": (1000, 995)}
# steps of one call; HOOKS are those of the candidate that forms each user's gradient, which needs memory for users x
# weights and is therefore left out at the largest size
STEPS = {"1e4": 20, "1e5": 4, "1e6": 1}
HOOKS = {"1e4": 4, "1e5": 1}
TOLERANCE = 1e-4  # of the largest coordinate of the sum without noise


class Problem(NamedTuple):
    """Inputs of a step: users, and weights of the policy ``tanh(x W' + b) V' / sqrt(H) + c`` (``mlp:H`` in dprl)."""

    x: np.ndarray  # (m, k) float32
    action: np.ndarray  # (m,) int64
    weight: np.ndarray  # (m,) float32
    W: np.ndarray  # (H, k) float32
    b: np.ndarray  # (H,)
    V: np.ndarray  # (A, H)
    c: np.ndarray  # (A,)

    @property
    def size(self) -> int:
        """Number of weights, d."""
        return sum(a.size for a in (self.W, self.b, self.V, self.c))


def make(size: str) -> Problem:
    """Return a problem with random contexts, actions and rewards. About half of the users are clipped."""
    inputs, hidden = SIZES[size]
    rng = np.random.default_rng(7)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    x = rng.uniform(-1.0, 1.0, (USERS, inputs)).astype(np.float32)
    W, V = normal(hidden, inputs) / np.float32(inputs**0.5), normal(ACTIONS, hidden)
    scores = np.tanh(x @ W.T) @ V.T / hidden**0.5
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    action = (rng.random((USERS, 1)) > np.cumsum(chances, axis=1)[:, :-1]).sum(axis=1)
    weight = rng.uniform(-1.0, 1.0, USERS).astype(np.float32)
    # scaled so that the median of the users' norms is the clip norm
    problem = Problem(x, action, weight, W, np.zeros(hidden, np.float32), V, np.zeros(ACTIONS, np.float32))
    return problem._replace(weight=(weight / np.median(norms(problem))).astype(np.float32))


def deltas(problem: Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the last layer's inputs ``(m, H)`` and the derivatives by both layers' sums, ``(m, H)`` and ``(m, A)``."""
    root = np.sqrt(problem.V.shape[1])
    x, weight, W, b, V, c = (
        a.astype(np.float64) for a in (problem.x, problem.weight, problem.W, problem.b, problem.V, problem.c)
    )
    hidden = np.tanh(x @ W.T + b)
    scores = hidden @ V.T / root + c
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    out = weight[:, None] * (np.eye(ACTIONS)[problem.action] - chances)
    return hidden / root, (out @ V) * (1.0 - hidden**2) / root, out


def norms(problem: Problem) -> np.ndarray:
    """Return ``(m,)`` norms of the users' vectors."""
    hidden, inner, out = deltas(problem)
    x = problem.x.astype(np.float64)
    first = (inner**2).sum(1) * ((x**2).sum(1) + 1.0)
    return np.sqrt(first + (out**2).sum(1) * ((hidden**2).sum(1) + 1.0))


def reference(problem: Problem, clip: float = CLIP) -> dict[str, np.ndarray]:
    """Return the sum of the clipped vectors without noise, by layer, in double precision."""
    hidden, inner, out = deltas(problem)
    factor = np.minimum(1.0, clip / norms(problem))[:, None]
    inner, out, x = factor * inner, factor * out, problem.x.astype(np.float64)
    return {"W": inner.T @ x, "b": inner.sum(0), "V": out.T @ hidden, "c": out.sum(0)}


def error(found: Mapping[str, Any], wanted: Mapping[str, np.ndarray]) -> float:
    """Return the largest difference of two sums by layer, relative to the largest coordinate of ``wanted``."""
    scale = max(float(np.abs(v).max()) for v in wanted.values())
    return max(float(np.abs(np.asarray(found[k]).reshape(v.shape) - v).max()) for k, v in wanted.items()) / scale
