"""The recommended default beside GPOPE at the size of a release: the same log and budget, each with its defaults."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from benchmarks.harness import Worker, alternate, figure, goal, pin, table
from benchmarks.walks import FEATURES, UNITS, walks

GPOPE_NAME = "GPOPE"
ON_POLICY, OFF_POLICY = "recommended, on-policy", "recommended, off-policy"


def serve_candidates() -> None:
    pin(1)
    import dataclasses

    import numpy as np

    from benchmarks.harness import serve
    from dprl.accounting.budget import Budget
    from dprl.engine.layouts import unit_rows
    from dprl.engine.loop import run_on_host
    from dprl.evaluation.gpope import GPOPE
    from dprl.evaluation.plan import program_for
    from dprl.evaluation.recommended import Recommended
    from dprl.mechanisms.noise import SecureNoise

    bounds, features, log = walks((-1.0, -1.0), ("returns", "start"))
    data = unit_rows(log, UNITS)
    budget = Budget(1.0, 1e-5)
    programs = {
        GPOPE_NAME: program_for(GPOPE(), bounds, features, budget),
        ON_POLICY: program_for(Recommended(), bounds, features, budget),
        OFF_POLICY: program_for(Recommended(), dataclasses.replace(bounds, max_importance_ratio=5.0), features, budget),
    }

    def release(program: Any) -> Callable[[], int]:
        def go() -> int:
            fresh: Any = SecureNoise.fresh()
            np.asarray(run_on_host(program, fresh, data)[1])
            return 1

        return go

    steps = {name: [stage.mechanism.steps for stage in program.stages] for name, program in programs.items()}
    rows = len(log.reward) - 1
    serve({name: release(program) for name, program in programs.items()}, 1, {"rows": rows, "steps": steps})


def run() -> dict[str, Any]:
    worker = Worker(["-m", "benchmarks.recommended"])
    runs = alternate([worker], repetitions=3, seconds=90.0)
    worker.close()
    gpope = runs[GPOPE_NAME]["time"]
    rows = [
        [name, " + ".join(map(str, worker.facts["steps"][name])), figure(r["time"]), figure(r["time"] / gpope)]
        for name, r in sorted(runs.items(), key=lambda item: item[1]["time"])
    ]
    return {
        "title": "The recommended default and GPOPE, a release's size",
        "notes": [
            f"Seconds a value function on one core, secure noise: {UNITS:,} trajectories, {worker.facts['rows']:,} "
            f"transitions, {FEATURES} of two components (36 features), epsilon 1; medians over alternated rounds."
        ],
        "table": table(["candidate", "steps", "seconds", "over GPOPE"], rows),
        "goals": [
            goal(f"{name} over GPOPE", runs[name]["time"] / gpope, 1.0, False) for name in (ON_POLICY, OFF_POLICY)
        ],
        "seconds": runs,
    }


if __name__ == "__main__":
    sys.exit(serve_candidates())
