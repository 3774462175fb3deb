"""A walk on the unit interval, square or cube with the highest reward in the middle (paper 001, appendix E.1).

A state is a point of [0, 1]^d whose components are multiples of 2^-20 (2^-10 for d = 2, 2^-7 for d = 3), so that a
virtual noise path can be evaluated there exactly. Actions ``2 i`` and ``2 i + 1`` move component ``i`` down or up by an
amount that is uniform on [0, 1/4]; a move that would leave the interval stops at its end. The reward of a transition is
that of the state in which the action is taken, 1/2 - |s - 1/2| (the mean over the components). It ignores the action.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

import dprl.x64  # noqa: F401  (the state is float64)
from dprl.bounds import Interval
from dprl.errors import DprlError
from dprl.protocols import EnvironmentSpec

NAME = "interval-walk"
LONGEST_MOVE = 0.25
_DEPTHS = {1: 20, 2: 10, 3: 7}  # as in dprl.accounting.reward_relation


@dataclass(frozen=True, kw_only=True)
class IntervalWalk:
    """The walk as pure functions; the state is ``(d,)`` float64.

    Attributes:
        dimensions: d, the number of components of the state, at most 3.
        horizon: transitions after which an episode is truncated.
        discount: discount factor of a step.
    """

    dimensions: int = 1
    horizon: int = 50
    discount: float = 0.9

    def __post_init__(self) -> None:
        if self.dimensions not in _DEPTHS:
            raise DprlError(f"{NAME}: dimensions must be 1, 2 or 3.")
        if self.horizon < 1:
            raise DprlError(f"{NAME}: horizon must be at least 1.")

    terminates: ClassVar[bool] = False
    """Trajectories end only at the horizon."""

    @property
    def depth(self) -> int:
        """Depth of the grid: components of states are multiples of 2^-depth."""
        return _DEPTHS[self.dimensions]

    @property
    def actions(self) -> int:
        """Number of actions: down and up in each component."""
        return 2 * self.dimensions

    @property
    def observation_bounds(self) -> tuple[Interval, ...]:
        """Bounds of each component: the unit interval."""
        return ((0.0, 1.0),) * self.dimensions

    reward_bounds = (0.0, 0.5)
    """Rewards at the ends and in the middle."""

    @property
    def facts(self) -> EnvironmentSpec:
        """Public facts. Rewards are means over people; each person's reward function has Lipschitz constant 1."""
        return EnvironmentSpec(
            name=NAME,
            observation=self.observation_bounds,
            actions=self.actions,
            horizon=self.horizon,
            discount=self.discount,
            reward_bounds=self.reward_bounds,
            on_grid=True,
            reward_of="state",
            reward_lipschitz=1.0,
        )

    def reset(self, key: jax.Array) -> jax.Array:
        """Return a uniformly random state on the grid."""
        return self._on_grid(jax.random.uniform(key, (self.dimensions,), dtype=jnp.float64))

    def observe(self, state: Any) -> jax.Array:
        """Return ``(d,)`` float64: the state."""
        return jnp.asarray(state, jnp.float64)

    def reward(self, state: Any, action: Any) -> jax.Array:
        """Return the reward of an action in ``state`` ``(..., d)``. Only the reward is private."""
        del action
        return 0.5 - jnp.abs(jnp.asarray(state, jnp.float64) - 0.5).mean(-1)

    def step(self, key: jax.Array, state: Any, action: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Take one step; no step terminates."""
        amount = self._on_grid(LONGEST_MOVE * jax.random.uniform(key, dtype=jnp.float64))
        action = jnp.asarray(action)
        moved = jnp.where(action % 2 == 1, amount, -amount) * (jnp.arange(self.dimensions) == action // 2)
        following = jnp.clip(jnp.asarray(state, jnp.float64) + moved, 0.0, 1.0)
        return following, self.reward(state, action), jnp.zeros((), bool)

    def transition_matrix(self, points: np.ndarray) -> np.ndarray:
        """Return the transition probabilities ``(A, N, N)`` float64 of the walk on ``N`` points.

        The next state is interpolated between the two neighbouring points.

        Args:
            points: ``(N,)`` points, increasing from 0 to 1.

        Raises:
            DprlError: the walk has several dimensions, or the points do not increase from 0 to 1.
        """
        points = np.asarray(points, np.float64)
        if self.dimensions != 1:
            raise DprlError(f"{NAME}: there is a transition matrix in one dimension alone.")
        ends = points.ndim == 1 and len(points) >= 2 and points[0] == 0.0 and points[-1] == 1.0
        if not ends or not np.all(np.diff(points) > 0.0):
            raise DprlError(f"{NAME}: points must increase from 0 to 1.")
        up = _hats_below(points, np.minimum(points + LONGEST_MOVE, 1.0)) - _hats_below(points, points)
        up[:, -1] += np.maximum(points + LONGEST_MOVE - 1.0, 0.0)
        down = _hats_below(points, points) - _hats_below(points, np.maximum(points - LONGEST_MOVE, 0.0))
        down[:, 0] += np.maximum(LONGEST_MOVE - points, 0.0)
        return np.stack([down, up]) / LONGEST_MOVE

    def _on_grid(self, x: Any) -> jax.Array:
        return jnp.round(x * 2.0**self.depth) * 2.0**-self.depth


def is_unchanged_walk(environment: Any) -> bool:
    """Tell whether this is dprl's own walk without changes. If so, everything about it is public, even its rewards."""
    own = {option.name for option in fields(IntervalWalk)}
    return type(environment) is IntervalWalk and vars(environment).keys() == own


def _hats_below(points: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return ``(M, N)``: the integral of each point's interpolation weight, from 0 to each of the ``ends``."""
    width = np.diff(points)
    share = np.clip((ends[:, None] - points[:-1]) / width, 0.0, 1.0)  # (M, N - 1), for each cell
    out = np.zeros((len(ends), len(points)))
    out[:, :-1] += width * (share - share**2 / 2.0)
    out[:, 1:] += width * share**2 / 2.0
    return out
