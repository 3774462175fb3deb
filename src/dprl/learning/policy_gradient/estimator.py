"""One person's vector: score times advantage summed over an interaction, and statistics for later baselines and scales.

The vector is raw; the mechanism clips its parts later. Besides the person's own trajectory it depends only on what is
released: the parameters, the baseline and the scale. Advantages are in units of half the public range of returns, so
that they lie in [-2, 2].

If people act once, the mechanism can clip and add up their vectors although none is formed (ghost clipping, see
:mod:`dprl.mechanisms.ghost_clipping`). It needs only the derivative of a person's objective with respect to a layer's
sums: the person's gradient is the outer product of this derivative and the layer's input.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dprl import x64 as x64
from dprl.learning.policy_gradient.trust_region import TARGET_FILL
from dprl.mechanisms.ghost_clipping import SingleRowLayer, ghost_sum, ghost_sum_in_float
from dprl.policies.parametric import Parametric


class Trajectory(NamedTuple):
    """Trajectory of one person; private. Entries from ``length`` on may be any finite numbers."""

    observations: Any  # (H, d) float32
    actions: Any  # (H,) int32, or (H, k) float32 scaled actions
    rewards: Any  # (H,) float32
    length: Any  # () int32, from 0 (nothing was answered) to H
    terminated: Any  # () bool: it ended by itself, and not at the time limit


@dataclass(frozen=True)
class RunShape:
    """Public numbers that fix the compiled code.

    Attributes:
        policy: policy without its parameters.
        places: number of places for people, N.
        batch: number of places in a batch, m.
        steps: number of batches, T.
        horizon: length of the longest interaction, H.
        estimator: score times returns-to-go, or times the return of the whole interaction (the paper's).
        baseline: whether a vector has a statistic of the return, from which the baseline is made.
        bootstrap: return that is assumed after a time limit: the released ``baseline``, the largest return (``bound``),
            or nothing.
        interactions: number of answers of one person in the same context; the mean return of the others is the baseline
            of each answer.
        natural: whether a step is preconditioned by the Fisher matrix on public states, see
            :func:`~dprl.learning.policy_gradient.trainer.natural_direction`.
        adaptive: whether the gradients released so far bound a step, see
            :mod:`~dprl.learning.policy_gradient.trust_region`.
        scaled: whether a vector has a statistic of its length, by which later vectors are scaled up.
        block: number of people whose vectors lie in memory at once.
    """

    policy: Parametric
    places: int
    batch: int
    steps: int
    horizon: int
    estimator: Literal["returns-to-go", "reinforce"] = "returns-to-go"
    baseline: bool = True
    bootstrap: Literal["baseline", "bound", "none"] = "baseline"
    interactions: int = 1
    natural: bool = False
    adaptive: bool = False
    scaled: bool = False
    block: int = 128

    @property
    def parts(self) -> tuple[int, ...]:
        """Lengths of a vector's parts: the gradient, and the statistics in use."""
        return (self.policy.size, *[1] * (self.baseline + self.scaled))

    @property
    def dimension(self) -> int:
        """Length of a person's vector."""
        return sum(self.parts)


class Rates(NamedTuple):
    """Numbers that are passed to a compiled run as data, so that it serves many of them; scalars that may be traced.

    Attributes:
        step_size: eta, step size for the mean of the clipped vectors in units of C; the longest one, if steps are
            adaptive.
        final: share of their first values to which step size and barrier fall over the run, linearly.
        discount: discount of returns.
        middle, half: middle and half width of the public interval of returns, :func:`return_interval`.
        scale: factor on a person's gradient before the clip; ``growth``, which follows from lengths, comes on top.
        baseline_weight: w; the statistic for the baseline lies in [-w, w].
        baseline_gain: share of the newest released statistic in the running baseline.
        regularisation: lambda of Eq. (3) at the first step; it falls as the step size does.
        clip: clip norm C.
        scale_weight: largest absolute value of the statistic for the scale.
    """

    step_size: Any
    final: Any
    discount: Any
    middle: Any
    half: Any
    scale: Any
    baseline_weight: Any
    baseline_gain: Any
    regularisation: Any
    clip: Any
    scale_weight: Any = np.float32(0.0)


def return_interval(reward: tuple[float, float], discount: float, horizon: int, bootstrap: str) -> tuple[float, float]:
    """Return the least and largest return-to-go of rewards within ``reward``, also beyond a bootstrapped time limit."""
    low, high = reward
    if discount == 1.0 or bootstrap == "none":
        longest = horizon if discount == 1.0 else (1.0 - discount**horizon) / (1.0 - discount)
    else:
        longest = 1.0 / (1.0 - discount)
    # an interaction may end after one reward
    return (low * (longest if low < 0.0 else 1.0), high * (longest if high > 0.0 else 1.0))


def returns_to_go(rewards: Any, length: Any, tail: Any, discount: Any) -> Any:
    """Return ``(H,)`` returns-to-go: r_t + discount r_{t+1} + ... up to ``length``, and ``tail`` after that.

    From ``length`` on, every entry is ``tail`` itself.
    """

    def back(following: Any, here: Any) -> tuple[Any, Any]:
        t, reward = here
        value = jnp.where(t < length, reward + discount * following, tail)
        return value, value

    steps = jnp.arange(rewards.shape[0])
    _, values = lax.scan(back, jnp.asarray(tail, jnp.float32), (steps, rewards), reverse=True)
    return values


def advantages(shape: RunShape, rates: Rates, baseline: Any, trajectory: Trajectory) -> tuple[Any, Any]:
    """Return ``(H,)`` advantages, which are 0 from the end on, and the statistic: the mean return, in [-1, 1]."""
    steps = jnp.arange(trajectory.rewards.shape[0])
    inside = steps < trajectory.length
    tail = {"baseline": rates.middle + rates.half * baseline, "bound": rates.middle + rates.half, "none": 0.0}
    after = jnp.where(trajectory.terminated, 0.0, tail[shape.bootstrap]).astype(jnp.float32)
    rewards = jnp.where(inside, trajectory.rewards, 0.0).astype(jnp.float32)
    returns = returns_to_go(rewards, trajectory.length, after, rates.discount)
    if shape.estimator == "reinforce":
        returns = jnp.broadcast_to(returns[0], returns.shape)
    scaled = jnp.clip((returns - rates.middle) / rates.half, -1.0, 1.0)
    scaled = jnp.where(inside, scaled, 0.0)
    statistic = jnp.sum(scaled) / jnp.maximum(trajectory.length, 1)
    return jnp.where(inside, scaled - baseline, 0.0), statistic


def weighted_score(policy: Parametric, theta: Any, observations: Any, actions: Any, weights: Any) -> Any:
    """Return ``(d,)``: the gradient of sum_t weight_t log pi(a_t | s_t)."""

    def surrogate(theta: Any) -> Any:
        return jnp.sum(weights * policy.log_prob(theta, observations, actions))

    return jax.grad(surrogate)(theta)


def contribution(
    shape: RunShape, rates: Rates, theta: Any, baseline: Any, trajectory: Trajectory, growth: Any = 1.0
) -> Any:
    """Return ``(dimension,)`` float32: the raw vector of one person.

    Args:
        theta: ``(d,)`` released parameters.
        baseline: () released running mean of the return, in [-1, 1]. If vectors are scaled, the returns in it are cut
            at 1 / growth around the baseline before.
        growth: () factor on the scale, made from what was released.
        trajectory: trajectory of one person; with several interactions every array has a leading axis for them.
    """
    if shape.interactions > 1:
        return _group_contribution(shape, rates, theta, baseline, trajectory, growth)
    weights, statistic = advantages(shape, rates, baseline, trajectory)
    gradient = weighted_score(shape.policy, theta, trajectory.observations, trajectory.actions, weights)
    return _join_parts(shape, rates, gradient, statistic, baseline, growth, trajectory.length > 0)


def _group_contribution(
    shape: RunShape, rates: Rates, theta: Any, baseline: Any, group: Trajectory, growth: Any
) -> Any:
    """Return the vector of K interactions; the baseline of each is the mean return of the person's other ones."""
    # returns beyond a time limit are still bootstrapped by the released baseline
    weights, statistics = jax.vmap(lambda one: advantages(shape, rates, baseline, one))(group)
    count = shape.interactions
    others = (jnp.sum(statistics) - statistics) / (count - 1)
    steps = jnp.arange(group.rewards.shape[1])
    inside = steps < group.length[:, None]
    weights = jnp.where(inside, weights + baseline - others[:, None], 0.0)
    flat = group.observations.reshape(-1, group.observations.shape[-1])
    actions = group.actions.reshape(-1, *group.actions.shape[2:])
    gradient = weighted_score(shape.policy, theta, flat, actions, weights.reshape(-1)) / count
    return _join_parts(shape, rates, gradient, jnp.mean(statistics), baseline, growth, jnp.any(group.length > 0))


def _join_parts(
    shape: RunShape, rates: Rates, gradient: Any, mean_return: Any, baseline: Any, growth: Any, answered: Any
) -> Any:
    """Return the parts side by side: the gradient and, if they are in use, the statistics of return and length.

    With a growing scale the statistic of the return is the return minus the baseline, enlarged as much as the gradient:
    the less of its range the return uses, the less noise it shall have. A person who answered nothing has a vector of
    zeros. This is how neighbours differ, and neither statistic counts a zero as news.
    """
    scaled, statistics = gradient * rates.scale * growth, list[Any]()
    if shape.baseline:
        seen = jnp.clip(growth * (mean_return - baseline), -1.0, 1.0) if shape.scaled else mean_return
        statistics.append(rates.baseline_weight * seen)
    if shape.scaled:
        rest = jnp.sqrt(1.0 - (rates.baseline_weight / rates.clip) ** 2 - (rates.scale_weight / rates.clip) ** 2)
        filled = jnp.minimum(jnp.linalg.norm(scaled / (rates.clip * rest)), 1.0)
        statistics.append(rates.scale_weight * (filled - TARGET_FILL) / (1.0 - TARGET_FILL))
    vector = jnp.concatenate([scaled, *(jnp.reshape(x, 1) for x in statistics)])
    return jnp.where(answered, vector, 0.0).astype(jnp.float32)


# --- people of one step, whose vectors are never formed ---------------------------------------------------------------

GHOST_BLOCK = 1600
"""Most people in one call of :func:`ghost_clipped_sum`, on the host."""


def ghost_layers(
    shape: RunShape, rates: Rates, theta: Any, baseline: Any, rows: Trajectory
) -> tuple[list[SingleRowLayer], Any]:
    """Return the layers of a block of people, and their statistics ``(m, 1)``, or None if there are no statistics.

    Args:
        theta: ``(d,)`` released parameters.
        baseline: () released running mean of the statistic.
        rows: ``(m, 1, ...)``, trajectories of one step.
    """
    weights, statistic = jax.vmap(advantages, (None, None, None, 0))(shape, rates, baseline, rows)
    layers = policy_layers(
        shape.policy, theta, rows.observations[:, 0], rows.actions[:, 0], weights[:, 0] * rates.scale
    )
    statistics = (rates.baseline_weight * statistic).astype(jnp.float32)[:, None] if shape.baseline else None
    return layers, statistics


def policy_layers(policy: Any, theta: Any, observations: Any, actions: Any, weights: Any) -> list[SingleRowLayer]:
    """Return the layers of ``weight_i log pi(a_i | s_i)``, from the first to the last.

    Args:
        policy: a :class:`~dprl.policies.parametric.Parametric`.
        observations: ``(m, d)``.
        actions: ``(m,)``, or ``(m, k)`` scaled ones.
        weights: ``(m,)``.
    """
    x = policy.feature_rows(observations)
    *inner, (last, bias) = policy.layers(theta)
    root = jnp.float32(max(policy.hidden, 1) ** 0.5)
    active = jnp.tanh(x @ inner[0][0].T) / root if inner else x
    out = active @ last.T + (0.0 if bias is None else bias)
    if policy.gaussian:
        deltas = (actions - out) / jnp.float32(policy.std**2)
    else:
        deltas = jax.nn.one_hot(actions, policy.outputs, dtype=out.dtype) - jax.nn.softmax(out, axis=-1)
    deltas = deltas * weights[:, None]
    top = SingleRowLayer(active, deltas, bias is not None)
    if not inner:
        return [top]
    # here the root divides a few numbers of each person, not one for each hidden unit
    return [SingleRowLayer(x, ((deltas / root) @ last) * (1.0 - root * root * active * active)), top]


def can_ghost_clip(shape: RunShape, mechanism: Any) -> bool:
    """Tell whether people of one step meet a network. Otherwise it is as quick to form each person's vector."""
    return (
        shape.horizon == 1
        and shape.interactions == 1
        and not shape.scaled
        and shape.policy.hidden > 0
        and mechanism.participation == "once each"
    )


def ghost_clipped_sum(
    shape: RunShape, rates: Rates, mechanism: Any, theta: Any, baseline: Any, rows: Trajectory, included: Any
) -> Any:
    """Return ``(dimension,)``: ``mechanism.clipped_sum`` of people's vectors, none of which is formed. Private."""
    layers, statistics = ghost_layers(shape, rates, theta, baseline, rows)
    add = ghost_sum if mechanism.certifies else ghost_sum_in_float
    return add(mechanism, layers, included, statistics)
