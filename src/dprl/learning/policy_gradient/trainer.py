"""Runs of private policy gradient: batches of users, one question to the mechanism a batch, and a step on the answer.

A user's trajectory goes into the user's vector, that into the mechanism's sum, and nowhere else. Everything that is
learned is made of noised sums, and so post-processing: :func:`learn_step` sees nothing else.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dprl import x64 as x64
from dprl.compiled import nothing_compiled_on_disk
from dprl.engine.devices import all_reduced, unit_mesh
from dprl.learning.policy_gradient import one_step
from dprl.learning.policy_gradient.dp_pg import DPPG
from dprl.learning.policy_gradient.estimator import Rates, Shape, Trajectory, contribution, return_interval
from dprl.learning.policy_gradient.users import Simulated
from dprl.learning_facts import LearningFacts
from dprl.mechanisms.action_coins import ActionCoins
from dprl.mechanisms.user_sum import UserSum
from dprl.policies.parametric import Parametric

PUBLIC_STATES = 256
_TOGETHER = 4
GAIN = 0.3
"""Of the running baseline."""
SCALE_OF_ONE_ACTION = 3.0
"""Of a user's gradient before the clip, where a user acts once; measured (docs/papers/003.md)."""


def shape_of(config: DPPG, facts: LearningFacts) -> Shape:
    """Of resolved options."""
    assert config.policy is not None
    assert config.users is not None
    assert config.batch is not None
    assert config.steps is not None
    return Shape(
        policy=policy_of(config, facts),
        users=config.users,
        batch=config.batch,
        steps=config.steps,
        horizon=facts.horizon,
        estimator=config.estimator,
        baseline=config.baseline_weight > 0.0,
        bootstrap=config.bootstrap,
        interactions=config.interactions,
        natural=config.natural,
    )


def policy_of(config: DPPG, facts: LearningFacts) -> Parametric:
    """Of resolved options."""
    actions = None if facts.action is not None else facts.actions
    return Parametric(str(config.policy), facts.observation, actions, facts.action)


def rates_of(config: DPPG, facts: LearningFacts) -> Rates:
    """Of resolved options; scalars that may be traced."""
    assert config.discount is not None
    assert config.step_size is not None
    low, high = return_interval(facts.reward_bounds, config.discount, facts.horizon, config.bootstrap)
    numbers = Rates(
        step_size=config.step_size,
        final=0.0 if config.decay == "linear" else 1.0,
        discount=config.discount,
        middle=(low + high) / 2.0,
        half=(high - low) / 2.0 or 1.0,
        scale=config.clip_norm * (SCALE_OF_ONE_ACTION if facts.horizon == 1 or facts.discount == 0.0 else 1.0),
        weight=config.baseline_weight * config.clip_norm,
        gain=GAIN,
        regularisation=config.regularisation,
        clip=config.clip_norm,
    )
    return Rates(*map(np.float32, numbers))


class State(NamedTuple):
    """Of the learner after some batches. Everything in it is made of released quantities."""

    theta: Any  # (d,) float32
    baseline: Any  # () float32 in [-1, 1]
    average: Any  # (d,) float64 sum of the iterates from which a batch answered, over their number
    step: Any  # () int32 batches done


class Known(NamedTuple):
    """Of a state, what users' vectors are made of besides their own answers."""

    theta: Any
    baseline: Any


# --- the learner ------------------------------------------------------------------------------------------------------


def init(shape: Shape, coins: ActionCoins) -> State:
    """Before the first batch."""
    theta = shape.policy.initial(coins.initial(shape.policy.random_weights))
    return State(theta, jnp.float32(0.0), jnp.zeros(theta.shape, jnp.float64), jnp.int32(0))


