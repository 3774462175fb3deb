"""Users who answer: in a simulator, many side by side in compiled code, or outside of JAX, one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from dprl import x64 as x64
from dprl.algorithms.policy_gradient.estimator import Shape, Trajectory
from dprl.policies.parametric import Parametric

_CHUNK = 32  # steps of a rollout after which a block is left whose users are all done


class Users(Protocol):
    """Who answers, as a pytree; see :class:`Simulated`."""

    def answer(self, shape: Shape, theta: Any, key: Any, slots: Any) -> Trajectory:
        """The trajectories ``(B, ...)`` of the users in places ``slots`` ``(B,)``; with several interactions of each
        ``(B, K, ...)``."""
        ...


@dataclass(frozen=True)
class Simulated:
    """Users who meet an :class:`~dprl.protocols.Environment`, each from a start of its own."""

    environment: Any

    def answer(self, shape: Shape, theta: Any, key: Any, slots: Any) -> Trajectory:
        count = slots.shape[0]
        if shape.interactions == 1:
            return rollout(shape.policy, self.environment, theta, key, count, shape.horizon)
        # the same start for all interactions of a user
        each = rollout(shape.policy, self.environment, theta, key, count, shape.horizon, shape.interactions)
        return jax.tree.map(lambda x: x.reshape(count, shape.interactions, *x.shape[1:]), each)


jax.tree_util.register_static(Simulated)


def rollout(
    policy: Parametric, environment: Any, theta: Any, key: Any, count: int, horizon: int, repeats: int = 1
) -> Trajectory:
    """``count * repeats`` trajectories side by side, in float32; ``repeats`` of each start.

    A chunk in which nobody acts any more costs nothing, unless it is vectorised once more from outside.
    """
    start_key, coin_key, step_key = random.split(key, 3)
    state = jax.vmap(environment.reset)(random.split(start_key, count))
    state = jax.tree.map(lambda x: jnp.repeat(_single(x), repeats, axis=0), state)
    total = count * repeats
    chunks = -(-horizon // _CHUNK)
    length = -(-horizon // chunks)

    def step(carry: Any, given: Any) -> tuple[Any, Any]:
        state, alive = carry
        t, coins = given
        seen = jax.vmap(environment.observe)(state).astype(jnp.float32).reshape(total, -1)
        action = policy.draw(theta, seen, coins)
        keys = random.split(random.fold_in(step_key, t), total)
        following, reward, over = jax.vmap(environment.step)(keys, state, policy.to_environment(action))
        within = t < horizon
        running = alive & within
        record = (seen, action, reward.astype(jnp.float32), running)
        return (jax.tree.map(_single, following), alive & ~(over & within)), record

    def chunk(carry: Any, number: Any) -> tuple[Any, Any]:
        def go(carry: Any) -> tuple[Any, Any]:
            coins = policy.coins(random.fold_in(coin_key, number), (length, total))
            return lax.scan(step, carry, (number * length + jnp.arange(length), coins))

        def rest(carry: Any) -> tuple[Any, Any]:
            shapes = jax.eval_shape(go, carry)[1]
            return carry, jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)

        return lax.cond(jnp.any(carry[1]), go, rest, carry)

    (_, alive), records = lax.scan(chunk, (state, jnp.ones(total, bool)), jnp.arange(chunks))
    seen, actions, rewards, ran = (
        jnp.swapaxes(x.reshape(chunks * length, total, *x.shape[3:])[:horizon], 0, 1) for x in records
    )
    # whoever still acts at the end was cut by the time limit
    return Trajectory(seen, actions, rewards, jnp.sum(ran, axis=1).astype(jnp.int32), ~alive)


def _single(x: Any) -> Any:
    return x.astype(jnp.float32) if jnp.issubdtype(x.dtype, jnp.floating) else x


class Acting:
    """The policy as users outside of JAX meet it: an action for each observation, with fresh coins every time."""

    def __init__(self, policy: Parametric, theta: Any, seed: int | tuple[int, ...]) -> None:
        self.policy, self.theta = policy, theta
        self._generator = np.random.default_rng(seed)

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """``(n,)`` int32 for ``(n, d)`` observations, or ``(n, k)`` float32 scaled actions, not yet cut to bounds."""
        seen = np.asarray(observations, np.float32)
        # as many rows as a power of two: few shapes to compile
        count = 1 << max(len(seen) - 1, 0).bit_length()
        padded = np.pad(seen, ((0, count - len(seen)), (0, 0)))
        if self.policy.gaussian:
            coins = self._generator.standard_normal((count, self.policy.outputs), np.float32)
        else:
            coins = self._generator.random(count, np.float32)
        return np.asarray(_DRAW(self.policy, self.theta, padded, coins))[: len(seen)]

    def to_environment(self, actions: Any) -> np.ndarray:
        """As an environment takes them: scaled actions are cut and put into their bounds."""
        return np.asarray(self.policy.to_environment(actions))


_DRAW = jax.jit(Parametric.draw, static_argnums=0)
