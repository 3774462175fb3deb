"""Returns of paper 001's variants on the interval walk.

A point is one variant at one radius and budget, over several seeds that run side by side in one compiled program. The
noise is that of a release's own plan, drawn from public seeds. Returns are those of the greedy policy of a Q,
undiscounted over an episode of 50 steps, and exact except for the grid on which the walk is solved. No person's data
are used: the rewards are known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from dprl.accounting.budget import Budget
from dprl.environments.interval_walk import IntervalWalk
from dprl.learning import planned_q
from dprl.learning.functional_q import FunctionalQ, resolve
from dprl.learning.learning_plan import make_learning_plan, make_mechanism
from dprl.learning.q_learner import rates_of, shape_of
from dprl.mechanisms.noise import SeededNoise
from dprl.value_functions.q_function import q_values
from dprl_papers.harness.programmed import Run, table_over
from dprl_papers.paper_001_functional_q import published
from dprl_papers.paper_001_functional_q.compiled_learner import ExactAnswers, run
from dprl_papers.paper_001_functional_q.published import PublishedQ

RANDOM, BEST = 10.895, 20.542
"""Returns of the policy that acts by chance, and of the best one (a test has them by dynamic programming)."""
GRID, COARSE = 257, 65  # points per side on which policies are solved, in one dimension and in two
BLOCK = 10  # seeds side by side in one compiled run
LEARNER_SEED = 1
PAPERS_STEP = 3e-4
"""Learning rate of the paper."""
RETURN, PEOPLE = "normalised return", "people n whose mean the reward is (radius 0.5/n)"
_SMALLEST_STD = 1e-6  # stands for no noise in Algorithm 1 as published

Method = Literal["functional", "observed-reward", "gradient", "output", "none"]


@dataclass(frozen=True, kw_only=True)
class EndsWalk(IntervalWalk):
    """Interval walk that pays at its ends: |s - 1/2|. A policy that is good in one walk is bad in the other."""

    def reward(self, state: Any, action: Any) -> jax.Array:
        return 0.5 - super().reward(state, action)


@dataclass(frozen=True, kw_only=True)
class Point:
    """One variant at one setting.

    Attributes:
        method: a variant, or ``none`` for the learner without noise.
        people: number of people n; the radius is the reward's range over n.
        epsilon, delta: the budget.
        multiplier: noise over sensitivity; replaces the noise that the budget needs.
        lipschitz: L over R; by default the environment's public fact (4).
        shared: whether all actions share one path, as the environment's public fact allows.
        updates: number of updates on replayed samples per fresh sample.
        samples, batch: number of samples in a run, and in a round.
        step_size, decay: step size, and decay of the kernel; by default the library's.
        network: by default ``mlp:32`` for methods that replay samples, otherwise the library's.
        ends: whether the walk pays at its ends.
        dimensions: number of dimensions of the walk.
        curve: whether the returns along the run are measured, instead of the released Q's.
    """

    method: Method
    people: float = 100
    epsilon: float = 0.9
    delta: float = 1e-4
    multiplier: float | None = None
    lipschitz: float | None = None
    shared: bool = True
    updates: float = 1.0
    samples: int = 5000
    batch: int = 50
    step_size: float | None = None
    network: str | None = None
    decay: float | None = None
    ends: bool = False
    dimensions: int = 1
    curve: bool = False


def normalised(returns: Any) -> np.ndarray:
    """Return normalised returns: 0 for random actions, 1 for the best policy (in one dimension, paid in the middle)."""
    return (np.asarray(returns) - RANDOM) / (BEST - RANDOM)


FUNCTIONAL, OBSERVED, NO_NOISE = Point(method="functional"), Point(method="observed-reward"), Point(method="none")


def measured(run: Run, point: Point, seeds: int | None = None) -> dict[str, np.ndarray]:
    """Return the result of :func:`measure`, computed or kept; by default over all seeds of the run."""
    found = run.cached(measure, point, run.seed, run.trials if seeds is None else seeds)
    return {name: np.array(values) for name, values in found.items()}


def over_people(run: Run, point: Point, epsilon: float, what: str = "return") -> dict[float, np.ndarray]:
    """Return the results of a point for each number of people of the run; returns are normalised."""
    found = {}
    for n in run.values:
        at = dataclasses.replace(point, people=n, epsilon=epsilon, delta=run.delta)
        values = measured(run, at, seeds_of(run, n))[what]
        found[n] = normalised(values) if what == "return" else values
    return found


def seeds_of(run: Run, people: float) -> int:
    """Return the number of seeds: twice as many at 30 people, where the curves are steepest."""
    return run.trials * (2 if people == 30 and not run.quick else 1)


def people_table(run: Run, found: Mapping[str, Mapping[Any, np.ndarray]], what: str = RETURN) -> dict[str, Any]:
    """Return a table of means, with one column per number of people of the run."""
    return table_over(
        found, "n", what, run.trials, ", twice as many at n = 30" if seeds_of(run, 30) > run.trials else ""
    )


# --- learning --------------------------------------------------------------------------------------------------------


def walk_of(point: Point) -> IntervalWalk:
    kind = EndsWalk if point.ends else IntervalWalk
    return kind(dimensions=point.dimensions)


def config_of(point: Point) -> FunctionalQ:
    """Return the resolved options of a point."""
    facts = walk_of(point).facts
    radius = facts.reward_range / point.people
    options: dict[str, Any] = {"variant": "observed-reward" if point.method == "none" else point.method}
    if point.method == "functional":
        options |= {"decay": point.decay, "shared_path": point.shared, "mixed_derivatives": point.dimensions > 1}
    if point.method in ("functional", "output") and point.lipschitz is not None:
        options["reward_lipschitz"] = point.lipschitz * radius
    network = point.network or (None if point.method in ("gradient", "output") else "mlp:32")
    options |= {"step_size": point.step_size, "network": network}
    options |= {"samples": point.samples, "round": point.batch, "updates_per_sample": point.updates}
    return resolve(FunctionalQ(reward_radius=radius, **options), facts)


def weights_of(point: Point, seed: int, seeds: int) -> dict[str, np.ndarray]:
    """Return the released weights of Q, ``(seeds, ...)`` each.

    For a curve they are ``(seeds, rounds, ...)``, after each round.
    """
    walk, config = walk_of(point), config_of(point)
    if point.method == "output":
        return _tables(point, config, walk, seed, seeds)
    mechanism = None
    if point.multiplier is not None:
        mechanism = make_mechanism(config, walk.facts, point.multiplier)
    elif point.method != "none":
        mechanism = make_learning_plan(config, walk.facts, Budget(point.epsilon, point.delta)).mechanism
    shape, rates = shape_of(config, walk.facts), rates_of(config, walk.facts, mechanism)
    blocks = []
    for first in range(seed, seed + seeds, BLOCK):
        numbers = range(first, min(first + BLOCK, seed + seeds))
        average, history = _runs(shape, walk, rates, answers_of_seeds(mechanism, numbers), keys_of(numbers))
        blocks.append(jax.tree.map(np.asarray, history if point.curve else average))
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


def answers_of_seeds(mechanism: Any, numbers: Sequence[int]) -> Any:
    """Return a mechanism's answers with the noise of each of these seeds, side by side; exact answers for None."""
    if mechanism is None:
        return ExactAnswers()
    each = [mechanism.bind(SeededNoise.from_seed(i).stream("reward")) for i in numbers]
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *each)


