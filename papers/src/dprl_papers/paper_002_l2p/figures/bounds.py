"""Theorems B.2 and B.3: both sides of bound (20), and what cutting gradients changes

Where: B.4 to B.6, Eqs. (18), (20), (24), (28) and (32); Table 1

Statement: Suppose f is L-smooth and σ is independent from the noise variables ν_t. If the σ is a stationary point of
the constrained optimization problem, the following is satisfied: E‖∇_{T−1}‖² ≤ σ_ζ² p − (2L/C_σ) (α C_{T−1} +
(1 − α) C_T). [...] In other words, the batch algorithm is stabler.

Note: Uniform schedules that end with the budget, σ_ζ² p taken as E‖ζ‖², the smallest that (27) allows, and C_σ as
corrected (E17). (28), the descent lemma, has the loss's last fall in place of what stationarity makes of it. L is the
largest of the problems'. A hand schedule is plain descent with a fixed step. In the batch form no gradient passes from
one batch of steps to the next; the cut gradient is that of the same mean loss over 240 steps, for the projector that
was trained on 60. (18) takes losses of consecutive steps as independent.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dprl.accounting.budget import Budget
from dprl.protectors.learn import simulation_of
from dprl.protectors.projector import Architecture
from dprl.protectors.simulation import Simulation, begin, step_of
from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import Run, drawn, make_claim, make_table, mean_text
from dprl_papers.paper_002_l2p import quadratics
from dprl_papers.paper_002_l2p.quadratics import LONGEST, Problem
from dprl_papers.paper_002_l2p.returns import DELTA, RUNS
from dprl_papers.paper_002_l2p.scalability import cost

VALUES = (20, 40)
"""Steps of a batch, as in Table 1."""
QUICK = (20,)
EPSILON = (0.05,)
HAND = (15, 60, 240)
TABLE_1 = 1600
HEADS = ["", "left side", "bound (20)", "(28), descent", "E‖ζ‖²", "C_{T−1}", "C_T"]
BATCH_HEADS = ["steps of a batch", "MB", "s", "cosine with the exact gradient", "variance over (18)"]


def given(run: Run, problem: Problem, steps: int, learned: bool, trials: int) -> tuple[Simulation, Any, Any, Any]:
    """Return what is simulated, with a trained projector's weights if ``learned``, and on which tasks and keys."""
    family, method = quadratics.family_of(problem, steps), "L2P-Proj"
    architecture = quadratics.architecture_of(method) if learned else Architecture(layers=0)
    simulation = simulation_of(family, architecture, Budget(run.epsilon[0], DELTA), every=True)
    trained = partial(quadratics.protector_of, run, problem, method, LONGEST, run.epsilon[0])
    tasks = quadratics.problems(problem, 4 if run.quick else quadratics.TARGETS, 1000)
    keys = jax.vmap(jax.vmap(jax.random.key))(quadratics.own_seeds(tasks, jnp.arange(trials)))
    return simulation, trained()[1].weights if learned else {}, tasks, keys


@partial(jax.jit, static_argnums=0)
def terms(simulation: Simulation, weights: Any, task: Any, key: jax.Array) -> tuple[jax.Array, ...]:
    """Return losses ``(2,)`` and gradients ``(2, d)`` at the last two iterates, ``(2,)`` products ``V . grad`` of Eq.
    (32) there, and the update ``(d,)`` between them; sigma is in units of the clip.
    """
    loss = partial(simulation.family.loss, task)

    def both(carry: Any, step: jax.Array) -> Any:
        inner, _, total = carry
        stepped = lambda draws: step_of(simulation, weights, task, key, draws=draws)(inner, step)[0]  # noqa: E731
        after, push = jax.jvp(stepped, (jnp.ones((), jnp.float32),), (jnp.ones((), jnp.float32),))
        return (after, (inner[1], total), total - push[1] / simulation.std), None

    zero, steps = jnp.zeros(simulation.family.dimension, jnp.float32), simulation.hand.steps
    start = (begin(simulation, weights, task), (zero, zero), zero)
    (inner, before, total), _ = jax.lax.scan(both, start, jnp.arange(steps, dtype=jnp.int32))
    iterates, sums = (jnp.stack(pair) for pair in zip(before, (inner[1], total), strict=True))
    gradients = jax.vmap(jax.grad(loss))(iterates)
    return jax.vmap(loss)(iterates), gradients, jnp.sum(sums * gradients, axis=1), iterates[1] - iterates[0]


