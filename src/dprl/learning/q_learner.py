"""Learner of Q-functions: runs on an environment, which is somebody else's code and holds what is private.

A round acts by the weights of the round before. It then asks the mechanism for the answers to all its samples at once,
because acting needs no reward, and updates the weights with these answers. Rewards go to ``answers`` (of
:mod:`dprl.mechanisms`) and nowhere else. Everything that is learned is made of answers, so it is post-processing.
Rewards are scaled so that Q lies in [-1, 1].

Everything random except the environment and the noise comes from coins: plain arrays of uniform numbers, one set per
round. They hide nothing and may be known, because privacy rests on the noise.

The environment runs on the host, one step after the other. None of its functions is traced, so its tables are never
part of a compiled program: neither another release nor JAX's cache on disk can get hold of them. Exceptions of the
environment are dropped, because their messages may quote values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dprl import x64 as x64
from dprl.accounting.reward_relation import DEPTHS
from dprl.config import filled
from dprl.learning.functional_q import FunctionalQ
from dprl.learning.learning_plan import Mechanism
from dprl.learning.q_updates import (
    LearnerShape,
    Rates,
    State,
    Transitions,
    acting_weights,
    exploring_actions,
    gradient_step,
    gradients,
    init,
    learn_round,
    policy_action,
    released_weights,
)
from dprl.mechanisms.action_coins import ActionCoins, uniform_of
from dprl.mechanisms.function_noise import FunctionNoise
from dprl.mechanisms.ornstein_uhlenbeck import positions_of
from dprl.mechanisms.reward_noise import NOWHERE
from dprl.protocols import EnvironmentSpec
from dprl.user_code import quietly
from dprl.value_functions.q_function import QFunction, hidden_weights


class Observation(NamedTuple):
    """An observation that the learner may use.

    Attributes:
        unit: ``(d,)`` float64 in [0, 1]; zeros if the observation is not known.
        known: whether the environment gave a valid observation. If not, the mechanism is not asked for a reward in that
            state: a made-up reward there would make the difference of two neighbours steep.
    """

    unit: np.ndarray
    known: bool


class EnvironmentSession:
    """Environment as the learner asks it.

    Args:
        source: the environment. ``reset(seed)`` returns an observation scaled to [0, 1]. ``step(action)`` returns the
            next observation, the reward, whether the episode terminated, and whether it was cut.
        dimensions: number of components of an observation.
        depth: bits of a component's position, if observations are declared to lie on the grid of a path.
    """

    def __init__(self, source: Any, dimensions: int, depth: int | None = None) -> None:
        self._source, self._dimensions, self._depth = source, dimensions, depth

    def reset(self, seed: int) -> Observation:
        """Return the first observation of an episode."""
        return self._seen(quietly(lambda: self._source.reset(seed), None))

    def step(self, action: int) -> tuple[Observation, float, bool, bool]:
        """Return the next observation, the reward, whether the episode terminated, and whether it was cut.

        A reward that is no number is NaN. A step that raises cuts the episode.
        """
        answer: tuple[Any, ...] = quietly(lambda: tuple(self._source.step(action)), ())
        if len(answer) != 4:
            return self._seen(None), math.nan, False, True
        following, reward, over, cut = answer
        ends = quietly(lambda: bool(over), False), quietly(lambda: bool(cut), True)
        return self._seen(following), reward_as_float(reward), *ends

    def _seen(self, observation: Any) -> Observation:
        # a copy: environments write the next observation into the same array
        unit = quietly(lambda: np.array(observation, np.float64).reshape(-1), np.zeros(0))
        known = unit.shape == (self._dimensions,) and bool(np.isfinite(unit).all())
        if known:
            unit = np.clip(unit, 0.0, 1.0)
        if known and self._depth is not None:
            known = not (unit * 2.0**self._depth % 1.0).any()
        return Observation(unit if known else np.zeros(self._dimensions), known)


def reward_as_float(value: Any) -> float:
    """Return a reward as a float; NaN for text, a vector, None, or a whole number beyond all floats."""

    def read() -> float:
        if isinstance(value, Real):
            return float(value)
        array = np.asarray(value)
        return float(array) if array.shape == () and array.dtype.kind in "biuf" else math.nan

    return quietly(read, math.nan)


def rewards_at(environment: Any, points: np.ndarray, actions: int) -> np.ndarray:
    """Return ``(A, N)`` float64 rewards of every action at ``(N, d)`` observations; NaN where they are no numbers."""

    def of(action: int) -> np.ndarray:
        found = np.asarray(environment.reward(points, np.int32(action)))
        if found.dtype.kind not in "biuf":
            raise TypeError
        return np.broadcast_to(found.astype(np.float64), len(points))

    nothing = np.full(len(points), math.nan)
    return np.stack([quietly(lambda a=a: of(a), nothing) for a in range(actions)])


_EXPLORING, _REPLAYED, _SEEDS = 0, 2, 3
"""Numbers of the draws of a round; exploring takes two."""


class RoundCoins(NamedTuple):
    """The coins of one round; uniform numbers are float32 in [0, 1).

    Attributes:
        exploring: ``(round, 2)`` uniform numbers for each sample's action.
        replayed: ``(updates, batch)`` uniform numbers that choose replayed samples.
        seeds: ``(round,)`` whole numbers below 2^31: for each sample the seed of the episode that begins with it, if
            one does; None for an environment that is compiled.
    """

    exploring: Any
    replayed: Any
    seeds: Any


@dataclass(frozen=True)
class AddressedCoins:
    """Coins by address, on the host: the round is the step, the sample or the replayed sample is the place.

    So no coin depends on what the environment answered before, or on how many episodes ended.

    Attributes:
        coins: source of the coins; ChaCha20 in a release.
    """

    coins: ActionCoins

    def initial(self, shape: LearnerShape) -> np.ndarray:
        """Return ``(2, n)`` uniform numbers that give the first hidden weights: a row for Q, and a row for an actor."""
        places = np.arange(hidden_weights(shape.network, shape.dimensions))
        start = self.coins.before_first_batch()
        return np.stack([uniform_of(start.words_at(places, draw)) for draw in range(2)])

    def for_round(self, shape: LearnerShape, j: int) -> RoundCoins:
        """Return the coins of round ``j``."""
        batch, samples = self.coins.for_batch(j), np.arange(shape.round)
        exploring = [uniform_of(batch.words_at(samples, _EXPLORING + i)) for i in range(2)]
        replayed = uniform_of(batch.words_at(np.arange(shape.updates * shape.batch), _REPLAYED))
        seeds = (batch.words_at(samples, _SEEDS) >> np.uint32(1)).astype(np.int64)
        return RoundCoins(np.stack(exploring, axis=1), replayed.reshape(shape.updates, shape.batch), seeds)


def shape_of(config: FunctionalQ, facts: EnvironmentSpec) -> LearnerShape:
    """Return the shape of a run with resolved options."""
    return LearnerShape(
        network=filled(config.network),
        actions=facts.actions,
        dimensions=facts.dimensions,
        samples=config.samples,
        round=config.round,
        batch=config.batch,
        updates=config.updates,
        average=config.average,
        actor_critic=config.actor_critic,
        gradient=config.variant == "gradient",
        path_per_action=config.variant == "functional" and not config.shared_path and facts.actions > 1,
    )


def rates_of(config: FunctionalQ, facts: EnvironmentSpec, mechanism: Mechanism | None) -> Rates:
    """Return the numbers of resolved options that compiled code takes as data; scalars that may be traced."""
    discount = filled(config.discount)
    low, high = facts.reward_bounds
    centre, half = (low + high) / 2.0, (high - low) / 2.0
    scale = (1.0 - discount) / half
    path = mechanism if isinstance(mechanism, FunctionNoise) else None
    single, exact = np.float32, np.float64
    return Rates(
        discount=single(discount),
        step_size=single(config.step_size),
        target_every=np.int32(config.target_every),
        exploration=single(config.exploration),
        exploration_rounds=single(config.exploration_rounds),
        scale=exact(scale),
        centre=exact(centre),
        terminal_value=single(-centre / half),
        path_std=exact(path.std * scale if path else 0.0),
        path_decay=exact(path.decay if path else 0.0),
    )


def run_on_host(
    shape: LearnerShape,
    source: Any,
    rates: Rates,
    answers: Any,
    coins: AddressedCoins,
    progress: Callable[[int], None] | None = None,
    on_grid: bool = False,
) -> State:
    """Return the state after a whole run with an environment that is not compiled; actions are chosen in NumPy.

    Args:
        source: environment as :class:`EnvironmentSession` takes it.
        answers: answers of a mechanism, with ``add_noise`` or, in the gradient variant, ``noisy_mean``.
        coins: source of everything that is drawn, except the noise.
        progress: called with the number of samples done.
        on_grid: whether observations are declared to lie on the grid of a path. Then nothing is asked about any other
            observation.
    """
    asked = EnvironmentSession(source, shape.dimensions, DEPTHS[shape.dimensions] if on_grid else None)
    state = init(shape, coins.initial(shape))
    seen: Observation | None = None
    for j in range(shape.rounds):
        given = coins.for_round(shape, j)
        exploring = exploring_actions(shape, rates, given.exploring, np.int32(j))
        weights = jax.tree.map(np.asarray, acting_weights(state))
        rows: list[tuple[Any, ...]] = []
        for action, coin, seed in zip(exploring.tolist(), given.exploring[:, 1], given.seeds.tolist(), strict=True):
            if seen is None:
                seen = asked.reset(seed)
            if action < 0:
                action = int(policy_action(shape, weights, seen.unit, coin))
            following, reward, over, cut = asked.step(action)
            rows.append((*seen, action, reward, following.unit, over))
            seen = None if over or cut else following
        units, known, actions, rewards, after, over = (np.array(column) for column in zip(*rows, strict=True))
        sample = PrivateSamples(units, known, actions.astype(np.int32), rewards.astype(np.float64), after, over)
        state = learn_from_samples(shape, rates, state, answers, np.int32(j), given.replayed, sample)
        if progress is not None:
            progress((j + 1) * shape.round)
    return state


def q_function_of(state: State, shape: LearnerShape, facts: EnvironmentSpec, discount: float) -> QFunction:
    """Return what is released: Q, and the actor if there is one."""
    low, high = facts.reward_bounds
    q, actor = state.average if shape.average else released_weights(state.q, state.actor)

    def single(weights: Any) -> dict[str, np.ndarray]:
        return {name: np.asarray(w, np.float32) for name, w in weights.items()}

    return QFunction(
        single(q),
        shape.network,
        facts.observation,
        facts.actions,
        (low / (1.0 - discount), high / (1.0 - discount)),
        None if actor is None else single(actor),
    )


class PrivateSamples(NamedTuple):
    """Samples of a round, with the true rewards. Private."""

    units: Any  # (B, d) float64 scaled observations
    known: Any  # (B,) bool: whether they are observations at all
    actions: Any  # (B,) int32
    rewards: Any  # (B,) float64
    following: Any  # (B, d) float64
    over: Any  # (B,) bool


def learn_from_samples(
    shape: LearnerShape,
    rates: Rates,
    state: State,
    answers: Any,
    j: Any,
    replayed: Any,
    sample: PrivateSamples,
) -> State:
    """Return the state after learning from a round. Rewards pass only here, on their way to the mechanism."""
    xp = np if isinstance(sample.units, np.ndarray) else jnp
    states, following = sample.units.astype(np.float32), sample.following.astype(np.float32)
    # from a state that is not known, a public constant is learned instead of the reward
    rewards = xp.where(sample.known, sample.rewards, rates.centre)
    if shape.gradient:
        nothing = np.zeros(shape.round, np.float32)  # no reward is remembered
        fresh = Transitions(states, sample.actions, nothing, following, sample.over)
        clipped = answers.clip(gradients(shape, state, fresh))
        mean = answers.noisy_mean(rewards, clipped, j)
        return gradient_step(shape, rates, state, fresh, clipped, mean, j)
    positions = xp.where(sample.known[:, None], positions_of(sample.units), NOWHERE)
    y = xp.where(sample.known, answers.add_noise(rewards, positions, sample.actions, j), rates.centre)
    scaled = ((y - rates.centre) * rates.scale).astype(np.float32)
    fresh = Transitions(states, sample.actions, scaled, following, sample.over)
    return learn_round(shape, rates, state, fresh, j, replayed)
