"""Paper 003's figures as plain data for the page: tables of texts, the lines of charts, and claims put to the test."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dprl.accounting.budget import Budget
from dprl.accounting.calibration import gaussian_noise_multiplier
from dprl.report.formatting import number, plain
from dprl_papers.harness.figure_parts import line_over, make_claim
from dprl_papers.paper_003_dp_pg import fosp, published
from dprl_papers.paper_003_dp_pg.learning_figures import (
    over_noise_kinds,
    over_users,
    return_over_epsilon,
    treatment,
    what_else,
    with_continuous_control,
)
from dprl_papers.paper_003_dp_pg.regret import regrets
from dprl_papers.paper_003_dp_pg.returns import Points

FACTORS = (1.0, 10.0, 40.0)
"""Of Theorem 2's step size."""
SHOWN = 10.0
"""The one by which the slopes are judged."""
PROBLEMS = ((1, 2), (4, 4))
"""States and actions; of the second without the largest constant."""
SEEDS = 5
LAST = 4  # points of a fit


def theorem_1(key: Mapping[str, Any], points: Points) -> dict[str, Any]:
    """What Theorem 1's noise is, what it wastes, and what it costs where its G is not one."""
    del points
    delta, rows, true = key["delta"], [], []
    for epsilon in key["epsilon"]:
        budget = Budget(epsilon, delta)
        rows.append([plain(epsilon), *(number(value, 2) for value in published.wasted(budget).values())])
        cells = [plain(epsilon)]
        for actions in (2, 4, 10):
            # std over the true sensitivity 2 sqrt(2) Rmax, of a sigma for G = sqrt(1 - 1/A)
            multiplier = published.published_std(1.0, math.sqrt(1.0 - 1.0 / actions), 1, budget) / math.sqrt(8.0)
            cells.append(number(epsilon_of_gaussian(multiplier, delta), 2))
        true.append(cells)
    ours = gaussian_noise_multiplier(Budget(1.0, 1e-6))
    at_4 = float(true[-1][2])
    return {
        "tables": [
            {
                "caption": f"Noise of the mean gradient times m over Rmax G, δ = {delta:g}: Theorem 1's; the exact "
                "Gaussian's for replacing a user, and for a user who answers nothing.",
                "heads": ["ε", "as published", "exact, replace one", "exact, zero out one"],
                "rows": rows,
            },
            {
                "caption": "True ε of Theorem 1's σ with the paper's G of a softmax, sqrt(1 − 1/|A|), at the same "
                f"δ = {delta:g} (the norm of a score reaches sqrt 2).",
                "heads": ["claimed ε", "2 actions", "4 actions", "10 actions"],
                "rows": true,
            },
        ],
        "lines": [],
        "x": "",
        "y": "",
        "claims": [
            make_claim(
                "Setting σ² as in Theorem 1 ensures (ε, δ)-DP for softmax policies with G = sqrt(1 − 1/|A|).",
                all(float(cell) <= float(row[0]) * 1.005 for row in true for cell in row[1:]),
                f"at claimed ε = {true[-1][0]} it is {number(at_4, 2)} with 4 actions, whatever the mechanism's slack.",
            ),
            make_claim(
                "At (1, 1e-6) a multiplier of 4.22 is enough for zeroing a user out, 8.45 for replacing one.",
                abs(ours - 4.22) <= 0.0422,
                f"{number(ours, 3)} and {number(2.0 * ours, 3)}; Theorem 1 has 10.6.",
                ours=True,
            ),
        ],
    }


def epsilon_of_gaussian(multiplier: float, delta: float) -> float:
    """Of one release, exactly, by bisection on its delta."""
    from dprl.accounting.calibration import gaussian_delta

    low, high = 0.0, 1e3
    for _ in range(100):
        middle = (low + high) / 2.0
        low, high = (middle, high) if gaussian_delta(middle, multiplier) > delta else (low, middle)
    return high


# --- stationary points -----------------------------------------------------------------------------------------------


def stationary_points(key: Mapping[str, Any], points: Points) -> dict[str, Any]:
    """E of the squared gradient over N, without and with noise, for constants of the step size."""
    users, charts, rows, judged = [int(n) for n in key["values"]], [], [], {}
    problems = PROBLEMS if not key["quick"] else PROBLEMS[:1]
    for states, actions in problems:
        bandit, lines = fosp.bandit_of(states, actions), []
        d = states * actions
        for epsilon in (None, *key["epsilon"]):
            for factor in FACTORS if d == 2 else FACTORS[:2]:
                found = squares_of(points, bandit, epsilon, key, factor)
                name = "no privacy" if epsilon is None else f"ε = {plain(epsilon)}"
                slope = fosp.slope(users, [float(found[n].mean()) for n in users], LAST)
                judged[d, epsilon, factor] = slope
                cells = [f"{float(found[n].mean()):.1e}" for n in users]
                rows.append([f"d = {d}, {name}, × {plain(factor)}", *cells, number(slope, 2)])
                if factor == SHOWN:
                    lines.append(line_over(name, found, look="none" if epsilon is None else "private"))
        charts.append(
            {
                "title": f"{states} states, {actions} actions, step size × {plain(SHOWN)}",
                "lines": lines,
                "x": "users N",
                "y": "E of the squared gradient",
                "log_x": True,
                "log_y": True,
            }
        )
    return {
        "charts": charts,
        "tables": [
            {
                "caption": f"E‖∇J(θ_U)‖² ({min(key['trials'], SEEDS)} seeds), and the slope of its logarithm over "
                f"the last {LAST} N; batch and step size by Theorem 2, the latter times 1, 10 and 40.",
                "heads": ["", *(f"N = {plain(n)}" for n in users), "slope"],
                "rows": rows,
            }
        ],
        "claims": _slope_claims(judged, key),
    }


