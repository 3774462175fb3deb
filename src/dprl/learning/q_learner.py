"""Runs of the learner: each round acts, asks the mechanism one question, and updates the weights with its answers.

A round acts by the weights of the round before, and only then asks for the answers to all its samples at once, because
acting needs no reward. Rewards go to ``answers`` (of :mod:`dprl.mechanisms`) and nowhere else. Everything that is
learned is made of answers, so it is post-processing. Rewards are scaled so that Q lies in [-1, 1].

Everything random except the environment and the noise comes from coins: plain arrays of uniform numbers, one set per
round. They hide nothing and may be known, because privacy rests on the noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dprl import x64 as x64
from dprl.accounting.reward_relation import DEPTHS
from dprl.config import filled
from dprl.learning.asking import EnvironmentSession, Seen
from dprl.learning.functional_q import FunctionalQ
from dprl.learning.learning_plan import Mechanism
from dprl.learning.q_updates import (
    LearnerShape,
    Rates,
    State,
    Transitions,
    acting_weights,
    best,
    explored,
    gradient_step,
    gradients,
    init,
    learn_round,
    released_weights,
)
from dprl.mechanisms.action_coins import ActionCoins, uniform_of
from dprl.mechanisms.function_noise import FunctionNoise
from dprl.mechanisms.ornstein_uhlenbeck import positions_of
from dprl.mechanisms.reward_noise import NOWHERE
from dprl.protocols import EnvironmentSpec
from dprl.value_functions.q_function import QFunction, hidden_weights

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

    def of_round(self, shape: LearnerShape, j: int) -> RoundCoins:
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
        own_paths=config.variant == "functional" and not config.shared_path and facts.actions > 1,
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
        ending=single(-centre / half),
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
        source: environment as :class:`~dprl.learning.asking.EnvironmentSession` takes it.
        answers: answers of a mechanism, with ``add_noise`` or, in the gradient variant, ``noisy_mean``.
        coins: source of everything that is drawn, except the noise.
        progress: called with the number of samples done.
        on_grid: whether observations are declared to lie on the grid of a path. Then nothing is asked about any other
            observation.
    """
    asked = EnvironmentSession(source, shape.dimensions, DEPTHS[shape.dimensions] if on_grid else None)
    state = init(shape, coins.initial(shape))
    seen: Seen | None = None
    for j in range(shape.rounds):
        given = coins.of_round(shape, j)
        exploring = explored(shape, rates, given.exploring, np.int32(j))
        weights = jax.tree.map(np.asarray, acting_weights(state))
        rows: list[tuple[Any, ...]] = []
        for action, coin, seed in zip(exploring.tolist(), given.exploring[:, 1], given.seeds.tolist(), strict=True):
            if seen is None:
                seen = asked.reset(seed)
            if action < 0:
                action = int(best(shape, weights, seen.unit, coin))
            following, reward, over, cut = asked.step(action)
            rows.append((*seen, action, reward, following.unit, over))
            seen = None if over or cut else following
        units, known, actions, rewards, after, over = (np.array(column) for column in zip(*rows, strict=True))
        sample = Sample(units, known, actions.astype(np.int32), rewards.astype(np.float64), after, over)
        state = learned(shape, rates, state, answers, np.int32(j), given.replayed, sample)
        if progress is not None:
            progress((j + 1) * shape.round)
    return state


def q_of(state: State, shape: LearnerShape, facts: EnvironmentSpec, discount: float) -> QFunction:
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


class Sample(NamedTuple):
    """Samples of a round, with the true rewards. Private."""

    units: Any  # (B, d) float64 scaled observations
    known: Any  # (B,) bool: whether they are observations at all
    actions: Any  # (B,) int32
    rewards: Any  # (B,) float64
    following: Any  # (B, d) float64
    over: Any  # (B,) bool


def learned(
    shape: LearnerShape,
    rates: Rates,
    state: State,
    answers: Any,
    j: Any,
    replayed: Any,
    sample: Sample,
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
