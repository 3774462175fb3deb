"""Table 1: time and memory over unrolled steps

Where: C.4

Statement: We see that the memory size increased quickly using the full batch while mini-batch does not need extra
memory. Instead, mini-batch trade the memory with higher but acceptable time complexity.
"""

from __future__ import annotations

from typing import Any

from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import Run, drawn, make_claim, make_table
from dprl_papers.paper_002_l2p.scalability import PAPER, cost

VALUES = (200, 400, 600, 1000, 1200, 1600)
QUICK = (200,)
HEADS = ["steps", "full MB", "40 MB", "20 MB", "full s", "40 s", "20 s", "ours full MB", "ours MB", "ours s"]


def draw(run: Run) -> dict[str, Any]:
    """Draw the paper's columns beside ours."""
    rows, shares = [], {}
    for steps in run.whole:
        # full unrolling is compiled, for its memory, and not run
        ours = run.kept(cost, steps, None, run.seed, True)
        full = run.kept(cost, steps, steps, run.seed, False)
        shares[steps] = full["megabytes"] / max(ours["megabytes"], 1e-9)
        measured = [number(full["megabytes"], 0), number(ours["megabytes"], 1), number(ours["seconds"], 2)]
        rows.append([plain(steps), *(str(v) for v in PAPER.get(steps, ("–",) * 6)), *measured])
    caption = (
        "The paper's memory (MB) and time of an epoch (s) for full unrolling and batches of 40 and 20 steps, whose "
    )
    caption += "gradients are cut; ours: exact gradients, memory (MB) of full unrolling and of nested checkpoints, and "
    caption += "the time of a meta-gradient with them (s)."
    claim = make_claim(
        "Exact gradients need at most a twentieth of full unrolling's memory from 1,000 steps on.",
        all(share >= 20.0 for steps, share in shares.items() if steps >= 1000),
        "; ".join(f"{plain(steps)} steps: 1/{number(share, 0)}" for steps, share in shares.items()) + ".",
        ours=True,
    )
    return drawn(tables=[make_table(caption, HEADS, rows)], claims=[claim])
