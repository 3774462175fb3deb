"""Runs of the learner: rounds of acting, one question to the mechanism a round, and updates on what it answered.

A round acts by the weights that it found and only then asks for the answers of its samples, all at once: acting needs
no reward. The reward goes to ``answers`` (of :mod:`dprl.mechanisms`) and nowhere else; everything that is learned is
made of these, and so post-processing. Rewards are scaled so that Q lies in [-1, 1].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from dprl import x64 as x64
from dprl.accounting.reward_relation import DEPTHS
from dprl.learning.asking import Asked, Seen
from dprl.learning.functional_q import FunctionalQ
from dprl.learning.q_updates import (
    Rates,
    Shape,
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
from dprl.learning.run_coins import AddressedCoins, KeyedCoins
from dprl.learning_facts import LearningFacts
from dprl.mechanisms.answers import NOWHERE
from dprl.value_functions.q_function import QFunction, unit_states

_COARSEST = 7  # of positions in more dimensions than a path has: they are names of states alone


def shape_of(config: FunctionalQ, facts: LearningFacts) -> Shape:
    """Of resolved options."""
    assert config.network is not None
    return Shape(
        network=config.network,
        actions=facts.actions,
        dimensions=facts.dimensions,
        samples=config.samples,
        round=config.round,
        batch=config.batch,
        updates=config.updates,
        average=config.average,
        actor_critic=config.actor_critic,
        gradient=config.variant == "gradient",
    )


def rates_of(config: FunctionalQ, facts: LearningFacts) -> Rates:
    """Of resolved options; scalars that may be traced."""
    assert config.discount is not None
    assert config.step_size is not None
    low, high = facts.reward_bounds
    centre, half = (low + high) / 2.0, (high - low) / 2.0
    single, exact = np.float32, np.float64
    return Rates(
        discount=single(config.discount),
        step_size=single(config.step_size),
        target_every=np.int32(config.target_every),
        exploration=single(config.exploration),
        exploration_rounds=single(config.exploration_rounds),
        scale=exact((1.0 - config.discount) / half),
        centre=exact(centre),
        ending=single(-centre / half),
    )


def run(shape: Shape, environment: Any, rates: Rates, answers: Any, key: Any) -> tuple[State, Any]:
    """A whole run; may be compiled with ``shape`` and ``environment`` static, and batched over answers and keys.

    For simulations alone: what is compiled holds the environment's rewards. A release is :func:`run_on_host`.

    Args:
        environment: :class:`~dprl.protocols.Environment`.
        answers: of a mechanism: ``noised`` or, in the gradient variant, ``noised_mean``.
        key: ``jax.random.key`` of everything but the noise; nothing about it is secret.

    Returns:
        The learner's state, and Q's weights after each round, ``(rounds, ...)`` each.
    """
    bounds, given_coins = environment.observation_bounds, KeyedCoins(key)

    def unit_of(state: Any) -> Any:
        return unit_states(jnp.reshape(environment.observe(state), (1, -1)).astype(jnp.float64), bounds, jnp)[0]

    def one(carry: Any, j: Any) -> tuple[Any, Any]:
        state, walk = carry
        keys, coins = given_coins.keys_of_round(j), given_coins.of_round(shape, j)
        exploring = explored(shape, rates, coins.exploring, j)
        starts = jax.vmap(environment.reset)(random.split(keys[1], shape.round))

        def step(walk: Any, given: Any) -> tuple[Any, Any]:
            (there, time), (action, coin, start, noise) = walk, given
            there = jax.tree.map(lambda new, old: jnp.where(time == 0, new, old), start, there)
            unit = unit_of(there)
            greedy = best(shape, acting_weights(state), unit, coin).astype(jnp.int32)
            action = jnp.where(action < 0, greedy, action)
            following, reward, over = environment.step(noise, there, action)
            time = jnp.where(over | (time + 1 >= environment.horizon), 0, time + 1)
            reward = jnp.asarray(reward, jnp.float64)
            return (following, time), (unit, action, reward, unit_of(following), jnp.asarray(over, bool))

        walk, (units, actions, rewards, following, over) = lax.scan(
            step, walk, (exploring, coins.exploring[:, 1], starts, random.split(keys[2], shape.round))
        )
        sample = Sample(units, jnp.ones(shape.round, bool), actions, rewards, following, over)
        state = _learned(shape, rates, state, answers, j, coins.replayed, sample, _PLAIN)
        return (state, walk), state.q.weights

    start = init(shape, given_coins.initial(shape))
    walk = (environment.reset(key), jnp.int32(0))  # replaced by the first step's start
    (state, _), history = lax.scan(one, (start, walk), jnp.arange(shape.rounds, dtype=jnp.int32))
    return state, history


def run_on_host(
    shape: Shape,
    source: Any,
    rates: Rates,
    answers: Any,
    coins: AddressedCoins,
    progress: Callable[[int], None] | None = None,
    on_grid: bool = False,
) -> State:
    """The same step by step, with an environment of which nothing is compiled; actions are chosen in NumPy.

    Args:
        source: as :class:`~dprl.learning.asking.Asked` takes it.
        answers: as in :func:`run`, or a memo around them.
        coins: all that is drawn but the noise.
        progress: called with the number of samples done.
        on_grid: whether observations are declared to lie on the grid of a path; others are not asked about then.
    """
    asked = Asked(source, shape.dimensions, DEPTHS[shape.dimensions] if on_grid else None)
    state = init(shape, coins.initial(shape))
    seen: Seen | None = None
    for j in range(shape.rounds):
        given = coins.of_round(shape, j)
        exploring = explored(shape, rates, given.exploring, np.int32(j), np)
        weights = jax.tree.map(np.asarray, acting_weights(state))
        rows: list[tuple[Any, ...]] = []
        for action, coin, seed in zip(exploring.tolist(), given.exploring[:, 1], given.seeds.tolist(), strict=True):
            if seen is None:
                seen = asked.reset(seed)
            if action < 0:
                action = int(best(shape, weights, seen.unit, coin, np))
            following, reward, over, cut = asked.step(action)
            rows.append((*seen, action, reward, following.unit, over))
            seen = None if over or cut else following
        units, known, actions, rewards, after, over = (np.array(column) for column in zip(*rows, strict=True))
        sample = Sample(units, known, actions.astype(np.int32), rewards.astype(np.float64), after, over)
        state = _learned(shape, rates, state, answers, np.int32(j), given.replayed, sample, _COMPILED)
        if progress is not None:
            progress((j + 1) * shape.round)
    return state


def q_of(state: State, shape: Shape, facts: LearningFacts, discount: float) -> QFunction:
    """What is released: Q, and the actor where there is one."""
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


def positions_of(units: Any) -> Any:
    """``(N, d)`` int64 places of scaled observations on the grid of a path."""
    xp = np if isinstance(units, np.ndarray) else jnp
    return xp.round(units * 2.0 ** DEPTHS.get(units.shape[1], _COARSEST)).astype(np.int64)


class Sample(NamedTuple):
    """Of a round, with the true rewards. Private."""

    units: Any  # (B, d) float64 scaled observations
    known: Any  # (B,) bool: whether they are observations at all
    actions: Any  # (B,) int32
    rewards: Any  # (B,) float64
    following: Any  # (B, d) float64
    over: Any  # (B,) bool


class _Parts(NamedTuple):
    """The learner's functions, which see no reward: as they are, or compiled one by one."""

    learn: Any
    gradients: Any
    step: Any


