"""``python -m benchmarks.coverage [ROW ...]``: run rows of the table, keep their records, write docs/coverage.md.

A row that was already run with the same sources is not run again, unless ``--again`` is given.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.coverage import page
from benchmarks.coverage.rows import ROWS, Row
from benchmarks.coverage.standard import failures, overall
from benchmarks.harness import ROOT, machine, pin


def main(arguments: list[str]) -> int:
    known = {row.name: row for row in ROWS}
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="by default all; --list names them")
    parser.add_argument("--list", action="store_true", help="name the rows and stop")
    parser.add_argument("--again", action="store_true", help="run rows that were run with the same sources too")
    parser.add_argument("--logs", type=int, help="logs of each row, with the seeds for development; nothing is kept")
    asked = parser.parse_args(arguments)
    if asked.list:
        print(*(f"{name:28} {row.title}" for name, row in known.items()), sep="\n")
        return 0
    unknown = [name for name in asked.rows if name not in known]
    if unknown:
        print(f"error: there is no row {unknown[0]!r}; --list names them.", file=sys.stderr)
        return 2
    pin(1)
    missed = 0
    for row in [known[name] for name in asked.rows or known]:
        if row.needs is not None and importlib.util.find_spec(row.needs) is None:
            print(f"{row.name}: left out, as {row.needs} is not installed; see docs/coverage.md", flush=True)
            continue
        record = _development(row, asked.logs) if asked.logs else _kept(row, asked.again)
        missed += _show(record)
    if not asked.logs:
        page.write()
        hits, of = overall(page.load())
        print(f"over all rows {hits} of {of}: {hits / max(of, 1):.4f}; {page.PAGE} is written")
    return 1 if missed else 0


def _development(row: Row, logs: int) -> dict[str, Any]:
    from benchmarks.coverage import measure

    return measure.run(row, logs, measure.DEVELOPMENT)


def _kept(row: Row, again: bool) -> dict[str, Any]:
    """Return the row's record: the kept one if its sources are the present ones, otherwise a new one, which is kept."""
    from benchmarks.coverage import measure

    file, sources = page.RESULTS / f"{row.name}.json", _sources()
    if file.exists() and not again:
        record = json.loads(file.read_text(encoding="utf-8"))
        if record["sources"] == sources and record["logs"] == measure.LOGS:
            return record
    about = machine()
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    record = measure.run(row) | {
        "commit": commit.stdout.strip(),
        "sources": sources,
        "versions": {"python": about["python"], **about["versions"]},
        "processor": about["processor"],
    }
    page.RESULTS.mkdir(exist_ok=True)
    file.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return record


def _sources() -> str:
    """Return the digest of all code that a row's figures depend on; comments and docstrings do not count."""
    from dprl_papers.harness.versions import code_in

    found = hashlib.sha256()
    here = Path(__file__).resolve().parent
    for file in sorted([*(ROOT / "src" / "dprl").rglob("*.py"), *here.glob("*.py")]):
        if file.name not in ("page.py", "__main__.py", "standard.py", "rows.py"):
            found.update(file.relative_to(ROOT).as_posix().encode() + b"\0" + code_in(file))
    return found.hexdigest()


def _show(record: dict[str, Any]) -> bool:
    """Print a line for each policy, and return whether the row misses the standard."""
    name, logs, seconds = record["row"]["name"], record["logs"], record["seconds"]
    if "refused" in record:
        print(f"{name:28} refused: {record['refused']} ({seconds} s)", flush=True)
        return False
    wrong = failures(record)
    for p in record["policies"]:
        if "band" in p:
            print(f"{name:28} {p}", flush=True)
            continue
        print(
            f"{name:28} {p['policy']:8} {p['hits']:3} of {logs}, -{p['below']} +{p['above']}; width "
            f"{p['median_width']:.3g}, {p['width_over_known']:.2f} x known, {p['width_over_range']:.3f} of the range; "
            f"truth {p['truth']:.4g}, mean {p['mean_value']:.4g}, deviation {p['standard_deviation']:.3g}, noise "
            f"{p['privacy_standard_error']:.3g}; bias {p['median_bias_bound']:.3g}, known "
            f"{p['known_bias_bound']:.3g}; {'usable; ' if p['usable'] else ''}{p['wider_than_planned']} wider than "
            f"planned; {p['notes']} ({seconds} s)",
            flush=True,
        )
    if wrong:
        print(f"{'':28} MISSED: {'; '.join(wrong)}", flush=True)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
