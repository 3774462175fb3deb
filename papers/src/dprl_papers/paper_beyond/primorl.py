"""PriMORL on Cart Pole: private models of the dynamics, and a policy that is optimised in them (Rio et al. 2024).

An ensemble of networks that predict how an observation changes is trained by noisy sums of clipped gradients, each
model's part clipped apart; then the policy is learned in the models alone, with rewards lowered where they disagree.
Privacy unit: a trajectory. Relation: add or remove one. Released: every noisy sum; all else is post-processing.
Statements alone: the noise is drawn in floating point from public seeds. Proof, and what differs from the paper:
docs/papers/beyond.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from dprl.accounting import events
from dprl.accounting.budget import Budget
from dprl.accounting.calibration import noise_multiplier_for
from dprl.engine.layouts import Block, PaddedUnits
from dprl.engine.loop import run_steps
from dprl.engine.program import Stage
from dprl.environments.cart_pole import MAX_ANGLE, MAX_POSITION, CartPole
from dprl.environments.rollout import Columns, environment_bounds, rollout
from dprl.environments.simulators import facts_of
from dprl.learning.policy_gradient.dp_pg import DPPG
from dprl.learning.policy_gradient.people_sources import CompiledPeople
from dprl.learning.policy_gradient.pg_plan import make_pg_plan, program_of
from dprl.learning.policy_gradient.trainer import PolicyGradient, run
from dprl.mechanisms.action_coins import ActionCoins
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SeededNoise
from dprl.policies.parametric import Parametric
from dprl.release.returns import mean_return
from dprl_papers.paper_beyond.processes import learned_policy

MODELS, BATCH, UPDATES, RATE, CLIP, PENALTY = 3, 100, 300, 0.02, 1.0 / 3.0, 1.0
"""Networks, expected trajectories of a batch, number of batches, step size of Adam, clip norm, and by how much rewards
fall with the models' disagreement: chosen on seeds from 1000."""
CHANGE = np.array([0.06, 0.2, 0.06, 0.3], np.float32)
"""Public sizes of a step's changes, by which they are scaled."""
LOGGED, JUDGED = CartPole(horizon=200, discount=0.99), CartPole(horizon=500, discount=0.99)
_NETWORK = Parametric("mlp:16", (*LOGGED.observation_bounds, (0.0, 1.0)), actions=4)


def behavior(seen: Any) -> Any:
    """Return what is logged: a policy that balances in half of its steps and draws an action in the others."""
    right = 0.25 + 0.5 * (seen @ jnp.array([0.2, 0.5, 8.0, 2.0]) > 0.0)
    return jnp.stack([1.0 - right, right], axis=1)


def logged(people: int, seed: int) -> Columns:
    """Return a log of one trajectory for each person."""
    return rollout(LOGGED, behavior, random.key(seed), people)


def padded(columns: Columns, people: int) -> PaddedUnits:
    """Return what models learn from.

    For each step these are an observation and action, the change that followed, and whether there was such a step.
    """
    change = (columns["next_observation"] - columns["observation"]) / CHANGE
    rows = {"x": np.column_stack([columns["observation"], columns["action"]]), "y": change}
    made = {"weight": np.zeros((people, LOGGED.horizon), np.float32)}
    made |= {name: np.zeros((people, LOGGED.horizon, row.shape[1]), np.float32) for name, row in rows.items()}
    for name, row in {**rows, "weight": np.ones(len(change))}.items():
        made[name][columns["episode_id"], columns["t"]] = row
    return PaddedUnits({name: jnp.asarray(one) for name, one in made.items()})


# --- private models ---------------------------------------------------------------------------------------------------


class Learner(NamedTuple):
    """Weights of all models, their mean over the later half of the updates, and Adam's moments."""

    theta: Any  # (models, d)
    mean: Any
    first: Any
    second: Any


