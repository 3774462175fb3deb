"""Theorem B.2: both sides of bound (20)

Where: B.6, Theorem B.2, Eqs. (20), (24), (28) and (32)

Statement: Suppose f is L-smooth and σ is independent from the noise variables ν_t. If the σ is a stationary point of
the constrained optimization problem, the following is satisfied: E‖∇_{T−1}‖² ≤ σ_ζ² p − (2L/C_σ) (α C_{T−1} +
(1 − α) C_T).

Note: Uniform schedules that end with the budget, σ_ζ² p taken as E‖ζ‖², the smallest that (27) allows, and C_σ as
corrected (E17). The descent lemma, (28), is the same bound with the loss's last fall in place of what stationarity
makes of it. L is the largest of the problems'. A hand schedule of 15, 60 or 240 steps is plain descent with a fixed
step.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dprl.accounting.budget import Budget
from dprl.protectors.learn import simulation_of
from dprl.protectors.projector import init_weights
from dprl.protectors.simulation import Simulation, begin, step_of
from dprl_papers.harness.programmed import Run, drawn, make_claim, make_table, mean_text
from dprl_papers.paper_002_l2p import quadratics
from dprl_papers.paper_002_l2p.quadratics import LONGEST, Problem
from dprl_papers.paper_002_l2p.returns import DELTA, RUNS

EPSILON = (0.05,)
HAND = (15, 60, 240)
HEADS = ["", "left side", "bound (20)", "(28), descent", "E‖ζ‖²", "C_{T−1}", "C_T"]


@partial(jax.jit, static_argnums=(0, 4))
def terms(simulation: Simulation, weights: Any, task: Any, key: jax.Array, learned: bool) -> tuple[jax.Array, ...]:
    """Return of the last two iterates of a run losses ``(2,)``, gradients ``(2, d)`` and ``V . grad`` ``(2,)`` of Eq.
    (32), and the update ``(d,)`` between them; sigma in units of the clip.
    """
    loss, steps = partial(simulation.family.loss, task), simulation.hand.steps

    def both(carry: Any, step: jax.Array) -> Any:
        inner, _, total = carry
        stepped = lambda draws: step_of(simulation, weights, task, key, learned=learned, draws=draws)(inner, step)[0]  # noqa: E731
        after, push = jax.jvp(stepped, (jnp.ones((), jnp.float32),), (jnp.ones((), jnp.float32),))
        return (after, (inner[1], total), total - push[1] / simulation.std), None

    zero = jnp.zeros(simulation.family.dimension, jnp.float32)
    start = (begin(simulation, weights, task, learned), (zero, zero), zero)
    (inner, before, total), _ = jax.lax.scan(both, start, jnp.arange(steps, dtype=jnp.int32))
    iterates, sums = (jnp.stack(pair) for pair in zip(before, (inner[1], total), strict=True))
    gradients = jax.vmap(jax.grad(loss))(iterates)
    return jax.vmap(loss)(iterates), gradients, jnp.sum(sums * gradients, axis=1), iterates[1] - iterates[0]


def sides(run: Run, problem: Problem, steps: int, learned: bool, trials: int) -> dict[str, Any]:
    """Return ``(trials,)`` means over problems of what the two sides of (20) are made of, and ``bound`` itself."""
    family, budget = quadratics.family_of(problem, steps), Budget(run.epsilon[0], DELTA)
    simulation = simulation_of(family, quadratics.architecture_of("L2P-Proj"), budget)
    weights = init_weights(simulation.architecture, jax.random.key(0))
    if learned:
        weights = quadratics.protector_of(run, problem, "L2P-Proj", steps, run.epsilon[0])[1].weights
    tasks = quadratics.problems(problem, 4 if run.quick else quadratics.TARGETS, 1000)
    keys = jax.vmap(jax.vmap(jax.random.key))(quadratics.own_seeds(tasks, jnp.arange(trials)))
    each = jax.vmap(jax.vmap(partial(terms, simulation, weights, learned=learned), (None, 0)))
    losses, gradients, products, update = (np.asarray(x, np.float64) for x in each(tasks, keys))
    x = np.asarray(tasks.x, np.float64)
    hessians = 2.0 * np.einsum("tnij,tnik->tjk", x, x) / x.shape[1] + 2.0 * 0.001 / x.shape[1] * np.eye(2)
    smooth = float(np.linalg.eigvalsh(hessians).max())
    alpha = (1.0 - 1.0 / steps) / (2.0 - 1.0 / steps)
    constant = (steps - 1.0 + alpha) * 2.0 / steps / ((2.0 - 1.0 / steps) * simulation.std)
    zeta = ((smooth * update + gradients[:, :, 0]) ** 2).sum(axis=-1)
    covariance = alpha * products[:, :, 0] + (1.0 - alpha) * products[:, :, 1]
    found = {
        "left": (gradients[:, :, 0] ** 2).sum(axis=-1),
        "bound": zeta - 2.0 * smooth / constant * covariance,
        "descent": zeta + 2.0 * smooth * (losses[:, :, 0] - losses[:, :, 1]),
        "zeta": zeta,
        "before": products[:, :, 0],
        "last": products[:, :, 1],
    }
    return {name: value.mean(axis=0) for name, value in found.items()}


def draw(run: Run) -> dict[str, Any]:
    """Draw both sides for a trained projector and for hand schedules."""
    rows, holds, descends, runs = [], [], [], min(run.trials, RUNS)
    for problem in (quadratics.MANY, quadratics.PRINTED):
        for learned, steps in ((True, LONGEST), *((False, steps) for steps in HAND)):
            found = {k: np.array(v) for k, v in run.kept(sides, run, problem, steps, learned, runs).items()}
            name = f"{problem.label}: {'L2P-Proj' if learned else 'hand schedule'}, {steps} steps"
            rows.append([name, *(mean_text(x, 3) for x in found.values())])
            holds.append(bool(found["bound"].mean() >= found["left"].mean()))
            descends.append(bool(found["descent"].mean() >= found["left"].mean()))
    caption = f"Means over problems that nothing was trained on, ± standard error over {runs} repeats, at (0.05, 1e-8)."
    claims = [
        make_claim("Bound (20) is above its left side.", all(holds), f"at {sum(holds)} of {len(holds)}."),
        make_claim("The descent lemma, (28), is.", all(descends), f"at {sum(descends)} of {len(descends)}.", ours=True),
    ]
    return drawn(tables=[make_table(caption, HEADS, rows)], claims=claims)
