"""Compare the recommended default's *value* with that of every algorithm that gives values, in the rows of the table.

``python -m benchmarks.default_values [--part I N]`` writes the last table of docs/defaults.md. A row that is kept
is not computed again; all rows take some hundred minutes of one core. The rows, the members of the families and the
logs are those of :mod:`benchmarks.default_table`. The default spends its shipped share of the budget on the value;
importance sampling and doubly robust values have the whole budget. An algorithm has no error in a row that it refuses
because its noise alone would make every interval as wide as the range.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import gettempdir

import jax
import numpy as np
from filelock import FileLock

import dprl
from benchmarks.default_table import DELTA, LOGS, MEMBERS, PAGE, VALUES, Row, kept_results, page, rows
from benchmarks.families import JUDGING, member
from benchmarks.harness import pin
from dprl.data.readers import read_log

CONFIGS = {
    "default": dprl.Recommended,
    "importance-sampling": dprl.ImportanceSampling,
    "doubly-robust": dprl.DoublyRobust,
}


def value_errors(row: Row) -> dict[str, float]:
    """Return each algorithm's root mean square error over the width of the value range, and that of the mid-range."""
    squares: dict[str, list[float]] = {}
    refused = set()
    for seed in JUDGING[:MEMBERS]:
        found = member(row.family, seed, row.off_policy)
        bounds, truth = found.bounds(row.people), found.value()
        discount = found.process.discount if found.process.horizon > 1 else 0.99
        low, high = bounds.value_interval(discount)
        for number in range(LOGS):
            rng = np.random.default_rng([seed, row.off_policy, row.people, number])
            log = read_log(found.draw(rng, row.people), bounds=bounds)
            values = {"mid-range": (low + high) / 2.0}
            for name, config in CONFIGS.items():
                try:
                    values[name] = dprl.evaluate(
                        log, [found.policy()], dprl.Budget(row.epsilon, DELTA), algorithm=config(discount=discount),
                        features=found.features, seed=1_000 * seed + number,
                    ).value  # fmt: skip
                except dprl.DprlError:
                    refused.add(name)
            for name, value in values.items():
                squares.setdefault(name, []).append(((value - truth) / (high - low)) ** 2)
    return {name: float(np.sqrt(np.mean(each))) for name, each in squares.items() if name not in refused}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.default_values")
    parser.add_argument("--part", type=int, nargs=2, default=(0, 1), metavar=("I", "N"),
                        help="each N-th row, from the I-th")  # fmt: skip
    part, of = parser.parse_args(arguments).part
    pin(1, part)  # parts that run side by side use different cores
    for row in list(rows())[part::of]:
        if row.name in kept_results(VALUES):
            continue
        found = value_errors(row)
        jax.clear_caches()  # compiled programs of all rows do not fit into one process's memory maps
        print(row.name, {name: round(x, 4) for name, x in found.items()}, flush=True)
        with FileLock(Path(gettempdir()) / "dprl-default-table.lock"):  # other processes may have written their rows
            kept: Mapping[str, Mapping[str, float]] = kept_results(VALUES) | {row.name: found}
            VALUES.write_text(json.dumps(kept, indent=1) + "\n")
            PAGE.write_text(page(kept_results()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
