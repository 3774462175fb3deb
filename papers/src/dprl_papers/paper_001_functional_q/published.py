"""Algorithm 1 of paper 001 as published, repaired only as far as needed to run. It certifies nothing.

Three things are repaired: the bridge of Eq. (2), which as printed has negative variances (the path is drawn exactly
instead); the sign of the update, which descends; and the numbering of rounds and resets. Everything else is kept. In
particular, the released Q contains no noise: noise is only in the actions and the errors (docs/papers/001.md).

The paper prints three formulas for sigma. There are T samples in rounds of B, a learning rate alpha, a tail parameter
k, and a Lipschitz constant L of the value function.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from dprl.accounting.budget import Budget
from dprl.accounting.reward_relation import DEPTHS, RewardRelation
from dprl.arrays import unit_states
from dprl.config import DERIVED
from dprl.engine.algorithm import Algorithm, Setting
from dprl.errors import DprlError
from dprl.learning.functional_q import FunctionalQ, public_defaults
from dprl.learning.learning_plan import LearningPlan
from dprl.mechanisms.node_noise import NodeNoise
from dprl.mechanisms.ornstein_uhlenbeck import PathParameters, parameters, positions_of, unit_path
from dprl.protocols import Attack, Claim, EnvironmentSpec, Precondition
from dprl.value_functions.q_function import QFunction, hidden_weights, initial_weights, q_values

# --- sigma as printed, and what Theorem 5 assumes ---------------------------------------------------------------------

STEP_SIZE, TAIL, LIPSCHITZ_SQUARED = 3e-4, 23, 16.0
"""alpha, k and L^2 of appendix E.3."""
LEMMA_8 = 8.68


def variation(batch: int, step_size: float = STEP_SIZE, tail: float = TAIL) -> float:
    """Return v = 4 alpha (k + 1) / B, the claimed change of Q in a round; the kernel's decay is 1/v."""
    return 4.0 * step_size * (tail + 1.0) / batch


def constant(
    batch: int, step_size: float = STEP_SIZE, tail: float = TAIL, lipschitz2: float = LIPSCHITZ_SQUARED
) -> float:
    """Return the constant C(alpha, k, L, B) = (v^2 + v) L^2 of Theorem 5."""
    v = variation(batch, step_size, tail)
    return (v * v + v) * lipschitz2


def sigma_line_5(budget: Budget, samples: int, batch: int, **options: float) -> float:
    """Return sigma by line 5 of Algorithm 1, and by appendix E.3: sqrt(2 (T/B) ln(e + eps/delta) C / eps)."""
    return math.sqrt(_rounds_and_log(budget, samples, batch) * constant(batch, **options) / budget.epsilon)


def sigma_theorem_5(budget: Budget, samples: int, batch: int, **options: float) -> float:
    """Return sigma by Theorem 5: sqrt(2 (T/B) ln(e + eps/delta)) C / eps, which alone is near the paper's 0.32."""
    return math.sqrt(_rounds_and_log(budget, samples, batch)) * constant(batch, **options) / budget.epsilon


def sigma_proof(budget: Budget, samples: int, batch: int, **options: float) -> float:
    """Return sigma by the proof of Theorem 5: sqrt(2 (T/B) ln(e + eps/delta) C) / eps."""
    return math.sqrt(_rounds_and_log(budget, samples, batch) * constant(batch, **options)) / budget.epsilon


def budget_of_noise(budget: Budget) -> Budget:
    """Return the budget of the Gaussian process, which has half of delta; the other half is for the tail of Lemma 8."""
    return Budget(budget.epsilon, budget.delta / 2.0)


def _rounds_and_log(budget: Budget, samples: int, batch: int) -> float:
    return 2.0 * (samples / batch) * math.log(math.e + budget.epsilon / budget.delta)


# --- Algorithm 1 ------------------------------------------------------------------------------------------------------

_RELEASED = "The weights of the last Q-function of Algorithm 1, without the noise that they were learned under."
_CONTRADICTED_OPTIONS = ("noise_multiplier", "people", "reward_radius", "reward_lipschitz", "decay")


