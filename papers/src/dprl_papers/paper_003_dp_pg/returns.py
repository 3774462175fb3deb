"""Returns of paper 003's algorithm and its variants on simulated users, and shares of the possible gain.

A point is one setting over several seeds. Mechanism, batches and step sizes are those of the library's own plan for the
budget. The noise is drawn from public seeds, in floating point instead of on the grid. No person's data are used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from dprl.accounting import events
from dprl.accounting.budget import Budget
from dprl.accounting.calibration import noise_multiplier_for
from dprl.environments.acrobot import Acrobot
from dprl.environments.bandit import LinearBandit
from dprl.environments.cart_pole import CartPole
from dprl.environments.pendulum import Pendulum
from dprl.environments.simulators import facts_of
from dprl.learning.policy_gradient.dp_pg import DPPG
from dprl.learning.policy_gradient.estimator import Rates, RunShape
from dprl.learning.policy_gradient.people_sources import CompiledPeople
from dprl.learning.policy_gradient.pg_plan import make_pg_plan
from dprl.learning.policy_gradient.trainer import PolicyGradient, rates_of, released_parameters, run, shape_of
from dprl.mechanisms.action_coins import ActionCoins
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SeededNoise
from dprl.policies.parametric import Parametric
from dprl.report.formatting import plain
from dprl_papers.harness.programmed import Run, make_line
from dprl_papers.paper_003_dp_pg.ppo import train_in_epochs, train_ppo
from dprl_papers.paper_003_dp_pg.treatment import TreatmentBandit

DELTA = 1e-6
EPISODES = 300
"""In which a policy is judged."""
SOLVED = 475.0
CONTEXTS = 20_000
_LEARNER, _JUDGE = 11, 13
FEW = 4  # number of seeds where a run is long
_TOGETHER = 2  # seeds per cell; few, so that an interrupted run repeats little

Problem = Literal["cart-pole", "acrobot", "pendulum", "bandit", "treatment"]


@dataclass(frozen=True, kw_only=True)
class Point:
    """One setting of an experiment.

    Attributes:
        problem: the simulated environment that the users bring.
        users: number of users N.
        epsilon: epsilon of the budget; None for learning without noise and without a clip.
        delta: delta of the budget.
        published: whether Algorithm 1 runs as printed.
        options: options of :class:`~dprl.learning.policy_gradient.dp_pg.DPPG`, in order of name.
        prefixes: whether all iterates along the run are judged.
        likeliest: whether the likeliest actions are judged, instead of actions that the released policy draws.
    """

    problem: Problem
    users: int
    epsilon: float | None = None
    delta: float = DELTA
    published: bool = False
    options: tuple[tuple[str, Any], ...] = ()
    prefixes: bool = False
    likeliest: bool = True


def point(problem: Problem, users: int, epsilon: float | None, likeliest: bool = True, **options: Any) -> Point:
    """Return a point with options given by name."""
    named = tuple(sorted(options.items()))
    return Point(problem=problem, users=users, epsilon=epsilon, options=named, likeliest=likeliest)


def simulator(problem: Problem) -> Any:
    """Return the environment of a problem."""
    return {
        "cart-pole": lambda: CartPole(horizon=500, discount=0.99),
        "acrobot": lambda: Acrobot(discount=0.99),
        "pendulum": lambda: Pendulum(discount=0.99),
        "bandit": LinearBandit,
        "treatment": TreatmentBandit,
    }[problem]()


def measured(run: Run, point: Point, seeds: int | None = None) -> np.ndarray:
    """Return the ``(seeds,)`` result of :func:`measure`, computed or kept; by default over all seeds of the run."""
    parts, first, end = [], run.seed, run.seed + (run.trials if seeds is None else seeds)
    while first < end:
        count = min(_TOGETHER, end - first)
        parts.append(run.values_of(measure, point, first, count))
        first += count
    return np.concatenate(parts)


def ppo(run: Run, problem: Problem, batch: int, steps: int) -> np.ndarray:
    """Return the ``(seeds,)`` results of PPO without privacy, for a few seeds, judged as in :func:`measure`."""
    return run.values_of(measure_ppo, problem, batch, steps, run.seed, min(run.trials, FEW))


def over_budgets(run: Run, problem: Problem, seeds: Callable[[int], int], **options: Any) -> dict[str, Any]:
    """Return the results for each budget of the run, and without noise, by number of users."""
    return {
        name_of(epsilon): {n: measured(run, point(problem, n, epsilon, **options), seeds(n)) for n in run.whole}
        for epsilon in (*run.epsilon, None)
    }


def name_of(epsilon: float | None) -> str:
    """Return the name of a budget in charts and tables."""
    return "no noise" if epsilon is None else f"ε = {plain(epsilon)}"


def lines_of(found: Mapping[str, Mapping[Any, np.ndarray]]) -> list[dict[str, Any]]:
    """Return the lines of results; a line's look follows from what its name says of privacy."""
    looks = {"no noise": "none", "PPO": "none", "as published": "bound"}
    look = lambda name: next((looks[start] for start in looks if name.startswith(start)), "private")  # noqa: E731
    return [make_line(name, values, look=look(name)) for name, values in found.items()]


