"""Figures of the documents: ``python -m benchmarks.figures`` draws them into docs/images.

Widths come from ``dprl plan`` and beliefs from Bayes' rule. The other figures are drawings.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

import dprl

IMAGES = Path(__file__).parents[1] / "docs" / "images"
BLUE, ORANGE, GREEN, GREY = "#0b5c8a", "#b5540a", "#2f7d4f", "#666666"
DELTA, EPSILONS, PEOPLE = 1e-6, (0.1, 1.0, 3.0), (500, 2_000, 10_000)


def half_widths(units: int, epsilon: float) -> tuple[float, float]:
    """Return the half-width of an interval from ``dprl plan``, for privacy noise alone and with sampling error.

    Half-widths are shares of the reward's range. The log has one decision with a reward in [0, 1] and importance ratios
    of at most 2. The privacy unit is a person.
    """
    bounds = dprl.Bounds(
        units=units, horizon=1, reward=(0, 1), observation=((0, 1),), actions=2, max_importance_ratio=2
    )
    policies, budget = [lambda states: np.tile([0.0, 1.0], (len(states), 1))], dprl.Budget(epsilon, DELTA)
    plan = dprl.make_plan(dprl.ImportanceSampling(discount=1.0), bounds, budget, policies, unit="person")
    (expected,) = plan.expectation()
    return expected["interval_half_width_at_least"], expected["interval_half_width_at_most"]


def table() -> str:
    """Return the README's table of half-widths, in percent of the range."""
    cells = {(n, e): tuple(f"{100 * width:.2g}" for width in half_widths(n, e)) for n in PEOPLE for e in EPSILONS}
    head = [f"| People | {' | '.join(f'epsilon {e:g}' for e in EPSILONS)} |", "|---|---|---|---|"]
    rows = [f"| {n:,} | {' | '.join('{1} ({0})'.format(*cells[n, e]) for e in EPSILONS)} |" for n in PEOPLE]
    return "\n".join([*head, *rows])


def widths(axes: Axes) -> None:
    """Draw the half-width against the number of people, one line for each epsilon."""
    people = np.unique(np.geomspace(200, 100_000, 24).astype(int))
    for epsilon, colour in zip(EPSILONS, (ORANGE, BLUE, GREEN), strict=True):
        both = np.array([half_widths(int(n), epsilon) for n in people])
        axes.plot(people, 100 * both[:, 1], color=colour, label=f"epsilon {epsilon:g}")
    floor = [100 * 1.959964 * np.sqrt(0.5 / n) for n in people]
    axes.plot(people, floor, color=GREY, linestyle="--", label="sampling alone, without privacy")
    axes.set(xscale="log", yscale="log", xlabel="people in the log", ylabel="half-width, % of the reward's range")
    axes.set_yticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
    axes.legend(frameon=False)


def beliefs(axes: Axes) -> None:
    """Draw an adversary's belief after the release against the belief before it."""
    before = np.linspace(0.0, 1.0, 201)
    for epsilon, colour in zip(EPSILONS, (ORANGE, BLUE, GREEN), strict=True):
        low, high = (before / (before + (1 - before) * np.exp(-sign * epsilon)) for sign in (-1, 1))
        axes.fill_between(100 * before, 100 * low, 100 * high, color=colour, alpha=0.14, linewidth=0)
        axes.plot(100 * before, 100 * high, color=colour, label=f"epsilon {epsilon:g}")
        axes.plot(100 * before, 100 * low, color=colour)
    axes.plot([0, 100], [0, 100], color=GREY, linestyle="--", label="learns nothing")
    axes.set(xlabel="belief before the release, %", ylabel="belief afterwards, %", xlim=(0, 100), ylim=(0, 100))
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def box(axes: Axes, x: float, y: float, text: str, colour: str = BLUE, **how: Any) -> None:
    """Write a text in a rounded box."""
    style = {"boxstyle": "round,pad=0.45", "facecolor": "white", "edgecolor": colour, "linewidth": 1.4}
    axes.text(x, y, text, ha="center", va="center", bbox=style, linespacing=1.35, **how)


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], text: str = "", **how: Any) -> None:
    """Draw an arrow, with a word beside its middle."""
    style = {"arrowstyle": "-|>", "color": GREY, "linewidth": 1.3, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, start, arrowprops=style)
    if text:
        axes.text((start[0] + end[0]) / 2, (start[1] + end[1]) / 2, text, color=GREY, style="italic", **how)


