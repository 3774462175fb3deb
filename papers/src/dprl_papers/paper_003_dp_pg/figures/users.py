"""Users needed on Cart Pole

Where: Mean return of at least 475 in every seed
"""

from __future__ import annotations

from typing import Any

from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import Run, figure_contents, make_claim, make_table, mean_text
from dprl_papers.paper_003_dp_pg.returns import EPISODES, SOLVED, measured, point

EPSILON = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
LADDER = (250, 500, 1000, 2000, 5000, 10_000, 20_000)
ASKED = ((2_000, 1.0, "softmax"), (5_000, 0.5, "softmax"), (20_000, 0.1, "softmax"), (10_000, 0.5, "mlp:64"))


def draw(run: Run) -> dict[str, Any]:
    """Draw how many users a linear policy needs, by budget; and the settings that are asked for."""
    ladder = LADDER if not run.quick else LADDER[1:3]
    rows = [_needed(run, epsilon, ladder) for epsilon in run.epsilon]
    asked, claims = [], []
    for users, epsilon, policy in ASKED if not run.quick else ASKED[:1]:
        values = measured(run, point("cart-pole", users, epsilon, policy=policy))
        least, solved = number(float(values.min()), 1), f"{int((values >= SOLVED).sum())}/{len(values)}"
        name = f"{policy}, N = {plain(users)}, ε = {plain(epsilon)}"
        asked.append([name, mean_text(values, 1), least, solved])
        claims.append(
            make_claim(
                f"Cart Pole of 500 steps is solved by {policy} with N = {plain(users)} at ε = {plain(epsilon)}.",
                bool(values.min() >= SOLVED),
                f"least of {len(values)} seeds {least} (475 is asked for).",
                ours=True,
            )
        )
    caption = f"Linear policy: seeds of {run.trials} whose mean return over {EPISODES} episodes is at least 475, up to "
    caption += "the first N that solves all."
    tables = [
        make_table(caption, ["ε", *(f"N = {plain(n)}" for n in ladder), "users needed", "N ε"], rows),
        make_table(f"Settings that are asked for ({run.trials} seeds).", ["", "mean return", "least", "solved"], asked),
    ]
    return figure_contents(tables=tables, claims=claims)


def _needed(run: Run, epsilon: float, ladder: tuple[int, ...]) -> list[str]:
    """Return the row of a budget; far from what is needed nothing is run."""
    cells, needed = [], None
    for users in ladder:
        if needed is not None or not 300.0 <= users * epsilon <= 6000.0:
            cells.append("")
            continue
        values = measured(run, point("cart-pole", users, epsilon))
        count = int((values >= SOLVED).sum())
        cells.append(f"{count}/{len(values)}")
        needed = users if count == len(values) else None
    last = ["–", "–"] if needed is None else [plain(needed), plain(needed * epsilon)]
    return [plain(epsilon), *cells, *last]
