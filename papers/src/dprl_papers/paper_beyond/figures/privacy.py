"""What DP-APVI and DP-VAPVI claim, and what their noise has

Where: Qiao and Wang, Theorems 3.3 and 4.1; a trajectory is replaced

Statement: DP-APVI (Algorithm 1) satisfies ρ-zCDP. DP-VAPVI (Algorithm 2) satisfies ρ-zCDP.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dprl.accounting import events
from dprl.accounting.accountant import epsilon_of
from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import Run, figure_contents, make_claim, make_table

VALUES = (0.02, 0.1, 1.0)
HORIZON = 20
LOGS = {"one log, as simulated": 1, "two logs, as printed": 2}


def draw(run: Run) -> dict[str, Any]:
    """Draw the claimed epsilon of a budget, and the true ones."""
    shares = {"DP-APVI": 1.0}
    shares |= {f"DP-VAPVI, {words}": share_of_regressions(logs) for words, logs in LOGS.items()}
    true = lambda rho: epsilon_of(events.gaussian(1.0 / math.sqrt(2.0 * rho)), run.delta)  # noqa: E731
    claimed = (rho + 2.0 * math.sqrt(rho * math.log(1.0 / run.delta)) for rho in run.values)
    rows = [["claimed", "1", *(number(epsilon, 2) for epsilon in claimed)]]
    for name, share in shares.items():
        rows.append([name, number(share, 3), *(number(true(share * rho), 2) for rho in run.values)])
    caption = f"True ε at δ = {run.delta:g}, H = {HORIZON}, and the true ρ over the claimed one."
    table = make_table(caption, ["", "ρ over ρ", *(f"ρ = {plain(rho)}" for rho in run.values)], rows)
    most = max(shares.values())
    claims = [
        make_claim("DP-APVI and DP-VAPVI satisfy ρ-zCDP.", most <= 1.0, f"at most {number(most, 3)} of it."),
        make_claim(
            "By itself, each of DP-VAPVI's 5H statistics satisfies ρ / 5H.",
            False,
            "the Gram matrices of two orthogonal features differ by √2 and have the noise for 1, which is 2ρ / 5H. The "
            "total holds, as the vectors need little of their shares.",
            ours=True,
        ),
    ]
    return figure_contents(tables=[table], claims=claims)


def share_of_regressions(logs: int, horizon: int = HORIZON) -> float:
    """Return the true rho of Algorithm 2 over the claimed one, with one or two ``logs``.

    In units of rho / 5H a Gram matrix costs half the squared distance of what two trajectories add, 2 - 2 c^2 for
    features with the product c over their lengths; a vector (1 - c) / 2 times the square of its largest value over the
    one that its noise is for, or a quarter of that square where one of the two is zero.
    """
    c = np.linspace(-1.0, 1.0, 2001)
    gram, vector, total = 2.0 - 2.0 * c**2, np.maximum(1.0 - c, 0.5) / 2.0, 0.0
    for h in range(1, horizon + 1):
        after, now = (horizon - h) / horizon, (horizon - h + 1) / horizon
        first, second = gram + vector * (after**4 + after**2), gram + vector * now**2
        total += float(np.max(first + second) if logs == 1 else max(first.max(), second.max()))
    return total / (5 * horizon)