def _slope_claims(judged: Mapping[tuple[int, Any, float], float], key: Mapping[str, Any]) -> list[dict[str, Any]]:
    small = min(d for d, _, _ in judged)
    free = judged[small, None, SHOWN]
    private = {epsilon: judged[small, epsilon, SHOWN] for epsilon in key["epsilon"]}
    large = max(d for d, _, _ in judged)
    printed = {epsilon: judged[large, epsilon, 1.0] for epsilon in key["epsilon"]}
    return [
        make_claim(
            "Without privacy the squared gradient falls like N^(−1/2).",
            abs(free + 0.5) <= 0.05,
            f"slope {number(free, 2)} at d = {small}, step size times {plain(SHOWN)} (within 10% is asked for).",
        ),
        make_claim(
            "Where privacy dominates it falls like (Nε/√d)^(−2/3).",
            all(abs(slope + 2.0 / 3.0) <= 2.0 / 30.0 for slope in private.values()),
            "slope "
            + ", ".join(f"{number(slope, 2)} at ε = {plain(epsilon)}" for epsilon, slope in private.items())
            + f", d = {small}, with the step size times {plain(SHOWN)} (within 10% is asked for).",
        ),
        make_claim(
            "There exist proper choices: Theorem 2's own step size shows the rates.",
            all(abs(slope + 2.0 / 3.0) <= 2.0 / 30.0 for slope in printed.values()),
            f"at d = {large} and as printed the slope is "
            + ", ".join(f"{number(slope, 2)} at ε = {plain(epsilon)}" for epsilon, slope in printed.items())
            + f" up to N = {plain(max(key['values']))}: where it is flatter the run is still on its way.",
        ),
    ]


def squares_of(
    points: Points, bandit: fosp.TabularBandit, epsilon: float | None, key: Mapping[str, Any], factor: float
) -> dict[int, np.ndarray]:
    """Squared gradients of each seed by N."""
    return {
        int(n): measured(
            points, bandit, fosp.Run(users=int(n), epsilon=epsilon, delta=key["delta"], factor=factor), key
        )[0]
        for n in key["values"]
    }


def measured(points: Points, bandit: fosp.TabularBandit, setting: fosp.Run, key: Mapping[str, Any]) -> np.ndarray:
    """``(3, seeds)`` of :func:`~dprl_papers.paper_003_dp_pg.fosp.measured`."""
    seeds = min(key["trials"], SEEDS)
    about = {"means": bandit.means, "setting": dataclasses.asdict(setting), "seeds": seeds}
    return points.kept(about, lambda: np.array(fosp.measured(bandit, setting, key["seed"], seeds)))


def batch_rule(key: Mapping[str, Any], points: Points) -> dict[str, Any]:
    """Theorem 2's batch against a grid around it."""
    users, shares = (100_000 if not key["quick"] else 2_000), [float(x) for x in key["values"]]
    states, actions = (2, 2) if not key["quick"] else (1, 2)
    bandit, found = fosp.bandit_of(states, actions), {}
    for epsilon in key["epsilon"]:
        rule = published.published_batch(users, states * actions, epsilon)
        at = {}
        for share in shares:
            setting = fosp.Run(
                users=users, epsilon=epsilon, delta=key["delta"], factor=SHOWN, batch=max(1, round(rule * share))
            )
            at[share] = measured(points, bandit, setting, key)[0]
        found[f"ε = {plain(epsilon)}, m = {rule} by the rule"] = at
    worst = max(float(at[1.0].mean() / min(v.mean() for v in at.values())) for at in found.values())
    return {
        "tables": [
            {
                "caption": f"E‖∇J(θ_U)‖² at N = {plain(users)}, {states} states and {actions} actions, step size × "
                f"{plain(SHOWN)} ({min(key['trials'], SEEDS)} seeds).",
                "heads": ["", *(f"m × {plain(share)}" for share in shares)],
                "rows": [[name, *(f"{float(at[s].mean()):.1e}" for s in shares)] for name, at in found.items()],
            }
        ],
        "lines": [line_over(name, at) for name, at in found.items()],
        "x": "batch over Theorem 2's",
        "y": "E of the squared gradient",
        "log_x": True,
        "log_y": True,
        "claims": [
            make_claim(
                "m = (1/ε)^(2/3) (Nd)^(1/3) is a proper choice: at most twice the squared gradient of the grid's best.",
                worst <= 2.0,
                f"at most {number(worst, 2)} times the best of the grid.",
                ours=True,
            )
        ],
    }


FIGURES: dict[str, Callable[[Mapping[str, Any], Points], dict[str, Any]]] = {
    "theorem1": theorem_1,
    "fosp": stationary_points,
    "batch": batch_rule,
    "regret": regrets,
    "noise": over_noise_kinds,
    "treatment": treatment,
    "cart-pole": return_over_epsilon,
    "users": over_users,
    "control": with_continuous_control,
    "further": what_else,
}
