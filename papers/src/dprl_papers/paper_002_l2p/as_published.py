"""L2P as published: the noise of a step depends on the noisy squared norm of the same batch; accounting by ctCDP.

It follows paper 002, Algorithms 1 to 3, Theorem B.1, B.5 without batches, and B.7. It serves reproduction:
docs/papers/002.md says what its accounting leaves out (E1, E2, E3, E9). Noise is drawn from public seeds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dprl.mechanisms import threefry
from dprl.protectors.objective import Training, adam, budget_weighted, draw_tasks, lagrangian_terms, update_lagrangian
from dprl.protectors.projector import Architecture, UpdateRule, Weights, init_weights
from dprl_papers.harness.programmed import Run
from dprl_papers.paper_002_l2p import ctcdp, quadratics
from dprl_papers.paper_002_l2p.quadratics import LONGEST, Problem
from dprl_papers.paper_002_l2p.trainings import DELTA
from dprl_papers.records.losses import Records
from dprl_papers.records.tasks import Quadratics

NAME = "L2P as published"
STOPPED = 1e3


@dataclass(frozen=True, kw_only=True)
class Published:
    """Result of Algorithm 3 for T = 60 steps, for sums in which a record counts with sensitivity C (Lemma A.3).

    Attributes:
        family: family of the tasks.
        std: sigma_g over the batch size: the noise of a coordinate of the mean under the uniform schedule, in units of
            the clip norm.
        least: smallest noise sigma_min over sigma_g.
        batch: size of every sample; the number of units where nothing is sampled.
    """

    family: Quadratics
    std: float
    least: float
    batch: int

    @property
    def architecture(self) -> Architecture:
        return Architecture(scheduler="adaptive", least=self.least)

    @property
    def sampled(self) -> bool:
        return self.batch < self.family.units


def calibrated(problem: Problem, epsilon: float) -> Published:
    """Return the noise for the budget (epsilon, 1e-8) by Algorithm 3.

    Where the sampling rate of step 4 is beyond Lemma A.6, all units are in every batch, as A.1 allows. Then
    ``rho_0 = rho_tot/T``, and ``rho_ub = rho_a``.
    """
    units, family = problem.units, quadratics.family_of(problem)
    if (math.sqrt(units) + 10.0) / units <= ctcdp.LARGEST:
        made = ctcdp.initialise(epsilon, DELTA, LONGEST, units, 1.0)
        return Published(
            family=family, std=made.sigma_g / made.batch, least=made.sigma_min / made.sigma_g, batch=made.batch
        )
    sigma_g = math.sqrt(LONGEST / (2.0 * ctcdp.rho_a(epsilon, DELTA)))
    return Published(family=family, std=sigma_g / units, least=1.0 / math.sqrt(LONGEST), batch=units)


def proved_epsilon(facts: Published, epsilon: float) -> float:
    """Return an epsilon that really holds at delta 1e-8 for replacing one record, which moves a sum by 2 C.

    The norm that a refused step has released counts too. Where all units are in the batch, the costs of the gradient
    (and, at most, those of the norm: E1) are four times the charged costs, and add up as zCDP. Where a batch is
    sampled, norm and gradient are one mechanism on the batch, whose cost is that of the smallest noise (E2). Theorem
    A.3 amplifies this mechanism, and Theorem A.1 turns the sum into (epsilon, delta).
    """
    log, rho = -math.log(DELTA), 4.0 * ctcdp.rho_a(epsilon, DELTA) * (1.0 + 1.0 / LONGEST)
    if not facts.sampled:
        return rho + 2.0 * math.sqrt(rho * log)
    q, sigma_g = facts.batch / facts.family.units, facts.std * facts.batch
    most = 4.0 * (ctcdp.gaussian_rho(facts.least * sigma_g) + ctcdp.gaussian_rho(sigma_g))
    steps = 1 + math.floor(LONGEST / (1.0 + (2.0 - facts.least) ** -2))
    rho, omega = steps * ctcdp.AMPLIFICATION * q**2 * most, -math.log(q) / (4.0 * most)
    if most > ctcdp.LARGEST or -math.log(q) < 3.0 * most * (2.0 - math.log2(most)):
        return math.inf
    inside = log <= (omega - 1.0) ** 2 * rho
    return rho + 2.0 * math.sqrt(rho * log) if inside else rho * omega + log / (omega - 1.0)


def sample_of(task: Records, key: jax.Array, units: int, batch: int) -> Records:
    """Return ``batch`` of ``units`` records without replacement (Floyd); the task's records stand for equally many."""
    coins = jax.random.uniform(key, (batch,))

    def one(chosen: jax.Array, k: jax.Array) -> tuple[jax.Array, None]:
        last = units - batch + k
        drawn = jnp.minimum((coins[k] * (last + 1)).astype(jnp.int32), last)
        return chosen.at[k].set(jnp.where(jnp.any(chosen == drawn), last, drawn)), None

    chosen, _ = jax.lax.scan(one, jnp.full(batch, -1, jnp.int32), jnp.arange(batch, dtype=jnp.int32))
    return jax.tree.map(lambda a: a[chosen % task.y.shape[0]], task)


