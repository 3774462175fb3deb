"""The share of the possible gain that private policy gradient reaches with default options on families of problems.

``python -m benchmarks learning_families`` prints the table and keeps it. Every problem is a finite process, so that the
value of each policy is known exactly. The possible gain is that from the first policy to the best policy of the same
class, which is found by exact gradient ascent from many starts. Defaults were chosen on some of the families, on
members of other seeds. Goals are set for the families that were not used for any choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.coverage.domains import Process
from benchmarks.families import JUDGING, member
from benchmarks.harness import goal, table
from dprl.accounting.budget import Budget
from dprl.bounds import Interval
from dprl.environments.cart_pole import CartPole
from dprl.environments.simulators import facts_of
from dprl.learning.policy_gradient.dp_pg import DPPG
from dprl.learning.policy_gradient.people_sources import CompiledPeople
from dprl.learning.policy_gradient.pg_plan import make_pg_plan, program_of
from dprl.learning.policy_gradient.trainer import released_parameters, run_compiled
from dprl.mechanisms.action_coins import ActionCoins
from dprl.mechanisms.noise import SeededNoise
from dprl.policies.parametric import Parametric
from dprl.release.returns import mean_return

USERS, BUDGET, SHARE = 20_000, Budget(1.0, 1e-6), 0.8
SEEDS = JUDGING[:3]
CHOSEN_ON = ("inventory", "grid", "random-mdp", "chain", "rare-chain", "boyan", "bandit")
JUDGED_ON = ("clinic", "queue", "repair", "sale")
SOLVED, CART_POLE_SEEDS = 475.0, JUDGING
CART_POLES = (
    ("softmax", 500, 1.0, CART_POLE_SEEDS),
    ("softmax", 500, 1.0, range(1000, 1100)),
    ("mlp:64", 10_000, 0.5, CART_POLE_SEEDS[:2]),
)


@dataclass(frozen=True, eq=False)
class Finite:
    """A finite process as an environment in JAX.

    Attributes:
        process: the law.
        codes: ``(S, d)`` observation of each state.
        reward_bounds: smallest and largest reward.
    """

    process: Process
    codes: np.ndarray
    reward_bounds: Interval

    @property
    def observation_bounds(self) -> tuple[Interval, ...]:
        low, high = self.codes.min(axis=0).tolist(), self.codes.max(axis=0).tolist()
        return tuple(zip(low, high, strict=True))

    @property
    def actions(self) -> int:
        return self.process.following.shape[1]

    @property
    def horizon(self) -> int:
        return self.process.horizon

    @property
    def discount(self) -> float:
        return self.process.discount

    def reset(self, key: Any) -> Any:
        return _pick(key, self.process.start)

    def observe(self, state: Any) -> Any:
        return jnp.asarray(self.codes, jnp.float32)[state]

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, Any, Any]:
        p, states = self.process, len(self.codes)
        first, second = jax.random.split(key)
        values = jnp.asarray(np.broadcast_to(p.rewards, p.outcomes.shape), jnp.float32)
        reward = values[state, action, _pick(first, jnp.asarray(p.outcomes, jnp.float32)[state, action])]
        following = _pick(second, jnp.asarray(p.following, jnp.float32)[state, action])
        return jnp.minimum(following, states - 1), reward, following == states

    def value(self, probabilities: Any) -> Any:
        """Return the expected discounted return, up to the horizon, of a policy ``(S, A)``."""
        p = self.process
        reward = jnp.asarray(np.sum(p.outcomes * p.rewards, axis=-1))
        following = jnp.asarray(p.following[..., :-1])

        def back(ahead: Any, _: Any) -> tuple[Any, None]:
            return jnp.sum(probabilities * (reward + p.discount * following @ ahead), axis=1), None

        ahead, _ = jax.lax.scan(back, jnp.zeros(len(p.start)), None, length=p.horizon)
        return jnp.asarray(p.start) @ ahead


def _pick(key: Any, law: Any) -> Any:
    edges = jnp.cumsum(jnp.asarray(law, jnp.float32))[:-1]
    return jnp.sum(jax.random.uniform(key, dtype=jnp.float32) >= edges).astype(jnp.int32)


def _finite(following: np.ndarray, rewards: np.ndarray, start: np.ndarray, horizon: int, discount: float) -> Finite:
    """Return a problem with certain rewards ``(S, A)``, whose observation is the state's number."""
    states, actions = rewards.shape
    outcomes, uniform = np.ones((states, actions, 1)), np.full((states, actions), 1.0 / actions)
    process = Process(start, following, outcomes, rewards[..., None], uniform, {}, horizon, discount)
    return Finite(process, np.arange(states, dtype=float)[:, None], (float(rewards.min()), float(rewards.max())))


