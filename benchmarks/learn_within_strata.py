"""A rule over strata from noisy counts and sums: how far it is from the best rule, beside one action for everybody.

``python -m benchmarks.learn_within_strata`` draws problems of one decision by seed: 3 to 12 strata, 2 or 4 actions
whose probabilities differ by stratum, 400 to 8,000 people to learn from, and effects of actions, of strata and, in two
of three problems, of both together. It prints how much the rule is worth less than the best rule, in thousandths of
half the reward range, on the seeds for choosing (:mod:`dprl.evaluation.strata_q`) and on those for judging. It prints
the same for the rule without drawing cells to levels, for the rule without noise, for the best action for everybody,
and for the behaviour policy.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.harness import pin, table
from dprl.accounting.budget import Budget
from dprl.bounds import Bounds
from dprl.evaluation.fitted_q import TableQ
from dprl.evaluation.strata import Strata
from dprl.evaluation.strata_q import StrataBasis, StrataQ

CHOOSING, JUDGING = range(100), range(1000, 1100)
EPSILONS, DELTA, LEAST = (0.3, 1.0, 4.0), 1e-5, 0.02


class Bare(StrataQ):
    """A learner that takes the same sums, and the action with the highest lower bound in each stratum."""

    _q_estimates = TableQ._q_estimates


def problem(rng: np.random.Generator) -> tuple[int, np.ndarray, np.ndarray, np.ndarray, float]:
    """Return a problem drawn by ``rng``.

    Returns:
        Number of people, shares of strata, probabilities and mean outcomes of actions by stratum, and the standard
        deviation of an outcome.
    """
    strata, actions = int(rng.choice([3, 6, 12])), int(rng.choice([2, 4]))
    people = int(np.exp(rng.uniform(np.log(400), np.log(8_000))))
    chances = np.stack([rng.dirichlet(np.full(actions, 3.0)) for _ in range(strata)])
    level, effect, both = rng.uniform(0.02, 0.15), rng.uniform(0.02, 0.3), rng.choice([0.0, 0.05, 0.15])
    means = rng.normal(0, level, actions) + rng.normal(0, effect, (strata, 1)) + rng.normal(0, both, (strata, actions))
    means = np.clip(means + rng.uniform(-0.3, 0.3), -1.0, 1.0)
    return people, rng.dirichlet(np.full(strata, 5.0)), chances, means, float(rng.uniform(0.1, 0.6))


def lacks(seed: int) -> Iterator[list[float]]:
    """Yield, for each epsilon, how much each rule is worth less than the best rule."""
    rng = np.random.default_rng([seed, 5])
    people, share, chances, means, deviation = problem(rng)
    strata, actions = means.shape
    stratum = rng.choice(strata, people, p=share)
    action = (chances[stratum].cumsum(axis=1) < rng.random((people, 1))).sum(axis=1).clip(0, actions - 1)
    outcome = np.clip(means[stratum, action] + rng.normal(0.0, deviation, people), -1.0, 1.0)
    cell, size = stratum * actions + action, strata * actions
    bounds = Bounds(
        units=people,
        horizon=1,
        reward=(-1.0, 1.0),
        observation=((0.0, strata - 1.0),),
        actions=actions,
        strata=("observation_0",),
    )
    basis = StrataBasis(bounds.state, "strata", Strata(bounds))
    drawn, bare = (
        StrataQ(bounds, basis, 1.0, min_propensity=LEAST),
        Bare(bounds, basis, 1.0, caution=0.5, min_propensity=LEAST),
    )
    exact = np.concatenate(
        [np.bincount(cell, minlength=size), drawn.kappa * np.bincount(cell, outcome, minlength=size)]
    )
    best, fixed, done = share @ means.max(axis=1), (share @ means).max(), share @ (chances * means).sum(axis=1)
    where = np.arange(strata)[:, None].astype(float)
    for epsilon in EPSILONS:
        drawn, bare = (program.calibrated(Budget(epsilon, DELTA)) for program in (drawn, bare))
        noisy = exact + rng.normal(0.0, drawn.stages[0].mechanism.noise_std, len(exact))
        asked = ((drawn, noisy), (bare, noisy), (drawn, exact))
        told = [program.update(0, None, jnp.asarray(sums), 0) for program, sums in asked]
        rules = [drawn.policy(np.asarray(one)).action(where) for one in told]
        own = [best - share @ means[np.arange(strata), rule] for rule in rules]
        yield [1000.0 * float(one) for one in (*own, best - fixed, best - done)]


if __name__ == "__main__":
    pin(1)
    jax.config.update("jax_disable_jit", True)  # compiling would not pay, as shapes differ by problem
    most = int(sys.argv[1]) if len(sys.argv) > 1 else None
    rows = []
    for name, seeds in (("choosing", CHOOSING[:most]), ("judging", JUDGING[:most])):
        found = np.array([list(lacks(seed)) for seed in seeds])
        for epsilon, mean, error in zip(
            EPSILONS, found.mean(axis=0), found.std(axis=0) / len(found) ** 0.5, strict=True
        ):
            rows.append([name, f"{epsilon:g}", *(f"{m:.1f} +- {e:.1f}" for m, e in zip(mean, error, strict=True))])
    print(
        table(
            ["seeds", "epsilon", "rule", "not drawn to levels", "without noise", "best action", "what was done"], rows
        )
    )
