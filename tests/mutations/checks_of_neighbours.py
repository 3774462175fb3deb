"""The checks of what enters the mechanisms of neighbours: everything is released as users release it."""

from __future__ import annotations

import functools

from dprl.audits.conformance.suite import Case
from dprl.registry import find_audited

from .lab import Lab, check, require


def hold(case: Case, lab: Lab) -> None:
    found = case.run(lab.folder())
    require(not found.problems, f"{found.setting}: {found.problems[0] if found.problems else ''}")


for name, algorithm, setting, source in (
    # where products are cut a vector has no negative parts
    ("neighbours in logs", "importance-sampling", "trajectory", "arrays by person"),
    # where nothing is cut the largest vector stands in every log
    ("neighbours in logs of one decision", "importance-sampling", "one decision", "arrays by person"),
    ("neighbours with missing states", "importance-sampling", "missing states", "arrays by person"),
    ("neighbours in subgroups", "importance-sampling", "subgroups", "arrays by person"),
    ("neighbours in projections", "best-linear-projection", "differences", "arrays by person"),
    # people with two trajectories each; they choose or teach, or they value
    ("neighbours of a choice", "best", "best of two, one decision", "arrays by person"),
    ("neighbours of a learner", "learn", "fitted Q, a linear basis", "arrays by person"),
    ("neighbours of advantages", "learn", "advantages, a linear basis", "arrays by person"),
    ("neighbours of a rule in strata", "learn", "rule within strata, one decision", "arrays by person"),
    ("neighbours among sampled people", "dp-pg", "resampled", "arrays"),
    ("neighbours in places of a log", "dp-pg", "square root", "arrays"),
    ("neighbours among those who arrive", "dp-pg", "square root", "stream"),
    ("neighbours without names", "dp-pg", "square root", "stream without names"),
    ("neighbours in environments that compare equal", "functional-q", "observed reward", "equal environments"),
    ("neighbours under a path", "functional-q", "functional", "unequal environments"),
    ("neighbours under noisy rewards", "functional-q", "observed reward", "unequal environments"),
    ("neighbours under noisy gradients", "functional-q", "gradient", "unequal environments"),
    ("neighbours of a planned q", "functional-q", "output", "unequal environments"),
):
    check(functools.partial(hold, Case(find_audited(algorithm), setting, source)), name)
