"""Figure 4: protectors from other tasks

Where: D(f) and Figure 4

Statement: It turns out that visually similar class sets, e.g., {4, 6} (auxiliary) to {3, 5} (protected), yields better
accuracies while less similar ones still show performance above the best baseline.

Extra: digits
"""

from __future__ import annotations

from typing import Any

from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import Run, drawn, make_claim, make_table, mean_text
from dprl_papers.paper_002_l2p import classifiers
from dprl_papers.paper_002_l2p.returns import RUNS

EPSILON = (0.8,)
BASELINES = ("SGD-MA", "AGD", "objective perturbation")
SETS: tuple[tuple[int, ...], ...] = ((4, 6), (8, 9), (0, 1), classifiers.OTHERS)


def draw(run: Run) -> dict[str, Any]:
    """Draw protectors that were trained on other digits, at work on 3 against 5."""
    (epsilon,), runs = run.epsilon, min(run.trials, RUNS)
    found = {m: run.kept(classifiers.measure, run, m, "logistic", "digits", epsilon, runs) for m in BASELINES}
    for digits in SETS:
        name = "L2P from " + ", ".join(map(str, digits))
        found[name] = run.kept(classifiers.mismatched, run, digits, "logistic", epsilon, runs)
    means = {name: sum(at["accuracy"]) / len(at["accuracy"]) for name, at in found.items()}
    best = max(means[name] for name in BASELINES)
    worst = min(mean for name, mean in means.items() if name.startswith("L2P"))
    caption = f"Logistic regression of 3 against 5 at ({plain(epsilon)}, 1e-8): accuracy on what is left out and "
    caption += f"training loss, mean ± standard error over {runs} runs."
    rows = [[name, mean_text(at["accuracy"], 3), mean_text(at["loss"], 3)] for name, at in found.items()]
    claim = make_claim(
        "Less similar auxiliary classes still show performance above the best baseline.",
        worst > best,
        f"the worst protector has {number(worst, 3)}, the best baseline {number(best, 3)}.",
    )
    return drawn(tables=[make_table(caption, ["", "accuracy", "training loss"], rows)], claims=[claim])
