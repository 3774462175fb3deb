"""A policy learned from the users of a log in parts: 1e7 and 1e8 people in bounded memory, and two workers.

It is compared with a plain pass over the same Parquet files by pyarrow. The log of 1e8 people (2.8 GB as Parquet,
5.6 GB in parts) takes some minutes to make; set DPRL_BENCH_ROWS=1e7 to leave it out.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import out_of_core
from benchmarks.harness import figure, goal, table
from benchmarks.scaling import peak_gib

COMPONENTS, ACTIONS = 4, 3
PEOPLE = 1_000_000  # people per file
WORKERS_AT = 10**7  # most people of a log on which two workers are measured
STEPS = 25
POLICIES = {"linear": "softmax", "network": "mlp:256"}


def bounds(people: int) -> dict[str, Any]:
    """Return the public bounds of the logs."""
    return {"units": people, "observation": [[-3, 3]] * COMPONENTS, "reward": [0, 1], "actions": ACTIONS}


def make(folder: Path, files: int, people: int = PEOPLE) -> None:
    """Write Parquet files of ``people`` visits each, in the order of arrival. Identifiers are in random order."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    best = np.random.default_rng(0).normal(size=(COMPONENTS, ACTIONS))
    for number in range(files):
        rng = np.random.default_rng(number + 1)
        seen = rng.standard_normal((people, COMPONENTS), dtype=np.float32)
        paid = (rng.random((people, ACTIONS)) < 1.0 / (1.0 + np.exp(-seen @ best))).astype(np.float32)
        columns = {"person_id": rng.permutation(people) * files + number}
        columns |= {f"observation_{i}": seen[:, i] for i in range(COMPONENTS)}
        columns |= {f"reward_{a}": paid[:, a] for a in range(ACTIONS)}
        pq.write_table(pa.table(columns), folder / f"visits-{number:03d}.parquet", row_group_size=PEOPLE)


def train(path: str, people: str, policy: str, shards: str) -> dict[str, float]:
    """Return seconds of a whole release, and of a step without the first two, which compile."""
    import dprl

    stamps, started, cpu = [], time.perf_counter(), time.process_time()
    engine: dict[str, Any] = {} if shards == "0" else {"engine": "ray", "shards": int(shards)}
    dprl.train(
        f"bandit:{path}",
        dprl.Budget(1.0, 0.1 / int(people)),
        algorithm=dprl.DPPG(policy=POLICIES[policy], steps=STEPS),
        bounds=bounds(int(people)),
        progress=lambda _: stamps.append(time.perf_counter()),
        **engine,
    )
    whole = {"seconds": time.perf_counter() - started, "cpu": time.process_time() - cpu}
    return whole | {"step": float(np.median(np.diff(stamps)[2:]))}


def _fresh(work: str, *arguments: object, one_core: bool = False) -> dict[str, float]:
    return out_of_core.fresh("benchmarks.out_of_core_users", work, *arguments, one_core=one_core)


# --- the figures ------------------------------------------------------------------------------------------------------


def run() -> dict[str, Any]:
    lines, goals, record = [], [], {}
    largest = int(float(os.environ.get("DPRL_BENCH_ROWS", "1e8")))
    with tempfile.TemporaryDirectory() as folder:
        for people in sorted({min(10**7, largest), largest}):
            found = _at(Path(folder) / str(people), people)
            record[f"{people:g}"] = found
            for name, r in found.items():
                share = r["seconds"] / found["pyarrow"]["seconds"]
                lines.append(
                    [name, f"{people:.0e}", f"{r['seconds']:.1f} s", figure(share),
                     f"{1e3 * r.get('step', 0.0):.0f} ms", f"{1024 * r['peak_gib']:.0f} MiB"]
                )  # fmt: skip
            worst = max(r["peak_gib"] for name, r in found.items() if "worker" not in name)
            goals.append(goal(f"peak memory with {people:.0e} people", worst, out_of_core.LIMIT_GIB, False, "GiB"))
            if people <= WORKERS_AT:
                gain = found["network, 1 worker"]["step"] / found["network, 2 workers"]["step"]
                goals.append(goal(f"two workers over one, {people:.0e} people, a network", gain, 1.6, True))
    return {
        "title": "Users of a log in parts: policy gradient out of core, and over workers",
        "notes": [
            f"People of one visit: {COMPONENTS} components, {ACTIONS} actions; dp-pg, {STEPS} batches of other people "
            "each, a policy that is linear in its features or a network of 256 hidden units; a release with the noise "
            "of the operating system's key. Processes of their own; peak memory of the process. A worker has one core, "
            "and so has 'one core'; the others have two.",
            "The share is over a pass of pyarrow over the same Parquet files.",
        ],
        "table": table(["work", "people", "whole", "over pyarrow", "a step", "peak memory"], lines),
        "goals": goals,
        "figures": record,
    }


def _at(folder: Path, people: int) -> dict[str, dict[str, float]]:
    folder.mkdir()
    make(folder / "log", max(1, people // PEOPLE), min(people, PEOPLE))
    parts = folder / "parts"
    found = {
        "pyarrow": out_of_core.fresh("benchmarks.out_of_core", "read", folder / "log"),
        "partition": out_of_core.fresh("benchmarks.out_of_core", "partition", folder / "log", parts),
    }
    for policy in POLICIES:
        found[policy] = _fresh("train", parts, people, policy, 0)
    if people > WORKERS_AT:
        return found
    found["network, one core"] = _fresh("train", parts, people, "network", 0, one_core=True)
    for shards in (1, 2):
        found[f"network, {shards} worker" + "s" * (shards > 1)] = _fresh("train", parts, people, "network", shards)
    return found


if __name__ == "__main__":
    _, *rest = sys.argv[1:]
    print(json.dumps({**train(*rest), "peak_gib": peak_gib()}))