def data_flow(axes: Axes) -> None:
    """Draw the way of the data: what stays with the curator, and what is published."""
    axes.set(xlim=(0, 104), ylim=(0, 46))
    axes.add_patch(
        FancyBboxPatch((1, 9), 69, 34, boxstyle="round,pad=0.6", facecolor="#f1f5f8", edgecolor=GREY, linestyle="--")
    )
    axes.text(3, 39.5, "with the curator: private", color=GREY, weight="bold", va="center")
    for x, text in ((9, "log\n(one row\nper step)"), (26.5, "clip\nper person"), (43.5, "exact sum"), (60, "noise")):
        box(axes, x, 24, text, ORANGE if text == "noise" else BLUE)
    for start, end in ((14.2, 20.0), (32.6, 37.4), (49.6, 56.6), (63.3, 77)):
        arrow(axes, (start, 24), (end, 24))
    box(axes, 92, 37, "values, intervals,\npolicy", GREEN)
    box(axes, 92, 24, "report", GREEN)
    box(axes, 92, 11, "certificate", GREEN)
    axes.plot([77, 77], [11, 37], color=GREY, linewidth=1.3)
    for y, x in ((37, 82.6), (24, 87), (11, 85.5)):
        arrow(axes, (77, y), (x, y))
    box(axes, 21, 3.2, "ledger: the gate, charged before a row is read", ORANGE)
    arrow(axes, (9, 6.0), (9, 18.2))
    axes.text(92, 44.0, "what others see", color=GREY, weight="bold", ha="center", va="center")
    axes.text(43.5, 15.2, "in whole numbers, without rounding", color=GREY, ha="center")


def chooser(axes: Axes) -> None:
    """Draw a chart that leads from questions to a command and an algorithm."""
    axes.set(xlim=(0, 104), ylim=(0, 100))
    questions = (
        ("Is a log there,\nor do people arrive?", "they arrive", "dprl train dp-pg"),
        ("Is only the reward\nfunction private?", "yes", "dprl train functional-q"),
        ("Do you have a policy\nto be judged?", "no", "dprl learn"),
        ("Are behaviour\nprobabilities known?", "no", "stratified\n(the default there)"),
        ("Is the outcome a time,\nand do people leave early?", "yes", "survival"),
        ("Who benefits, as a function\nof covariates?", "yes", "best-linear-projection"),
        ("Do you need a\nvalue function?", "no", "importance-sampling, or\ndoubly-robust if states tell rewards"),
    )
    for row, (question, word, result) in enumerate(questions):
        y = 95 - 13.2 * row
        box(axes, 27, y, question)
        box(axes, 79, y, result, GREEN)
        arrow(axes, (46.5, y), (57, y), word, ha="center", va="bottom")
        other = {"yes": "no", "no": "yes", "they arrive": "a log"}[word]
        arrow(axes, (27, y - 3.9), (27, y - 9.2), f"  {other}", ha="left", va="center")
    box(axes, 27, 3, "recommended (the default)", GREEN)


FIGURES = {"widths": (widths, 6.4, 3.8), "belief": (beliefs, 6.2, 4.2)}
DRAWINGS = {"data-flow": (data_flow, 9.2, 3.9), "chooser": (chooser, 7.4, 8.2)}


def main() -> None:
    """Draw every figure, and print the README's table."""
    settings: dict[Any, Any] = {"font.size": 10, "svg.fonttype": "path", "svg.hashsalt": "dprl"}
    settings |= {"axes.spines.top": False, "axes.spines.right": False}
    with mpl.rc_context(settings):
        for name, (draw, width, height) in (FIGURES | DRAWINGS).items():
            figure, axes = plt.subplots(figsize=(width, height), layout="constrained")
            if name in DRAWINGS:
                axes.axis("off")
            draw(axes)
            figure.savefig(IMAGES / f"{name}.svg", metadata={"Date": None})
            plt.close(figure)
    print(table())


if __name__ == "__main__":
    main()