@dataclass(frozen=True, kw_only=True)
class PublishedQ(FunctionalQ):
    """Options of Algorithm 1 with Theorem 5's noise, and its learner."""

    calibration: Literal["verified", "as-published"] = "as-published"

    def claimed(self, facts: EnvironmentSpec, budget: Budget) -> LearningPlan:
        """Return the plan of a release that claims the budget and has no event."""
        config = resolve(self, facts)
        if config.published_std is None:
            assert config.step_size is not None
            sigma = sigma_theorem_5(budget_of_noise(budget), config.samples, config.batch, step_size=config.step_size)
            config = config.replace(DERIVED, published_std=sigma)
        relation = RewardRelation(1.0)
        return LearningPlan(
            config,
            facts,
            budget,
            mechanism=None,
            event=None,
            epsilon_of_event=budget.epsilon,
            delta_of_event=budget.delta,
            delta_sampler=0.0,
            relation=relation,
            claim=Claim(relation.words(), conditions(budget, config), _RELEASED),
        )

    def learn_q_function(self, environment: Any, facts: EnvironmentSpec, noise: Any) -> QFunction:
        """Return the Q-function that Algorithm 1 learns in the library's own walk, a simulation."""
        coins = noise.stream("environment")
        key = jax.random.key((int(coins.uniform_index(0, 2**31 - 1)) << 31) | int(coins.uniform_index(1, 2**31 - 1)))
        weights, _ = run_published(self, environment, published_rates(self, facts), noise.stream("reward").nodes(), key)
        return published_q(weights, self, facts)


