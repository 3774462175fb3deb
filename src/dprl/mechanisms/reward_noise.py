"""Noise on observed rewards, or on the only part of a semi-gradient in which rewards occur.

Privacy unit: the reward function; neighbours: two reward functions whose rewards never differ by more than the radius.
Released: every noisy reward, or every noisy mean of reward times clipped features. Whatever is learned from these,
however often, costs nothing more. Proofs: docs/proofs/observed-reward.md and docs/proofs/reward-gradient.md. Input
perturbation: Venkitasubramaniam (2013), "Privacy in stochastic control: a Markov decision process perspective".

Every mechanism for rewards, :mod:`dprl.mechanisms.function_noise` included, gives *answers*, the only objects that may
see a reward. From the true rewards of one round ``(B,)``, and the positions ``(B, d)`` and actions ``(B,)`` for which
they were paid, their method ``add_noise`` makes the noisy rewards from which the learner may learn.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from dprl import x64 as x64
from dprl.accounting import events
from dprl.accounting.rows import GRADIENTS, REWARDS, GradientRow, RewardRow, SensitivityRow, certificate_row
from dprl.bounds import Interval
from dprl.errors import DprlError
from dprl.mechanisms.arithmetic import grid_step
from dprl.mechanisms.noise import SecureNoise, SeededNoise

MAX_FEATURES = 2**16
_TOO_WIDE = "The bounds of the reward are too wide for so small a radius."
_LARGEST_POINT = 2.0**61  # of a reward, in grid points: a reward and any noise still add up in int64
_ROUNDING = 2.0**-20  # relative rounding of a mean: its sum in float64, and the mean to the grid
_LARGEST_RATIO = 2.0**30  # largest ratio of (B + 4) times half the range of a reward to the radius
_SLACK = 1.0 - 2.0**-30
NOWHERE = -1
"""The position of a state of which nothing is known; positions are 0 or more."""


# --- mechanisms ---------------------------------------------------------------------------------------------------


def check_multiplier(noise_multiplier: float) -> None:
    """Refuse a noise multiplier for which noise cannot be drawn."""
    if not 0.004 <= noise_multiplier <= 2000.0:
        raise DprlError("The noise multiplier must be between 0.004 and 2000: change epsilon or delta.")


def check_bounds(bounds: Interval) -> None:
    """Refuse bounds of a reward that are not finite and in order."""
    low, high = bounds
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise DprlError("The bounds of a reward must be two finite numbers, the smaller one first.")


def check_rounds(steps: int, batch: int) -> None:
    """Refuse a number of releases, or of rewards in one round, below 1."""
    if steps < 1 or batch < 1:
        raise DprlError("The numbers of steps and of rewards in a round must be at least 1.")


@dataclass(frozen=True, kw_only=True)
class _GaussianRewards(ABC):
    """Gaussian noise on an integer grid, drawn anew for each release. Base of the two mechanisms of this module.

    Attributes:
        radius: R, largest difference between the rewards of two neighbours.
        steps: number of releases in all; each needs fresh rewards, see the proofs.
        batch: number of rewards in one round, B.
        reward_bounds: public bounds; rewards outside are moved to them.
        noise_multiplier: standard deviation of the noise in each coordinate, divided by :attr:`sensitivity`.
    """

    name: ClassVar[str]
    row: ClassVar[type[SensitivityRow]]

    radius: float
    steps: int
    batch: int
    reward_bounds: Interval
    noise_multiplier: float

    def __post_init__(self) -> None:
        check_multiplier(self.noise_multiplier)
        check_bounds(self.reward_bounds)
        check_rounds(self.steps, self.batch)

    @property
    @abstractmethod
    def sensitivity(self) -> float:
        """Largest L2 distance between one release of two neighbours before noise, with what rounding adds."""

    @property
    @abstractmethod
    def grid_step(self) -> float:
        """Spacing of the releases."""

    @property
    @abstractmethod
    def coordinates(self) -> int:
        """Number of coordinates of one release."""

    @property
    def std(self) -> float:
        """Standard deviation of the noise in each coordinate of a release."""
        return self.noise_multiplier * self.sensitivity

    def event(self) -> events.DpEvent:
        """Return the event of all releases together."""
        return events.poisson_gaussian(1.0, self.noise_multiplier, self.steps)

    def delta(self, epsilon: float) -> float:
        """Return what the sampler's error adds to delta."""
        return events.sampler_delta(epsilon, self.steps * self.coordinates)

    def describe(self, purpose: str) -> dict[str, Any]:
        """Return this mechanism as a row of a certificate."""
        return certificate_row(self.row, self, name=self.name, purpose=purpose, dimension=self.coordinates)

    def _drawn(self, noise: SecureNoise | SeededNoise, rows: int, width: int) -> dict[str, Any]:
        """Draw the noise of ``rows`` steps, ``width`` numbers each; return it with the answers' other fields."""
        std = self.std / self.grid_step
        if isinstance(noise, SecureNoise):
            draws = jnp.asarray(noise.block(0, rows, width, std))
        else:
            draws = jax.vmap(lambda i: noise.gaussian(i, width, std))(jnp.arange(rows, dtype=jnp.uint32))
        low, high = self.reward_bounds
        return {"draws": draws, "step": jnp.float64(self.grid_step), "low": jnp.float64(low), "high": jnp.float64(high)}


