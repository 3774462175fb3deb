"""Logs in parts: a release of 1e7 and 1e8 transitions in bounded memory, and two workers compared with one.

The limit is a plain pass over the same Parquet files by pyarrow, since every release reads every row. The log of 1e8
transitions (0.6 GB as Parquet, 3 GB in parts) takes some minutes to make; set DPRL_BENCH_ROWS=1e7 to leave it out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import ROOT, figure, goal, table
from benchmarks.scaling import peak_gib

STEPS = 10  # transitions per person
PEOPLE = 1_000_000  # people per file
LIMIT_GIB = 2.0
FEATURES = "fourier:7"
RATES = (0.001, 0.01, 0.05)
UPDATES = (5, 25)


def bounds(people: int) -> dict[str, Any]:
    """Return the public bounds of the logs."""
    return {
        "units": people, "horizon": STEPS, "reward": [0, 1], "observation": [[0, 1]], "actions": 2,
        "max_importance_ratio": 2, "return_range": [0, STEPS],
    }  # fmt: skip


def make(folder: Path, files: int, people: int = PEOPLE) -> None:
    """Write Parquet files of ``people`` people each. Each file's people are spread over the range of identifiers."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    for number in range(files):
        rng = np.random.default_rng(number)
        person = np.repeat(np.arange(people) * files + number, STEPS)
        state = rng.random((people, STEPS), dtype=np.float32)
        action = rng.random((people, STEPS)) < 0.5
        reward = rng.random((people, STEPS)) < 0.3 + 0.4 * state * action
        end = np.zeros((people, STEPS), dtype=bool)
        end[:, -1] = True
        columns = {
            "person_id": person,
            "episode_id": person,
            "t": np.tile(np.arange(STEPS, dtype=np.int16), people),
            "observation_0": state.ravel(),
            "action": action.ravel().astype(np.int8),
            "reward": reward.ravel().astype(np.float32),
            "behavior_prob": np.full(people * STEPS, 0.5, dtype=np.float32),
            "terminated": end.ravel(),
        }
        pq.write_table(pa.table(columns), folder / f"log-{number:03d}.parquet", row_group_size=PEOPLE)


# --- measurements, each in a new process ------------------------------------------------------------------------------


