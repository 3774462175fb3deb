"""Theorem B.2: both sides of bound (20)

Where: B.6, Eqs. (20), (24), (28) and (32)

Statement: Suppose f is L-smooth and σ is independent from the noise variables ν_t. If the σ is a stationary point of
the constrained optimization problem, the following is satisfied: E‖∇_{T−1}‖² ≤ σ_ζ² p − (2L/C_σ) (α C_{T−1} +
(1 − α) C_T).

Note: Uniform schedules that end with the budget, σ_ζ² p taken as E‖ζ‖², the smallest that (27) allows, and C_σ as
corrected (E17). (28), the descent lemma, has the loss's last fall in place of what stationarity makes of it. L is the
largest of the problems'. A hand schedule is plain descent with a fixed step.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dprl.accounting.budget import Budget
from dprl.protectors.meta_training import simulation_of
from dprl.protectors.projector import Architecture
from dprl.protectors.simulation import Simulation, first_carry, step_body
from dprl_papers.harness.programmed import Run, figure_contents, make_claim, make_table
from dprl_papers.paper_002_l2p import quadratics
from dprl_papers.paper_002_l2p.quadratics import LONGEST, Problem
from dprl_papers.paper_002_l2p.trainings import DELTA, RUNS, count_of, error_text, over_trainings

EPSILON = (0.05,)
HAND = (15, 60, 240)
COLUMNS = ("left side", "bound (20)", "(28), descent", "E‖ζ‖²", "C_{T−1}", "C_T")


@partial(jax.jit, static_argnums=0)
def terms(simulation: Simulation, weights: Any, task: Any, key: jax.Array) -> tuple[jax.Array, ...]:
    """Return what the bounds need of the last two iterates; sigma is in units of the clip.

    These are losses ``(2,)``, gradients ``(2, d)``, products ``V . grad`` of Eq. (32) ``(2,)``, and the update ``(d,)``
    between the two.
    """
    loss = partial(simulation.family.loss, task)

    def both(carry: Any, step: jax.Array) -> Any:
        inner, _, total = carry
        stepped = lambda draws: step_body(simulation, weights, task, key, draws=draws)(inner, step)[0]  # noqa: E731
        after, push = jax.jvp(stepped, (jnp.ones((), jnp.float32),), (jnp.ones((), jnp.float32),))
        return (after, (inner[1], total), total - push[1] / simulation.std), None

    zero, steps = jnp.zeros(simulation.family.dimension, jnp.float32), simulation.hand.steps
    start = (first_carry(simulation, weights, task), (zero, zero), zero)
    (inner, before, total), _ = jax.lax.scan(both, start, jnp.arange(steps, dtype=jnp.int32))
    iterates, sums = (jnp.stack(pair) for pair in zip(before, (inner[1], total), strict=True))
    gradients = jax.vmap(jax.grad(loss))(iterates)
    return jax.vmap(loss)(iterates), gradients, jnp.sum(sums * gradients, axis=1), iterates[1] - iterates[0]


def sides(run: Run, problem: Problem, steps: int, learned: bool, trials: int, seed: int) -> dict[str, np.ndarray]:
    """Return ``(trials,)`` means over problems for each column of the table; ``seed`` is of the training."""
    budget = Budget(run.epsilon[0], DELTA)
    if learned:
        simulation, found = quadratics.protector_of(run, problem, "L2P-Proj", steps, budget.epsilon, seed)
        weights = found.weights
    else:
        simulation, weights = simulation_of(quadratics.family_of(problem, steps), Architecture(layers=0), budget), {}
    tasks = quadratics.problems(problem, 4 if run.quick else quadratics.TARGETS, 1000)
    keys = jax.vmap(jax.vmap(jax.random.key))(quadratics.own_seeds(tasks, jnp.arange(trials)))
    each = jax.vmap(jax.vmap(partial(terms, simulation, weights), (None, 0)))
    losses, gradients, products, update = (np.asarray(x, np.float64) for x in each(tasks, keys))
    x = np.asarray(tasks.x, np.float64)
    hessians = 2.0 / x.shape[1] * (np.einsum("tnij,tnik->tjk", x, x) + 0.001 * np.eye(2))
    smooth = float(np.linalg.eigvalsh(hessians).max())
    alpha = (1.0 - 1.0 / steps) / (2.0 - 1.0 / steps)
    constant = (steps - 1.0 + alpha) * 2.0 / steps / ((2.0 - 1.0 / steps) * simulation.std)
    zeta = ((smooth * update + gradients[:, :, 0]) ** 2).sum(axis=-1)
    bound = zeta - 2.0 * smooth / constant * (products @ [alpha, 1.0 - alpha])
    descent = zeta + 2.0 * smooth * (losses @ [1.0, -1.0])
    left = (gradients[:, :, 0] ** 2).sum(axis=-1)
    every = (left, bound, descent, zeta, products[:, :, 0], products[:, :, 1])
    return {name: column.mean(axis=0) for name, column in zip(COLUMNS, every, strict=True)}


def draw(run: Run) -> dict[str, Any]:
    """Draw both sides for a trained projector and for hand schedules."""
    rows, above, runs = [], [], min(run.trials, RUNS)
    for problem in (quadratics.MANY, quadratics.PRINTED):
        for learned, steps in ((True, LONGEST), *((False, steps) for steps in HAND)):
            found = over_trainings(run, sides, problem, steps, learned, runs, learned=learned)
            name = f"{problem.label}: {'L2P-Proj' if learned else 'hand schedule'}, {steps} steps"
            rows.append([name, *(error_text(found[column]) for column in COLUMNS)])
            left, *others = (found[column].mean() for column in COLUMNS[:3])
            above.append([other >= left for other in others])
    count, (bound, descent) = len(rows), np.array(above).sum(axis=0)
    caption = "Means over problems that nothing was trained on, ± standard error over "
    caption += f"{runs} repeats and {count_of(run)} of L2P-Proj, at (0.05, 1e-8)."
    texts = {"Bound (20) holds without stationarity.": bound, "The descent lemma, (28), does.": descent}
    claims = [make_claim(words, bool(n == count), f"at {n} of {count}.", ours=True) for words, n in texts.items()]
    return figure_contents(tables=[make_table(caption, ["", *COLUMNS], rows)], claims=claims)