@dataclass(frozen=True, kw_only=True)
class RewardNoise(_GaussianRewards):
    """Release of ``steps`` rewards, each with independent Gaussian noise.

    Attributes:
        rounds: number of rounds, if answers are memoised: then at most ``steps`` different answers are kept, and a pair
            of state and action is paid for once. By default every reward is fresh, and the rewards fill whole rounds.
    """

    name: ClassVar[str] = REWARDS
    row: ClassVar[type[SensitivityRow]] = RewardRow

    rounds: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds is None and self.steps % self.batch:
            raise DprlError("Rewards without a memo fill whole rounds: more would be noised than is charged for.")
        if max(abs(x) for x in self.reward_bounds) > _LARGEST_POINT * self.grid_step:
            raise DprlError(_TOO_WIDE)

    @property
    def sensitivity(self) -> float:
        """R, rounded up to a whole number of grid points."""
        return math.ceil(self.radius / self.grid_step) * self.grid_step

    @property
    def grid_step(self) -> float:
        """Spacing of the releases."""
        return grid_step(self.radius)

    @property
    def coordinates(self) -> int:
        """Number of coordinates of one release: one reward."""
        return 1

    def bind(self, noise: SecureNoise | SeededNoise) -> DrawnAnswers | MemoisedAnswers:
        """Return the answers that use ``noise``, a stream that nothing else may use."""
        rounds = self.steps // self.batch if self.rounds is None else self.rounds
        answers = DrawnAnswers(**self._drawn(noise, rounds, self.batch))
        return answers if self.rounds is None else MemoisedAnswers(answers, self.steps)


@dataclass(frozen=True, kw_only=True)
class RewardGradient(_GaussianRewards):
    """Release of ``steps`` noisy means of reward times clipped features.

    All rewards of a batch may differ, so the sensitivity of the mean is R C, not R C / B.

    Attributes:
        clip_norm: C, largest L2 norm of the features of a transition.
        dimension: number of features.
    """

    name: ClassVar[str] = GRADIENTS
    row: ClassVar[type[SensitivityRow]] = GradientRow

    clip_norm: float
    dimension: int

    def __post_init__(self) -> None:
        super().__post_init__()
        for bound in (self.radius, self.clip_norm, self.sensitivity):
            grid_step(bound)  # refuses what is out of range
        if not 1 <= self.dimension <= MAX_FEATURES:
            raise DprlError(f"A noisy gradient has between 1 and {MAX_FEATURES} coordinates.")
        low, high = self.reward_bounds
        if (self.batch + 4) * 0.5 * (high - low) > _LARGEST_RATIO * self.radius:
            raise DprlError(_TOO_WIDE)

    @property
    def sensitivity(self) -> float:
        """``R C``, plus a millionth of it for what floating-point sums and the grid can add."""
        return self.radius * self.clip_norm * (1.0 + _ROUNDING)

    @property
    def grid_step(self) -> float:
        """Spacing of the releases."""
        return grid_step(self.sensitivity)

    @property
    def coordinates(self) -> int:
        """Number of coordinates of one release: the number of features."""
        return self.dimension

    def bind(self, noise: SecureNoise | SeededNoise) -> GradientAnswers:
        """Return the answers that use ``noise``, a stream that nothing else may use."""
        return GradientAnswers(**self._drawn(noise, self.steps, self.dimension), clip_norm=jnp.float64(self.clip_norm))


