"""The demonstration: what would treatment by CD4 count have been worth, judged from the log of the trial ACTG 175?

It makes the log from the trial's data (2,139 patients, shipped in the lifelines package). Then it evaluates, by the
command line, the four arms and a policy that nobody ran, with a total budget of (1, 1e-5).
"""

from __future__ import annotations

import csv
import sys
from importlib.metadata import distribution
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from demonstration import cleared, run

HERE = Path(__file__).parent
POLICIES = ("treat_low_cd4", "zidovudine", "zidovudine_didanosine", "zidovudine_zalcitabine", "didanosine")


def write_log(path: Path) -> None:
    """Write the trial as a log with one decision per patient, drawn uniformly from four arms."""
    source = Path(str(distribution("lifelines").locate_file("lifelines/datasets/ACTG175.csv")))
    with source.open(newline="") as file:
        rows = list(csv.DictReader(file))
    table = pa.table(
        {
            "person_id": [int(r["pidnum"]) for r in rows],
            "observation_0": pa.array([float(r["age"]) for r in rows]),
            "observation_1": pa.array([float(r["cd40"]) for r in rows]),
            "action": [int(r["arms"]) for r in rows],
            "reward": pa.array([float(r["cd420"]) - float(r["cd40"]) for r in rows]),
            "behavior_prob": pa.array([0.25] * len(rows)),
        }
    )
    pq.write_table(table, path)


def demo(out: Path) -> None:
    ledger, results = cleared(out)
    log = out / "actg175.parquet"
    write_log(log)
    run(
        ["ledger", "create", str(ledger), "--dataset", "actg175", "--epsilon", "1", "--delta", "1e-5",
         "--unit", "person"],
        ["evaluate", str(log), "--algorithm", "importance-sampling",  # releases only values, which get the whole budget
         "--bounds", str(HERE / "actg175_bounds.toml"), "--unit", "person",
         "--person-column", "person_id", "--epsilon", "1", "--delta", "1e-5", "--ledger", str(ledger),
         "--dataset", "actg175", "--out", str(results),
         "--outcome", "change of the CD4 count from baseline to week 20, in cells per mm³",
         *(flag for name in POLICIES for flag in ("--target-policy", f"{HERE / 'actg175_policy.py'}:{name}"))],
        ["verify", str(results)],
    )  # fmt: skip
    print(f"\nreport: {results / 'report.html'}")


if __name__ == "__main__":
    demo(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("results/actg175"))
