"""A finite model from noisy counts of transitions on a public support and noisy rewards; Bellman's equation is solved.

This is certainty equivalence with the maximum-likelihood model. In a trajectory only the first visit of a state counts,
so no state is counted more than once per trajectory.
Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: one noisy vector, counts of transitions and sums of rewards; smoothing and solve are post-processing.
Proof: docs/proofs/noisy-counts.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from typing_extensions import override

from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.layouts import Block, project
from dprl.engine.program import PublicFacts, PublicProgram, Query, Stage, ValueFunctionConfig
from dprl.errors import DprlError
from dprl.value_functions.features import Tabular

# share of its prior that a cell keeps where noise has made its count negative
_LEAST_PRIOR_SHARE = 0.1


@dataclass(frozen=True, kw_only=True)
class NoisyCounts(ValueFunctionConfig):
    """Options of noisy counts; all of them are public facts. The features must be tabular.

    Attributes:
        support: the transitions that can happen: ``full``, from each state to each state and to the end; or offsets
            such as ``0,1``, from state s to s and to s + 1, for states in one component. A trajectory ends where an
            offset leaves the states, and nowhere else. Transitions outside of the support are not counted.
        rewards: ``anywhere``; or ``terminal``: every reward is known to be the number closest to zero in the public
            interval, except that of the transition that ends a trajectory.
        kappa: weight of rewards relative to transitions.
        smoothing: weight of the prior of a state's transitions, in standard deviations of the noise of a count.
        reward_smoothing: the same for a state's reward; this prior keeps the value in the middle of the value range.
    """

    support: str = "full"
    rewards: Literal["anywhere", "terminal"] = "anywhere"
    kappa: float = 1.0
    smoothing: float = 8.0
    reward_smoothing: float = 0.5

    algorithm: ClassVar[str] = "noisy-counts"

    ranges: ClassVar[Mapping[str, str]] = {
        "kappa": "[1e-3, 1e3]",
        "smoothing": "[1e-6, 1e6]",
        "reward_smoothing": "[1e-6, 1e6]",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("discount must be above 0; without it no transition matters", self.discount > 0.0)
        offsets_of(self.algorithm, self.support)

    @override
    def queries(self, facts: PublicFacts) -> tuple[Query, ...]:
        """Return the sums that are asked for, from public facts."""
        support = support_of(self.algorithm, self.support, facts)
        ends = len(support.ends)
        if self.rewards == "terminal" and not ends:
            raise DprlError("noisy-counts: no transition of this support ends a trajectory, so that none has a reward.")
        rewards = ends if self.rewards == "terminal" else facts.features.size
        return (Query("counts", len(support.rows) + ends + rewards, self.scale_and_norm(facts)[1]),)

    def scale_and_norm(self, facts: PublicFacts) -> tuple[float, float]:
        """Return the scale of the rewards' coordinates, and the largest norm of a unit's vector."""
        visits = min(facts.features.size, facts.horizon)
        if self.rewards == "terminal":  # at most one per trajectory; by default it has half of the squared norm
            kappa = self.kappa * math.sqrt(visits / 2.0)
            squared = max(visits, visits - 1.0 + 2.0 * kappa**2)
        else:
            kappa, squared = self.kappa, visits * (1.0 + self.kappa**2)
        return kappa, facts.bounds.max_importance_ratio * math.sqrt(squared) * (1.0 + 1e-6)

    @override
    def program(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> NoisyCountsProgram:
        return NoisyCountsProgram(self, stages, facts)


def reward_bound(facts: PublicFacts, at_end: bool = False) -> float:
    """Return the largest size of a reward of the Bellman equation in public units.

    Such a reward is ``(r - centre (1 - gamma [alive])) / half``.
    """
    continuing = () if at_end else (1.0 - facts.discount,)
    most = max(abs(r - facts.centre * c) for r in facts.bounds.reward for c in (1.0, *continuing)) / facts.half
    return most or 1.0  # where all rewards are known to be zero any scale will do


class Support(NamedTuple):
    """Transitions among ``S`` states and the end, which has number ``S``.

    Attributes:
        rows, columns: ``(P,)`` the transitions between states.
        ends: states from which a trajectory can end.
        groups: ``(G, S, S + 1)``, where each offset leads; for the full support one group with equal probabilities.
    """

    rows: np.ndarray
    columns: np.ndarray
    ends: np.ndarray
    groups: np.ndarray


def support_of(algorithm: str, support: str, facts: PublicFacts) -> Support:
    """Return the transitions that the option ``support`` names.

    Raises:
        DprlError: the features have no finite set of states, or offsets are given for states in several components.
    """
    if not isinstance(facts.features, Tabular):
        raise DprlError(f"{algorithm}: transitions are counted in a finite set of states; use tabular features.")
    offsets = offsets_of(algorithm, support)
    if offsets is not None and sum(count > 1 for count in facts.features.counts) > 1:
        raise DprlError(f"{algorithm}: offsets need states in one component; use support = 'full'.")
    return _support(facts.features.size, offsets)


def offsets_of(algorithm: str, support: str) -> tuple[int, ...] | None:
    """Return the offsets that the option ``support`` names, or None for the full support."""
    if support == "full":
        return None
    if not re.fullmatch(r"[+-]?[0-9]{1,4}( *, *[+-]?[0-9]{1,4})*", support):
        raise DprlError(f"{algorithm}: support must be 'full', or whole numbers such as '0,1'.")
    return tuple(dict.fromkeys(int(part) for part in support.split(",")))


@lru_cache(maxsize=16)
def _support(size: int, offsets: tuple[int, ...] | None) -> Support:
    state = np.arange(size)
    if offsets is None:
        groups = np.full((1, size, size + 1), 1.0 / (size + 1))
    else:
        groups = np.zeros((len(offsets), size, size + 1))
        for group, offset in zip(groups, offsets, strict=True):
            target = state + offset
            group[state, np.where((target < 0) | (target >= size), size, target)] = 1.0
    possible = groups.sum(axis=0) > 0.0
    rows, columns = np.nonzero(possible[:, :size])
    return Support(rows, columns, np.flatnonzero(possible[:, size]), groups)


@dataclass(frozen=True)
class NoisyCountsProgram(PublicProgram):
    """Program of noisy counts, with one release.

    Attributes:
        size: number of states.
        kappa: scale of the rewards' coordinates (and of the counts of transitions to the end, if rewards are terminal).
        largest_reward: bound on a reward, by which it is divided.
        continuing_reward: reward of a transition that goes on, where rewards are terminal.
    """

    columns = ("first",)

    @property
    def size(self) -> int:
        """Number of states."""
        return self.facts.features.size

    @property
    def kappa(self) -> float:
        """Scale of the rewards' coordinates, and of the counts of transitions to the end if rewards are terminal."""
        return self.config.scale_and_norm(self.facts)[0]

    @property
    def largest_reward(self) -> float:
        """Bound on a reward, by which it is divided."""
        return reward_bound(self.facts, at_end=self._terminal)

    @property
    def continuing_reward(self) -> float:
        """Reward of a transition that goes on, where rewards are terminal."""
        low, high = self.facts.bounds.reward
        return (min(max(0.0, low), high) - self.facts.centre * (1.0 - self.facts.discount)) / self.facts.half

    @cached_property
    def support(self) -> Support:
        """Transitions that can happen."""
        return support_of(self.config.algorithm, self.config.support, self.facts)

    @property
    def _terminal(self) -> bool:
        return self.config.rewards == "terminal"

    def init(self) -> Float[Array, " n"]:
        """Return the state before the first step."""
        return jnp.zeros(self.size, jnp.float64)

    def contribution(self, stage: int, state: Any, block: Block) -> Float[Array, "units dim"]:
        """Return counts of transitions between states and to the end, and sums of rewards, over first visits."""
        del stage, state
        support, root = self.support, math.sqrt(self.size)
        here = block.phi / root
        following = jnp.round((block.phi - block.delta_phi) / (self.config.discount * root))
        end = here[..., support.ends] * (1.0 - jnp.sum(following, axis=-1, keepdims=True))
        moves = project(block.first_rho, here[..., support.rows] * following[..., support.columns])
        ends = project(block.first_rho, end)
        if self._terminal:
            rewards = project(block.first_rho_reward, end) * (self.kappa / self.largest_reward)
            return jnp.concatenate([moves, self.kappa * ends, rewards], axis=-1)
        rewards = project(block.first_rho_reward, here) * (self.kappa / self.largest_reward)
        return jnp.concatenate([moves, ends, rewards], axis=-1)

    def update(self, stage: int, state: Any, noisy: Float[Array, " dim"], step: Any) -> Float[Array, " n"]:
        """Return the values of the smoothed model, in public units."""
        del state, step
        support, size = self.support, self.size
        noise = self.stages[stage].mechanism.noise_std
        moves = len(support.rows)
        at_end = 1.0 / self.kappa if self._terminal else 1.0
        ends = noisy[moves : moves + len(support.ends)] * at_end
        rewards = noisy[moves + len(support.ends) :] * (self.largest_reward / self.kappa)
        counts = jnp.zeros((size, size + 1), jnp.float64).at[support.rows, support.columns].set(noisy[:moves])
        counts = counts.at[support.ends, size].set(ends)
        weight = np.full(size + 1, self.config.smoothing * noise)
        weight[size] *= at_end
        prior = weight * self._prior(counts)
        smoothed = jnp.maximum(counts + prior, _LEAST_PRIOR_SHARE * prior)
        model = smoothed / jnp.sum(smoothed, axis=1, keepdims=True)
        floor = self.config.reward_smoothing * noise
        if self._terminal:
            mean = rewards / (jnp.maximum(ends, 0.0) + floor * at_end)
            mean = jnp.clip(mean, -self.largest_reward, self.largest_reward)
            reward = self.continuing_reward * jnp.sum(model[:, :size], axis=1)
            reward = reward.at[support.ends].add(model[support.ends, size] * mean)
        else:
            reward = rewards / (jnp.maximum(jnp.sum(counts, axis=1), 0.0) + floor)
            reward = jnp.clip(reward, -self.largest_reward, self.largest_reward)
        gamma = min(self.config.discount, 1.0 - 1e-9)
        values = jnp.linalg.solve(jnp.eye(size) - gamma * model[:, :size], reward)
        return jnp.clip(values, -1.0, 1.0)

    def _prior(self, counts: jax.Array) -> jax.Array:
        """Return ``(S, S + 1)`` probabilities of the prior.

        They are the frequencies of the offsets over all states, and uniform for the full support.
        """
        groups = self.support.groups
        if len(groups) == 1:
            return jnp.asarray(groups[0])
        between = groups[:, :, : self.size]
        seen = jnp.sum(between * counts[:, : self.size], axis=(1, 2))
        states = np.maximum(between.sum(axis=(1, 2)), 1.0)
        noise = self.stages[0].mechanism.noise_std
        mean = seen / states + self.config.smoothing * noise / len(groups) / np.sqrt(states)
        mean = jnp.maximum(mean, _LEAST_PRIOR_SHARE * self.config.smoothing * noise / len(groups) / np.sqrt(states))
        return jnp.tensordot(mean / jnp.sum(mean), jnp.asarray(groups), axes=1)

    def answer(self, state: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return the weights over the features: the values divided by the scale of the indicators."""
        return state / math.sqrt(self.size)


ALGORITHM = Algorithm(
    NoisyCounts,
    settings={
        "full support": Setting(NoisyCounts(discount=0.9), features="tabular"),
        "on a support": Setting(NoisyCounts(discount=0.9, support="-1,0,1", rewards="terminal"), features="tabular"),
    },
)