@dataclass(frozen=True)
class Models:
    """A program of the engine that trains the ensemble."""

    mechanism: GaussianSum
    expected: float
    columns = ()

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The one stage."""
        return (Stage("models", self.mechanism),)

    def init(self, seed: Any) -> Learner:
        """Return random networks."""
        theta = jax.vmap(_NETWORK.initial)(random.normal(random.key(seed), (MODELS, _NETWORK.random_weights)))
        return Learner(theta, *[jnp.zeros_like(theta)] * 3)

    def contribution(self, stage: int, state: Learner, block: Block) -> Any:
        """Return ``(B, models d)``: gradients of each trajectory's mean squared error. Private."""
        del stage

        def error(theta: Any, x: Any, y: Any, weight: Any) -> Any:
            wrong = jnp.sum((_NETWORK.preferences(theta, x) - y) ** 2, axis=1)
            return jnp.sum(weight * wrong) / jnp.maximum(jnp.sum(weight), 1.0)

        each = jax.vmap(jax.vmap(jax.grad(error), (0, None, None, None)), (None, 0, 0, 0))
        found = each(state.theta, *(block.columns[name] for name in ("x", "y", "weight")))
        return found.reshape(len(found), -1)

    def update(self, stage: int, state: Learner, noisy: Any, step: Any) -> Learner:
        """Take a step of Adam."""
        del stage
        gradient, count = (noisy / self.expected).reshape(MODELS, -1), step + 1.0
        first, second = 0.9 * state.first + 0.1 * gradient, 0.99 * state.second + 0.01 * gradient**2
        move = first / (1.0 - 0.9**count) / (jnp.sqrt(second / (1.0 - 0.99**count)) + 1e-8)
        theta = state.theta - RATE * (1.0 - step / UPDATES) * move
        late = jnp.where(step >= UPDATES // 2, 2.0 / UPDATES, 0.0)
        return Learner(*(x.astype(jnp.float32) for x in (theta, state.mean + late * theta, first, second)))


def training(people: int, budget: Budget | None) -> GaussianSum:
    """Return the mechanism, which clips each model's gradient to a share of the clip norm: together they have all."""
    rate = min(BATCH / people, 1.0)
    event = lambda z: events.poisson_gaussian(rate, z, UPDATES)  # noqa: E731
    multiplier = 1.0 if budget is None else noise_multiplier_for(event, budget)
    parts = ((_NETWORK.size, CLIP * MODELS**-0.5),) * MODELS
    return GaussianSum(parts=parts, sampling_rate=rate, steps=UPDATES, noise_multiplier=multiplier)


@partial(jax.jit, static_argnums=0)
def trained(mechanism: GaussianSum, log: PaddedUnits, noise_multiplier_override: Any, seed: Any) -> Any:
    """Return weights ``(models, d)``.

    Args:
        mechanism: of :func:`training`.
        noise_multiplier_override: another noise multiplier; 0 for no noise.
    """
    program: Any = Models(
        mechanism.in_float(noise_multiplier_override=noise_multiplier_override), mechanism.sampling_rate * log.units
    )
    noise = SeededNoise(jnp.stack([jnp.uint32(1), jnp.asarray(seed, jnp.uint32)])).stream("models")
    return run_steps(program, 0, program.mechanism, noise, log, program.init(seed))[0].mean


# --- the policy in the models -----------------------------------------------------------------------------------------


class ModelledCartPole(CartPole):
    """Cart Pole as the models have it: a step follows one of them; how an episode starts and ends is known."""

    reward_bounds = (0.0, 1.0)

    def following(self, weights: Any) -> ModelledCartPole:
        """Give it models ``(models, d)``, which may be traced."""
        object.__setattr__(self, "weights", weights)
        return self

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, Any, Any]:
        """Return the next state, a reward of 1 less the penalty, and whether it is the end."""
        x = jnp.append(self.observe(state), action)[None]
        moves = jax.vmap(lambda theta: _NETWORK.preferences(theta, x)[0])(self.weights)  # type: ignore[attr-defined]
        spread = jnp.max(jnp.linalg.norm(moves - moves.mean(axis=0), axis=1))
        state = state + CHANGE * moves[random.randint(key, (), 0, MODELS)]
        over = (jnp.abs(state[0]) > MAX_POSITION) | (jnp.abs(state[2]) > MAX_ANGLE)
        return state, jnp.clip(1.0 - PENALTY * spread, 0.0, 1.0), over


_PLAN = make_pg_plan(DPPG(users=20_000), facts_of(LOGGED), Budget(8.0, 1e-5))


@jax.jit
def imagined_policy(weights: Any, seed: Any) -> Any:
    """Return the parameters that policy gradient without noise learns in the models."""
    program, rates = program_of(_PLAN)
    program = PolicyGradient(program.shape, program.mechanism.in_float(noise_multiplier_override=0.0))
    world = CompiledPeople(ModelledCartPole(horizon=200, discount=0.99).following(weights), program.shape)
    noise = SeededNoise(jnp.zeros(2, jnp.uint32)).stream("users")
    return run(program, world, noise, rates, ActionCoins.from_jax_key(random.key(seed)))[0].theta


# --- what is compared -------------------------------------------------------------------------------------------------


def learn_by_primorl(people: int, budget: Budget | None, seed: int) -> float:
    """Return the mean return of what PriMORL learns; without a budget there is no noise."""
    noise_multiplier_override = 0.0 if budget is None else training(people, budget).noise_multiplier
    log = padded(logged(people, seed), people)
    # one compiled program for all budgets
    theta = imagined_policy(trained(training(people, None), log, noise_multiplier_override, seed), seed)
    return float(mean_return(_PLAN.policy, JUDGED, theta, random.key(37), True))


def learn_by_dprl(people: int, budget: Budget, learner: str, seed: int) -> float:
    """Return the same of a learner of ``dprl learn``."""
    bounds = environment_bounds(LOGGED, people, 4.0)
    policy = learned_policy(logged(people, seed), bounds, learner, budget, LOGGED.discount, seed)
    return len(rollout(JUDGED, policy, random.key(37), 300)["t"]) / 300