def unrolled(
    facts: Published, weights: Weights, task: Records, key: jax.Array, factor: Any, deployed: bool = False
) -> tuple[jax.Array, jax.Array]:
    """Return the ``(T,)`` losses after each step, and the steps' costs as shares of rho_tot.

    A ``deployed`` run ends before the costs exceed 1.
    """
    family, hand, size = facts.family, facts.family.hand, facts.family.dimension
    rule = UpdateRule(architecture=facts.architecture, hand=hand, weights=weights)
    std, clip = jnp.float32(facts.std) * factor, jnp.float32(hand.clip_norm)
    coins, noise = jax.random.split(key)
    words, blocks = jax.random.key_data(noise), np.asarray(family.blocks)

    def body(carry: Any, step: jax.Array) -> Any:
        state, theta = carry
        seen = sample_of(task, jax.random.fold_in(coins, step), family.units, facts.batch) if facts.sampled else task
        mean = family.mean_gradient(seen, theta, coins, clip)
        draw = threefry.normal(words, step.astype(jnp.uint32), size + 1)
        # |sum|^2 with noise sigma_g (2 |D_t| - 1) C^2, over (|D_t| C)^2
        norm = jnp.sum(mean * mean) + (2.0 - 1.0 / facts.batch) * std * draw[size]
        state, ratio = rule.propose_noise(state._replace(norm=norm), std, step / hand.steps)
        state, moved = rule.update(state, theta, mean + std * ratio * draw[:size], std * ratio, step, blocks, clip)
        cost = (1.0 + ratio**-2) / hand.steps
        after = state._replace(spent=state.spent + cost), moved
        if deployed:
            live = after[0].spent <= 1.0
            ended = carry[0]._replace(spent=jnp.float32(STOPPED)), theta
            after = jax.tree.map(lambda new, old: jnp.where(live, new, old), after, ended)
            cost = jnp.where(live, cost, 0.0)
        return after, (family.loss(task, after[1]), cost)

    return jax.lax.scan(body, rule.start(family.initial(task)), jnp.arange(hand.steps, dtype=jnp.int32))[1]


@partial(jax.jit, static_argnums=(0, 1))
def _gradient(
    facts: Any, training: Training, weights: Weights, lagrangian: Any, key: jax.Array, factor: Any
) -> tuple[Weights, jax.Array]:
    """Return the exact meta-gradient of budget-weighted losses plus the Lagrangian, and the excess over the budget."""
    tasks, keys, factors = draw_tasks(facts, training, key, training.tasks)

    def objective(weights: Weights) -> tuple[jax.Array, jax.Array]:
        each = jax.vmap(partial(unrolled, facts, weights))
        losses, costs = each(tasks, keys[:, 0], factors * factor)
        excess = jnp.mean(jnp.sum(costs, axis=1)) - 1.0
        return jnp.mean(jax.vmap(budget_weighted)(losses, costs)) + lagrangian_terms(excess, *lagrangian), excess

    return jax.grad(objective, has_aux=True)(weights)


@partial(jax.jit, static_argnums=0)
def _last(facts: Published, weights: Weights, tasks: Records, keys: jax.Array, factors: jax.Array) -> Any:
    """Return the ``(tasks,)`` last losses of deployed runs, and the numbers of steps taken."""
    losses, costs = jax.vmap(partial(unrolled, facts, weights, deployed=True))(tasks, keys, factors)
    return losses[:, -1], jnp.sum(costs > 0.0, axis=1)


def trained(quick: bool, problem: Problem, epsilon: float, wide: bool, seed: int) -> dict[str, Any]:
    """Return the weights that are best on public problems, trained like the other protectors."""
    facts: Any = calibrated(problem, epsilon)
    training = quadratics.training_of(quick, seed, wide)
    root = jax.random.key(training.seed)
    weights = best = init_weights(facts.architecture, root)
    moments, lowest = (jax.tree.map(jnp.zeros_like, weights),) * 2, math.inf
    lagrangian = jnp.float32(0.0), jnp.float32(training.schedule.start)
    tasks, keys, factors = draw_tasks(facts, training, jax.random.fold_in(root, 0), training.validation)
    for epoch in range(training.epochs):
        key, factor = jax.random.fold_in(root, epoch + 1), jnp.float32(training.noise_factor_at(epoch))
        gradient, excess = _gradient(facts, training, weights, lagrangian, key, factor)
        weights, moments, _ = adam(
            training, weights, moments, gradient, epoch + 1, jnp.float32(training.learning_rate_at(epoch))
        )
        lagrangian = update_lagrangian(training.schedule, *lagrangian, excess)
        if (epoch + 1) % training.validate == 0:
            loss = float(jnp.mean(_last(facts, weights, tasks, keys[:, 0], factors)[0]))
            best, lowest = (weights, loss) if loss < lowest else (best, lowest)
    return {name: np.asarray(w) for name, w in best.items()}


def measure(run: Run, problem: Problem, epsilon: float, trials: int, wide: bool, seed: int) -> dict[str, Any]:
    """Return ``losses`` ``(problems, trials)`` above the minimum, and the mean number of ``steps``.

    The problems are those of :func:`quadratics.measure`; ``seed`` is the seed of training.
    """
    at = quadratics.epsilon_of_training(epsilon, wide)
    facts, wanted = calibrated(problem, at), calibrated(problem, epsilon)
    weights = {
        n: jnp.asarray(w, jnp.float32) for n, w in run.cached(trained, run.quick, problem, at, wide, seed).items()
    }
    tasks = quadratics.problems(problem, 4 if run.quick else quadratics.TARGETS, 1000)
    seeds = quadratics.own_seeds(tasks, jnp.arange(run.seed, run.seed + trials) + 100)
    keys = jax.vmap(jax.vmap(jax.random.key))(seeds)
    factors = jnp.full(trials, wanted.std / facts.std, jnp.float32)
    losses, steps = jax.vmap(
        lambda task, keys: _last(facts, weights, jax.tree.map(lambda a: jnp.stack([a] * trials), task), keys, factors)
    )(tasks, keys)
    return {"losses": losses - quadratics.minimal(tasks)[1][:, None], "steps": float(steps.mean())}