def sides(run: Run, problem: Problem, steps: int, learned: bool, trials: int) -> list[Any]:
    """Return ``(trials,)`` means over problems for each column of the first table."""
    simulation, weights, tasks, keys = given(run, problem, steps, learned, trials)
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
    return [v.mean(axis=0) for v in (left, bound, descent, zeta, products[:, :, 0], products[:, :, 1])]


def cut(run: Run, sizes: tuple[int, ...], trials: int) -> list[list[float]]:
    """Return for each batch size the cosine of the cut meta-gradient with the exact one, and the variance of the
    difference of the last two batches' mean losses over what (18) takes it for.
    """
    simulation, weights, tasks, keys = given(run, quadratics.MANY, HAND[-1], True, trials)
    numbers = jnp.arange(HAND[-1], dtype=jnp.int32)

    def losses(size: int, weights: Any, task: Any, key: jax.Array) -> jax.Array:
        body = step_of(simulation, weights, task, key)

        def batch(carry: Any, numbers: jax.Array) -> Any:
            carry, (found, _) = jax.lax.scan(body, jax.lax.stop_gradient(carry), numbers)
            return carry, found

        return jax.lax.scan(batch, begin(simulation, weights, task), numbers.reshape(-1, size))[1].ravel()

    def gradient(size: int) -> np.ndarray:
        mean = lambda w: jnp.mean(jax.vmap(partial(losses, size, w))(tasks, keys[:, 0]))  # noqa: E731
        return np.concatenate([np.ravel(x) for x in jax.tree.leaves(jax.jit(jax.grad(mean))(weights))])

    exact, rows = gradient(HAND[-1]), []
    along = np.asarray(jax.vmap(jax.vmap(partial(losses, HAND[-1], weights), (None, 0)))(tasks, keys), np.float64)
    for short, size in ((gradient(size), size) for size in sizes):
        ends = along[:, :, -2 * size :].reshape(*along.shape[:2], 2, size)
        taken = 2.0 * ends.var(axis=1, ddof=1).mean(axis=(1, 2)) / size
        spread = np.diff(ends.mean(axis=-1), axis=-1)[..., 0].var(axis=1, ddof=1)
        cosine = short @ exact / np.linalg.norm(short) / np.linalg.norm(exact)
        rows.append([float(cosine), float((spread / taken).mean())])
    return rows


def draw(run: Run) -> dict[str, Any]:
    """Draw both sides for a trained projector and for hand schedules, and the batch form."""
    rows, above, batches, runs = [], [], [], min(run.trials, RUNS)
    for problem in (quadratics.MANY, quadratics.PRINTED):
        for learned, steps in ((True, LONGEST), *((False, steps) for steps in HAND)):
            found = run.values_of(sides, run, problem, steps, learned, runs)
            name = f"{problem.label}: {'L2P-Proj' if learned else 'hand schedule'}, {steps} steps"
            rows.append([name, *(mean_text(x, 3) for x in found)])
            above.append(found[1:3].mean(axis=1) >= found[0].mean())
    held = np.array(above).sum(axis=0)
    found = run.values_of(cut, run, run.whole, runs)
    for size, (cosine, ratio) in zip(run.whole, found, strict=True):
        one = run.kept(cost, size, size, run.seed, True)
        seconds = number(TABLE_1 / size * one["seconds"], 2)
        batches.append([plain(size), number(one["megabytes"], 1), seconds, number(cosine, 3), number(ratio, 2)])
    caption = f"Means over problems that nothing was trained on, ± standard error over {runs} repeats, at (0.05, 1e-8)."
    batch_caption = "The batch form: memory of Table 1's program, whatever the number of steps, and its time for 1,600 "
    batch_caption += "steps; the cut gradient; and how much more two batches' mean losses differ than (18) has it."
    least, most = (number(x, 2) for x in (found[:, 1].min(), found[:, 1].max()))
    text = f"the variance of the difference is {least} to {most} times what (18) takes it for."
    claims = [
        make_claim("Bound (20) is above its left side.", held[0] == len(rows), f"at {held[0]} of {len(rows)}."),
        make_claim("The descent lemma, (28), is.", held[1] == len(rows), f"at {held[1]} of {len(rows)}.", ours=True),
        make_claim("Two batches' mean losses differ as rarely as (18) says.", bool(found[:, 1].max() <= 1.0), text),
    ]
    tables = [make_table(caption, HEADS, rows), make_table(batch_caption, BATCH_HEADS, batches)]
    return drawn(tables=tables, claims=claims)