def keys_of(numbers: Sequence[int]) -> jax.Array:
    """Return the learner's key for each of these seeds."""
    return jnp.stack([jax.random.fold_in(jax.random.key(LEARNER_SEED), i) for i in numbers])


@partial(jax.jit, static_argnums=(0, 1))
def _runs(shape: Any, walk: IntervalWalk, rates: Any, answers: Any, keys: Any) -> Any:
    def one(answers: Any, key: Any) -> Any:
        state, history = run(shape, walk, rates, answers, key)
        return state.average[0], history

    return jax.vmap(one)(answers, keys)


def _tables(point: Point, config: FunctionalQ, walk: IntervalWalk, seed: int, seeds: int) -> dict[str, np.ndarray]:
    """Return the weights of the variant ``output``.

    It does not learn, but adds a path to the optimal Q of the public model.
    """
    model = walk.transition_matrix(planned_q.POINTS)
    plan = make_learning_plan(config, walk.facts, Budget(point.epsilon, point.delta), model)
    assert plan.mechanism is not None
    rewards = np.tile(np.asarray(walk.reward(planned_q.POINTS[:, None], 0)), (walk.actions, 1))
    discount = float(plan.config.discount or 0.0)
    noises = [SeededNoise.from_seed(i).stream("reward") for i in range(seed, seed + seeds)]
    each = [planned_q.released_q(model, rewards, plan.mechanism.bind(n), discount, walk.facts) for n in noises]
    return {"V": np.stack([q.weights["V"] for q in each])}


