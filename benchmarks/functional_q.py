"""Functional Q-learning on the interval walk: 5,000 samples, 10 seeds, beside PyTorch with a sorted list per path."""

from __future__ import annotations

import sys
import tempfile
from typing import Any

from benchmarks.gpope_chain import peers_python
from benchmarks.harness import Worker, alternate, figure, goal, table

SAMPLES, BATCH, SEEDS, HIDDEN, DISCOUNT, STEP_SIZE, STD = 5000, 64, 10, 32, 0.9, 3e-4, 0.32
DECAY = BATCH / (4.0 * STEP_SIZE * 24.0)  # beta of appendix E.3, k = 23
FEW, MANY = 5000, 100_000  # queries of one path
TOLERANCE = 1e-4  # of the largest weight, in the comparison without noise
CHECK_START, CHECK_MOVES = 0.3, tuple(((37 * t + 11) % 64) / 256.0 for t in range(50))
"""Start of every episode of the comparison, and the moves that it is offered."""

OURS, LOOP = "dprl, Algorithm 1, 10 seeds", "torch and bisect, Algorithm 1, 1 seed"
FUNCTIONAL, QUIET = "dprl, functional, 10 seeds", "dprl, functional, 10 seeds, without noise"


def run() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        # started one after another: the first one writes the start and the reference for the other
        workers = [
            Worker(["-m", "benchmarks.functional_q_jax", folder], sys.executable),
            Worker(["-m", "benchmarks.functional_q_torch", folder], peers_python()),
        ]
        error = workers[1].facts["error"]
        if not error <= TOLERANCE:
            raise SystemExit(f"functional_q: torch did not do the same mathematics: {error}")
        runs = alternate(workers, repetitions=7, seconds=120.0)
        for worker in workers:
            worker.close()
    over = lambda name, base: runs[name]["time"] / runs[base]["time"]  # noqa: E731
    rows = [
        [name, figure(1e6 * r["time"]), figure(over(name, OURS))]
        for name, r in sorted(runs.items(), key=lambda item: item[1]["time"])
        if "queries" not in name
    ]
    queries = [[name, figure(1e6 * r["time"]), ""] for name, r in runs.items() if "queries" in name]
    flat = over(f"dprl, {MANY:,} queries one by one", f"dprl, {FEW:,} queries one by one")
    goals = [
        goal("torch and bisect over dprl, Algorithm 1", over(LOOP, OURS), 25.0, True),
        goal("functional: with noise over without", over(FUNCTIONAL, QUIET), 2.5, False),
        goal("a query among 100,000 over one among 5,000", flat, 1.2, False),
    ]
    return {
        "title": "Functional Q-learning on the interval walk, 5,000 samples, 10 seeds",
        "notes": [
            "Microseconds a sample a seed, one core. Algorithm 1 as printed, with the bridge and the sign repaired: "
            f"{SAMPLES // BATCH} updates of {BATCH} samples, the noise of both actions asked at every state. PyTorch "
            "has one sorted list a path (bisect), a forward pass an action and an autograd.grad an update. "
            "“Functional” is this library's variant with its defaults: one update a sample on 64 replayed ones.",
            "The rows of queries are microseconds a query of one path, whatever was asked before.",
            f"Without noise PyTorch and this library agree to {error:.1e} of the largest weight after all updates.",
        ],
        "table": table(["candidate", "us", "over dprl"], rows + queries),
        "goals": goals,
        "seconds_a_sample": runs,
        "error_over_largest_weight": error,
        "versions": workers[1].facts["versions"],
    }