# --- answers ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Drawn:
    """Answers with separate draws for each step. A step that is asked twice gets the same draws, so never ask twice.

    Attributes:
        draws: ``(steps, width)`` int64 grid points.
        step: spacing of the grid.
        low, high: bounds into which rewards are moved first.
    """

    draws: Any = field(repr=False)
    step: Any
    low: Any
    high: Any

    def _bounded(self, rewards: Any) -> jax.Array:
        """Clip rewards to their bounds; a reward that is not a number counts as the lower bound."""
        rewards = jnp.asarray(rewards, dtype=jnp.float64)
        return jnp.clip(jnp.where(jnp.isnan(rewards), self.low, rewards), self.low, self.high)

    def _noisy(self, points: jax.Array, step: Any) -> jax.Array:
        """Return the grid ``points`` plus the draws of ``step``, times the grid's spacing."""
        return (points.astype(jnp.int64) + jnp.asarray(self.draws)[step]).astype(jnp.float64) * self.step


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DrawnAnswers(_Drawn):
    """Noisy rewards, with draws ``(rounds, B)``."""

    # compiled when called directly
    @partial(jax.jit, inline=True)
    def add_noise(self, rewards: Any, positions: Any, actions: Any, round_: Any) -> jax.Array:
        """Return the noisy rewards, from which the learner may learn. Positions and actions are not used.

        Args:
            rewards: ``(B,)`` float64.
            round_: number of the round; may be traced.

        Returns:
            ``(B,)`` float64.
        """
        return self._noisy(jnp.floor(self._bounded(rewards) / self.step), round_)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class GradientAnswers(_Drawn):
    """Noisy means of reward times clipped features; ``clip_norm`` is C."""

    clip_norm: Any

    @property
    def centre(self) -> Any:
        """Middle of the reward's bounds, which is subtracted from every reward."""
        return 0.5 * (self.low + self.high)

    def clip(self, features: Any) -> jax.Array:
        """Clip features ``(B, d)`` to norm C, float64; a row that is not finite becomes zero."""
        x = jnp.asarray(features, dtype=jnp.float64)
        norm = jnp.sqrt(jnp.sum(x * x, axis=-1, keepdims=True))
        finite = jnp.isfinite(norm)
        factor = jnp.minimum(1.0, self.clip_norm * _SLACK / norm)
        return jnp.where(finite, x, 0.0) * jnp.where(finite, factor, 0.0)

    @partial(jax.jit, inline=True)
    def noisy_mean(self, rewards: Any, features: Any, step: Any) -> jax.Array:
        """Return the mean of ``(reward - centre) * features`` with noise.

        Args:
            rewards: ``(B,)`` fresh rewards, float64.
            features: ``(B, d)``; rows longer than C are clipped.
            step: number of the mean; may be traced.

        Returns:
            ``(d,)`` float64.
        """
        clipped = self.clip(features)
        centred = self._bounded(rewards) - self.centre
        mean = jnp.sum(centred[:, None] * clipped, axis=0) / clipped.shape[0]
        return self._noisy(jnp.round(mean / self.step), step)


class MemoisedAnswers:
    """Memory of answers on the host: a repeated question gets the first answer again.

    A position that is asked again enters the mechanism with its first reward. So what enters is a function of the
    position (and of the action), whatever the rewards depend on. Paths need this on their grid, and also off it, where
    the first observation in a cell answers for the whole cell. In finite processes a noisy reward is paid for once per
    pair of state and action. Nobody sees the answers that are not kept.

    Args:
        answers: object whose ``add_noise`` gives the answers.
        most: largest number of different answers, for which the release was charged.
        shared: give one answer at a position, whatever the action. A single path needs this off its grid, where no
            noise would hide the difference of two answers in a cell. The rewards should then ignore the action
            themselves, not only the difference of two neighbours.
    """

    def __init__(self, answers: Any, most: int, shared: bool = False) -> None:
        self._answers, self._most, self._shared = answers, most, shared
        self._rewards: dict[tuple[int, ...], float] = {}
        self._known: dict[tuple[int, ...], float] = {}

    def add_noise(self, rewards: Any, positions: Any, actions: Any, round_: Any) -> np.ndarray:
        """Return ``(B,)`` float64: the answers of the wrapped object, or 0 at :data:`NOWHERE`, where nothing is asked.

        Raises:
            DprlError: more different answers are asked for than ``most``.
        """
        rewards, positions, actions = np.array(rewards, np.float64), np.array(positions), np.array(actions)
        asked = zip(actions.tolist(), positions.tolist(), strict=True)
        keys = [None if NOWHERE in place else (0 if self._shared else action, *place) for action, place in asked]
        somewhere = [(i, key) for i, key in enumerate(keys) if key is not None]
        if len(self._known) + len({key for _, key in somewhere} - self._known.keys()) > self._most:
            raise DprlError("More different rewards were asked for than the release was charged for.")
        if not somewhere:
            return np.zeros(len(keys))
        for i, key in somewhere:
            rewards[i] = self._rewards.setdefault(key, rewards[i])
        # the array keeps its shape: an entry at NOWHERE repeats another entry's question, and its answer is dropped
        places = [i if key is not None else somewhere[0][0] for i, key in enumerate(keys)]
        fresh = np.asarray(self._answers.add_noise(rewards[places], positions[places], actions[places], round_))
        for i, key in somewhere:
            self._known.setdefault(key, float(fresh[i]))
        return np.array([0.0 if key is None else self._known[key] for key in keys])
