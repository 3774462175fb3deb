"""Charts and tables of paper 002's methods against epsilon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import Run, figure_contents, make_chart, make_claim, make_line, make_table
from dprl_papers.paper_002_l2p import classifiers
from dprl_papers.paper_002_l2p.classifiers import Kind, Table
from dprl_papers.paper_002_l2p.trainings import RUNS, SCHEDULERS, error_text, errors_over, over_trainings

ValuesByMethod = Mapping[str, Mapping[float, np.ndarray]]
OWN = ("L2P, adaptive noise", "L2P, public schedule")
"""The paper's, by the step before and under a filter; and ours, which fixes all noise beforehand."""
LOOKS = {"no privacy": "none", "SGD-Adv": "bound"}
PLACES = {"census": "synthetic census", "digits": "digits 3 and 5"}


def chart_over(found: ValuesByMethod, title: str, y: str, log_y: bool = True) -> dict[str, Any]:
    """Return the chart of each method's values at each epsilon."""
    lines = [make_line(name, by, look=LOOKS.get(name, "private")) for name, by in found.items()]
    return make_chart(lines, "ε", y, title=title, log_y=log_y)


def table_over(found: ValuesByMethod, what: str, run: Run, runs: int, places: int = 3) -> dict[str, Any]:
    """Return the table of each method's values at each epsilon, where each value is ``(trainings, runs)``."""
    rows = [[name, *(error_text(by[e], places) for e in run.values)] for name, by in found.items()]
    caption = f"{what[:1].upper()}{what[1:]} (mean over {runs} runs ± standard error, {errors_over(run)})."
    return make_table(caption, ["", *(f"ε = {plain(e)}" for e in run.values)], rows)


def draw_classifiers(run: Run, kind: Kind, tables: tuple[Table, ...]) -> dict[str, Any]:
    """Return charts, tables and claims on accuracy and training loss of one kind of classifier, on each table."""
    parts = [_on_table(run, kind, table) for table in tables]
    return {name: [one for part in parts for one in part[name]] for name in ("charts", "tables", "claims")}


def _on_table(run: Run, kind: Kind, table: Table) -> dict[str, Any]:
    runs, place = min(run.trials, RUNS), PLACES[table]
    # perturbation of objectives and outputs needs convex losses
    methods = [m for m in classifiers.METHODS if kind != "network" or "perturbation" not in m]
    found = {
        m: {
            e: over_trainings(run, classifiers.measure, m, kind, table, e, runs, learned=m in SCHEDULERS)
            for e in run.values
        }
        for m in methods
    }
    accuracy, loss = (
        {m: {e: at[what] for e, at in by.items()} for m, by in found.items()} for what in ("accuracy", "loss")
    )
    shown = ((accuracy, "accuracy on what is left out", False), (loss, "training loss", True))
    private = [m for m in methods if m not in (*SCHEDULERS, "no privacy")]
    claims = []
    for own in OWN:
        behind, lower = [], []
        for e in run.values:
            best = max(private, key=lambda m: float(accuracy[m][e].mean()))
            gap = float(accuracy[best][e].mean() - accuracy[own][e].mean())
            behind += [f"ε = {plain(e)}: {best}, by {number(gap, 3)}"] if gap > 0.0 else []
            lower += [e] if all(loss[own][e].mean() <= loss[m][e].mean() for m in private) else []
        words = f"{place}: {own} is at least as accurate as every private method without a protector at every ε."
        text = "behind at " + "; ".join(behind) + "." if behind else "at all of them."
        claims.append(make_claim(words, not behind, text))
        words = f"{place}: {own} has a training loss at most that of each of them at every ε."
        claims.append(make_claim(words, len(lower) == len(run.values), f"at {len(lower)} of {len(run.values)}."))
    steps = {OWN[0]: {e: at["steps"] for e, at in found[OWN[0]].items()}}
    limit = classifiers.family_of(kind, table).hand.steps
    return figure_contents(
        charts=[chart_over(values, f"{place}: {label}", label, log_y) for values, label, log_y in shown],
        tables=[
            *(table_over(values, f"{place}: {label}", run, runs) for values, label, _ in shown),
            table_over(steps, f"{place}: steps of {limit} until adaptive noise has spent the budget", run, runs, 1),
        ],
        claims=claims,
    )
