"""Figure 4: protectors from other tasks

Where: D(f) and Figure 4

Statement: It turns out that visually similar class sets, e.g., {4, 6} (auxiliary) to {3, 5} (protected), yields better
accuracies while less similar ones still show performance above the best baseline.

Extra: digits
"""

from __future__ import annotations

from typing import Any

from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import Run, figure_contents, make_claim, make_table
from dprl_papers.paper_002_l2p import classifiers
from dprl_papers.paper_002_l2p.over_epsilon import OWN
from dprl_papers.paper_002_l2p.trainings import RUNS, error_text, errors_over, over_trainings

EPSILON = (0.8,)
BASELINES = ("SGD-MA", "AGD", "objective perturbation")
SETS: tuple[tuple[int, ...], ...] = ((4, 6), (8, 9), (0, 1), classifiers.OTHERS)


def draw(run: Run) -> dict[str, Any]:
    """Draw protectors that were trained on other digits, at work on 3 against 5."""
    (epsilon,), runs = run.epsilon, min(run.trials, RUNS)
    about = "logistic", "digits", epsilon, runs
    found = {m: over_trainings(run, classifiers.measure, m, *about, learned=False) for m in BASELINES}
    best, claims = max(at["accuracy"].mean() for at in found.values()), []
    for own in OWN:
        each = [over_trainings(run, classifiers.mismatched, own, digits, "logistic", epsilon, runs) for digits in SETS]
        found |= {f"{own}, from {', '.join(map(str, d))}": at for d, at in zip(SETS, each, strict=True)}
        worst = min(at["accuracy"].mean() for at in each)
        words = f"{own}: less similar auxiliary classes still show performance above the best baseline."
        text = f"from the worst classes {number(worst, 3)}, the best baseline {number(best, 3)}."
        claims.append(make_claim(words, bool(worst > best), text))
    caption = f"Logistic regression of 3 against 5 at ({plain(epsilon)}, 1e-8): accuracy on what is left out, training "
    caption += f"loss, and a protector's steps of 40 until the budget is spent: mean over {runs} runs ± standard "
    caption += f"error, {errors_over(run)}."
    rows = [
        [name, error_text(at["accuracy"]), error_text(at["loss"]), error_text(at["steps"], 1) if "steps" in at else "–"]
        for name, at in found.items()
    ]
    return figure_contents(
        tables=[make_table(caption, ["", "accuracy", "training loss", "steps"], rows)], claims=claims
    )
