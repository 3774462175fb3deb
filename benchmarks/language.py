"""A private step on prompts of a language model of 3.2 million weights: this library beside PyTorch and Opacus."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np

from benchmarks.gpope_chain import peers_python
from benchmarks.harness import ROOT, Worker, alternate, figure, goal, table
from benchmarks.language_problem import GROUP, LENGTH, TOLERANCE, USERS, path_of

OURS, EACH, PLAIN = "dprl, ghost clipping", "dprl, gradient of each user", "JAX, no privacy"
HOOKED, GHOST, TORCH = "Opacus, gradient of each user (hooks)", "Opacus, ghost clipping", "torch, no privacy"


def run() -> dict[str, Any]:
    kinds = {"jax": (sys.executable, (OURS, EACH, PLAIN)), "torch": (peers_python(), (HOOKED, GHOST, TORCH))}
    workers = [Worker(["-m", f"benchmarks.language_{kind}", "time"], path) for kind, (path, _) in kinds.items()]
    facts = {key: value for worker in workers for key, value in worker.facts.items()}
    wanted = np.load(path_of(EACH))
    errors = {
        n: float(np.abs(np.load(path_of(n)) - wanted).max() / np.abs(wanted).max()) for n in (OURS, HOOKED, GHOST)
    }
    if max(errors.values()) > TOLERANCE:
        raise SystemExit(f"language: the candidates did not do the same mathematics: {errors}")
    found = alternate(workers, repetitions=5, seconds=240.0)
    for worker in workers:
        worker.close()
    peaks = {name: _peak(kind, path, name) for kind, (path, names) in kinds.items() for name in names}
    rows = [
        [
            name,
            figure(1e3 * r["time"]),
            figure(r["time"] / found[OURS]["time"]),
            figure(peaks[name] / 2**20),
            figure(peaks[name] / peaks[OURS]),
        ]
        for name, r in sorted(found.items(), key=lambda item: item[1]["time"])
    ]
    over = lambda name: found[name]["time"] / found[OURS]["time"]  # noqa: E731
    return {
        "title": f"Prompts of a language model, a step on {USERS} users with {GROUP} answers each",
        "notes": [
            f"A decoder of {facts['weights']:,} weights, sequences of {LENGTH} tokens, {facts['clipped']:.0%} of the "
            "users clipped. Milliseconds a user: forward and backward, clipping of each user's vector, the sum, noise "
            "in every coordinate, the step; processor time of a process that is kept on one core, medians over "
            f"{min(r['repetitions'] for r in found.values())} alternated rounds. Memory: by how much one step lets a "
            "fresh process grow. This library in single precision, as experiments run it, on four users at a time.",
            f"Without noise all sums agree to {max(errors.values()):.1e} of the largest coordinate.",
        ],
        "table": table(["candidate", "ms a user", "over dprl", "MiB", "over dprl"], rows),
        "goals": [
            goal("Opacus hooks over dprl, time", over(HOOKED), 1.0, True),
            goal("Opacus ghost over dprl, time", over(GHOST), 1.0, True),
            goal("Opacus hooks over dprl, memory", peaks[HOOKED] / peaks[OURS], 1.0, True),
            goal("Opacus ghost over dprl, memory", peaks[GHOST] / peaks[OURS], 1.0, True),
        ],
        "seconds_a_user": found,
        "peak_bytes": peaks,
        "versions": facts["versions"],
    }


def _peak(kind: str, python: str, name: str) -> int:
    """Return the bytes by which a new process grows in one step of a candidate."""
    command = [python, "-m", f"benchmarks.language_{kind}", "memory", name]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
