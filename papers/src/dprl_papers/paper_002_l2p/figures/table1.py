"""Table 1: time and memory over unrolled steps

Where: C.4

Statement: We see that the memory size increased quickly using the full batch while mini-batch does not need extra
memory. Instead, mini-batch trade the memory with higher but acceptable time complexity.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from dprl.protectors.projector import Architecture, Weights, init_weights
from dprl.protectors.simulation import Simulation, first_carry, step_body, unroll
from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import Run, figure_contents, make_claim, make_table
from dprl_papers.records.losses import Records
from dprl_papers.records.tasks import Classification

VALUES = (200, 400, 600, 1000, 1200, 1600)
QUICK = (200,)
BATCHES = (40, 20)
HEADS = ("full MB", "40 MB", "20 MB", "full s", "40 s", "20 s")


def draw(run: Run) -> dict[str, Any]:
    """Draw the paper's columns beside ours."""
    rows, shares, cuts, times = [], {}, [], []
    for steps in run.whole:
        nested = run.cached(cost, steps, None, run.seed)
        all_ways = [
            run.cached(cost, steps, steps, run.seed),
            *(run.cached(cut_cost, steps, b, run.seed) for b in BATCHES),
        ]
        full, *cut = all_ways
        shares[steps] = full["megabytes"] / max(nested["megabytes"], 1e-9)
        cuts.append([one["megabytes"] for one in cut])
        times.append(max(one["seconds"] for one in cut) / max(full["seconds"], 1e-9))
        ours = [number(one["megabytes"], 0) for one in all_ways] + [number(one["seconds"], 2) for one in all_ways]
        ours += [number(nested["megabytes"], 0), number(nested["seconds"], 2)]
        rows.append([plain(steps), *(str(v) for v in PAPER.get(steps, ("–",) * 6)), *ours])
    caption = (
        "Memory (MB) and time (s) for full unrolling and for batches of 40 and 20 steps, whose gradients are cut: "
    )
    caption += "the paper's, of an epoch; then ours, of a meta-gradient, beside exact gradients by nested checkpoints."
    heads = ["steps", *HEADS, *(f"ours: {head}" for head in (*HEADS, "nested MB", "nested s"))]
    claims = [
        make_claim(
            "Mini-batch does not need extra memory.",
            all(max(column) <= 1.05 * min(column) for column in zip(*cuts, strict=True)),
            "; ".join(
                f"batches of {batch}: {number(min(column), 0)} to {number(max(column), 0)} MB"
                for batch, column in zip(BATCHES, zip(*cuts, strict=True), strict=True)
            )
            + ".",
        ),
        make_claim(
            "Mini-batch trades the memory with higher but acceptable time complexity (at most twice).",
            max(times) <= 2.0,
            f"{number(min(times), 2)} to {number(max(times), 2)} times full unrolling.",
        ),
        make_claim(
            "Exact gradients need at most a twentieth of full unrolling's memory from 1,000 steps on.",
            all(share >= 20.0 for steps, share in shares.items() if steps >= 1000),
            "; ".join(f"{plain(steps)} steps: 1/{number(share, 0)}" for steps, share in shares.items()) + ".",
            ours=True,
        ),
    ]
    return figure_contents(tables=[make_table(caption, heads, rows)], claims=claims)


# --- one meta-gradient ------------------------------------------------------------------------------------------------
# The protector is a coordinate-wise LSTM with two layers of 20 units on 785 coordinates. (C.4 has a network of 4 layers
# on a TITAN X; here the time is that of a single thread of a processor.) Memory is what the compiled program reserves
# for itself. benchmarks/ has a comparison with PyTorch.

PAPER = {
    200: (474, 282, 250, 19, 21, 21),
    400: (730, 282, 250, 41, 90, 89),
    600: (1242, 282, 250, 57, 102, 173),
    1000: (1843, 282, 250, 164, 188, 190),
    1200: (2066, 282, 250, 172, 248, 266),
    1600: (2266, 282, 250, 418, 357, 350),
}
"""Memory in MB and time of an epoch in seconds: full, batches of 40, of 20."""
COORDINATES = 785


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Bare(Classification):
    """Logistic regression with the paper's number of parameters, on a table of noise: real data take as long."""

    @property
    def features(self) -> int:
        return COORDINATES

    def sample(self, key: jax.Array) -> Records:
        x = jax.random.normal(key, (self.records, COORDINATES), jnp.float32) / math.sqrt(COORDINATES)
        return Records(x, jnp.where(x[:, 0] > 0.0, 1.0, -1.0).astype(jnp.float32))


def cost(steps: int, segment: int | None, seed: int) -> dict[str, float]:
    """Return ``megabytes`` and ``seconds`` of one exact meta-gradient through ``steps`` steps."""
    simulation, weights, key, task = _problem(seed, steps, segment=segment)
    return _cost(jax.grad(lambda w: unroll(simulation, w, task, key).final), weights)


def cut_cost(steps: int, batch: int, seed: int) -> dict[str, float]:
    """Return ``megabytes`` and ``seconds`` of :func:`cut_gradient`."""
    simulation, weights, key, task = _problem(seed, steps, every=True)
    return _cost(lambda w: cut_gradient(simulation, w, task, key, batch), weights)


def cut_gradient(simulation: Simulation, weights: Weights, task: Any, key: jax.Array, batch: int) -> Weights:
    """Return the sum over batches of steps of the gradient of the batch's mean loss, cut where the batch begins."""

    def mean_loss(weights: Weights, carry: Any, first: jax.Array) -> tuple[jax.Array, Any]:
        body = step_body(simulation, weights, task, key)
        after, (losses, _) = jax.lax.scan(body, carry, first + jnp.arange(batch, dtype=jnp.int32))
        return jnp.mean(losses), after

    def add(carry: Any, first: jax.Array) -> tuple[Any, None]:
        total, begun = carry
        own, after = jax.grad(mean_loss, has_aux=True)(weights, begun, first)
        return (jax.tree.map(jnp.add, total, own), after), None

    carry = jax.tree.map(jnp.zeros_like, weights), first_carry(simulation, weights, task)
    firsts = jnp.arange(0, simulation.hand.steps, batch, dtype=jnp.int32)
    return jax.lax.scan(add, carry, firsts)[0][0]


def _problem(seed: int, steps: int, **options: Any) -> tuple[Simulation, Weights, jax.Array, Records]:
    family = _Bare(records=16, steps=steps, units=1000, walk=None)
    architecture, key = Architecture(scheduler="public"), jax.random.key(seed + 1)
    simulation = Simulation(family=family, architecture=architecture, std=0.1, **options)
    return simulation, init_weights(architecture, jax.random.key(seed)), key, family.sample(key)


def _cost(function: Callable[[Any], Any], weights: Weights) -> dict[str, float]:
    gradient = jax.jit(function).lower(weights).compile()
    analysis = gradient.memory_analysis()
    began = time.perf_counter()
    jax.block_until_ready(gradient(weights))
    seconds = time.perf_counter() - began
    return {"megabytes": analysis.temp_size_in_bytes / 1e6 if analysis is not None else 0.0, "seconds": seconds}
