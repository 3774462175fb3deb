"""A language model of 3.2 million weights

Where: Past the paper: the application that its introduction names, with more weights

Note: The task, the users, the steps and the noise of the figure above, all by policy gradient; a decoder of 3,168,525
weights in place of 18,285.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import Run, figure_contents, make_claim, mean_text, table_over
from dprl_papers.paper_003_dp_pg.language import GRADIENT, SMALL, START, SYMBOLS, Decoder, measured
from dprl_papers.paper_003_dp_pg.returns import name_of
from dprl_papers.paper_003_dp_pg.transformer import Transformer

VALUES = (1024, 4096)
QUICK = (64,)
EPSILON = (1.0, 4.0)
SEEDS, GAIN = 2, 2.0
LARGE = Decoder(
    model=Transformer(symbols=len(SYMBOLS), length=SMALL.model.length, width=256, heads=8, blocks=4, inner=1024),
    text_steps=800,
    text_rate=1e-3,
)


def draw(run: Run) -> dict[str, Any]:
    """Draw the share of right answers over the number of prompts."""
    seeds, decoder = min(run.trials, SEEDS), replace(LARGE, text_steps=4) if run.quick else LARGE
    start = run.values_of(measured, decoder, START, 0, None, run.delta, run.seed, seeds)
    found = {
        name_of(epsilon): {
            n: run.values_of(measured, decoder, GRADIENT, n, epsilon, run.delta, run.seed, seeds) for n in run.whole
        }
        for epsilon in (*run.epsilon, None)
    }
    most, before = max(run.whole), float(start.mean())
    claims = [
        make_claim(
            f"At N = {plain(most)} and ε = {plain(epsilon)}: {plain(GAIN)} times as many right answers.",
            float(found[name_of(epsilon)][most].mean()) >= GAIN * before,
            f"{mean_text(found[name_of(epsilon)][most], 3)} against {number(before, 3)} at the start.",
            ours=True,
        )
        for epsilon in run.epsilon
    ]
    found["public start"] = dict.fromkeys(run.whole, start)
    what = "share of right answers to 4,096 held-out prompts, one drawn for each"
    return figure_contents(tables=[table_over(found, "N", what, seeds)], claims=claims)