def learn_step(shape: Shape, rates: Rates, state: State, noised_sum: Any) -> State:
    """The next state, from a batch's noised sum ``(dimension,)`` alone."""
    mean = noised_sum / shape.batch
    size = shape.policy.size
    theta, t = state.theta, state.step
    share = 1.0 - (1.0 - rates.final) * t / max(shape.steps - 1, 1)
    gradient = mean[:size].astype(jnp.float32)
    # the barrier keeps every action alive while steps are large, and falls with them
    barrier = (rates.regularisation * rates.scale * share).astype(jnp.float32)
    gradient = gradient + barrier * log_barrier_gradient(shape.policy, theta)
    baseline = state.baseline
    if shape.baseline:
        fresh = jnp.clip(mean[size] / rates.weight, -1.0, 1.0)
        # the first ones are averaged; later the newest has the share of the gain
        gain = jnp.maximum(rates.gain, 1.0 / (t + 1.0))
        baseline = (state.baseline + gain * (fresh - state.baseline)).astype(jnp.float32)
    if shape.natural:
        gradient = natural_direction(shape.policy, theta, gradient)
    step = (rates.step_size * share / rates.clip).astype(jnp.float32)
    average = state.average + theta.astype(jnp.float64) / shape.steps
    return State(theta + step * gradient, baseline, average, t + 1)


def public_states(policy: Parametric) -> np.ndarray:
    """``(S, d)`` states that stand for Unif_S in Eq. (3): all of a tabular policy, or spread over the public bounds."""
    if policy.kind == "tabular":
        low, high = policy.observation[0]
        return np.arange(low, high + 1.0)[:, None]
    low, high = np.array(policy.observation, np.float64).T
    return low + (high - low) * np.random.default_rng(0).random((PUBLIC_STATES, len(low)))  # noqa: TID251 (public)


def log_barrier_gradient(policy: Parametric, theta: Any) -> Any:
    """``(d,)``: the gradient of (1/(|A||S|)) sum_{s,a} log pi(a|s), Eq. (8) without lambda; zero for a Gaussian."""
    if policy.gaussian:
        return jnp.zeros_like(theta)
    states = jnp.asarray(public_states(policy), jnp.float32)

    def barrier(theta: Any) -> Any:
        return jnp.mean(jax.nn.log_softmax(policy.preferences(theta, states), axis=-1))

    return jax.grad(barrier)(theta)


def natural_direction(policy: Parametric, theta: Any, gradient: Any, damping: float = 0.1) -> Any:
    """``(d,)``: (F d/tr(F) + damping)^-1 gradient; F the Fisher matrix on :func:`public_states`."""
    states = jnp.asarray(public_states(policy), jnp.float32)
    if policy.gaussian:
        rows = jax.jacrev(lambda th: policy.preferences(th, states).reshape(-1))(theta) / policy.std
    else:
        weights = jnp.sqrt(policy.probabilities(theta, states)).reshape(-1)
        logs = jax.jacrev(lambda th: jax.nn.log_softmax(policy.preferences(th, states)).reshape(-1))(theta)
        rows = logs * weights[:, None]
    fisher = rows.T @ rows / len(states)
    level = jnp.trace(fisher) / policy.size
    whole = fisher / level + damping * jnp.eye(policy.size, dtype=fisher.dtype)
    return jnp.linalg.solve(whole, gradient)


def contributions(shape: Shape, rates: Rates, known: State | Known, trajectories: Trajectory) -> Any:
    """``(B, dimension)``: the raw vectors of a block of users. Private."""

    def one(trajectory: Trajectory) -> Any:
        return contribution(shape, rates, known.theta, known.baseline, trajectory)

    if shape.policy.hidden and shape.horizon > 1:
        # the hidden units of a few users' whole interactions stay in the cache
        return lax.map(one, trajectories, batch_size=_TOGETHER)
    return jax.vmap(one)(trajectories)


def block_total(
    shape: Shape, rates: Rates, mechanism: Any, known: State | Known, rows: Trajectory, included: Any
) -> Any:
    """``(dimension,)``: the exact sum of the clipped vectors of a block of users. Private."""
    # a GPU's products of fewer digits have no place in what is clipped
    with jax.default_matmul_precision("highest"):
        if one_step.fits(shape, mechanism):
            return one_step.clipped_sum(shape, rates, mechanism, known.theta, known.baseline, rows, included)
        return mechanism.clipped_sum(contributions(shape, rates, known, rows), included)


