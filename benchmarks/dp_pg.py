"""A private step of policy gradient on 1,000 users of one action each: this library beside PyTorch and Opacus."""

from __future__ import annotations

import sys
from typing import Any

from benchmarks.dp_pg_problem import HOOKS, SIZES, TOLERANCE, USERS
from benchmarks.gpope_chain import peers_python
from benchmarks.harness import Worker, alternate, figure, goal, table

OURS, PLAIN = "dprl, ghost clipping", "JAX, no privacy, noise added"
GRID = "dprl, ghost clipping, on the grid"
RELEASE, PLAIN_RELEASE = "dprl, ghost clipping, a release, secure noise", "JAX, no privacy, secure noise added"
HOOKED, GHOST = "Opacus, gradient of each user (hooks)", "Opacus, ghost clipping"


def run() -> dict[str, Any]:
    rows, goals, notes, figures = [], [], [], {}
    versions: dict[str, str] = {}
    for size in SIZES:
        found, facts = measured(size)
        figures[size], versions = found, facts["versions"]
        over = lambda name, base, found=found: found[name]["time"] / found[base]["time"]  # noqa: E731
        rows += [
            [name, size, figure(1e6 * r["time"]), figure(over(name, f"{OURS}, 2 cores" if r["cores"] == 2 else OURS))]
            for name, r in sorted(found.items(), key=lambda item: item[1]["time"])
        ]
        for cores in ("", ", 2 cores"):
            for name, ours in (("", OURS), (" on the grid", GRID)):
                if size in HOOKS:
                    hooks = over(HOOKED + cores, ours + cores)
                    goals.append(goal(f"{size}: Opacus hooks over dprl{name}{cores}", hooks, 15.0, True))
                ghost, plain = over(GHOST + cores, ours + cores), over(ours + cores, PLAIN + cores)
                goals.append(goal(f"{size}: Opacus ghost over dprl{name}{cores}", ghost, 1.5, True))
                goals.append(goal(f"{size}: dprl{name} over no privacy with noise{cores}", plain, 1.25, False))
            pair = (RELEASE + cores, PLAIN_RELEASE + cores)
            goals.append(goal(f"{size}: a release over no privacy with secure noise{cores}", over(*pair), 1.25, False))
        whole = 4.0 * USERS * facts["weights"]
        share = facts["temporary_bytes"][GRID] / whole
        goals.append(goal(f"{size}: temporaries over users x weights in float32", share, 0.1, False))
        notes.append(
            f"{size}: {facts['weights']:,} weights. Without noise all candidates agree to "
            f"{max(facts['errors'].values()):.1e} of the largest coordinate; temporaries "
            f"{facts['temporary_bytes'][GRID] / 2**20:.0f} MiB, where a gradient of each user takes "
            f"{whole / 2**20:.0f} MiB."
        )
    return {
        "title": f"DP-PG, a step on {USERS:,} users of one action, networks of 1e4, 1e5 and 1e6 weights",
        "notes": [
            "Microseconds a user: forward and backward, clipping of each user's vector, the sum, noise in every "
            "coordinate, the step. A policy of one hidden layer; half of the users are clipped. This library in single "
            "precision, as experiments run it, or on the integer grid of a release. On one core: "
            "processor time of a process that is kept on one core; on two: the clock. Medians over alternated rounds. "
            f"The last column is over “{OURS}” on as many cores.",
            *notes,
        ],
        "table": table(["candidate", "weights", "us a user", "over dprl"], rows),
        "goals": goals,
        "seconds_a_user": figures,
        "versions": versions,
    }


def measured(size: str) -> tuple[dict[str, dict[str, float]], dict[str, Any]]:
    """Run all candidates of a size in turns; return their median times and the workers' facts."""
    kinds = (("jax", sys.executable), ("torch", peers_python()))
    workers = [
        Worker(["-m", f"benchmarks.dp_pg_{kind}", size, str(cores)], path) for cores in (1, 2) for kind, path in kinds
    ]
    ours, theirs = workers[0].facts, workers[1].facts
    errors = ours["errors"] | theirs["errors"]
    wrong = [name for name, error in errors.items() if not error <= TOLERANCE]
    if wrong:
        raise SystemExit(f"dp_pg: {', '.join(wrong)} did not do the same mathematics: {errors}")
    found = alternate(workers, repetitions=7, seconds=60.0)
    for worker in workers:
        worker.close()
    return found, {**ours, "errors": errors, "versions": theirs["versions"]}
