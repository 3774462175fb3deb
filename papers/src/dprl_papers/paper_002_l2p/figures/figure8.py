"""Figure 8: a quadratic at (0.05, 1e-8)

Where: C.1

Statement: The proposed L2P converges to the zone close to but not exactly at the noise-free optimal solution. [...] In
comparison, the SGD-Adv algorithm randomly walks in a rather large region. Though AGD reduces variances relatively, it
barely finds the correct optimization direction.

Note: The paper's L2P has adaptive noise; “public schedule” is ours. With 60 records no method can learn anything at
this budget: one release of everybody has a noise of 89 clips, and 60 records move a sum by at most 60. What is below
the loss at the start is what is known of such problems beforehand. “Centres of their own”: the problems' minimisers
are spread by 0.5 in each coordinate instead of 0.1. With 6,000 records each of the 60 terms stands for 100.
"""

from __future__ import annotations

from typing import Any

from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import Run, figure_contents, make_chart, make_claim, make_table
from dprl_papers.paper_002_l2p import quadratics
from dprl_papers.paper_002_l2p.over_epsilon import OWN
from dprl_papers.paper_002_l2p.quadratics import Problem
from dprl_papers.paper_002_l2p.trainings import SCHEDULERS, errors_over, interval, over_trainings

EPSILON = (0.05,)
OTHERS = ("SGD-Adv", "SGD", "AGD", "L2P-Proj")


def draw(run: Run) -> dict[str, Any]:
    """Draw all methods: one problem in many repeats, and the mean over problems that nobody was trained on."""
    (epsilon,) = run.epsilon
    rows, claims, charts = [], [], []
    for problem in (quadratics.MANY, quadratics.PRINTED):
        found: dict[str, Any] = {
            method: over_trainings(
                run, quadratics.measure, problem, method, epsilon, run.trials, False, learned=method in SCHEDULERS
            )
            for method in quadratics.METHODS
        }
        found |= {name: {"losses": v, "chosen": ["–"]} for name, v in quadratics.dataless(problem, run.quick).items()}
        one = {name: interval(at["losses"][:, 0]) for name, at in found.items()}
        mean = {name: interval(at["losses"].mean(axis=1)) for name, at in found.items()}
        rows += [
            [f"{problem.label}: {name}", _text(one[name]), _text(mean[name]), " or ".join(dict.fromkeys(at["chosen"]))]
            for name, at in found.items()
        ]
        for own in OWN:
            claims.append(_claim(problem, own, "on figure 8's problem", one))
            claims.append(_claim(problem, own, "in the mean over problems", mean))
        paths = run.cached(quadratics.paths, run, problem, epsilon, run.trials)
        lines = [
            {
                "label": name,
                "points": [[x, y, 0.0] for x, y in path],
                "look": "none" if name == "minimum" else "private",
            }
            for name, path in paths.items()
        ]
        title = f"Mean paths of the first problem, {problem.label}; the centre of the loss is the last mark"
        charts.append(make_chart(lines, "first parameter", "second parameter", title=title, log_x=False))
    caption = f"f/60 above its minimum at ({plain(epsilon)}, 1e-8), mean ± half a 95% interval over {run.trials} "
    caption += "repeats: on figure 8's problem, and averaged over problems in each repeat. Intervals are Student's, "
    caption += f"{errors_over(run)}."
    heads = ["", "one problem", "mean over problems", "chosen on public problems"]
    return figure_contents(charts=charts, tables=[make_table(caption, heads, rows)], claims=claims)


def _claim(problem: Problem, own: str, where: str, values: dict[str, tuple[float, float]]) -> dict[str, Any]:
    ours = values[own]
    against = "; ".join(f"{name} {_text(values[name])}" for name in OTHERS)
    return make_claim(
        f"{problem.label}: {own} ends below SGD-Adv, SGD, AGD and L2P-Proj {where}, with 95% intervals that do not "
        "overlap.",
        all(quadratics.lies_below(ours, values[name]) for name in OTHERS),
        f"{_text(ours)}, against {against}; the start at the origin without data has "
        f"{number(values['no data: the origin'][0], 3)}.",
        ours=problem is not quadratics.PRINTED or "public" in own,
    )


def _text(interval: tuple[float, float]) -> str:
    return f"{number(interval[0], 3)} ± {number(interval[1], 3)}"