def queue(rng: np.random.Generator) -> Finite:
    """Return a queue that is served at one of three speeds. Waiting people cost, and so does speed."""
    most, arrives = int(rng.integers(10, 25)), float(rng.uniform(0.3, 0.6))
    rates, effort = np.array([0.2, 0.5, 0.8]), float(rng.uniform(0.2, 0.8))
    length = np.arange(most + 1)
    following = np.zeros((most + 1, 3, most + 2))
    for a, rate in enumerate(rates):
        for comes, p in ((0, 1.0 - arrives), (1, arrives)):
            for goes, q in ((0, 1.0 - rate), (1, rate)):
                np.add.at(following[:, a], (length, np.clip(length + comes - goes, 0, most)), p * q)
    rewards = -length[:, None] / most - effort * rates
    return _finite(following, rewards, np.full(most + 1, 1.0 / (most + 1)), 50, 0.95)


def repair(rng: np.random.Generator) -> Finite:
    """Return a machine that wears out. It can run, and earns less the more it is worn; or be mended; or be replaced."""
    most, wears = int(rng.integers(8, 20)), float(rng.uniform(0.3, 0.7))
    mending, price = float(rng.uniform(0.1, 0.4)), float(rng.uniform(0.6, 1.5))
    wear = np.arange(most + 1)
    following = np.zeros((most + 1, 3, most + 2))
    np.add.at(following[:, 0], (wear, wear), 1.0 - wears)
    np.add.at(following[:, 0], (wear, np.minimum(wear + 1, most)), wears)
    following[wear, 1, np.maximum(wear - 2, 0)] = 1.0
    following[:, 2, 0] = 1.0
    earned = 1.0 - (wear / most) ** 2
    rewards = np.stack([earned, np.full(most + 1, -mending), np.full(most + 1, -price)], axis=1)
    return _finite(following, rewards, np.eye(most + 1)[0], 50, 0.95)


def sale(rng: np.random.Generator) -> Finite:
    """Return a sale with changing offers. A refusal has a cost; an accepted offer pays its price and ends the sale."""
    most, waiting = int(rng.integers(10, 25)), float(rng.uniform(0.005, 0.03))
    fresh = rng.dirichlet(np.full(most + 1, 2.0)) * np.linspace(1.5, 0.5, most + 1)
    following = np.zeros((most + 1, 2, most + 2))
    following[:, 0, :-1] = 0.5 * np.eye(most + 1) + 0.5 * fresh / fresh.sum()
    following[:, 1, -1] = 1.0
    rewards = np.stack([np.full(most + 1, -waiting), np.arange(most + 1) / most], axis=1)
    return _finite(following, rewards, fresh / fresh.sum(), 20, 1.0)


OWN: Mapping[str, Callable[[np.random.Generator], Finite]] = {"queue": queue, "repair": repair, "sale": sale}


def of_family(family: str, seed: int) -> Finite:
    """Return the problem of the family's member for a seed."""
    if family in OWN:
        return OWN[family](np.random.default_rng([list(OWN).index(family), seed]))
    found = member(family, seed, True)
    return Finite(found.process, found.codes, found.reward)


@partial(jax.jit, static_argnums=(0, 1))
def best_values(policy: Parametric, problem: Finite, starts: Any) -> Any:
    """Return the values that exact gradient ascent reaches from ``starts`` ``(n, d)``, by 3,000 steps of Adam."""
    codes = jnp.asarray(problem.codes, jnp.float32)
    value = lambda theta: problem.value(policy.probabilities(theta, codes))  # noqa: E731

    def climb(carry: Any, t: Any) -> tuple[Any, Any]:
        theta, mean, square = carry
        found, slope = jax.value_and_grad(value)(theta)
        mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
        move = mean / (1.0 - 0.9**t) / (jnp.sqrt(square / (1.0 - 0.999**t)) + 1e-12)
        return (theta + 0.1 * move, mean, square), found

    def one(theta: Any) -> Any:
        zero = jnp.zeros_like(theta)
        return jnp.max(jax.lax.scan(climb, (theta, zero, zero), jnp.arange(1.0, 3001.0))[1])

    return jax.vmap(one)(starts)