def batch_total(
    shape: Shape, users: Any, rates: Rates, mechanism: Any, state: State, coins: ActionCoins, t: Any
) -> Any:
    """``(dimension,)``: the exact sum of the clipped vectors of batch ``t``. Private."""
    block = min(shape.block, shape.batch)

    def total_of(same: Any, numbers: Any) -> Any:
        users, rates, state, coins, t = same

        def one(total: Any, number: Any) -> tuple[Any, None]:
            place = number * block + jnp.arange(block)
            slots = t * shape.batch + place
            trajectories = users.answer(shape, state.theta, coins.of_batch(t), slots)
            included = (place < shape.batch) & (slots < shape.users)
            return total + block_total(shape, rates, mechanism, state, trajectories, included), None

        nothing = jax.eval_shape(
            mechanism.clipped_sum,
            jax.ShapeDtypeStruct((block, shape.dimension), jnp.float32),
            jax.ShapeDtypeStruct((block,), jnp.bool_),
        )
        return lax.scan(one, jnp.zeros(nothing.shape, nothing.dtype), numbers)[0]

    same, blocks, mesh = (users, rates, state, coins, t), -(-shape.batch // block), mesh_of(mechanism)
    if mesh is None or blocks == 1:
        return total_of(same, jnp.arange(blocks))
    # whole blocks, as many for each device: those beyond the batch are of nobody
    return all_reduced(mesh, total_of, same, jnp.arange(-(-blocks // mesh.size) * mesh.size))


def mesh_of(mechanism: Any) -> Any:
    """The devices, where there are several and sums are exact, so that it does not matter who adds what; else None."""
    return unit_mesh() if isinstance(mechanism, UserSum) else None


def run(
    shape: Shape, environment: Any, rates: Rates, user_noise: Any, mechanism: Any, coins: ActionCoins
) -> tuple[State, Any]:
    """A whole run; may be compiled with ``shape`` and ``mechanism`` static, and batched over rates, noise and coins.

    Args:
        environment: an :class:`~dprl.protocols.Environment`, or :class:`~dprl.learning.policy_gradient.users.Users`.
        user_noise: ``mechanism`` with its noise, from its ``bind``.
        mechanism: what clips and sums.
        coins: of initial weights, of actions and of the simulation.

    Returns:
        The last state, and the iterates ``(T + 1, d)`` float32, which are all released.
    """
    users, start = users_of(environment), init(shape, coins)

    def one(state: State, t: Any) -> tuple[State, Any]:
        total = batch_total(shape, users, rates, mechanism, state, coins, t)
        state = learn_step(shape, rates, state, user_noise.noised(total, t))
        return state, state.theta

    state, history = lax.scan(one, start, jnp.arange(shape.steps, dtype=jnp.int32))
    return state, jnp.concatenate([start.theta[None], history])


def run_compiled(
    shape: Shape, environment: Any, rates: Rates, user_noise: Any, mechanism: Any, coins: ActionCoins
) -> tuple[State, Any]:
    """:func:`run`, compiled; for this call alone where the environment is somebody's own.

    A compiled program holds the environment, with whatever tables are in it. So one that people bring along is never
    compared with another, its program is not kept, and none of it is written to JAX's cache on disk.
    """
    users = users_of(environment)
    if not isinstance(users, Simulated) or type(users.environment).__module__.startswith("dprl."):
        return _RUN(shape, users, rates, user_noise, mechanism, coins)
    alone: Any = jax.jit(lambda rates, user_noise, coins: run(shape, users, rates, user_noise, mechanism, coins))
    with nothing_compiled_on_disk():
        try:
            return jax.block_until_ready(alone(rates, user_noise, coins))
        finally:
            alone.clear_cache()


_RUN = jax.jit(run, static_argnums=(0, 4))


def users_of(environment: Any) -> Any:
    """An environment's users; users themselves are returned as they are."""
    return environment if hasattr(environment, "answer") else Simulated(environment)


def released(config: Any, state: State, history: Any, coins: ActionCoins) -> np.ndarray:
    """``(d,)`` float32, what ``config.release`` says: the ``last`` iterate, or of those by which a batch answered the
    ``average`` or one ``uniform``ly drawn."""
    if config.release == "average":
        return np.asarray(state.average, np.float32)
    if config.release == "uniform":
        return np.asarray(history[coins.below(len(history) - 1)], np.float32)
    return np.asarray(state.theta, np.float32)
