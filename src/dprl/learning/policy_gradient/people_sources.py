"""People who answer: many simulated people side by side in compiled code, or people outside of JAX, block by block."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from dprl import x64 as x64
from dprl.engine.unit_source import Included, sum_of_blocks
from dprl.environments.people import NOBODY
from dprl.learning.policy_gradient.estimator import RunShape, Trajectory
from dprl.mechanisms.action_coins import BatchCoins, uniform_of
from dprl.mechanisms.gaussian_sum import ALTERS_ONE_PLACE, Stability
from dprl.mechanisms.threefry import normal_of
from dprl.policies.parametric import Parametric

_LEAST_ROWS = 64
_CHUNK_STEPS = 32  # steps of a chunk of a rollout; a chunk costs nothing if all people of a block are done


@dataclass(frozen=True)
class CompiledPeople:
    """People who meet an :class:`~dprl.protocols.Environment`, each from a separate start.

    They are :class:`~dprl.engine.unit_source.Blocks`, and a pytree without arrays.
    """

    environment: Any
    shape: RunShape

    stability = ALTERS_ONE_PLACE
    """Each person has one trajectory, in a separate place."""

    @property
    def units(self) -> int:
        """Number of places for people."""
        return self.shape.places

    def block(self, units: Any, state: Any = None) -> Trajectory:
        """Return what the people in the consecutive places ``units`` ``(B,)`` do under the state's policy."""
        return self.trajectories(state.theta, state.coins.for_batch(state.step), units)

    def trajectories(self, theta: Any, coins: BatchCoins, places: Any) -> Trajectory:
        """Return the trajectories ``(B, ...)`` of the people in ``places``.

        If a person has several interactions, every array has a second axis for them: its shape is ``(B, K, ...)``.
        """
        shape, count, first = self.shape, places.shape[0], places[0]
        if shape.interactions == 1:
            return rollout(shape.policy, self.environment, theta, coins, count, shape.horizon, first=first)
        # the same start for all interactions of a person
        each = rollout(
            shape.policy, self.environment, theta, coins, count, shape.horizon, shape.interactions, first=first
        )
        return jax.tree.map(lambda x: x.reshape(count, shape.interactions, *x.shape[1:]), each)


jax.tree_util.register_static(CompiledPeople)


@dataclass(frozen=True)
class PeopleOnHost:
    """People outside of JAX as a :class:`~dprl.engine.unit_source.Source`, met in blocks of a public size.

    Each person has separate coins. So a batch's sum has the same integers whoever asks the people, in whatever order,
    and wherever the blocks are.

    Attributes:
        people: people, such as a :class:`~dprl.environments.people.People`.
        places: number of places, which is public; None if everybody in a log may be sampled.
    """

    people: Any
    places: int | None

    @property
    def units(self) -> int:
        """Number of units; private."""
        return self.people.count() if self.places is None else self.places

    @property
    def stability(self) -> tuple[Stability, ...]:
        """Changes that one more person may make to the set of units."""
        return self.people.stability

    def total(self, program: Any, stage: int, mechanism: Any, state: Any, included: Included) -> np.ndarray:
        """Return the sum of a batch; see :class:`~dprl.engine.unit_source.Source`."""
        blocks = blocks_of(program.block_size(mechanism), included)
        answers = self.people.answers_in_blocks(blocks, policy_for_people(program, state))
        return sum_of_answers(program, stage, mechanism, state, blocks.shape[1], answers)