def best_value(policy: Parametric, problem: Finite) -> float:
    """Return the largest value found in the policy's class, from eight starts."""
    starts = np.random.default_rng(0).normal(size=(8, policy.size)) * np.array([[0.0]] + [[3.0]] * 7)
    return float(np.max(best_values(policy, problem, jnp.asarray(starts))))


def learned(environment: Any, config: DPPG, budget: Budget, seed: int) -> tuple[Parametric, Any]:
    """Return the policy, and the parameters that ``config`` learns in the environment."""
    plan = make_pg_plan(config, facts_of(environment), budget)
    program, rates = program_of(plan)
    people, coins = CompiledPeople(environment, program.shape), ActionCoins.from_jax_key(jax.random.key(seed))
    state, history = run_compiled(program, people, SeededNoise.from_seed(seed), rates, coins)
    return plan.policy, jnp.asarray(released_parameters(plan.config, plan.policy, state, history, coins))


def shares(problem: Finite, seed: int) -> tuple[float, float]:
    """Return the shares of the possible gain of a learned policy that draws actions, or takes the likeliest ones."""
    policy, theta = learned(problem, DPPG(users=USERS), BUDGET, seed)
    codes = jnp.asarray(problem.codes, jnp.float32)
    first = problem.value(policy.probabilities(jnp.zeros(policy.size), codes))
    gain = best_value(policy, problem) - first
    likeliest = jax.nn.one_hot(policy.greedy(theta, codes), policy.outputs)
    sampled, greedy = (problem.value(p) - first for p in (policy.probabilities(theta, codes), likeliest))
    return float(sampled / gain), float(greedy / gain)


def cart_pole_return(policy: str, users: int, epsilon: float, seed: int) -> float:
    """Return the mean return of the likeliest actions of a policy that was learned on Cart Pole with 500 steps."""
    environment = CartPole(horizon=500, discount=0.99)
    config = DPPG(users=users) if policy == "softmax" else DPPG(users=users, policy=policy)
    found, theta = learned(environment, config, Budget(epsilon, BUDGET.delta), seed)
    return float(mean_return(found, environment, theta, jax.random.key(seed), True))


def run() -> dict[str, Any]:
    rows, goals = [], []
    for family in (*JUDGED_ON, *CHOSEN_ON):
        sampled, greedy = np.array([shares(of_family(family, seed), seed) for seed in SEEDS]).T
        judged = family in JUDGED_ON
        cells = [f"{x:.3f}" for x in (sampled.mean(), sampled.min(), greedy.mean(), greedy.min())]
        rows.append([family, *cells, "nothing" if judged else "defaults"])
        if judged:
            goals.append(goal(f"{family}: share of the gain, sampled", float(sampled.mean()), SHARE, True, ""))
    for policy, users, epsilon, seeds in CART_POLES:
        returns = [cart_pole_return(policy, users, epsilon, seed) for seed in seeds]
        name = f"Cart Pole, {policy}, {users:,} users, epsilon {epsilon:g}"
        solved = sum(x >= SOLVED for x in returns)
        if len(seeds) <= len(CART_POLE_SEEDS):
            goals.append(goal(f"{name}: least return of {len(seeds)} seeds", min(returns), SOLVED, True, ""))
        rows.append(
            [f"{name}: {solved} of {len(seeds)} solved, least return {min(returns):.0f}", *[""] * 4, "defaults"]
        )
    headings = ["family", "sampled", "least", "likeliest actions", "least", "chosen on it"]
    return {
        "title": "Learning with default options on families of problems",
        "notes": [
            "Share of the gain from the untrained to the best policy of the same class, mean and least of "
            f"{len(SEEDS)} members: {USERS:,} users, epsilon {BUDGET.epsilon:g}, delta {BUDGET.delta:g}, all options "
            "default. These options were chosen on other members of the families that say so, and on Cart Pole "
            "and Acrobot with other seeds, and on no member of the others. But earlier versions of this table had been "
            "seen when the baseline's share of the clip, the scale of vectors and the damping of features were chosen. "
            "Dampings were compared on Cart Pole with seeds from 100, among them those of the ten runs here; the "
            "hundred runs have seeds from 1000."
        ],
        "table": table(headings, rows),
        "goals": goals,
    }
