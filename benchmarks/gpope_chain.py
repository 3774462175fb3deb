"""GPOPE on the 40-state chain, one trajectory a step, 100 trials: this library beside its peers in one run."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import chain_data
from benchmarks.harness import SCRATCH, Worker, alternate, figure, goal, table

PEERS = Path(__file__).resolve().parent / "requirements-peers.txt"
TOLERANCE = 1e-4


def peers_python(requirements: Path = PEERS, name: str = "torch-venv") -> str:
    """Return the path of Python in the peers' environment, which is made on the first run.

    By default the peers are PyTorch and Opacus.
    """
    folder = SCRATCH / name
    python, done = folder / "bin" / "python", folder / ".installed"
    wanted = requirements.read_text(encoding="utf-8")
    if not done.is_file() or done.read_text(encoding="utf-8") != wanted:
        print(f"making the environment of {' and '.join(wanted.split())} ...", flush=True)
        SCRATCH.mkdir(exist_ok=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        # torch is installed first and by itself: its exact version decides which build is taken
        torch = next(line for line in wanted.splitlines() if line.startswith("torch=="))
        subprocess.run([*pip, torch], check=True)
        subprocess.run([*pip, "-r", str(requirements)], check=True)
        done.write_text(wanted, encoding="utf-8")
    return str(python)


def run() -> dict[str, Any]:
    python = peers_python()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "chain.npz"
        chain_data.make(data)
        workers = [Worker(["-m", "benchmarks.gpope_jax", str(data), "1"])]
        workers += [
            Worker(["-m", "benchmarks.gpope_torch", str(data), "1"], python),
            Worker(["-m", "benchmarks.gpope_jax", str(data), "2"]),
            Worker(["-m", "benchmarks.gpope_torch", str(data), "2"], python),
        ]
        errors = workers[0].facts["errors"] | workers[1].facts["errors"]
        scale, clipped = workers[0].facts["largest"], workers[0].facts["share_clipped"]
        wrong = [name for name, error in errors.items() if not error <= TOLERANCE * scale]
        if wrong:
            raise SystemExit(f"gpope_chain: {', '.join(wrong)} did not do the same mathematics: {errors}")
        runs = alternate(workers, repetitions=9, seconds=100.0)
        for worker in workers:
            worker.close()
    ours = runs["dprl, JAX over 100 trials"]["time"]
    two = runs["dprl, JAX over 100 trials, 2 cores"]["time"]
    order = sorted(runs, key=lambda name: runs[name]["time"])
    rows = [
        [name, figure(1e6 * runs[name]["time"]), figure(runs[name]["time"] / ours), str(runs[name]["cores"])]
        for name in order
    ]
    over = lambda name, base=ours: runs[name]["time"] / base  # noqa: E731
    batched = ("NumPy over 100 trials", "NumPy over 100 trials, banded by hand", "torch over 100 trials")
    hand = "NumPy over 100 trials, banded by hand"
    goals = [
        goal("torch loop", over("torch loop, 1 trial"), 40.0, True),
        goal("Opacus, gradient of each example", over("Opacus, gradient of each example, 1 trial"), 500.0, True),
        goal("NumPy over 100 trials", over("NumPy over 100 trials"), 3.0, True),
        goal("NumPy over 100 trials, both on 2 cores", over("NumPy over 100 trials, 2 cores", two), 3.0, True),
        goal("the fastest batched peer, whichever it is", min(over(n) for n in batched), 3.0, True),
        goal("the noise alone", ours / runs["the noise alone, dprl"]["time"], 5.0, False),
    ]
    return {
        "title": "GPOPE, chain of 40 states, 100 trials",
        "notes": [
            f"Microseconds an update a trial: as published (one trajectory a step), {chain_data.TRAJECTORIES} "
            f"trajectories a trial, {2 * chain_data.STATES} noisy coordinates an update. On one core: processor "
            "time of a process that is kept on one core; on two: the clock. Medians over alternated rounds.",
            f"Without noise all candidates agree to {max(errors.values()) / scale:.1e} of the largest weight "
            f"after {chain_data.CHECK_STEPS} updates, in {clipped:.0%} of which the clip binds.",
            "On two cores every candidate depends on what else the machine does; trials are better spread over "
            "processes of one core each.",
            f"NumPy written for this chain by hand is {figure(over(hand))} times as slow as dprl.",
        ],
        "table": table(["candidate", "us an update", "over dprl", "cores"], rows),
        "goals": goals,
        "seconds_an_update": runs,
        "errors_over_largest_weight": {name: error / scale for name, error in errors.items()},
        "share_clipped": clipped,
        "versions": workers[1].facts["versions"],
    }