# --- what is measured ------------------------------------------------------------------------------------------------


def measure(point: Point, seed: int, seeds: int) -> dict[str, np.ndarray]:
    """Return ``return`` and ``recovered``, ``(seeds,)`` each; for a curve, only ``return``, ``(seeds, rounds)``."""
    config, walk = config_of(point), walk_of(point)
    outputs = outputs_of(str(config.network), weights_of(point, seed, seeds), point.dimensions)
    out = {"return": policy_returns(np.argmax(outputs, axis=outputs.ndim - point.dimensions - 1), point.ends)}
    if point.curve or point.dimensions > 1:
        return out
    low, high = walk.reward_bounds
    discount = float(config.discount or 0.0)
    q = ((low + high) / 2.0 + (high - low) / 2.0 * outputs) / (1.0 - discount)
    return out | {"recovered": recovered_of(q, discount, point.ends)}


def recovered_of(q: np.ndarray, discount: float, ends: bool = False) -> np.ndarray:
    """Return the ``(...,)`` errors of the rewards that are recovered from values ``(..., A, N)`` on the grid."""
    model, paid, start = _solved(GRID, ends)
    return recovery_error(recovered_reward(q, model, discount), paid, start)


def outputs_of(network: str, weights: dict[str, np.ndarray], dimensions: int = 1) -> np.ndarray:
    """Return a network's outputs ``(..., A, N[, N])`` on the grid, for weights with leading axes."""
    sides = [np.linspace(0.0, 1.0, GRID if dimensions == 1 else COARSE)] * dimensions
    states = np.stack(np.meshgrid(*sides, indexing="ij"), axis=-1).reshape(-1, dimensions)
    lead = weights["V"].shape[:-2]
    flat = {name: w.reshape(-1, *w.shape[len(lead) :]) for name, w in weights.items()}
    outputs = np.asarray(_outputs(network, flat, states))
    return np.moveaxis(outputs, -1, 1).reshape(*lead, outputs.shape[-1], *(len(side) for side in sides))


@partial(jax.jit, static_argnums=0)
def _outputs(network: str, weights: Any, states: Any) -> Any:
    return jax.lax.map(lambda one: q_values(network, one, states, jnp), weights)