def config_of(point: Point) -> DPPG:
    calibration = "as-published" if point.published else "verified"
    return DPPG(users=point.users, calibration=calibration, **dict(point.options))


def measure(point: Point, seed: int, seeds: int) -> np.ndarray:
    """Return, for each seed, the mean return of the released policy over :data:`EPISODES` episodes.

    For a bandit, return the share of the gap between random and best actions that the policy's likeliest actions close.
    """
    environment = simulator(point.problem)
    facts = facts_of(environment)
    # without noise, the options are those of a budget that adds hardly any noise
    plan = make_pg_plan(config_of(point), facts, Budget(point.epsilon or 10.0, point.delta))
    if point.published:
        assert plan.claimed_run is not None
        shape, rates, mechanism = plan.claimed_run
        multiplier = mechanism.noise_multiplier
    else:
        shape, rates = shape_of(plan.config, facts), rates_of(plan.config, facts)
        assert plan.mechanism is not None
        multiplier = plan.mechanism.noise_multiplier if point.epsilon is not None else 0.0
        # one compiled program for all budgets
        mechanism = dataclasses.replace(plan.mechanism, noise_multiplier=1.0).in_float()
    shape = dataclasses.replace(shape, block=min(512 if facts.horizon == 1 else 128, shape.batch))
    each = []
    for number in range(seed, seed + seeds):
        state, history = _trained(shape, environment, mechanism, rates, jnp.float64(multiplier), number)
        coins = ActionCoins.from_jax_key(jax.random.fold_in(jax.random.key(_JUDGE), number))
        theta = released_parameters(plan.config, shape.policy, state, history, coins)
        thetas = history if point.prefixes else theta[None]
        each.append([judged(shape.policy, environment, one, number, point.likeliest) for one in thetas])
    found = np.array(each)
    return found if point.prefixes else found[:, 0]


@partial(jax.jit, static_argnums=(0, 1, 2))
def _trained(
    shape: RunShape, environment: Any, mechanism: GaussianSum, rates: Rates, multiplier: Any, seed: Any
) -> Any:
    mechanism = dataclasses.replace(mechanism, noise_multiplier_override=multiplier)
    words = jnp.stack([jnp.uint32(0), jnp.asarray(seed, jnp.uint32)])
    noise = SeededNoise(words).stream("users")
    coins = ActionCoins.from_jax_key(jax.random.fold_in(jax.random.key(_LEARNER), seed))
    return run(PolicyGradient(shape, mechanism), CompiledPeople(environment, shape), noise, rates, coins)


def measure_ppo(problem: Problem, batch: int, steps: int, seed: int, seeds: int) -> np.ndarray:
    """Return, for each seed, how the last policy of PPO without privacy is judged."""
    environment = simulator(problem)
    facts = facts_of(environment)
    policy = Parametric("softmax", facts.observation, facts.actions)
    discount = 1.0 if facts.horizon == 1 else 0.98
    last = [train_ppo(policy, environment, batch, steps, discount, i)[-1] for i in range(seed, seed + seeds)]
    return np.array([judged(policy, environment, theta, i) for i, theta in enumerate(last, seed)])


