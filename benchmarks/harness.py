"""Tools that the benchmarks share: workers that take turns, medians, tables and records.

This file needs only the standard library, since the workers of peers run in an environment without ``dprl``.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).resolve().parent / "results"
SCRATCH = ROOT / ".bench"


def pin(cores: int, first: int = 0) -> None:
    """Keep this process on ``cores`` cores, from number ``first`` on.

    Call it before a library counts the cores to size its thread pool.
    """
    if hasattr(os, "sched_setaffinity"):
        every = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {every[(first + number) % len(every)] for number in range(min(cores, len(every)))})
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(cores)


def serve(candidates: Mapping[str, Callable[[], Any]], cores: int, facts: Mapping[str, Any] | None = None) -> None:
    """Run the candidates whose names come on stdin, and answer with the seconds of each call; see :class:`Worker`.

    ``wall`` is the time by the clock. ``cpu`` is the time that the process spent on a core, which other processes do
    not lengthen. ``facts`` are sent once at the start.
    """
    print(json.dumps({"names": list(candidates), "cores": cores, **(facts or {})}), flush=True)
    for line in sys.stdin:
        call = candidates[line.strip()]
        wall, cpu = time.perf_counter(), time.process_time()
        amount = call()
        answer = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu, "amount": amount}
        print(json.dumps(answer), flush=True)


class Worker:
    """A separate process that runs candidates by name.

    Attributes:
        facts: the process's first answer: what :func:`serve` was given.
        names: names of the candidates.
        cores: number of cores that the process uses.
    """

    def __init__(self, arguments: Sequence[str], python: str = sys.executable) -> None:
        self._process = subprocess.Popen(
            [python, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        self.facts = self._answer()
        self.names: list[str] = self.facts["names"]
        self.cores: int = self.facts["cores"]

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a benchmark's worker stopped with exit code {self._process.wait()}")
        return json.loads(line)

    def __call__(self, name: str) -> dict[str, float]:
        assert self._process.stdin is not None
        print(name, file=self._process.stdin, flush=True)
        return self._answer()  # type: ignore[return-value]

    def close(self) -> None:
        self._process.communicate()


def alternate(workers: Sequence[Worker], repetitions: int, seconds: float) -> dict[str, dict[str, float]]:
    """Return medians over ``repetitions`` rounds, in each of which every candidate of every worker runs once.

    Rounds stop early after ``seconds``.

    Returns:
        Candidate -> figures. ``time`` is in seconds per amount, of the processor on one core and of the clock on
        several; ``fastest`` and ``slowest`` are its extremes. ``wall`` is always of the clock.
    """
    runs: dict[str, list[dict[str, float]]] = {}
    cores = {name: worker.cores for worker in workers for name in worker.names}
    for worker in workers:  # compile and warm up
        for name in worker.names:
            worker(name)
    started = time.perf_counter()
    for _ in range(repetitions):
        for worker in workers:
            for name in worker.names:
                runs.setdefault(name, []).append(worker(name))
        if time.perf_counter() - started > seconds:
            break
    out = {}
    for name, answers in runs.items():
        kind = "cpu" if cores[name] == 1 else "wall"
        each = sorted(a[kind] / a["amount"] for a in answers)
        out[name] = {
            "time": statistics.median(each),
            "fastest": each[0],
            "slowest": each[-1],
            "wall": statistics.median(a["wall"] / a["amount"] for a in answers),
            "cores": cores[name],
            "repetitions": len(each),
        }
    return out


def machine() -> dict[str, Any]:
    """Return the machine and the software in words, without anything that identifies the host."""
    model = platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next((x.partition(":")[2].strip() for x in lines if x.startswith("model name")), model)
        flags = next((x for x in lines if x.startswith("flags")), "")
        model += ", AVX-512" if "avx512f" in flags else ""
    except OSError:
        pass
    versions = {}
    for name in ("jax", "numpy", "pyarrow", "scipy"):
        versions[name] = importlib.metadata.version(name)
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": versions,
    }


def goal(name: str, reached: float, limit: float, least: bool, unit: str = "x") -> dict[str, Any]:
    """Return a goal and whether it was met. If ``least``, ``reached`` must be at least the limit, otherwise at most."""
    met = reached >= limit if least else reached <= limit
    return {
        "goal": name,
        "reached": reached,
        "limit": limit,
        "at": "least" if least else "most",
        "unit": unit,
        "met": met,
    }


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table with aligned columns, so that it is readable in a terminal, too."""
    cells = [list(headings), *[list(r) for r in rows]]
    widths = [max(len(r[i]) for r in cells) for i in range(len(headings))]

    def line(row: Sequence[str]) -> str:
        first, *rest = (c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        return "| " + " | ".join([first, *rest]) + " |"

    rule = "|" + "|".join("-" * (w + 1) + ("-" if i == 0 else ":") for i, w in enumerate(widths)) + "|"
    return "\n".join([line(cells[0]), rule, *[line(r) for r in cells[1:]]])


def goals_table(goals: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        [
            g["goal"],
            f"at {g['at']} {g['limit']:g} {g['unit']}",
            f"{figure(g['reached'])} {g['unit']}",
            "yes" if g["met"] else "NO",
        ]
        for g in goals
    ]
    return table(["goal", "limit", "reached", "met"], rows)


def figure(x: float) -> str:
    """Return a number with three significant digits."""
    return f"{x:.0f}" if abs(x) >= 100 else f"{x:.3g}"


def save(name: str, result: Mapping[str, Any]) -> None:
    """Write ``results/NAME.json``, and the page that shows all results."""
    RESULTS.mkdir(exist_ok=True)
    record = {"benchmark": name, **result, "machine": machine()}
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    page = [
        "# Benchmark results",
        "",
        "Written by `make bench`; the figures are in the JSON files beside this page.",
        "",
    ]
    found = [json.loads(p.read_text(encoding="utf-8")) for p in sorted(RESULTS.glob("*.json"))]
    for r in (r for r in found if "benchmark" in r):  # the other files are kept rows of tables
        m = r["machine"]
        versions = ", ".join(f"{k} {v}" for k, v in (m["versions"] | r.get("versions", {})).items())
        page += [f"## {r['title']}", "", *(line + "\n" for line in r["notes"])]
        page += [r["table"], ""]
        page += [goals_table(r["goals"]), ""] if r["goals"] else []
        page += [f"{m['processor']}, {m['cores']} cores; Python {m['python']}, {versions}.", ""]
    (RESULTS / "README.md").write_text("\n".join(page).rstrip() + "\n", encoding="utf-8")
