"""Seconds of commands that have little to do: ``--help``, a calibration, the demonstration's release."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, figure, goal, table

DPRL = Path(sys.executable).with_name("dprl")
EXAMPLES = ROOT / "examples"


def seconds(command: list[str], environment: dict[str, str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def run() -> dict[str, Any]:
    sys.path.insert(0, str(EXAMPLES))
    from actg175 import write_log  # type: ignore[import-not-found]

    with tempfile.TemporaryDirectory() as folder:
        # a new cache, which the first round fills; that round does not count
        environment = os.environ | {"XDG_CACHE_HOME": folder}
        log = Path(folder) / "actg175.parquet"
        write_log(log)
        number = iter(range(1000))

        def release(algorithm: str) -> list[str]:
            policy = f"{EXAMPLES / 'actg175_policy.py'}:treat_low_cd4"
            return [
                str(DPRL), "evaluate", str(log), "--bounds", str(EXAMPLES / "actg175_bounds.toml"),
                "--unit", "person", "--person-column", "person_id", "--epsilon", "1", "--delta", "1e-5",
                "--target-policy", policy, "--algorithm", algorithm, "--out", f"{folder}/release{next(number)}",
            ]  # fmt: skip

        calibrate = ["calibrate", "gpope", "--epsilon", "1", "--delta", "1e-5", "--sampling-rate", "0.1"]
        commands: dict[str, Any] = {
            "python -c pass": lambda: [sys.executable, "-c", "pass"],
            'python -c "import numpy"': lambda: [sys.executable, "-c", "import numpy"],
            'python -c "import jax"': lambda: [sys.executable, "-c", "import jax"],
            "dprl --help": lambda: [str(DPRL), "--help"],
            "dprl calibrate, remembered": lambda: [str(DPRL), *calibrate, "--steps", "400"],
            "dprl evaluate, demo log, importance-sampling": lambda: release("importance-sampling"),
            "dprl evaluate, demo log, gpope": lambda: release("gpope"),
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for round_ in range(6):
            for name, command in commands.items():
                took = seconds(command(), environment)
                if round_:
                    times[name].append(took)
    median = {name: statistics.median(t) for name, t in times.items()}
    numpy = median['python -c "import numpy"']
    rows = [[name, figure(t), figure(t / numpy), figure(min(times[name]))] for name, t in median.items()]
    return {
        "title": "Start",
        "notes": [
            "Seconds of the clock, whole processes; medians over 5 alternated rounds after a first that fills caches."
        ],
        "table": table(["command", "seconds", "over import numpy", "fastest"], rows),
        "goals": [goal("dprl --help", median["dprl --help"], 0.3, False, "s")],
        "seconds": {name: {"median": median[name], "fastest": min(times[name])} for name in commands},
    }
