"""Random Markov reward processes of a treatment: logs from public seeds, and exact moments of their evaluation.

A patient's state is a place on a line of S places (or, in ``mdps``, one of S states without an order). In every step an
episode ends with a probability that depends on the state, with an outcome of 0 or 1; otherwise the state moves. The
value of a state is the expected discounted outcome, in [0, 1]. Everything about a process is random: how far, how often
and where to the state moves, where and how soon episodes end, the outcomes, and where episodes start. All functions are
pure functions of a key, in float32, and all simulations are public.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dprl import x64 as x64

WAVES = 6
"""Cosines of which a random function of the place is made."""
F32 = jnp.float32


class Chain(NamedTuple):
    """One process over S states.

    Attributes:
        moves: ``(S, S)`` probabilities of the next state, given that the episode goes on.
        ends: ``(S,)`` probability that the episode ends with this step.
        outcome: ``(S,)`` probability of an outcome of 1, given that the episode ends here.
        start: ``(S,)`` probabilities of the first state.
    """

    moves: jax.Array
    ends: jax.Array
    outcome: jax.Array
    start: jax.Array


class Log(NamedTuple):
    """Simulated episodes in arrays ``(units, horizon)``; ``alive`` tells whether a transition took place."""

    state: jax.Array
    following: jax.Array
    reward: jax.Array
    alive: jax.Array
    ended: jax.Array


class Moments(NamedTuple):
    """Moments of Eq. (2.1) of paper 004, in which a transition weighs one over its episode's length.

    Rewards are not rescaled.

    Attributes:
        visits: ``(S,)`` weights of the states.
        onward: ``(S, S)`` weights of the transitions after which the episode goes on.
        outcome: ``(S,)`` mean reward from each state, times its weight.
    """

    visits: jax.Array
    onward: jax.Array
    outcome: jax.Array


def draw_chain(key: jax.Array, states: int, kind: str) -> Chain:
    """Return a random process: on a line if ``kind`` is ``chains``; for ``mdps``, with three random successors each."""
    keys = jax.random.split(key, 12)
    numbers = jnp.arange(states, dtype=jnp.int32)
    place = numbers.astype(F32) / (states - 1)

    def uniform(i: int, low: float, high: float) -> jax.Array:
        return jax.random.uniform(keys[i], (), F32, low, high)

    def function(i: int, scale: float) -> jax.Array:
        """Return a random function of the state, which is smooth if the states lie on a line."""
        weights, decay = jax.random.split(keys[i])
        if kind == "mdps":
            return scale * jax.random.normal(weights, (states,), F32)
        orders = jnp.arange(WAVES, dtype=F32)
        fall = jax.random.uniform(decay, (), F32, 0.3, 1.0) ** orders
        return (
            scale
            * jnp.cos(jnp.pi * place[:, None] * orders).astype(F32)
            @ (fall * jax.random.normal(weights, (WAVES,), F32))
        )

    stay = uniform(3, 0.0, 0.6)
    ends = jnp.minimum(2.0 * uniform(4, 0.05, 0.5) * jax.nn.sigmoid(function(5, 1.0)), 1.0)
    outcome = jax.nn.sigmoid(2.0 * jax.random.normal(keys[7], (), F32) + function(8, 3.0))
    moves = stay * jnp.eye(states, dtype=F32)
    if kind == "mdps":
        others = jax.random.randint(keys[0], (states, 3), 0, states, jnp.int32)
        shares = jax.random.dirichlet(keys[1], jnp.ones(3, F32), (states,), F32)
        moves = moves + (1.0 - stay) * jnp.sum(jax.nn.one_hot(others, states, dtype=F32) * shares[..., None], axis=1)
        start = jnp.full(states, 1.0 / states, F32)
    else:
        jump = jax.random.randint(keys[0], (), 1, 7, jnp.int32)
        right = jax.nn.sigmoid(function(1, 1.0) + jax.random.normal(keys[2], (), F32))
        up = jax.nn.one_hot(jnp.minimum(numbers + jump, states - 1), states, dtype=F32)
        down = jax.nn.one_hot(jnp.maximum(numbers - jump, 0), states, dtype=F32)
        moves = moves + (1.0 - stay) * (right[:, None] * up + (1.0 - right)[:, None] * down)
        # in half of the chains the right end of the line is recovery
        recovered = jax.random.bernoulli(keys[6], 0.5) & (numbers >= states - jump)
        ends, outcome = jnp.where(recovered, 1.0, ends), jnp.where(recovered, 1.0, outcome)
        width = uniform(11, 0.5, 1.0)
        low = uniform(10, 0.0, 1.0) * (1.0 - width)
        start = ((place >= low) & (place <= low + width)).astype(F32)
    return Chain(moves, ends.astype(F32), outcome.astype(F32), start / jnp.sum(start))


def draw_log(key: jax.Array, chain: Chain, units: int, horizon: int) -> Log:
    """Return ``units`` simulated episodes of at most ``horizon`` transitions each."""
    first, rest = jax.random.split(key)
    last = chain.start.shape[0] - 1

    def place(cumulated: jax.Array, draw: jax.Array) -> jax.Array:
        return jnp.minimum(jnp.sum(draw[:, None] > cumulated, axis=1), last).astype(jnp.int32)

    state = place(jnp.cumsum(chain.start)[None], jax.random.uniform(first, (units,), F32))
    cumulated = jnp.cumsum(chain.moves, axis=1)

    def step(carry: Any, draws: jax.Array) -> tuple[Any, Log]:
        state, alive = carry
        following = place(cumulated[state], draws[0])
        ended = draws[1] < chain.ends[state]
        reward = (ended & (draws[2] < chain.outcome[state])).astype(F32)
        return (following, alive & ~ended), Log(state, following, reward, alive, ended)

    draws = jax.random.uniform(rest, (horizon, 3, units), F32)
    _, log = jax.lax.scan(step, (state, jnp.ones(units, dtype=bool)), draws)
    return Log(*(x.T for x in log))


def exact_moments(chain: Chain, horizon: int) -> Moments:
    """Return the expected moments of :func:`draw_log`; an episode that is cut bootstraps from its last next state."""
    size = chain.ends.shape[0]
    live = chain.moves * (1.0 - chain.ends)[:, None]

    def backwards(inverse: jax.Array, time: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return E[1 / length | alive in s] at a time, from its value at the next time, which is kept."""
        return live @ inverse + chain.ends / (time + 1.0), inverse

    times = jnp.arange(horizon, dtype=F32)
    _, later = jax.lax.scan(backwards, jnp.full(size, 1.0 / horizon, F32), times[::-1])

    def forwards(carry: Any, at: Any) -> tuple[Any, None]:
        occupied, onward, over = carry
        time, inverse = at
        return (
            occupied @ live,
            onward + occupied[:, None] * live * inverse,
            over + occupied * chain.ends / (time + 1.0),
        ), None

    zeros = jnp.zeros((size, size), F32), jnp.zeros(size, F32)
    (_, onward, over), _ = jax.lax.scan(forwards, (chain.start, *zeros), (times, later[::-1]))
    return Moments(jnp.sum(onward, axis=1) + over, onward, over * chain.outcome)
