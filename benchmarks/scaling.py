"""Releases of 10,000 to 1,000,000 transitions: cost linear in transitions, memory O(transitions x features)."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.chain_data import DISCOUNT, STATES, flat_logs
from benchmarks.harness import ROOT, figure, goal, table

SIZES = (10_000, 100_000, 1_000_000)
FEATURES = ("columns", "tabular")
UPDATES = 4
LIMIT_GIB = 1.0


def bounds(units: int) -> dict[str, Any]:
    """Return the public bounds of the chain's logs."""
    return {
        "units": units, "horizon": 400, "reward": [0, 1], "observation": [[0, STATES - 1]], "actions": 2,
        "max_importance_ratio": 2, "return_range": [0, 1],
    }  # fmt: skip


def chain_columns(transitions: int) -> tuple[dict[str, np.ndarray], int]:
    """Return about ``transitions`` rows of the 40-state chain with two equal actions, and the count of trajectories."""
    rng = np.random.default_rng(3)
    source, target, offsets = flat_logs(rng, max(transitions // 40, 1))
    lengths = np.diff(offsets)
    rows = len(source)
    columns = {
        "episode_id": np.repeat(np.arange(len(lengths)), lengths),
        "t": np.arange(rows) - np.repeat(offsets[:-1], lengths),
        "observation": source.astype(np.float64),
        "action": rng.integers(0, 2, rows),
        "reward": (target < 0).astype(np.float64),
        "behavior_prob": np.full(rows, 0.5),
        "terminated": target < 0,
    }
    return columns, len(lengths)


def peak_gib() -> float:
    """Return the largest resident set of this process so far, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def measure_updates(transitions: int, features: str) -> dict[str, float]:
    """Return seconds per update of the host's loop with the noise of a release, and the size of the features."""
    from dprl.data.readers import read_log
    from dprl.engine.layouts import unit_rows
    from dprl.engine.loop import run_steps_on_host
    from dprl.engine.plan import program_at
    from dprl.engine.program import PublicFacts
    from dprl.engine.rows import rows_of
    from dprl.evaluation import gpope
    from dprl.mechanisms.noise import SecureNoise
    from dprl.value_functions.features import make_features

    columns, units = chain_columns(transitions)
    log = read_log(columns, bounds=bounds(units)).load()
    feature_map = make_features(features, log.bounds.observation)
    facts, rows = PublicFacts(log.bounds, feature_map, DISCOUNT, mu=1.0), len(log.reward)
    data = unit_rows(rows_of(log, np.ones(rows), feature_map, DISCOUNT, (0.0, 1.0)), units)
    del log, columns
    config = gpope.GPOPE(discount=DISCOUNT, steps=UPDATES, step_size=0.1, clip_norm=0.1)
    times = []

    def stamp(_: int) -> None:
        times.append(time.perf_counter())

    start = np.zeros(feature_map.size, dtype=np.float32)
    noise: Any = SecureNoise.fresh()
    for _ in range(3):  # the first pass compiles; its first update is left out
        program = program_at(config, facts, 10.0)
        state = run_steps_on_host(program, 0, program.stages[0].mechanism, noise, data, program.start_at(start), stamp)
        np.asarray(state.theta)
    gaps = np.diff(times)[UPDATES - 1 :]
    return {"rows": rows, "seconds": float(np.median(gaps)), "bytes": float(data.phi.nbytes + data.delta_phi.nbytes)}


def measure_evaluate(path: str, units: int, features: str) -> dict[str, float]:
    """Return seconds and peak memory of a whole release from a file in this process."""
    import dprl

    before, started = peak_gib(), time.perf_counter()
    dprl.evaluate(
        path,
        "uniform",
        dprl.Budget(1.0, 1e-6),
        algorithm=dprl.GPOPE(discount=DISCOUNT, steps=20, noise_multiplier=50.0),
        bounds=bounds(units),
        features=features,
    )
    return {"seconds": time.perf_counter() - started, "gib": peak_gib(), "before": before}


def measure_pass(path: str) -> dict[str, float]:
    """Return the cost of only reading: every column of the file once, batch by batch, summed by pyarrow."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    started = time.perf_counter()
    total = 0.0
    for batch in pq.ParquetFile(path).iter_batches():
        for column in batch.columns:
            total += pc.sum(column.cast("float64")).as_py()  # type: ignore[attr-defined]
    return {"seconds": time.perf_counter() - started, "gib": peak_gib(), "sum": total}


def _fresh(*arguments: object) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.scaling", *map(str, arguments)],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def run() -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    updates = {f: [_fresh("updates", size, f) for size in SIZES] for f in FEATURES}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        columns, units = chain_columns(SIZES[-1])
        pq.write_table(pa.table(columns), path)
        rows = len(columns["t"])
        reading = _fresh("pass", path)
        whole = {f: _fresh("evaluate", path, units, f) for f in FEATURES}
    lines, goals = [], []
    for features, runs in updates.items():
        each = [1e9 * r["seconds"] / r["rows"] for r in runs]
        for r, ns in zip(runs, each, strict=True):
            lines.append(
                [f"an update, {features}", f"{r['rows']:.0f}", f"{ns:.1f} ns", f"{r['bytes'] / 2**20:.0f} MiB"]
            )
        goals.append(goal(f"linear, {features}: a transition's cost at 1e6 over 1e5", each[2] / each[1], 1.5, False))
    for features, r in whole.items():
        lines.append(
            [f"evaluate a Parquet file, {features}, 20 updates", str(rows), f"{1e9 * r['seconds'] / rows:.0f} ns",
             f"{1024 * r['gib']:.0f} MiB"]
        )  # fmt: skip
        goals.append(goal(f"peak memory of evaluate, {features}", r["gib"], LIMIT_GIB, False, "GiB"))
    lines.append(
        ["one pass over the file by pyarrow", str(rows), f"{1e9 * reading['seconds'] / rows:.0f} ns",
         f"{1024 * reading['gib']:.0f} MiB"]
    )  # fmt: skip
    slower = whole["columns"]["seconds"] / reading["seconds"]
    return {
        "title": "Scaling of a release with the log",
        "notes": [
            "Full-batch GPOPE on the host with the noise of a release; chain logs, about 40 transitions a trajectory. "
            "Memory: of an update, the two feature arrays; of the others, the peak of the whole process, of which "
            f"{1024 * whole['columns']['before']:.0f} MiB were there before the call. The clock, on all cores.",
            f"A whole release (checks, reading, grouping, values, 20 updates) takes {figure(slower)} times as long as "
            "one pass over the file by pyarrow.",
        ],
        "table": table(["work", "transitions", "a transition", "memory"], lines),
        "goals": goals,
        "updates": updates,
        "evaluate": whole,
        "pass": reading,
    }


if __name__ == "__main__":
    work, *rest = sys.argv[1:]
    if work == "updates":
        answer = measure_updates(int(rest[0]), rest[1])
    elif work == "evaluate":
        answer = measure_evaluate(rest[0], int(rest[1]), rest[2])
    else:
        answer = measure_pass(rest[0])
    print(json.dumps({**answer, "peak_gib": peak_gib()}))
