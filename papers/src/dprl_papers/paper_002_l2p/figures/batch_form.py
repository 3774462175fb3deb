"""The batch form: what cutting gradients costs and changes

Where: B.4, B.5, Theorem B.3, Table 1

Statement: In other words, the batch algorithm is stabler. [...] Instead, mini-batch trade the memory with higher but
acceptable time complexity.

Note: A batch is a number of consecutive steps, and no gradient passes from one to the next. Memory and time are those
of Table 1's program. The cut gradient is compared with the exact one of the same mean loss over 240 steps, for a
projector that was trained on 60. (18) bounds the probability that the mean losses of two batches differ by the variance
of single losses over the batch's size, as if losses of consecutive steps were independent.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dprl.accounting.budget import Budget
from dprl.protectors.learn import simulation_of
from dprl.protectors.simulation import begin, step_of
from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import Run, drawn, make_claim, make_table
from dprl_papers.paper_002_l2p import quadratics
from dprl_papers.paper_002_l2p.quadratics import LONGEST
from dprl_papers.paper_002_l2p.returns import DELTA
from dprl_papers.paper_002_l2p.scalability import cost

VALUES = (20, 40)
"""Steps of a batch, as in Table 1."""
QUICK = (20,)
EPSILON = (0.05,)
STEPS, ALL = 240, 1600
"""Of the runs whose gradients are compared, and of Table 1's longest."""


def cut(run: Run, sizes: tuple[int, ...], repeats: int) -> list[list[float]]:
    """Return for each batch size the cosine of the cut gradient with the exact one, their ratio of norms, and the
    variance of the difference of the last two batches' mean losses over what (18) takes it for.
    """
    problem, budget = quadratics.MANY, Budget(run.epsilon[0], DELTA)
    weights = quadratics.protector_of(run, problem, "L2P-Proj", LONGEST, run.epsilon[0])[1].weights
    simulation = simulation_of(
        quadratics.family_of(problem, STEPS), quadratics.architecture_of("L2P-Proj"), budget, every=True
    )
    tasks = quadratics.problems(problem, 4 if run.quick else 16, 1000)
    keys = jax.vmap(jax.vmap(jax.random.key))(quadratics.own_seeds(tasks, jnp.arange(repeats)))

    def losses(weights: Any, task: Any, key: jax.Array, size: int) -> jax.Array:
        body = step_of(simulation, weights, task, key)

        def batch(carry: Any, numbers: jax.Array) -> Any:
            carry, (found, _) = jax.lax.scan(body, jax.lax.stop_gradient(carry), numbers)
            return carry, found

        numbers = jnp.arange(STEPS, dtype=jnp.int32).reshape(-1, size)
        return jax.lax.scan(batch, begin(simulation, weights, task), numbers)[1].ravel()

    def over(size: int) -> Any:
        return jax.vmap(jax.vmap(partial(losses, weights, size=size), (None, 0)))(tasks, keys)

    def gradient(size: int) -> np.ndarray:
        mean = lambda w: jnp.mean(jax.vmap(partial(losses, w, size=size))(tasks, keys[:, 0]))  # noqa: E731
        found = jax.jit(jax.grad(mean))(weights)
        return np.concatenate([np.ravel(found[name]) for name in sorted(found)]).astype(np.float64)

    exact, along = gradient(STEPS), np.asarray(over(STEPS), np.float64)
    rows = []
    for size in sizes:
        short = gradient(size)
        ends = along[:, :, -2 * size :].reshape(*along.shape[:2], 2, size)
        spread = ends.mean(axis=-1)[:, :, 1] - ends.mean(axis=-1)[:, :, 0]
        taken = 2.0 * ends.var(axis=1, ddof=1).mean(axis=(1, 2)) / size
        ratio = float((spread.var(axis=1, ddof=1) / taken).mean())
        norms = np.linalg.norm(short), np.linalg.norm(exact)
        rows.append([float(short @ exact / (norms[0] * norms[1])), float(norms[0] / norms[1]), ratio])
    return rows


def draw(run: Run) -> dict[str, Any]:
    """Draw memory, time, gradient and stability of the batch form."""
    rows, found = [], run.kept(cut, run, run.whole, 64)
    for size, (cosine, norms, ratio) in zip(run.whole, found, strict=True):
        one = run.kept(cost, size, size, run.seed, True)
        seconds = ALL / size * one["seconds"]
        cells = (number(one["megabytes"], 1), number(seconds, 2), number(cosine, 3), number(norms, 3), number(ratio, 2))
        rows.append([plain(size), *cells])
    caption = (
        f"Batches of so many steps: memory (MB), whatever the number of steps; time of {plain(ALL)} steps (s); the "
    )
    caption += "cut gradient beside the exact one; and the variance of a difference of mean losses over that of (18)."
    heads = [
        "steps of a batch",
        "MB",
        "s",
        "cosine with the exact gradient",
        "norm over the exact",
        "variance over (18)",
    ]
    ratios = [row[2] for row in found]
    claim = make_claim(
        "Mean losses of two batches differ as rarely as (18) says.",
        max(ratios) <= 1.0,
        f"the variance of the difference is {number(min(ratios), 2)} to {number(max(ratios), 2)} times what it takes.",
    )
    return drawn(tables=[make_table(caption, heads, rows)], claims=[claim])