def read(folder: str) -> dict[str, float]:
    """Read every column of the Parquet files once and sum it by pyarrow."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    started, total = time.perf_counter(), 0.0
    for path in sorted(Path(folder).glob("*.parquet")):
        for batch in pq.ParquetFile(path).iter_batches(1 << 18):
            total += sum(pc.sum(column.cast("float64")).as_py() for column in batch.columns)  # type: ignore[attr-defined]
    return {"seconds": time.perf_counter() - started, "sum": total}


def partition(folder: str, out: str) -> dict[str, float]:
    from dprl.data.partition import partition as write

    started = time.perf_counter()
    parts, _ = write(Path(folder), "person_id", 64, Path(out))
    return {
        "seconds": time.perf_counter() - started,
        "bytes": float(sum(p.bytes + p.offsets_bytes for p in parts.parts)),
    }


def evaluate(parts: str, people: str, algorithm: str, rate: str, updates: str, shards: str, features: str) -> Any:
    """Return seconds of a whole release, and of an update without the first two, which compile and fill caches."""
    import dprl

    if algorithm == "gpope":
        options: Any = dprl.GPOPE(discount=0.9, steps=int(updates), sampling_rate=float(rate), noise_multiplier=50.0)
    elif algorithm == "dptd":
        options = dprl.DPTD(discount=0.9, steps=int(updates), sampling_rate=float(rate), noise_multiplier=50.0)
    else:
        options = dprl.ImportanceSampling(discount=0.9)
    stamps, started, cpu = [], time.perf_counter(), time.process_time()
    engine = {} if shards == "0" else {"engine": "ray", "shards": int(shards)}
    dprl.evaluate(
        parts,
        "uniform",
        dprl.Budget(1.0, 0.1 / int(people)),
        algorithm=options,
        bounds=bounds(int(people)),
        person="person_id",
        features=features,
        progress=lambda _: stamps.append(time.perf_counter()),
        **engine,
    )
    whole = {"seconds": time.perf_counter() - started, "cpu": time.process_time() - cpu}
    return whole | {"update": float(np.median(np.diff(stamps)[2:])) if len(stamps) > 3 else 0.0}


def fresh(module: str, work: str, *arguments: object, one_core: bool = False) -> dict[str, float]:
    """Run ``work`` of a module in a new process and return the figures that it prints at its end."""
    command = [sys.executable, "-m", module, work, *map(str, arguments)]
    if one_core:
        command = ["taskset", "-c", "0", *command]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def _fresh(work: str, *arguments: object, one_core: bool = False) -> dict[str, float]:
    return fresh("benchmarks.out_of_core", work, *arguments, one_core=one_core)


# --- the figures ------------------------------------------------------------------------------------------------------


def run() -> dict[str, Any]:
    lines, goals, record = [], [], {}
    largest = int(float(os.environ.get("DPRL_BENCH_ROWS", "1e8")))
    with tempfile.TemporaryDirectory() as folder:
        for rows in sorted({min(10**7, largest), largest}):
            found = _at(Path(folder) / str(rows), rows)
            record[f"{rows:g}"] = found
            for name, r in found.items():
                share = r["seconds"] / found["pyarrow"]["seconds"]
                lines.append(
                    [name, f"{rows:.0e}", f"{r['seconds']:.1f} s", figure(share),
                     f"{1e3 * r.get('update', 0.0):.0f} ms", f"{1024 * r['peak_gib']:.0f} MiB"]
                )  # fmt: skip
            worst = max(r["peak_gib"] for r in found.values())
            goals.append(goal(f"peak memory at {rows:.0e} transitions", worst, LIMIT_GIB, False, "GiB"))
            low, high = (found[f"gpope, rate {rate:g}"]["update"] for rate in RATES[1:])
            ratio = (high / low) / (RATES[2] / RATES[1])
            goals.append(
                goal(f"linear in what is drawn at {rows:.0e}: a unit's cost at 0.05 over 0.01", ratio, 1.5, False)
            )
        workers = _workers(Path(folder) / "workers")
        record["workers"] = workers
        for name, r in workers.items():
            lines.append([name, f"{r['rows']:.0e}", "", "", f"{1e3 * r['update']:.1f} ms", ""])
        gain = workers["dptd, 1 worker"]["update"] / workers["dptd, 2 workers"]["update"]
        goals.append(goal("two workers over one, dptd with a network", gain, 1.6, True))
    return {
        "title": "Logs in parts: out of core, and over workers",
        "notes": [
            f"People of {STEPS} transitions, one state component, {FEATURES}; a release with the noise of the "
            "operating system's key: all rows are read three times (digests, identifiers, values), then each update "
            "reads the people it drew. Processes of their own; the clock, on all cores; peak memory of the process.",
            "Workers: Ray actors on one core each, whose prepared rows are kept; one of them against two, and against "
            "this process alone on one core.",
            "The share is over the pass by pyarrow, over the same files.",
        ],
        "table": table(["work", "transitions", "whole", "over pyarrow", "an update", "peak memory"], lines),
        "goals": goals,
        "figures": record,
    }


def _at(folder: Path, rows: int) -> dict[str, dict[str, float]]:
    folder.mkdir()
    people = rows // STEPS
    make(folder / "log", max(1, people // PEOPLE), min(people, PEOPLE))
    parts = folder / "parts"
    found = {"pyarrow": _fresh("read", folder / "log"), "partition": _fresh("partition", folder / "log", parts)}
    found["importance-sampling"] = _fresh("evaluate", parts, people, "importance-sampling", 1.0, 0, 0, FEATURES)
    for rate in RATES:
        updates = UPDATES[0] if rate == RATES[-1] else UPDATES[1]
        found[f"gpope, rate {rate:g}"] = _fresh("evaluate", parts, people, "gpope", rate, updates, 0, FEATURES)
    return found


def _workers(folder: Path) -> dict[str, dict[str, float]]:
    folder.mkdir()
    found: dict[str, dict[str, float]] = {}
    for rows, kinds in ((2_000, ("gpope",)), (200_000, ("gpope", "dptd"))):
        people, at = rows // STEPS, folder / str(rows)
        make(at, 1, people)
        partition(str(at), str(parts := folder / f"parts-{rows}"))
        for kind in kinds:
            features = "mlp:50" if kind == "dptd" else "fourier:63"
            for shards in (0, 1, 2):
                name = f"{kind}, {'this process, one core' if not shards else f'{shards} worker' + 's' * (shards > 1)}"
                name += ", hardly any rows" if rows < 10_000 else ""
                measured = _fresh("evaluate", parts, people, kind, 1.0, 15, shards, features, one_core=not shards)
                found[name] = measured | {"rows": float(rows)}
    return found


if __name__ == "__main__":
    work, *rest = sys.argv[1:]
    calls: Any = {"read": read, "partition": partition, "evaluate": evaluate}
    print(json.dumps({**calls[work](*rest), "peak_gib": peak_gib()}))
