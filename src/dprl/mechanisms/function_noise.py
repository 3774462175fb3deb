"""Noise for a whole function: a Gaussian-process path, added once to the reward function, serves any number of answers.

Privacy unit: the reward function; neighbours: :class:`~dprl.accounting.reward_relation.RewardRelation` with a
Lipschitz constant. Released: every noisy reward. Proofs: docs/proofs/functional-noise.md and
docs/proofs/adaptive-gaussian.md. Paper 001, section 4; docs/papers/001.md says what had to change.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dprl import x64 as x64
from dprl.accounting import events
from dprl.accounting.reward_relation import DEPTHS, LARGEST_DECAY, answer_step, path_delta, path_sensitivity
from dprl.accounting.rows import PATHS, PathRow, certificate_row
from dprl.bounds import Interval
from dprl.errors import DprlError
from dprl.mechanisms.node_noise import NodeNoise
from dprl.mechanisms.noise import SecureNoise, SeededNoise
from dprl.mechanisms.ornstein_uhlenbeck import PathParameters, parameters, unit_path
from dprl.mechanisms.reward_noise import check_bounds, check_multiplier


@dataclass(frozen=True, kw_only=True)
class FunctionNoise:
    """Gaussian process for each action, or a single one if the difference of two neighbours depends on the state only.

    Attributes:
        sup, lipschitz: R and L, bounds of the difference of two neighbours.
        decay: decay of the kernel ``std^2 exp(-decay |x - y|_1)`` on the scaled observation.
        paths: number of independent paths; a single path protects only functions of the state.
        answers: largest number of points at which the paths are asked, where a repeated point counts once; public.
        reward_bounds: public bounds of a reward.
        noise_multiplier: standard deviation of a path divided by :attr:`sensitivity`.
        dimensions: number of components of an observation, 1 to 3.
        on_grid: whether observations are multiples of ``2**-DEPTHS[dimensions]``. Otherwise (in one dimension) every
            observation in a cell must get the answer of the first; see
            :class:`~dprl.mechanisms.reward_noise.MemoisedAnswers`.
        mixed_derivatives: whether L bounds the mixed derivatives too, which several dimensions need.
    """

    sup: float
    lipschitz: float
    decay: float
    paths: int
    answers: int
    reward_bounds: Interval
    noise_multiplier: float
    dimensions: int = 1
    on_grid: bool = True
    mixed_derivatives: bool = False

    def __post_init__(self) -> None:
        check_multiplier(self.noise_multiplier)
        if not 1.0 <= self.decay <= LARGEST_DECAY:
            raise DprlError(f"The decay of a path must be between 1 and {LARGEST_DECAY:.0f}.")
        if self.answers < 1:
            raise DprlError("The number of answers must be at least 1.")
        if self.dimensions > 1 and not self.mixed_derivatives:
            raise DprlError(
                "In several dimensions functional noise needs a bound on the mixed derivatives "
                "(mixed_derivatives = true); a Lipschitz constant is not enough: use observed-reward."
            )
        if self.dimensions > 1 and not self.on_grid:
            raise DprlError(
                "In several dimensions functional noise is proved for observations on its grid alone: "
                "use observed-reward."
            )
        check_bounds(self.reward_bounds)
        if not 1e-100 <= self.sensitivity <= 1e100:
            raise DprlError("The sensitivity of a path must lie between 1e-100 and 1e100.")

    @property
    def spread(self) -> float:
        """Addition to the Lipschitz term off the grid, where a cell's first observation answers for the whole cell."""
        return 0.0 if self.on_grid else 3.0 * self.answers * 2.0 ** -DEPTHS[self.dimensions]

    @property
    def sensitivity(self) -> float:
        """Largest norm of the difference of two neighbours, in the space of the kernel with variance one."""
        return path_sensitivity(self.sup, self.lipschitz, self.decay, self.paths, self.dimensions, self.spread)

    @property
    def std(self) -> float:
        """Standard deviation of a path at every point."""
        return self.noise_multiplier * self.sensitivity

    @property
    def grid_step(self) -> float:
        """Spacing of the answers: a power of two, at most ``std / 128``."""
        return answer_step(self.std)

    @property
    def largest_reward(self) -> float:
        """Largest absolute reward, public."""
        return max(abs(self.reward_bounds[0]), abs(self.reward_bounds[1]))

    def event(self) -> events.DpEvent:
        """Return the event: one Gaussian release, however often the paths are asked."""
        return events.gaussian(self.noise_multiplier)

    def delta(self, epsilon: float) -> float:
        """Return what the finite precision of the paths adds to delta."""
        return path_delta(epsilon, self.answers, self.std, self.decay, self.dimensions, self.largest_reward)

    def describe(self, purpose: str) -> dict[str, Any]:
        """Return this mechanism as a row of a certificate."""
        return certificate_row(PathRow, self, name=PATHS, purpose=purpose, steps=1, dimension=self.answers)

    def bind(self, noise: SecureNoise | SeededNoise) -> PathAnswers:
        """Return the answers that use ``noise``, a stream that nothing else may use."""
        low, high = self.reward_bounds
        depth = DEPTHS[self.dimensions]
        return PathAnswers(noise.nodes(), parameters(self.decay, depth, self.std, low, high), self.paths == 1)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PathAnswers:
    """Noisy rewards ``round(clip(r + path))``. The same position (and action) always gets the same noise."""

    noise: NodeNoise = field(repr=False)
    parameters: PathParameters = field(repr=False)
    shared: bool = field(metadata={"static": True})

    def add_noise(self, rewards: Any, positions: Any, actions: Any, round_: Any) -> jax.Array:
        """Return the noisy rewards, from which the learner may learn.

        Rewards are neither clipped nor rounded before the noise is added: either would make the difference of two
        neighbours steep. A reward that is not finite counts as zero.

        Args:
            rewards: ``(B,)`` float64.
            positions: ``(B, d)`` int64 positions on the grid.
            actions: ``(B,)`` whole numbers, below the number of paths unless there is only one path.
            round_: not used.

        Returns:
            ``(B,)`` float64.
        """
        path = jnp.zeros_like(jnp.asarray(actions)) if self.shared else jnp.asarray(actions)
        rewards = jnp.asarray(rewards, dtype=jnp.float64)
        return _answers(self.noise, self.parameters, rewards, jnp.asarray(positions), path)


# Compiled when called directly; inlined when called in a traced function.
@partial(jax.jit, inline=True)
def _answers(
    noise: NodeNoise, p: PathParameters, rewards: jax.Array, positions: jax.Array, path: jax.Array
) -> jax.Array:
    noisy = jnp.where(jnp.isfinite(rewards), rewards, 0.0) + p.std * unit_path(noise, p, positions, path)
    return jnp.round(jnp.clip(noisy, p.low, p.high) / p.step) * p.step
