"""Table 1: time and memory over unrolled steps

Where: C.4

Statement: We see that the memory size increased quickly using the full batch while mini-batch does not need extra
memory. Instead, mini-batch trade the memory with higher but acceptable time complexity.
"""

from __future__ import annotations

from typing import Any

from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import Run, drawn, make_claim, make_table
from dprl_papers.paper_002_l2p.scalability import PAPER, cost, cut_cost

VALUES = (200, 400, 600, 1000, 1200, 1600)
QUICK = (200,)
BATCHES = (40, 20)
HEADS = ("full MB", "40 MB", "20 MB", "full s", "40 s", "20 s")


def draw(run: Run) -> dict[str, Any]:
    """Draw the paper's columns beside ours."""
    rows, shares, cuts, times = [], {}, [], []
    for steps in run.whole:
        nested = run.kept(cost, steps, None, run.seed)
        all_ways = [run.kept(cost, steps, steps, run.seed), *(run.kept(cut_cost, steps, b, run.seed) for b in BATCHES)]
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
    return drawn(tables=[make_table(caption, heads, rows)], claims=claims)
