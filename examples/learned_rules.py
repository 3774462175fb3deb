"""Rules learned from two trials: which treatment, or which insurance plan, should whom be given?

ACTG 175 drew its treatments by lot, with known chances. The RAND Health Insurance Experiment drew its plans with other
chances at each site, which nobody wrote down: they are estimated out of the same budget, and the rule may give each
site a plan of its own. With so few people and so small a budget both rules are likely to be the same for everybody.
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
