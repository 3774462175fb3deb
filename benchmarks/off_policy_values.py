"""Off-policy values of the default where products of importance ratios are cut, beside those of other algorithms.

The others are importance sampling and doubly robust values. The problems are random decision problems of ten steps on
the seeds for judging, with products of ratios that reach thousands. Errors are relative to the width of the public
value range. Each algorithm has the whole budget, its own defaults, and the same logs.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

import dprl
from benchmarks.families import JUDGING, Member, member
from benchmarks.harness import goal, table
from dprl.data.readers import read_log

PEOPLE, LOGS, EPSILON, DELTA = (1_000, 5_000, 50_000), 3, 1.0, 1e-5
DEFAULT, SAMPLING, DOUBLY = "recommended", "importance sampling", "doubly robust"


def _algorithms(discount: float) -> dict[str, Any]:
    return {
        DEFAULT: dprl.Recommended(discount=discount),
        SAMPLING: dprl.ImportanceSampling(discount=discount),
        DOUBLY: dprl.DoublyRobust(discount=discount),
    }


def _released(found: Member, people: int, number: int) -> dict[str, tuple[float, bool]]:
    """Return the error of each algorithm's value, and whether its interval holds the true value."""
    bounds, discount = found.bounds(people), found.process.discount
    low, high = bounds.value_interval(discount)
    rng = np.random.default_rng([people, number])
    log, truth = read_log(found.draw(rng, people), bounds=bounds), found.value()
    out = {}
    for name, config in _algorithms(discount).items():
        try:
            (estimate,) = dprl.evaluate(
                log, [found.policy()], dprl.Budget(EPSILON, DELTA), algorithm=config, features=found.features,
                seed=number,
            ).values.values()  # fmt: skip
        except dprl.DprlError:  # an algorithm refuses where its intervals would say nothing
            out[name] = math.nan, True
            continue
        start, end = estimate.interval
        out[name] = (estimate.value - truth) / (high - low), start <= truth <= end
    return out


def _of_ten_steps(found: Member) -> Member:
    return replace(found, process=replace(found.process, horizon=10))


def run() -> dict[str, Any]:
    problems = [_of_ten_steps(member("random-mdp", seed, True)) for seed in JUDGING]
    errors: dict[int, dict[str, float]] = {}
    rows = []
    for people in PEOPLE:
        found = [_released(p, people, 10 * i + n) for i, p in enumerate(problems) for n in range(LOGS)]
        errors[people] = {name: math.sqrt(np.mean([x[name][0] ** 2 for x in found])) for name in found[0]}
        for name, error in errors[people].items():
            covered = sum(x[name][1] for x in found)
            shown = ["refused", ""] if math.isnan(error) else [f"{error:.4f}", f"{covered} of {len(found)}"]
            rows.append([f"{people:,}", name, *shown])
    least, most = errors[PEOPLE[0]][DEFAULT], errors[PEOPLE[-1]][DEFAULT]
    slope = math.log(most / least) / math.log(PEOPLE[-1] / PEOPLE[0])
    worst = max(errors[people][DEFAULT] / errors[people][SAMPLING] for people in PEOPLE)
    return {
        "title": "Values off policy of ten steps",
        "notes": [
            f"Root mean square error over the width of the value range, and intervals that cover; {len(problems)} "
            f"random decision problems, {LOGS} logs of each, epsilon {EPSILON:g}, delta {DELTA:g}. The default's error "
            f"falls with people to the power {slope:.2f}."
        ],
        "table": table(["people", "algorithm", "error", "covers"], rows),
        "goals": [goal(f"{DEFAULT} over {SAMPLING}, at worst", worst, 1.0, False)],
        "errors": errors,
    }
