"""A language model: users are prompts

Where: Introduction: “in RL-based training of large language models, user prompts may contain private information”

Note: A decoder of 18,285 weights, trained on public text that answers as users mean it 35 times in 100; prompts are an
instruction and four digits, and a rule checks answers. A user is a prompt. Policy gradient: the user says which of
eight answers are right, and their mean is the baseline of the eight. Comparisons: the user prefers one of two answers
of the public start, and a reward model is fitted privately; a policy is then optimised against it by policy gradient on
made-up prompts, or imitates its favourites of eight answers of the start. One pass, batches of 64, square-root noise;
“no noise” keeps the clip.
"""

from __future__ import annotations

from typing import Any

from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import (
    Run,
    figure_contents,
    make_chart,
    make_claim,
    make_line,
    mean_text,
    table_over,
)
from dprl_papers.paper_003_dp_pg import language
from dprl_papers.paper_003_dp_pg.language import COMPARISONS, FAVOURITES, GRADIENT, SMALL, START, measured
from dprl_papers.paper_003_dp_pg.returns import name_of

VALUES = (256, 1024, 4096)
QUICK = (64, 128)
EPSILON = (1.0, 4.0)
SEEDS = 3
GAINS = {GRADIENT: 2.0, COMPARISONS: 1.5, FAVOURITES: 1.5}
"""By what factor the share of right answers is to rise with the most prompts."""


def draw(run: Run) -> dict[str, Any]:
    """Draw the share of right answers over the number of prompts, for all ways of learning."""
    seeds = min(run.trials, SEEDS)
    start = run.values_of(measured, SMALL, START, 0, None, run.delta, run.seed, seeds)
    found = {}
    for way, epsilon in ((way, epsilon) for way in GAINS for epsilon in (*run.epsilon, None)):
        measure = (language.measured_favourites,) if way == FAVOURITES else (measured, SMALL, way)
        at = {
            n: run.values_of(*measure, n, epsilon, run.delta, run.seed, seeds)  # type: ignore[arg-type]
            for n in run.whole
        }
        found[f"{way}, {name_of(epsilon)}"] = at
    most, before = max(run.whole), float(start.mean())
    claims = [
        make_claim(
            f"At N = {plain(most)} and ε = {plain(epsilon)} {way}: {plain(gain)} times as many right answers.",
            float(found[f"{way}, {name_of(epsilon)}"][most].mean()) >= gain * before,
            f"{mean_text(found[f'{way}, {name_of(epsilon)}'][most], 3)} against {number(before, 3)} at the start.",
            ours=True,
        )
        for way, gain in GAINS.items()
        for epsilon in run.epsilon
    ]
    lines = [
        make_line(
            name,
            at,
            look="private" if "ε" in name else "none",
            dash=[name.startswith(way) for way in GAINS].index(True),
        )
        for name, at in found.items()
    ]
    found[START] = dict.fromkeys(run.whole, start)
    lines.append(make_line(START, found[START], look="bound"))
    what = "share of right answers to 4,096 held-out prompts, one drawn for each"
    return figure_contents(
        charts=[make_chart(lines, "prompts N", "share of right answers")],
        tables=[table_over(found, "N", what, seeds)],
        claims=claims,
    )
