"""The same protectors on other tasks

Where: Past the paper: other public facts, other features, other domains

Note: Measured without the fallback, to show what it is for. In a release a protector that meets public facts beyond
its training is its hand schedule.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dprl.protectors.policy_evaluation import RandomChains
from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import Run, figure_contents, make_table
from dprl_papers.paper_002_l2p.protectors import FORMS, UNITS, family_of, geometric, on_domain, protected_on_unseen
from dprl_papers.paper_002_l2p.trainings import count_of, error_text, over_trainings

EPSILON = (0.1, 1.0)
REPEATS = 32
"""Runs of each task."""
SHIFTS: dict[str, dict[str, Any]] = {
    "as trained": {},
    "150 episodes": {"units": 150},
    "1,000 episodes": {"units": 1000},
    "horizon 24": {"horizon": 24},
    "discount 0.9": {"discount": 0.9},
    "60 states": {"states": 60},
    "random MDPs, 30 states": {"kind": "mdps"},
    "12 cosines": {"features": "fourier:11"},
    "6 radial functions": {"features": "rbf:6"},
    "24 radial functions": {"features": "rbf:24"},
}
"""Other tasks than those of training."""
DOMAINS = ("mountain_car", "hiv")
METHODS = {
    "default": "GPOPE's defaults",
    "hand": "the hand schedule",
    "schedule": "schedule",
    "coordinate-wise": "coordinate-wise",
}


def draw(run: Run) -> dict[str, Any]:
    """Draw the same protectors on other tasks, without the fallback that a release would use."""
    rows, elsewhere = [], []
    for epsilon in run.epsilon:
        for name, changes in SHIFTS.items():
            rows.append([f"ε = {plain(epsilon)}: {name}", *_row(run, epsilon, replace(family_of(epsilon), **changes))])
            rows[-1].append("protector" if name == "as trained" else "hand schedule")
        for name in DOMAINS:
            found = [over_trainings(run, on_domain, epsilon, name, m, learned=m in FORMS) for m in METHODS]
            cells = [f"{error_text(at['mspbe'], 4)} / {error_text(at['rmse'], 4)}" for at in found]
            elsewhere.append([f"ε = {plain(epsilon)}: {name}", *cells])
    caption = (
        "Error over that of the same hand schedule: geometric mean / mean / worst task, on 48 unseen tasks: the mean "
        f"of {count_of(run)}, and the worst task of all. What a release would use is in the last column: beyond what a "
        "protector was trained for it is its hand schedule."
    )
    on_domains = f"MSPBE / RMSE of V on other domains, {UNITS} trajectories, mean ± standard error over 20 logs and, "
    on_domains += f"of protectors, over {count_of(run)} as well."
    return figure_contents(
        tables=[
            make_table(caption, ["", "hand schedule's mean", *FORMS, "in a release"], rows),
            make_table(on_domains, ["", *METHODS.values()], elsewhere),
        ]
    )


def _row(run: Run, epsilon: float, family: RandomChains) -> list[str]:
    def measured(form: str, learns: bool) -> np.ndarray:
        found = over_trainings(run, protected_on_unseen, epsilon, form, family, REPEATS, learns, learned=learns)
        return found["errors"]

    (hand,) = measured("coordinate-wise", False)
    texts = [number(float(hand.mean()), 3)]
    for form in FORMS:
        if form == "dense" and family.size != family_of(epsilon).size:
            texts.append("–")
            continue
        errors = measured(form, True)
        middle = np.mean([geometric(one / hand) for one in errors])
        ratios = ((middle, 2), (errors.mean() / hand.mean(), 2), (np.max(errors / hand), 1))
        texts.append(" / ".join(number(float(ratio), places) for ratio, places in ratios))
    return texts
