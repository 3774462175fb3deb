"""Charts and tables of paper 002's methods over epsilon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import Run, drawn, make_chart, make_claim, make_line, table_over
from dprl_papers.paper_002_l2p import classifiers
from dprl_papers.paper_002_l2p.classifiers import Kind, Table
from dprl_papers.paper_002_l2p.returns import RUNS

Found = Mapping[str, Mapping[float, np.ndarray]]
LOOKS = {"no privacy": "none", "SGD-Adv": "bound"}
PLACES = {"census": "synthetic census", "digits": "digits 3 and 5"}


def chart_over(found: Found, title: str, y: str, log_y: bool = True) -> dict[str, Any]:
    """Return the chart of what each method has at each epsilon."""
    lines = [make_line(name, by, look=LOOKS.get(name, "private")) for name, by in found.items()]
    return make_chart(lines, "ε", y, title=title, log_y=log_y)


def draw_classifiers(run: Run, kind: Kind, tables: tuple[Table, ...]) -> dict[str, Any]:
    """Draw accuracy and training loss of one kind of classifier, on each table."""
    parts = [_on_table(run, kind, table) for table in tables]
    return {name: [one for part in parts for one in part[name]] for name in ("charts", "tables", "claims")}


def _on_table(run: Run, kind: Kind, table: Table) -> dict[str, Any]:
    runs, place = min(run.trials, RUNS), PLACES[table]
    # perturbed objectives and outputs are for convex ones
    methods = [m for m in classifiers.METHODS if kind != "network" or "perturbation" not in m]
    found = {m: {e: run.kept(classifiers.measure, run, m, kind, table, e, runs) for e in run.values} for m in methods}
    accuracy, loss = (
        {m: {e: np.array(at[what]) for e, at in by.items()} for m, by in found.items()} for what in ("accuracy", "loss")
    )
    shown = ((accuracy, "accuracy on what is left out", False), (loss, "training loss", True))
    private = [m for m in methods if m not in ("L2P, public schedule", "no privacy")]
    behind, lower = [], []
    for e in run.values:
        best = max(private, key=lambda m: float(accuracy[m][e].mean()))
        gap = float(accuracy[best][e].mean() - accuracy["L2P, public schedule"][e].mean())
        behind += [f"ε = {plain(e)}: {best}, by {number(gap, 3)}"] if gap > 0.0 else []
        lower += [e] if all(loss["L2P, public schedule"][e].mean() <= loss[m][e].mean() for m in private) else []
    claims = [
        make_claim(
            f"{place}: L2P with a public schedule is at least as accurate as every other private method at every ε.",
            not behind,
            "behind at " + "; ".join(behind) + "." if behind else "at all of them.",
        ),
        make_claim(
            f"{place}: L2P with a public schedule has the lowest training loss at every ε.",
            len(lower) == len(run.values),
            f"at {len(lower)} of {len(run.values)}.",
        ),
    ]
    return drawn(
        charts=[chart_over(values, f"{place}: {label}", label, log_y) for values, label, log_y in shown],
        tables=[table_over(values, "ε", f"{place}: {label}", runs) for values, label, _ in shown],
        claims=claims,
    )
