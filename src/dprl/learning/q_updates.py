"""One round of the learner as pure functions in float32: acting, and updates from answers. No reward is seen here.

Nothing is drawn here: the caller brings uniform numbers (:mod:`dprl.learning.q_learner`). If each action has its own
path of noise, :func:`shrink_action_differences` first takes out of the answers what the paths are expected to have
added to the differences of actions.

Q-learning with replay, a target network and epsilon-greedy actions: Mnih et al. (2015), with Adam. An actor is improved
using only the learned Q (paper 001, section 3.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dprl import x64 as x64
from dprl.value_functions.features import Fourier
from dprl.value_functions.q_function import initial_weights, q_values

_ADAM_DECAYS = 0.9, 0.999  # decay rates of Adam's moments
_STEP_SIZE_FALL = 0.9  # share of the step size that is lost over the run


class Transitions(NamedTuple):
    """Samples of one round, or of a whole run in the order in which they came."""

    states: Any  # (N, d) float32, scaled to [0, 1]
    actions: Any  # (N,) int32
    noisy_rewards: Any  # (N,) float32, scaled
    following: Any  # (N, d) float32
    over: Any  # (N,) bool: terminated there


class Adam(NamedTuple):
    """Weights and their moments in Adam."""

    weights: Any
    first: Any
    second: Any


class State(NamedTuple):
    """State of the learner after some rounds. Everything in it is made of answers."""

    q: Adam
    target: Any
    actor: Adam | None
    count: Any  # () float32 number of updates
    average: Any  # part that is summed so far of the mean weights of q and actor over the last half of the rounds
    memory: Transitions


@dataclass(frozen=True)
class LearnerShape:
    """Public numbers that fix the compiled code.

    Attributes:
        updates: number of updates in a round.
        gradient: whether the mechanism adds noise to the reward's part of each update, instead of to the rewards.
        path_per_action: whether the noise is a path for each action.
    """

    network: str
    actions: int
    dimensions: int
    samples: int
    round: int
    batch: int
    updates: int
    average: bool = True
    actor_critic: bool = False
    gradient: bool = False
    path_per_action: bool = False

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return self.samples // self.round


class Rates(NamedTuple):
    """Numbers that are passed to a compiled run as data, so that it serves many of them.

    Attributes:
        scale, centre: the learner uses an answer y as ``(y - centre) scale``, whose size is at most ``1 - discount``
            for y within the reward's bounds.
        terminal_value: value of a terminal state on that scale.
        path_std, path_decay: standard deviation on that scale, and decay, of the path of an action; 0 if the noise is
            no path.
    """

    discount: Any
    step_size: Any
    target_every: Any
    exploration: Any
    exploration_rounds: Any
    scale: Any
    centre: Any
    terminal_value: Any
    path_std: Any
    path_decay: Any


def init(shape: LearnerShape, uniforms: Any) -> State:
    """Return the state before the first round, from ``(2, n)`` uniform numbers for the weights of Q and of an actor."""

    def adam(own: Any) -> Adam:
        weights = initial_weights(shape.network, own, shape.dimensions, shape.actions)
        return Adam(weights, _zeros(weights), _zeros(weights))

    q, actor = adam(uniforms[0]), adam(uniforms[1]) if shape.actor_critic else None
    n, d = (0 if shape.gradient else shape.samples), shape.dimensions
    memory = Transitions(
        jnp.zeros((n, d), jnp.float32), jnp.zeros(n, jnp.int32), jnp.zeros(n, jnp.float32),
        jnp.zeros((n, d), jnp.float32), jnp.zeros(n, bool),
    )  # fmt: skip
    return State(q, q.weights, actor, jnp.float32(0), _zeros(released_weights(q, actor)), memory)


def exploring_actions(shape: LearnerShape, rates: Rates, coins: Any, j: Any, xp: Any = np) -> Any:
    """Return ``(...)`` int32: the action where a sample explores, -1 where it takes the :func:`policy_action` one.

    Args:
        coins: ``(..., 2)`` uniform numbers.
        j: number of the round.
        xp: numpy or jax.numpy.
    """
    share = xp.maximum(rates.exploration, 1.0 - j.astype(np.float32) / rates.exploration_rounds)
    # an actor's choice takes the second coin; if the sample explores, the first coin over the share is uniform too
    second = coins[..., 0] / share if shape.actor_critic else coins[..., 1]
    uniform = xp.minimum((second * shape.actions).astype(np.int32), shape.actions - 1)
    return xp.where(coins[..., 0] < share, uniform, -1)


def acting_weights(state: State) -> Any:
    """Return the weights of the network that acts."""
    return (state.q if state.actor is None else state.actor).weights


def policy_action(shape: LearnerShape, weights: Any, unit: Any, coin: Any, xp: Any = np) -> Any:
    """Return the action of a sample that does not explore: the best by Q, or an action drawn from the actor.

    Args:
        weights: weights from :func:`acting_weights`.
        unit: ``(d,)`` observation scaled to [0, 1].
        coin: uniform number for an actor's choice.
        xp: numpy or jax.numpy.
    """
    values = q_values(shape.network, weights, unit[None].astype(np.float32), xp)[0]
    if not shape.actor_critic:
        return xp.argmax(values)
    odds = xp.exp(values - values.max())
    return xp.minimum(xp.sum(xp.cumsum(odds / odds.sum()) < coin), shape.actions - 1)


@partial(jax.jit, static_argnums=0)
def learn_round(shape: LearnerShape, rates: Rates, state: State, fresh: Transitions, j: Any, uniform: Any) -> State:
    """Return the state after round ``j`` (from 0): its samples join the memory, then replayed samples update Q.

    Args:
        uniform: ``(updates, batch)`` uniform numbers, which choose the samples.
    """

    def joined(memory: Any, new: Any) -> Any:
        return lax.dynamic_update_slice_in_dim(memory, new.astype(memory.dtype), j * shape.round, axis=0)

    memory = jax.tree.map(joined, state.memory, fresh)
    state = state._replace(memory=memory)
    filled = (j + 1) * shape.round
    places = jnp.minimum((uniform * filled).astype(jnp.int32), filled - 1)
    if shape.path_per_action:
        known = jnp.arange(shape.samples) < filled
        memory = memory._replace(noisy_rewards=shrink_action_differences(shape.actions, rates, memory, known))
    step_size = _step_size(shape, rates, j)

    def update(state: State, chosen: Any) -> tuple[State, None]:
        rows = Transitions(*(column[chosen] for column in memory))
        count = state.count + 1
        rate = (
            step_size
            * jnp.sqrt(1 - jnp.float32(_ADAM_DECAYS[1]) ** count)
            / (1 - jnp.float32(_ADAM_DECAYS[0]) ** count)
        )
        target = _targets(shape, rates, state.target, rows)
        q = _adam_step(state.q, jax.grad(partial(_loss, shape, rows, target))(state.q.weights), rate)
        actor = state.actor
        if actor is not None:
            actor = _adam_step(actor, jax.grad(partial(_actor_loss, shape, rows, q.weights))(actor.weights), rate)
        return state._replace(q=q, actor=actor, count=count), None

    state = lax.scan(update, state, places)[0]
    copied = j % rates.target_every == 0
    target = jax.tree.map(lambda new, old: jnp.where(copied, new, old), state.q.weights, state.target)
    return _add_to_average(shape, state._replace(target=target), j)


@partial(jax.jit, static_argnums=0)
def gradients(shape: LearnerShape, state: State, fresh: Transitions) -> Any:
    """Return ``(B, P)``: gradients of Q at each sample with respect to the weights, not clipped yet."""

    def chosen(weights: Any, state: Any, action: Any) -> Any:
        return q_values(shape.network, weights, state[None], jnp)[0, action]

    return _flat(jax.vmap(jax.grad(chosen), (None, 0, 0))(state.q.weights, fresh.states, fresh.actions))


@partial(jax.jit, static_argnums=0)
def gradient_step(
    shape: LearnerShape, rates: Rates, state: State, fresh: Transitions, clipped: Any, mean: Any, j: Any
) -> State:
    """Return the state after one noisy step of the semi-gradient, in which only ``mean`` contains rewards.

    Args:
        clipped: ``(B, P)`` clipped :func:`gradients`.
        mean: ``(P,)`` noisy mean of the centred rewards times the clipped gradients.
    """
    weights = state.q.weights
    values = q_values(shape.network, weights, fresh.states, jnp)
    best = jnp.max(q_values(shape.network, weights, fresh.following, jnp), axis=-1)
    following = jnp.where(fresh.over, rates.terminal_value, best)
    known = rates.discount * following - jnp.take_along_axis(values, fresh.actions[:, None], axis=1)[:, 0]
    step = mean * rates.scale + jnp.mean(known[:, None] * clipped, axis=0)
    moved = _flat(jax.tree.map(lambda x: x[None], weights))[0] + _step_size(shape, rates, j) * step
    return _add_to_average(shape, state._replace(q=state.q._replace(weights=_unflat(moved, weights))), j)


def _targets(shape: LearnerShape, rates: Rates, target: Any, rows: Transitions) -> Any:
    best = jnp.max(q_values(shape.network, target, rows.following, jnp), axis=-1)
    return rows.noisy_rewards + rates.discount * jnp.where(rows.over, rates.terminal_value, best)


def _loss(shape: LearnerShape, rows: Transitions, target: Any, weights: Any) -> Any:
    values = q_values(shape.network, weights, rows.states, jnp)
    return jnp.mean((jnp.take_along_axis(values, rows.actions[:, None], axis=1)[:, 0] - target) ** 2) / 2


def _actor_loss(shape: LearnerShape, rows: Transitions, q: Any, actor: Any) -> Any:
    """Return the loss of a softmax policy: minus its mean Q-value, by the private Q only (section 3.3)."""
    odds = jax.nn.softmax(q_values(shape.network, actor, rows.states, jnp))
    return -jnp.mean(jnp.sum(odds * q_values(shape.network, q, rows.states, jnp), axis=-1))


def _adam_step(adam: Adam, gradient: Any, rate: Any) -> Adam:
    b1, b2 = (jnp.float32(b) for b in _ADAM_DECAYS)
    first = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, adam.first, gradient)
    second = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, adam.second, gradient)
    weights = jax.tree.map(
        lambda w, m, v: w - rate * m / (jnp.sqrt(v) + jnp.float32(1e-8)), adam.weights, first, second
    )
    return Adam(weights, first, second)


def _step_size(shape: LearnerShape, rates: Rates, j: Any) -> Any:
    return rates.step_size * (1 - jnp.float32(_STEP_SIZE_FALL) * j.astype(jnp.float32) / shape.rounds)


def _add_to_average(shape: LearnerShape, state: State, j: Any) -> State:
    tail = shape.rounds // 2
    weight = jnp.where(j >= tail, jnp.float32(1.0 / (shape.rounds - tail)), jnp.float32(0))
    average = jax.tree.map(lambda a, w: a + weight * w, state.average, released_weights(state.q, state.actor))
    return state._replace(average=average)


def released_weights(q: Adam, actor: Adam | None) -> tuple[Any, Any]:
    """Return the weights of Q and of the actor, which may be None."""
    return q.weights, None if actor is None else actor.weights


def _zeros(tree: Any) -> Any:
    return jax.tree.map(jnp.zeros_like, tree)


def _flat(tree: Any) -> Any:
    """Return ``(B, P)``: the gradients of all weights side by side, in the order of the weights' names."""
    return jnp.concatenate([x.reshape(x.shape[0], -1) for x in jax.tree.leaves(tree)], axis=1)


