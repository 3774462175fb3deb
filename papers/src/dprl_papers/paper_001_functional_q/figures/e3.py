"""Appendix E.3 recomputed, and an audit

Where: Theorem 5, Lemma 8, appendix E.3

Statement: Thus k = 23 will be sufficient. Plugging this k value back to v we have v = 6.19e-5, when α = 3e-4. Finally
we target high-privacy regime ε = 0.9 and plug in L² = 16 and have σ ≈ 0.313.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from dprl.accounting.budget import Budget
from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import Run, figure_contents, make_claim, make_table
from dprl_papers.paper_001_functional_q import published
from dprl_papers.paper_001_functional_q.theory import largest_of_path, smallest_tail

EPSILON = (0.9, 0.45)
PAPERS_STDS = {0.9: 0.32, 0.45: 0.74}
FORMULAS = {
    "line 5, E.3": published.sigma_line_5,
    "Theorem 5": published.sigma_theorem_5,
    "proof": published.sigma_proof,
}
SAMPLES, BATCH = 5000, 64


def draw(run: Run) -> dict[str, Any]:
    """Draw appendix E.3 once more: three formulas, what the theorem asks, and an audit of what is released."""
    settings = [(epsilon, d) for epsilon in run.epsilon for d in (run.delta / 2.0, run.delta)]
    formulas = make_table(
        "σ by the three formulas that are printed (T = 5000, B = 64, α = 0.0003, k = 23, L² = 16; the paper uses 0.32 "
        "and 0.74).",
        ["", *(f"ε = {plain(e)}, δ = {plain(d)}" for e, d in settings)],
        [
            [name, *(number(formula(Budget(epsilon, d), SAMPLES, BATCH), 3) for epsilon, d in settings)]
            for name, formula in FORMULAS.items()
        ],
    )
    v = published.variation(BATCH)
    paths = make_table(
        f"β = 1/v with v = 4α(k + 1)/B = {number(v)} is {number(1.0 / v, 0)} (printed 6.19e-5: 16,155). E max of a "
        "path with σ = 1, by simulation, against 8.68 sqrt(β).",
        ["β", "E max", "8.68 sqrt(β)"],
        [[plain(b), number(largest_of_path(b, 300), 2), number(8.68 * math.sqrt(b), 1)] for b in (1.0, 20.0, 2222.0)],
    )
    found = {epsilon: _audit(run, epsilon) for epsilon in run.epsilon}
    audits = make_table(
        "Audit of Algorithm 1 as published: rewards r and r + 1, Q at 17 states, 95% confidence.",
        ["σ", "claimed ε", "at least", "runs that were counted, a side"],
        [
            [plain(PAPERS_STDS[e]), plain(e), number(one.epsilon_lower, 2), plain(one.bound.trials)]
            for e, one in found.items()
        ],
    )
    claim = make_claim(
        "Algorithm 1 is (0.9, 1e-4)-differentially private at σ = 0.32.",
        not found[0.9].violated,
        f"its epsilon is at least {number(found[0.9].epsilon_lower, 2)} with 95% confidence.",
    )
    return figure_contents(tables=[formulas, _tails(run, v), paths, audits], claims=[claim])


def _tails(run: Run, v: float) -> dict[str, Any]:
    rows = []
    for epsilon in run.epsilon:
        for name, formula in FORMULAS.items():
            at = partial(formula, Budget(epsilon, run.delta / 2.0), SAMPLES, BATCH)
            k, there = smallest_tail(lambda k, at=at: at(tail=k))
            found = "none below 100,000" if k is None else plain(k)
            rows.append([plain(epsilon), name, found, "–" if there is None else number(there, 1)])
        std = PAPERS_STDS[epsilon]
        printed = f"2k = 46 against {number(8.68 * std / math.sqrt(v), 0)}"
        rows.append([plain(epsilon), f"σ = {plain(std)}, k = 23", printed, plain(std)])
    caption = "Smallest k at which 2k − 8.68 sqrt(β) σ(k) leaves a tail of δ/2 for 78 paths, and σ there."
    return make_table(caption, ["ε", "formula", "k", "σ"], rows)


def _audit(run: Run, epsilon: float) -> Any:
    from dprl.audits.lower_bound import run_attack
    from dprl.environments.interval_walk import IntervalWalk
    from dprl.learning.learning_plan import make_learning_plan
    from dprl_papers.paper_001_functional_q.attack import canary_of_plan
    from dprl_papers.paper_001_functional_q.published import PublishedQ

    walk = IntervalWalk()
    config = PublishedQ(published_std=PAPERS_STDS[epsilon])
    canary = canary_of_plan(make_learning_plan(config, walk.facts, Budget(epsilon, run.delta)), walk)
    trials, selection = (120, 30) if run.quick else (400, 800)
    return run_attack(canary, trials=trials, selection_trials=selection, seed=run.seed)
