"""``python -m benchmarks [NAME ...]``: run all benchmarks, or only the named ones; print and record their figures."""

from __future__ import annotations

import importlib
import sys
import time

from benchmarks.harness import goals_table, save

NAMES = (
    "gpope_chain",
    "dptd_cart_pole",
    "dptd_pong",
    "functional_q",
    "functional_q_families",
    "dp_pg",
    "language",
    "l2p",
    "rollouts",
    "scaling",
    "devices",
    "out_of_core",
    "out_of_core_users",
    "noise",
    "startup",
    "defaults",
    "descent",
    "who_benefits",
    "recommended",
    "off_policy_values",
    "best_of_k",
    "icu_sepsis",
    "learn_cart_pole",
    "learn_from_log",
    "learn_many_steps",
    "learning_families",
)


def main(names: list[str]) -> int:
    unknown = [n for n in names if n not in NAMES]
    if unknown:
        print(f"error: there is no benchmark {unknown[0]!r}; there are {', '.join(NAMES)}.", file=sys.stderr)
        return 2
    for name in names or NAMES:
        started = time.perf_counter()
        result = importlib.import_module(f"benchmarks.{name}").run()
        save(name, result)
        print(f"\n{result['title']}\n", *result["notes"], "", result["table"], "", sep="\n")
        if result["goals"]:
            print(goals_table(result["goals"]))
        print(f"({name}: {time.perf_counter() - started:.0f} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