def measure_epochs(problem: Problem, users: int, epsilon: float, epochs: int, seed: int, seeds: int) -> np.ndarray:
    """Return, for each seed, how the recipe's policy is judged with ``epochs`` steps per batch, each paid for.

    Unlike in the recipe, noise is independent, and vectors have one scale. Each step has the step size over ``epochs``.
    """
    environment = simulator(problem)
    facts = facts_of(environment)
    plan = make_pg_plan(DPPG(users=users, noise="independent", scale_weight=0.0), facts, Budget(epsilon, DELTA))
    assert plan.mechanism is not None
    assert plan.config.steps is not None
    steps = plan.config.steps * epochs
    exact = dataclasses.replace(plan.mechanism, steps=steps, epochs=epochs)
    multiplier = noise_multiplier_for(partial(events.poisson_gaussian, 1.0, steps=epochs), Budget(epsilon, DELTA))
    shape = dataclasses.replace(shape_of(plan.config, facts), steps=steps)
    rates = rates_of(plan.config, facts)
    rates = rates._replace(step_size=np.float32(rates.step_size / epochs))
    found = []
    for number in range(seed, seed + seeds):
        theta = train_in_epochs(shape, environment, exact, epochs, rates, jnp.float64(multiplier), number)
        found.append(judged(shape.policy, environment, theta, number))
    return np.array(found)


# --- how a policy is judged -------------------------------------------------------------------------------------------


def judged(policy: Parametric, environment: Any, theta: Any, seed: int, likeliest: bool = True) -> float:
    """Return the result of one policy; see :func:`measure`."""
    if environment.horizon == 1:
        contexts, means = public_contexts(environment)
        chosen = np.asarray(_GREEDY(policy, theta, contexts))
        value = float(means[np.arange(len(means)), chosen].mean())
        return (value - float(means.mean())) / float(means.max(axis=1).mean() - means.mean())
    key = jax.random.fold_in(jax.random.key(_JUDGE), seed)
    return float(_mean_return(policy, environment, likeliest, theta, key))


_GREEDY = jax.jit(Parametric.greedy, static_argnums=0)
_contexts: dict[Any, tuple[np.ndarray, np.ndarray]] = {}


def public_contexts(environment: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return ``(20000, d)`` contexts and the ``(20000, A)`` mean rewards of all actions in them."""
    if environment not in _contexts:
        keys = jax.random.split(jax.random.key(_JUDGE), CONTEXTS)
        contexts = np.asarray(jax.vmap(lambda k: environment.observe(environment.reset(k)))(keys), np.float32)
        low, high = environment.reward_bounds
        means = np.clip(np.asarray(environment.mean_rewards(contexts), np.float64), low, high)
        _contexts[environment] = (contexts, means)
    return _contexts[environment]


@partial(jax.jit, static_argnums=(0, 1, 2))
def _mean_return(policy: Parametric, environment: Any, likeliest: bool, theta: Any, key: Any) -> Any:
    """Return the mean undiscounted return of the likeliest actions, or of drawn actions, in float32."""

    def single(state: Any) -> Any:
        return jax.tree.map(lambda x: x.astype(jnp.float32) if jnp.issubdtype(x.dtype, jnp.floating) else x, state)

    def go(carry: Any) -> Any:
        state, alive, total, t = carry
        seen = jax.vmap(environment.observe)(state).astype(jnp.float32).reshape(EPISODES, -1)
        own = jax.random.fold_in(key, t)
        drawn = lambda: policy.draw(theta, seen, policy.coins(jax.random.fold_in(own, EPISODES), (EPISODES,)))  # noqa: E731
        action = policy.to_environment(policy.greedy(theta, seen) if likeliest else drawn())
        keys = jax.random.split(own, EPISODES)
        following, reward, over = jax.vmap(environment.step)(keys, state, action)
        total = total + jnp.where(alive, reward.astype(jnp.float32), 0.0)
        return single(following), alive & ~over, total, t + 1

    starts = single(jax.vmap(environment.reset)(jax.random.split(key, EPISODES)))
    first = (starts, jnp.ones(EPISODES, bool), jnp.zeros(EPISODES, jnp.float32), jnp.int32(0))
    more = lambda carry: (carry[3] < environment.horizon) & jnp.any(carry[1])  # noqa: E731
    return jnp.mean(jax.lax.while_loop(more, go, first)[2])