@cache
def _solved(points: int, ends: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the model on a grid: transitions of both actions, the reward of each state, and the start distribution."""
    grid = np.linspace(0.0, 1.0, points)
    start = np.full(points, 1.0 / (points - 1))
    start[[0, -1]] /= 2.0
    middle = 0.5 - np.abs(grid - 0.5)
    return IntervalWalk().transition_matrix(grid), 0.5 - middle if ends else middle, start


def _backward(choose: Callable[[list[np.ndarray]], Any], points: int, ends: bool, values: np.ndarray) -> Any:
    """Return ``(...,)`` returns by dynamic programming from the end; ``choose`` makes one value of all actions'."""
    P, paid, start = _solved(points, ends)
    line = points == GRID
    paid = paid if line else (paid[:, None] + paid[None]) / 2.0
    for _ in range(IntervalWalk().horizon):
        values = paid + choose([*([] if line else (p @ values for p in P)), *(values @ p.T for p in P)])
    return values @ start if line else np.einsum("...ij,i,j->...", values, start, start)


def policy_returns(actions: np.ndarray, ends: bool = False) -> np.ndarray:
    """Return the ``(...,)`` returns of policies, given by their actions on the grid, ``(..., N)`` or ``(..., N, N)``.

    A side of :data:`COARSE` points means two dimensions.
    """
    return _backward(partial(np.choose, actions), actions.shape[-1], ends, np.zeros(actions.shape))


def extreme_returns(dimensions: int) -> tuple[float, float]:
    """Return the returns of random actions and of the best policy."""
    points = GRID if dimensions == 1 else COARSE
    by_chance, best = (
        float(_backward(partial(choose, axis=0), points, False, np.zeros((points,) * dimensions)))
        for choose in (np.mean, np.max)
    )
    return by_chance, best


# --- Algorithm 1 as published ----------------------------------------------------------------------------------------


def published_curves(
    stds: Sequence[float], resets: Sequence[int], step_size: float, seed: int, seeds: int, samples: int = 5000
) -> np.ndarray:
    """Return the ``(stds, resets, seeds, rounds)`` returns of the greedy policy of Q after each round."""
    weights = published_weights(stds, resets, step_size, seed, seeds, samples)
    return policy_returns(np.argmax(outputs_of("mlp:32", weights), axis=-2))


def published_weights(
    stds: Sequence[float], resets: Sequence[int], step_size: float, seed: int, seeds: int, samples: int = 5000
) -> dict[str, np.ndarray]:
    """Return Q's weights after each round, ``(stds, resets, seeds, rounds, ...)``, from one compiled run."""
    walk = IntervalWalk()
    base = published.resolve(PublishedQ(samples=samples, round=1), walk.facts)
    rates = [
        published.published_rates(
            base.replace(published_std=max(std, _SMALLEST_STD), resets=number, step_size=step_size), walk.facts
        )
        for std in stds
        for number in resets
    ]
    numbers = range(seed, seed + seeds)
    nodes = [SeededNoise.from_seed(i).stream("reward").nodes() for i in numbers]
    stacked = [jax.tree.map(lambda *x: jnp.stack([jnp.asarray(v) for v in x]), *parts) for parts in (rates, nodes)]
    found = jax.tree.map(np.asarray, _published(base, walk, *stacked, keys_of(numbers)))
    return {name: w.reshape(len(stds), len(resets), *w.shape[1:]) for name, w in found.items()}


@partial(jax.jit, static_argnums=(0, 1))
def _published(config: PublishedQ, walk: IntervalWalk, rates: Any, nodes: Any, keys: Any) -> Any:
    def one(rates: Any, nodes: Any, key: Any) -> Any:
        return published.run_published(config, walk, rates, nodes, key)[1]

    return jax.vmap(jax.vmap(one, (None, 0, 0)), (0, None, None))(rates, nodes, keys)


# --- the attack that paper 001 wants to protect from ------------------------------------------------------------------
# where Q was learned from noisy rewards, it finds the reward plus the noise, and no more


def recovered_reward(q: np.ndarray, model: np.ndarray, discount: float) -> np.ndarray:
    """Return the ``(..., N)`` reward of each state by r = Q - gamma P max Q, as the mean over actions.

    Args:
        q: ``(..., A, N)`` released values, in the unit of undiscounted rewards.
        model: ``(A, N, N)`` transition probabilities between the states.
        discount: discount factor of Q.
    """
    best = q.max(axis=-2)
    following = np.stack([best @ P.T for P in model], axis=-2)
    return (q - discount * following).mean(axis=-2)


def recovery_error(found: np.ndarray, reward: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the ``(...,)`` root mean square error over the reward's standard deviation: 1 for the mean reward.

    Args:
        found: ``(..., N)`` recovered rewards.
        reward: ``(N,)`` true rewards.
        weights: ``(N,)`` weights of the states, which sum to 1.
    """
    spread = np.sqrt(weights @ (reward - weights @ reward) ** 2)
    return np.sqrt(((found - reward) ** 2) @ weights) / spread
