"""Proximal policy optimisation (PPO) without privacy, for comparison; and the effect of its epochs under privacy.

Method: Schulman et al. (2017), with clipped importance ratios, generalised advantages, several epochs per batch, and
Adam. Such a learner sees every user's trajectory once per epoch, with advantages of a value function that is fitted on
the users' trajectories.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random

from dprl.learning.policy_gradient.estimator import Rates, RunShape, Trajectory, advantages
from dprl.learning.policy_gradient.people_sources import CompiledPeople, rollout
from dprl.learning.policy_gradient.trainer import PolicyGradient, State
from dprl.mechanisms.action_coins import ActionCoins
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SeededNoise
from dprl.policies.parametric import Parametric

CLIP_RANGE, TRACE, EPOCHS, RATE = 0.2, 0.95, 10, 0.01
_MOMENTS = (0.9, 0.999)


class Adam(NamedTuple):
    """State of Adam: the parameters of policy and value function together, and their moments."""

    weights: Any
    first: Any
    second: Any
    count: Any


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def train_ppo(policy: Parametric, environment: Any, batch: int, steps: int, discount: float, seed: Any) -> Any:
    """Return the ``(T + 1, d)`` parameters of the policy along a run of ``steps`` batches of ``batch`` users."""
    value = Parametric("mlp:32:gaussian", policy.observation, action=((0.0, 1.0),))
    key = random.fold_in(random.key(21), seed)
    starts = [random.normal(random.fold_in(key, i), (p.random_weights,)) for i, p in enumerate((policy, value))]
    weights = jnp.concatenate([policy.initial(starts[0]), value.initial(starts[1])])
    horizon = environment.horizon

    def values_of(weights: Any, seen: Any) -> Any:
        flat = seen.reshape(-1, seen.shape[-1])
        return value.preferences(weights[policy.size :], flat)[:, 0].reshape(seen.shape[:-1])

    def log_probs(weights: Any, rows: Trajectory) -> Any:
        flat = rows.observations.reshape(-1, rows.observations.shape[-1])
        actions = rows.actions.reshape(-1, *rows.actions.shape[2:])
        return policy.log_prob(weights[: policy.size], flat, actions).reshape(rows.rewards.shape)

    def one(state: Adam, t: Any) -> tuple[Adam, Any]:
        coins = ActionCoins.from_jax_key(key).for_batch(t)
        rows = rollout(policy, environment, state.weights[: policy.size], coins, batch, horizon)
        inside = jnp.arange(horizon) < rows.length[:, None]
        old, before = log_probs(state.weights, rows), values_of(state.weights, rows.observations)
        last = jnp.arange(horizon) == rows.length[:, None] - 1
        # at the time limit, the value of what follows is that of the last state
        after = jnp.where(last, jnp.where(rows.terminated[:, None], 0.0, before), jnp.roll(before, -1, axis=1))
        errors = jnp.where(inside, rows.rewards + discount * after - before, 0.0)

        def back(following: Any, error: Any) -> tuple[Any, Any]:
            trace = error + discount * TRACE * following
            return trace, trace

        traces = lax.scan(back, jnp.zeros(batch, errors.dtype), errors.T, reverse=True)[1].T
        traces = jnp.where(inside, traces, 0.0)
        targets, count = traces + before, jnp.sum(inside)
        mean = jnp.sum(traces) / count
        spread = jnp.sqrt(jnp.sum(jnp.where(inside, (traces - mean) ** 2, 0.0)) / count)
        advantage = (traces - mean) / (spread + 1e-6)
        size = jnp.maximum(jnp.sqrt(jnp.sum(jnp.where(inside, targets**2, 0.0)) / count), 1.0)

        def loss(weights: Any) -> Any:
            ratio = jnp.exp(jnp.clip(log_probs(weights, rows) - old, -10.0, 10.0))
            cut = jnp.clip(ratio, 1.0 - CLIP_RANGE, 1.0 + CLIP_RANGE)
            gain = jnp.minimum(ratio * advantage, cut * advantage)
            error = ((values_of(weights, rows.observations) - targets) / size) ** 2
            return jnp.sum(jnp.where(inside, 0.5 * error - gain, 0.0)) / count

        def epoch(state: Adam, _: Any) -> tuple[Adam, None]:
            gradient = jax.grad(loss)(state.weights)
            first = _MOMENTS[0] * state.first + (1.0 - _MOMENTS[0]) * gradient
            second = _MOMENTS[1] * state.second + (1.0 - _MOMENTS[1]) * gradient**2
            count = state.count + 1.0
            scaled = first / (1.0 - _MOMENTS[0] ** count)
            step = scaled / (jnp.sqrt(second / (1.0 - _MOMENTS[1] ** count)) + 1e-8)
            return Adam((state.weights - RATE * step).astype(jnp.float32), first, second, count), None

        state, _ = lax.scan(epoch, state, None, length=EPOCHS)
        return state, state.weights[: policy.size]

    zeros = jnp.zeros_like(weights)
    start = Adam(weights, zeros, zeros, jnp.float32(0.0))
    _, history = lax.scan(one, start, jnp.arange(steps))
    return jnp.concatenate([weights[None, : policy.size], history])


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def train_in_epochs(
    shape: RunShape, environment: Any, exact: GaussianSum, epochs: int, rates: Rates, multiplier: Any, seed: Any
) -> Any:
    """Return the ``(d,)`` parameters after T batches, each with ``epochs`` private steps and clipped ratios.

    Args:
        shape: shape of the run, whose steps are batches times epochs.
        exact: the exact mechanism, for as many steps and epochs.
    """
    mechanism, policy = exact.in_float(noise_multiplier_override=multiplier), shape.policy
    words = jnp.stack([jnp.uint32(0), jnp.asarray(seed, jnp.uint32)])
    noise = mechanism.bind(SeededNoise(words).stream("users"))
    coins = ActionCoins.from_jax_key(random.fold_in(random.key(11), seed))
    program, users = PolicyGradient(shape, mechanism), CompiledPeople(environment, shape)

    def batch(state: State, t: Any) -> tuple[State, None]:
        rows = users.trajectories(state.theta, coins.for_batch(t), jnp.arange(shape.batch))
        acted, level = state.theta, state.baseline

        def vector(theta: Any, row: Trajectory) -> Any:
            weights, statistic = advantages(shape, rates, level, row)
            old = policy.log_prob(acted, row.observations, row.actions)

            def gain(theta: Any) -> Any:
                ratio = jnp.exp(policy.log_prob(theta, row.observations, row.actions) - old)
                cut = jnp.clip(ratio, 1.0 - CLIP_RANGE, 1.0 + CLIP_RANGE)
                return jnp.sum(jnp.minimum(ratio * weights, cut * weights))

            scaled = jax.grad(gain)(theta) * rates.scale
            return jnp.append(scaled, rates.baseline_weight * statistic).astype(jnp.float32)

        def epoch(state: State, e: Any) -> tuple[State, None]:
            vectors = jax.vmap(vector, (None, 0))(state.theta, rows)
            total = mechanism.clipped_sum(vectors, jnp.ones(shape.batch, bool))
            step = t * epochs + e
            return program.update(0, state, mechanism.release(total, noise.draw(step)), step), None

        return lax.scan(epoch, state, jnp.arange(epochs))[0], None

    return lax.scan(batch, program.init(rates, coins), jnp.arange(shape.steps // epochs))[0].theta
