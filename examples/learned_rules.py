"""Rules learned from two trials: who should get which treatment, or which insurance plan?

ACTG 175 drew its treatments with known probabilities. The RAND Health Insurance Experiment drew its plans with
probabilities that differ by site and that nobody wrote down. They are estimated within the same budget, and the rule
may give each site another plan. With so few people and so small a budget, both rules probably give everybody the same.
"""

from __future__ import annotations

import sys
from pathlib import Path

import actg175
import rand_hie
from demonstration import cleared, run

HERE = Path(__file__).parent
PLANS = ["--unit", "person", "--person-column", "person_id", "--overlap", "trim"]


def learn(out: Path, name: str, options: list[str], outcome: str) -> None:
    """Learn a rule from the log ``name`` in ``out``."""
    ledger, results = cleared(out)
    (actg175 if name == "actg175" else rand_hie).write_log(log := out / f"{name}.parquet")
    budget = ["--epsilon", "1", "--delta", "1e-5"]
    run(
        ["ledger", "create", str(ledger), "--dataset", name, *budget, "--unit", "person"],
        ["learn", str(log), "--bounds", str(HERE / f"{name}_bounds.toml"), *options, *budget, "--ledger", str(ledger),
         "--dataset", name, "--outcome", outcome, "--out", str(results)],
        ["verify", str(results)],
    )  # fmt: skip


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("results/learned_rules")
    learn(folder / "trial", "actg175", ["--discount", "1"], "change of the CD4 count in 20 weeks, cells per mm3")
    learn(folder / "plans", "rand_hie", PLANS, "number of visits to a doctor in a year")
