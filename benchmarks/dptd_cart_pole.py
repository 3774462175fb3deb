"""DPTD on Cart Pole, 301 weights, 10 seeds: this library beside PyTorch's double backward and NumPy in one run."""

from __future__ import annotations

import sys
import tempfile
from typing import Any

from benchmarks.dptd_problem import CHECK_STEPS, SEEDS, TOLERANCE, TRANSITIONS, VERIFIED
from benchmarks.gpope_chain import peers_python
from benchmarks.harness import Worker, alternate, figure, goal, table

LOOP = "torch loop, double backward, 1 seed"


def run() -> dict[str, Any]:
    return measured("cart_pole", "DPTD, Cart Pole, a network of 301 weights, 10 seeds", 100.0, 150.0)


def measured(problem: str, title: str, least: float, seconds: float) -> dict[str, Any]:
    """Run all candidates in turns and return the benchmark's record.

    ``least`` is the goal: how many times the time of this library PyTorch's loop over one seed must take.
    """
    python = peers_python()
    with tempfile.TemporaryDirectory() as folder:
        # started one after another: the first one writes the problem and the reference for the others
        workers = [
            Worker(["-m", f"benchmarks.dptd_{kind}", problem, folder, str(cores)], path)
            for cores in (1, 2)
            for kind, path in (("jax", sys.executable), ("torch", python))
        ]
        facts = workers[0].facts
        errors, scale = facts["errors"] | workers[1].facts["errors"], facts["largest"]
        wrong = [name for name, error in errors.items() if not error <= TOLERANCE * scale]
        if wrong:
            raise SystemExit(f"dptd_{problem}: {', '.join(wrong)} did not do the same mathematics: {errors}")
        runs = alternate(workers, repetitions=9, seconds=seconds)
        for worker in workers:
            worker.close()
    width = f"{SEEDS[problem]} seeds" if SEEDS[problem] > 1 else "1 seed"
    ours, default = f"dprl, {width}", f"verified defaults, dprl, {width}"
    over = lambda name, base: runs[name]["time"] / runs[base]["time"]  # noqa: E731
    rows = [
        [name, figure(1e6 * r["time"]), figure(over(name, ours)), str(r["cores"])]
        for name, r in sorted(runs.items(), key=lambda item: item[1]["time"])
    ]
    pairs = {
        "noise, as published": (ours, f"{ours}, without noise"),
        "noise and clip, as published": (ours, f"{ours}, neither noise nor clip"),
        "noise, as published, on the grid": (f"{ours}, on the grid", f"{ours}, on the grid, without noise"),
        "noise, verified defaults": (default, f"{default}, without noise"),
        "noise, verified defaults, a release": (
            "verified defaults, a release, secure noise",
            "verified defaults, a release, without noise",
        ),
    }
    goals = [
        goal("torch loop over dprl", over(LOOP, ours), least, True),
        *(goal(f"{name}: with over without", over(*pair), 3.0, False) for name, pair in pairs.items()),
    ]
    unit, _ = VERIFIED[problem]
    return {
        "title": title,
        "notes": [
            f"Microseconds a step a seed. As published: one of {TRANSITIONS:,} transitions a step, "
            f"{2 * facts['weights']:,} noisy coordinates; in single precision, as experiments run it, or on the "
            "integer grid of a release with the seeded noise. The torch loop has its weights, momenta and noise as one "
            "vector each, its inputs scaled beforehand, and a step of few operations; its gradients are one "
            "autograd.grad with create_graph and another of its result. On one core: processor time of a process that "
            "is kept on one core; on two: the clock, which depends on what else the machine does. Medians over "
            "alternated rounds.",
            f"Verified defaults: {facts['batch']:.0f} units a step are expected, each a {unit} "
            f"({facts['rows']:.0f} rows in the mean) whose joint gradient is clipped; a release draws secure noise on "
            "the host.",
            f"Without noise all candidates agree to {max(errors.values()) / scale:.1e} of the largest weight after "
            f"{CHECK_STEPS} steps.",
        ],
        "table": table(["candidate", "us a step", "over dprl", "cores"], rows),
        "goals": goals,
        "seconds_a_step": runs,
        "errors_over_largest_weight": {name: error / scale for name, error in errors.items()},
        "versions": workers[1].facts["versions"],
    }
