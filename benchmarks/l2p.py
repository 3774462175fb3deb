"""A meta-gradient through 1,000 steps of a learned optimiser: this library beside PyTorch; and Table 1 of paper 002."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from benchmarks.gpope_chain import peers_python
from benchmarks.harness import ROOT, Worker, alternate, figure, goal, table
from benchmarks.l2p_problem import BATCHES, CHECKED, DIMENSION, STEPS, TABLE, TOLERANCE, error
from dprl_papers.paper_002_l2p.figures.table1 import PAPER

OURS, FULL = "dprl, exact", "JAX, full unrolling"
PEERS = ("torch, full unrolling", "torch, full unrolling, LSTM cells")
AGAIN = "torch, each step again"
TRUNCATED = tuple(f"{who}, truncated at {b}" for who in ("dprl", "torch") for b in BATCHES)
COMPARED = (PEERS[0], OURS, "dprl, truncated at 20")  # beside the paper's Table 1


def run() -> dict[str, Any]:
    kinds = {"jax": sys.executable, "torch": peers_python()}
    memory = {(name, STEPS): grown(kinds, name, STEPS) for name in (OURS, FULL, *PEERS, AGAIN, *TRUNCATED)}
    for name in COMPARED:
        memory |= {(name, steps): grown(kinds, name, steps) for steps in TABLE if steps != STEPS}
    workers = [Worker(["-m", f"benchmarks.l2p_{kind}"], path) for kind, path in kinds.items()]
    gradients = workers[0].facts["gradients"] | workers[1].facts["gradients"]
    wanted = gradients.pop(FULL)
    errors = {name: error(found, wanted) for name, found in gradients.items()}
    if not max(errors.values()) <= TOLERANCE:
        raise SystemExit(f"l2p: the candidates did not do the same mathematics: {errors}")
    runs = alternate(workers, repetitions=5, seconds=600.0)
    versions = workers[1].facts["versions"]
    for worker in workers:
        worker.close()

    def time_of(name: str, steps: int) -> float:
        return runs[name if steps == STEPS else f"{name}, {steps} steps"]["time"]

    rows = [
        [name, figure(time_of(name, STEPS)), figure(memory[name, STEPS] / 2**20), figure(over / time_of(OURS, STEPS))]
        for name, over in sorted(
            ((n, time_of(n, STEPS)) for n in (OURS, FULL, *PEERS, AGAIN, *TRUNCATED)), key=lambda item: item[1]
        )
    ]
    goals = [
        goal(f"{name} over dprl, seconds", time_of(name, STEPS) / time_of(OURS, STEPS), 1.3, True) for name in PEERS
    ]
    goals += [
        goal(f"dprl over {name}, memory", memory[OURS, STEPS] / memory[name, STEPS], 0.05, False) for name in PEERS
    ]
    rows_of_table = [
        [
            str(steps),
            *(f"{PAPER[steps][i]} MB, {PAPER[steps][i + 3]} s" for i in range(3)),
            *(f"{figure(memory[name, steps] / 2**20)} MB, {figure(time_of(name, steps))} s" for name in COMPARED),
        ]
        for steps in TABLE
    ]
    headings = ["steps", "paper, full", "paper, 40", "paper, 20", *COMPARED]
    return {
        "title": f"L2P, one meta-gradient through {STEPS:,} steps, {DIMENSION} coordinates, two LSTM layers of 20",
        "notes": [
            "The gradient by the weights of a coordinate-wise LSTM of the last loss of a logistic regression that it "
            "trained, through all steps (“truncated”: of the loss after every 20 or 40 steps, through those alone, as "
            "in B.5). Seconds of processor time on one core, medians over alternated rounds. Memory is by how much the "
            "process grows while one gradient is computed, looked at every millisecond, compilation left out.",
            f"Through {CHECKED} steps without noise all gradients agree to {max(errors.values()):.1e} of the largest "
            "coordinate.",
            "Table 1 of the paper beside it: its memory is a GPU's, and its time that of an epoch of a four-layer "
            "network on MNIST, TITAN X and TensorFlow 1.15, so that only the growth along a column compares.",
        ],
        "table": table(["candidate", "seconds", "MB", "over dprl"], rows) + "\n\n" + table(headings, rows_of_table),
        "goals": goals,
        "seconds": runs,
        "bytes": {f"{name}, {steps} steps": found for (name, steps), found in memory.items()},
        "errors": errors,
        "versions": versions,
    }


def grown(kinds: dict[str, str], name: str, steps: int) -> int:
    """Return the bytes by which a new process grows that runs the candidate."""
    kind = "torch" if name.startswith("torch") else "jax"
    command = [kinds[kind], "-m", f"benchmarks.l2p_{kind}", name, str(steps)]
    found = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return json.loads(found.stdout)["bytes"]