def _unflat(row: Any, like: Any) -> Any:
    leaves, tree = jax.tree.flatten(like)
    ends = np.cumsum([leaf.size for leaf in leaves])[:-1]
    parts = [part.reshape(leaf.shape) for part, leaf in zip(jnp.split(row, ends), leaves, strict=True)]
    return jax.tree.unflatten(tree, [part.astype(leaf.dtype) for part, leaf in zip(parts, leaves, strict=True)])


# --- differences of actions -------------------------------------------------------------------------------------------

COSINE_ORDER = 3
"""Order of the cosines to which the differences of actions are fitted."""
CELLS_PER_COMPONENT = {1: 32, 2: 16, 3: 8}
"""Cells of each component, by the number of components: the noise of samples in one cell counts as the same."""
_RIDGE = 1.0  # pseudo-samples of 0: where an action was not taken, its fit is 0


def shrink_action_differences(actions: int, rates: Rates, memory: Transitions, known: jax.Array) -> jax.Array:
    """Return ``(N,)`` float32: the answers, minus what the noise is expected to add to the actions' differences.

    Paper 001 has no such step. If each action has its own path, the paths move the actions' rewards apart. With few
    people they do so by more than the actions themselves differ, and the learned policy would follow the noise. So the
    part of an answer that depends on the action is fitted by cosines, and a share of that part is subtracted. The share
    is what the noise is expected to have put there, divided by what was found (the estimate of empirical Bayes), and at
    most 1. It is computed only from answers.

    Args:
        actions: number of actions, A; each has a path.
        rates: numbers of the run, with ``path_std`` and ``path_decay`` of a path.
        memory: the samples.
        known: ``(N,)`` bool: which samples have arrived already.
    """
    inputs = memory.states.shape[1]
    cosines, cells = Fourier(((0.0, 1.0),) * inputs, COSINE_ORDER), CELLS_PER_COMPONENT[inputs]
    centres = (np.indices((cells,) * inputs).reshape(inputs, -1).T + 0.5) / cells
    features = cosines(centres)  # (M, P)
    kernel = jnp.exp(-rates.path_decay * np.abs(centres[:, None] - centres).sum(axis=2))
    place = jnp.clip((memory.states * cells).astype(jnp.int32), 0, cells - 1)
    cell = jnp.ravel_multi_index(tuple(place.T), (cells,) * inputs, mode="clip")
    empty = jnp.zeros((actions, len(centres)))
    counts = empty.at[memory.actions, cell].add(known)
    sums = empty.at[memory.actions, cell].add(jnp.where(known, memory.noisy_rewards, 0.0))

    def fitted(count: jax.Array, total: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return one action's ``(P,)`` coefficients, and their ``(P, P)`` covariance under a path of variance 1."""
        gram = (features.T * count) @ features + _RIDGE * jnp.eye(cosines.size)
        solved = jnp.linalg.solve(gram, features.T)
        return solved @ total, (solved * count) @ kernel @ (solved * count).T

    coefficients, noise = jax.vmap(fitted)(counts, sums)
    differences = coefficients - coefficients.mean(axis=0)
    centred = np.eye(actions) - 1.0 / actions
    covariance = jnp.einsum("ac,bc,cpq->apbq", centred, centred, noise).reshape((differences.size,) * 2)
    found = differences.ravel() @ jnp.linalg.pinv(covariance, hermitian=True) @ differences.ravel()
    expected = rates.path_std**2 * (actions - 1) * cosines.size
    share = expected / jnp.maximum(found, expected + 1e-30)
    part = jnp.sum(cosines(memory.states, jnp) * differences[memory.actions], axis=1)
    return (memory.noisy_rewards - share * part).astype(jnp.float32)