_PLAIN = _Parts(learn_round, gradients, gradient_step)
_COMPILED = _Parts(*(jax.jit(part, static_argnums=0) for part in _PLAIN))


def _learned(
    shape: Shape, rates: Rates, state: State, answers: Any, j: Any, replayed: Any, sample: Sample, parts: _Parts
) -> State:
    """What a round learns: the one place where rewards are, on their way to the mechanism."""
    xp = np if isinstance(sample.units, np.ndarray) else jnp
    states, following = sample.units.astype(np.float32), sample.following.astype(np.float32)
    # from a state that is not known a public constant is learned, and no reward
    rewards = xp.where(sample.known, sample.rewards, rates.centre)
    if shape.gradient:
        nothing = np.zeros(shape.round, np.float32)  # no reward is remembered
        fresh = Transitions(states, sample.actions, nothing, following, sample.over)
        clipped = answers.clip(parts.gradients(shape, state, fresh))
        mean = answers.noised_mean(rewards, clipped, j)
        return parts.step(shape, rates, state, fresh, clipped, mean, j)
    positions = xp.where(sample.known[:, None], positions_of(sample.units), NOWHERE)
    y = xp.where(sample.known, answers.noised(rewards, positions, sample.actions, j), rates.centre)
    scaled = ((y - rates.centre) * rates.scale).astype(np.float32)
    fresh = Transitions(states, sample.actions, scaled, following, sample.over)
    return parts.learn(shape, rates, state, fresh, j, replayed)