def resolve(config: PublishedQ, facts: EnvironmentSpec) -> PublishedQ:
    """Return the options with every value filled in that follows from public facts, as in Algorithm 1.

    Raises:
        DprlError: an option contradicts the paper, or the environment is not of the paper's kind.
    """
    for name in _CONTRADICTED_OPTIONS:
        if getattr(config, name) is not None:
            raise DprlError(
                f"functional-q: {name} contradicts calibration = 'as-published', which has the paper's own: leave one "
                "out."
            )
    if config.actor_critic or config.memoise:
        raise DprlError(
            "functional-q: Algorithm 1 as published has no actor and remembers no rewards: leave out actor_critic and "
            "memoise."
        )
    derived = public_defaults(config, facts)
    if config.variant is None:
        derived["variant"] = "observed-reward"
    if config.step_size is None:
        derived["step_size"] = STEP_SIZE
    if facts.dimensions != 1:
        raise DprlError("functional-q: as published there is one observation component.")
    if config.resets is None:
        derived["resets"] = max(1, config.samples // config.batch)
    return config.replace(DERIVED, **derived)


def conditions(budget: Budget, config: PublishedQ) -> tuple[Precondition, ...]:
    """Return the conditions that Theorem 5 and its proof assume, with the numbers of resolved options."""
    sigma, resets, step_size = config.published_std, config.resets, config.step_size
    assert sigma is not None
    assert resets is not None
    assert step_size is not None
    reached = LEMMA_8 * math.sqrt(1.0 / variation(config.batch, step_size)) * sigma
    needed = math.sqrt(2.0 * math.log(2.0 * resets / budget.delta))
    proof = sigma_proof(budget_of_noise(budget), config.samples, config.batch, step_size=step_size)
    return (
        Precondition(
            f"Theorem 5 needs 2k > 8.68 sqrt(beta) sigma, and 2k is {2 * TAIL} against {reached:.4g}",
            reached < 2 * TAIL,
        ),
        Precondition(
            f"all {resets} paths stay within 2k but for half of delta if 2k - 8.68 sqrt(beta) sigma >= {needed:.3g}, "
            f"and it is {2 * TAIL - reached:.4g}",
            2 * TAIL - reached >= needed,
        ),
        Precondition(f"the proof of Theorem 5 needs sigma >= {proof:.4g}, and sigma is {sigma:.4g}", sigma >= proof),
    )


class PublishedRates(NamedTuple):
    """Numbers of a run; scalars that may be traced, so that one compiled run serves many of them.

    Attributes:
        every: number of rounds until the paths are drawn anew.
        path: parameters of the noise's path; its std is sigma and its decay 1/v.
    """

    discount: Any
    step_size: Any
    every: Any
    path: PathParameters


def published_rates(config: PublishedQ, facts: EnvironmentSpec) -> PublishedRates:
    """Return the numbers for resolved options, with their ``published_std``."""
    assert config.published_std is not None
    assert config.resets is not None
    assert config.step_size is not None
    rounds = config.samples // config.batch
    path = parameters(
        min(max(1.0 / variation(config.batch, config.step_size), 1e-9), 2.0**16),
        DEPTHS[1],
        config.published_std,
        *facts.reward_bounds,
    )
    return PublishedRates(
        jnp.float32(config.discount), jnp.float32(config.step_size), jnp.int32(max(1, rounds // config.resets)), path
    )


def initial(network: str, key: Any, actions: int) -> Any:
    """Return random initial weights, also of the last layer, so that the network chooses the first actions."""
    first, second = random.split(key)
    weights = initial_weights(network, random.uniform(first, (hidden_weights(network, 1),), jnp.float32), 1, actions)
    weights["V"] = random.uniform(second, weights["V"].shape, jnp.float32, -1.0, 1.0)
    return weights


def run_published(
    config: PublishedQ, environment: Any, rates: PublishedRates, noise: NodeNoise, key: Any, start: Any = None
) -> tuple[Any, Any]:
    """Return Q's weights at the end, and after each round.

    The function may be compiled with ``config`` and ``environment`` static.

    Args:
        config: resolved options. Network, samples T and batch B determine the code; the other numbers are in ``rates``.
        environment: an :class:`~dprl.protocols.Environment` with one observation component, on the grid of a path.
        noise: noise of all paths; path ``a`` after ``i`` resets has the number ``i A + a``.
        key: key of all randomness except the noise.
        start: initial weights, as from :func:`initial`; by default random ones.
    """
    network, batch, actions = str(config.network), config.batch, environment.actions
    bounds, horizon = environment.observation_bounds, environment.horizon
    weights = initial(network, random.fold_in(key, 0), actions) if start is None else start

    def units_of(states: Any) -> Any:
        seen = jax.vmap(environment.observe)(states)
        return unit_states(seen.reshape(seen.shape[0], -1).astype(jnp.float64), bounds, jnp)

    def noise_at(units: Any, resets: Any) -> Any:
        """Return the ``(N, A)`` values of the paths at scaled observations ``(N, 1)``."""
        count = units.shape[0]
        path = resets * actions + jnp.repeat(jnp.arange(actions), count)
        values = unit_path(noise, rates.path, jnp.tile(positions_of(units), (actions, 1)), path)
        return (rates.path.std * values).reshape(actions, count).T

    def q_of(weights: Any, units: Any) -> Any:
        return q_values(network, weights, units.astype(jnp.float32), jnp)

    # A path is evaluated once per state: at the state that follows, and at states in which an episode may begin.
    spacing = 1 if getattr(environment, "terminates", True) else horizon
    most = (batch - 1) // spacing + 1

    def one(carry: Any, j: Any) -> tuple[Any, Any]:
        weights, (there, time) = carry
        keys, resets = random.split(random.fold_in(key, j + 1), 2), j // rates.every
        starts = jax.vmap(environment.reset)(random.split(keys[0], batch))
        first = 0 if spacing == 1 else -time % horizon
        places = jnp.minimum(first + spacing * jnp.arange(most), batch - 1)
        noise_first = noise_at(units_of(jax.tree.map(lambda x: x[places], starts)), resets)

        def single(state: Any) -> Any:
            return units_of(jax.tree.map(lambda x: x[None], state))

        def step(walk: Any, given: Any) -> tuple[Any, Any]:
            (there, noisy, time), (start, coin, b) = walk, given
            there = jax.tree.map(lambda new, old: jnp.where(time == 0, new, old), start, there)
            noisy = jnp.where(time == 0, noise_first[(b - first) // spacing], noisy)
            unit = single(there)
            action = jnp.argmax(q_of(weights, unit)[0] + noisy).astype(jnp.int32)
            following, reward, over = environment.step(coin, there, action)
            time = jnp.where(over | (time + 1 >= horizon), 0, time + 1)
            after = noise_at(single(following), resets)[0]
            return (following, after, time), (unit[0], action, reward, following, noisy[action], after)

        given = (starts, random.split(keys[1], batch), jnp.arange(batch))
        walk = (there, noise_at(single(there), resets)[0], time)
        (there, _, time), seen = lax.scan(step, walk, given)
        units, taken, rewards, following, noisy, noise_after = seen
        after = units_of(following)
        best = jnp.max(q_of(weights, after) + noise_after, axis=-1)
        y = rewards + rates.discount * best

        def loss(weights: Any) -> Any:
            values = jnp.take_along_axis(q_of(weights, units), taken[:, None], axis=1)[:, 0]
            return jnp.mean((values + noisy - y) ** 2) / 2

        gradient = jax.grad(loss)(weights)
        weights = jax.tree.map(lambda w, g: (w - rates.step_size * g).astype(jnp.float32), weights, gradient)
        return (weights, (there, time)), weights

    walk = (environment.reset(key), jnp.int32(0))  # replaced by the first step's start
    rounds = jnp.arange(config.samples // batch, dtype=jnp.int32)
    (weights, _), history = lax.scan(one, (weights, walk), rounds)
    return weights, history


def published_q(weights: Any, config: PublishedQ, facts: EnvironmentSpec) -> QFunction:
    """Return Q in the form of a release, where the network's output is the value itself."""
    single = {name: np.asarray(w, np.float32) for name, w in weights.items()}
    return QFunction(single, str(config.network), facts.observation, facts.actions, (-1.0, 1.0))


ALGORITHM = Algorithm(
    PublishedQ,
    settings={"as published": Setting(PublishedQ(samples=320, network="mlp:4"))},
    attacks=(Attack(epsilon=0.9, delta=1e-4, options={"published_std": 0.32, "samples": 640}, trials=1_000),),
    canary="dprl_papers.paper_001_functional_q.attack:canary_of_plan",
)
