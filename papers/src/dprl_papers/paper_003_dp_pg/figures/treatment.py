"""Contextual bandits over users and budget

Where: Section 2: “personalized medical care”; 4 arms and 36 parameters each

Note: ACTG 175: a simulator fitted on half of the patients, who are declared public: eight covariates, a linear mean
change of the CD4 count for each arm, normal residuals of about 105 cells per mm³, ten times what choosing by patient
is worth.

Extra: data
"""

from __future__ import annotations

from typing import Any

from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import Run, figure_contents, make_chart, make_claim, mean_text, table_over
from dprl_papers.paper_003_dp_pg.returns import Point, Problem, lines_of, measured, name_of, over_budgets, point, ppo

VALUES = (1000, 3000, 10_000, 30_000, 100_000)
QUICK = (1000, 3000)
EPSILON = (0.5, 1.0, 4.0)
PROBLEMS: dict[Problem, str] = {"bandit": "4 arms, 36 parameters", "treatment": "ACTG 175: arms by patient"}


def draw(run: Run) -> dict[str, Any]:
    """Draw the bandit of 36 parameters, and the one from ACTG 175, over users and budget."""
    users, charts, tables, claims = run.whole, [], [], []
    at = 1.0 if 1.0 in run.epsilon else run.epsilon[0]
    for problem, title in PROBLEMS.items():
        found = over_budgets(run, problem, lambda n: run.trials)
        found[f"independent noise, ε = {plain(at)}"] = {
            n: measured(run, point(problem, n, at, noise="independent")) for n in users
        }
        found[f"as published, ε = {plain(at)}"] = {
            n: measured(run, Point(problem=problem, users=n, epsilon=at, published=True)) for n in users
        }
        what = f"{title}: share of the gap between acting at random and acting best"
        tables.append(table_over(found, "N", what, run.trials))
        found["PPO, no privacy"] = {n: ppo(run, problem, max(1, n // 50), 50) for n in users if n <= 10_000}
        charts.append(make_chart(lines_of(found), "users N", "share of the gap", title=title))
        claims += _claims(run, found, at) if problem == "treatment" else _claims_of_bandit(run, found)
    return figure_contents(charts=charts, tables=tables, claims=claims)


def _claims_of_bandit(run: Run, found: Any) -> list[dict[str, Any]]:
    return [
        make_claim(
            f"At N = {plain(n)} and ε = {plain(epsilon)} the bandit's policy closes {number(100 * least, 0)}% of the "
            "gap.",
            float((values := found[name_of(epsilon)][n]).mean()) >= least,
            f"{mean_text(values, 3)} over {len(values)} seeds.",
            ours=True,
        )
        for epsilon, n, least in ((1.0, 10_000, 0.97), (0.5, 100_000, 0.99))
        if n in run.values and epsilon in run.epsilon
    ]


def _claims(run: Run, found: Any, epsilon: float) -> list[dict[str, Any]]:
    most = max(run.whole)
    values, free = found[name_of(epsilon)][most], found[name_of(None)][most]
    return [
        make_claim(
            f"At N = {plain(most)} and ε = {plain(epsilon)} treatment loses at most 0.03 of the gap to privacy.",
            float(free.mean() - values.mean()) <= 0.03,
            f"{mean_text(values, 3)} against {mean_text(free, 3)} without noise.",
            ours=True,
        )
    ]