def blocks_of(size: int, included: Included) -> np.ndarray:
    """Return ``(B, size)``: the :data:`~dprl.engine.unit_source.Included` places in order, then :data:`NOBODY`."""
    places = np.array(included) if isinstance(included, range) else np.flatnonzero(included)
    filled = np.full(-(-len(places) // size) * size, NOBODY, dtype=np.int64)
    filled[: len(places)] = places
    return filled.reshape(-1, size)


def sum_of_answers(
    program: Any, stage: int, mechanism: Any, state: Any, size: int, answers_in_blocks: Iterable[Iterable[Any]]
) -> np.ndarray:
    """Return ``(dimension,)``: the sum over blocks of ``size`` people, in which only people who answered count."""

    def counted(answers: Iterable[Any]) -> tuple[Trajectory, np.ndarray]:
        rows = Trajectory(*(np.asarray(part) for part in answers))
        return rows, rows.length.reshape(len(rows.length), -1).sum(-1) > 0

    return sum_of_blocks(program, stage, mechanism, state, map(counted, answers_in_blocks), program.shape.batch > size)


def policy_for_people(program: Any, state: Any) -> PolicyForPeople:
    """Return the policy of the state, as people outside of JAX meet it."""
    return PolicyForPeople(program.shape.policy, np.asarray(state.theta), state.coins.for_batch(int(state.step)))


def rollout(
    policy: Parametric,
    environment: Any,
    theta: Any,
    coins: BatchCoins,
    count: int,
    horizon: int,
    repeats: int = 1,
    first: Any = 0,
) -> Trajectory:
    """Return ``count * repeats`` trajectories side by side, in float32: ``repeats`` trajectories of each start.

    The starts belong to ``count`` places from ``first`` on. What happens in a place is a function only of the coins of
    that place, whoever else is there. A chunk in which nobody acts any more costs nothing, unless it is vectorised once
    more from outside.
    """
    worlds = coins.worlds(first, count)
    state = jax.vmap(environment.reset)(_fold_keys(worlds, 0))
    state = jax.tree.map(lambda x: jnp.repeat(_to_float32(x), repeats, axis=0), state)
    worlds = jax.vmap(lambda world: _fold_keys(jnp.repeat(world, repeats), 1 + jnp.arange(repeats)))(worlds).reshape(-1)
    total = count * repeats
    chunks = -(-horizon // _CHUNK_STEPS)
    length = -(-horizon // chunks)

    def step(carry: Any, given: Any) -> tuple[Any, Any]:
        state, alive = carry
        t, drawn = given
        seen = jax.vmap(environment.observe)(state).astype(jnp.float32).reshape(total, -1)
        action = policy.draw(theta, seen, drawn)
        following, reward, over = jax.vmap(environment.step)(
            _fold_keys(worlds, t), state, policy.to_environment(action)
        )
        within = t < horizon
        running = alive & within
        record = (seen, action, reward.astype(jnp.float32), running)
        return (jax.tree.map(_to_float32, following), alive & ~(over & within)), record

    def chunk(carry: Any, number: Any) -> tuple[Any, Any]:
        def go(carry: Any) -> tuple[Any, Any]:
            drawn = _action_coins(policy, coins, first, count, repeats, number * length, length)
            return lax.scan(step, carry, (number * length + jnp.arange(length), drawn))

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


def _fold_keys(keys: Any, number: Any) -> Any:
    """Return JAX keys folded with one number, or with one number each."""
    return jax.vmap(random.fold_in)(keys, jnp.broadcast_to(jnp.asarray(number), keys.shape))


def _action_coins(
    policy: Parametric, coins: BatchCoins, first: Any, count: int, repeats: int, turn: Any, turns: int
) -> jax.Array:
    """Return ``(turns, count * repeats)`` coins of the actions from number ``turn`` on.

    Continuous actions have a last axis for their components.
    """
    each = repeats * (policy.outputs if policy.gaussian else 1)
    draw = coins.normals if policy.gaussian else coins.uniforms
    found = draw(first, count, turn * each, turns * each).reshape(turns, repeats, -1, count)
    return found.transpose(0, 3, 1, 2).reshape(turns, count * repeats, *([-1] if policy.gaussian else []))


def _to_float32(x: Any) -> Any:
    return x.astype(jnp.float32) if jnp.issubdtype(x.dtype, jnp.floating) else x


@dataclass(frozen=True)
class PolicyForPeople:
    """Policy as people outside of JAX meet it: an action for each observation, by the coins of the observing person.

    Attributes:
        coins: coins of the batch. A person's coins are a function of place and turn, and of nothing that others did.
    """

    policy: Parametric
    theta: Any
    coins: BatchCoins

    def __call__(self, observations: np.ndarray, places: np.ndarray, turns: np.ndarray) -> np.ndarray:
        """Return an action for each of ``(n, d)`` observations.

        Args:
            places: ``(n,)`` places of the observing people; a number below 0 is nobody, whose action is never looked
                at.
            turns: ``(n,)`` numbers of actions that these people took before.

        Returns:
            ``(n,)`` int32, or ``(n, k)`` float32 scaled actions, not yet cut to their bounds.
        """
        seen = np.asarray(observations, np.float32)
        each = self.policy.outputs if self.policy.gaussian else 1
        # the number of rows is a power of two and at least 64: few shapes are compiled, and no digit depends on how
        # many others act at the same time
        count = max(_LEAST_ROWS, 1 << max(len(seen) - 1, 0).bit_length())
        words, places = np.zeros((count, each), np.uint32), np.maximum(places, 0)
        order = np.argsort(turns, kind="stable")
        for some in np.split(order, np.flatnonzero(np.diff(turns[order])) + 1):
            for component in range(each if len(some) else 0):
                words[some, component] = self.coins.words_at(places[some], int(turns[some[0]]) * each + component)
        padded = np.pad(seen, ((0, count - len(seen)), (0, 0)))
        return np.asarray(_draw_actions(self.policy, self.theta, padded, words))[: len(seen)]

    def to_environment(self, actions: Any) -> np.ndarray:
        """Return actions as an environment takes them: scaled actions are cut, and mapped to their bounds."""
        return np.asarray(self.policy.to_environment(actions))


@partial(jax.jit, static_argnums=0)
def _draw_actions(policy: Parametric, theta: Any, observations: Any, words: Any) -> Any:
    return policy.draw(theta, observations, normal_of(words) if policy.gaussian else uniform_of(words[:, 0]))
