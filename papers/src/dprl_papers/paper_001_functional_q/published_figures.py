"""Paper 001's figures of the published algorithm: figures 1 and 2, and appendix E.3."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dprl.accounting.budget import Budget
from dprl.report.formatting import number, plain
from dprl_papers.harness.figure_parts import make_claim, make_line, mean_text, or_dash, thinned
from dprl_papers.paper_001_functional_q import returns, theory
from dprl_papers.paper_001_functional_q.balle import balle_returns
from dprl_papers.paper_001_functional_q.returns import Point, Points

STDS, RESETS, PAPERS_STEP, LEARNING_STEP = (0.0, 0.1, 0.2, 0.4, 0.8), (1, 10, 78), 3e-4, 3.0


def as_published(key: Mapping[str, Any], points: Points) -> dict[str, Any]:
    """Algorithm 1 along its 78 updates, for noise levels and numbers of resets."""
    del points
    charts, rows, final = [], [], {}
    for step in (PAPERS_STEP, LEARNING_STEP):
        found = returns.published_curves(STDS, RESETS, step, key["seed"], key["trials"])
        for j, resets in enumerate(RESETS):
            lines = [
                make_line(
                    f"σ = {plain(std)}", [64 * (i + 1) for i in range(found.shape[-1])], found[i_std, j].T, dash=i_std
                )
                for i_std, std in enumerate(STDS)
            ]
            title = f"Learning rate {plain(step)}, J = {resets}"
            axes = {"x": "samples", "y": "return", "log_x": False, "log_y": False, "band": True}
            charts.append({"title": title, "lines": [thinned(line) for line in lines], **axes})
            rows.append([title, *(mean_text(found[i, j, :, -1]) for i in range(len(STDS)))])
            final[step, resets] = found[:, j, :, -1].mean(-1)
    quiet, middle = final[PAPERS_STEP, 78][0], final[LEARNING_STEP, 78]
    return {
        "charts": charts,
        "tables": [
            {
                "caption": f"Return after {key['trials']} runs of 78 updates (mean ± standard error); chance has "
                f"{returns.RANDOM}, the best policy {returns.BEST}.",
                "heads": ["", *(f"σ = {plain(std)}" for std in STDS)],
                "rows": rows,
            }
        ],
        "claims": [
            make_claim(
                "The algorithm is likely to converge with limited sub-optimality.",
                float(returns.normalised(quiet)) >= 0.8,
                f"without any noise the paper's 78 updates at {plain(PAPERS_STEP)} end at a normalised return of "
                f"{number(float(returns.normalised(quiet)), 2)} (0.8 is asked for).",
            ),
            make_claim(
                "With the increase of the noise level, the algorithm requires more samples.",
                bool(middle[0] > middle[-1]),
                f"at a learning rate of {plain(LEARNING_STEP)} (with the paper's it does not learn), J = 78: return "
                f"{number(float(middle[0]), 1)} without noise and {number(float(middle[-1]), 1)} at σ = "
                f"{plain(STDS[-1])}. Its noise is all the exploration that it has.",
            ),
        ],
    }


def as_they_ran(key: Mapping[str, Any], points: Points) -> dict[str, Any]:
    """Figure 2: each method with the noise that the paper gives it; the baselines learn as this library does."""
    (epsilon,), delta, seeds = key["epsilon"], key["delta"], key["trials"]
    sigma = {0.9: 0.32, 0.45: 0.74}.get(epsilon, 0.32)
    samples, batch = 4992, 64
    rewards = math.sqrt(2.0 * samples * math.log(1.25 / delta) * math.log(math.e + epsilon / delta)) / epsilon
    gradients = math.sqrt(2.0) * math.sqrt(samples / batch * math.log(1.0 / delta)) / epsilon
    # radius 1 on rewards in [0, 0.5]: half a person
    base = {"people": 0.5, "samples": samples, "batch": batch, "curve": True}
    runs = {
        "DQN, no privacy": Point(method="none", **base),
        "DQN, no privacy, 1 update a round": Point(method="none", updates=1 / batch, **base),
        "input perturbation": Point(method="observed-reward", multiplier=rewards, **base),
        "DP-SGD": Point(method="gradient", multiplier=gradients, network="mlp:32", step_size=PAPERS_STEP, **base),
    }
    found = {name: points.measured(point, seeds)["return"] for name, point in runs.items()}
    published = returns.published_curves([sigma], [78], PAPERS_STEP, key["seed"], seeds)[0, 0]
    found = {f"Algorithm 1, σ = {plain(sigma)}": published, **found}
    balle = balle_returns(epsilon, delta, seeds, key["seed"])
    lines = [
        thinned(
            make_line(name, [batch * (i + 1) for i in range(78)], values.T, look="none" if "no privacy" in name else "")
        )
        for name, values in found.items()
    ]
    lines.append({"label": "Balle et al.", "points": [[64.0, balle.mean(), balle.std()], [4992.0, balle.mean(), 0.0]]})
    ends = {name: float(returns.normalised(values[:, -1]).mean()) for name, values in found.items()}
    ends["Balle et al."] = float(returns.normalised(balle).mean())
    first = next(iter(ends))
    others = max(ends["input perturbation"], ends["DP-SGD"])
    return {
        "charts": [
            {"lines": lines, "x": "samples", "y": "return", "log_x": False, "log_y": False, "band": True},
        ],
        "tables": [
            {
                "caption": f"After {samples} samples, {seeds} seeds. Noise in a reward of input perturbation "
                f"{number(rewards)}, noise multiplier of DP-SGD {number(gradients)}; both for a radius of 1.",
                "heads": ["", "return", "normalised"],
                "rows": [
                    *([name, mean_text(values[:, -1]), number(ends[name], 2)] for name, values in found.items()),
                    ["Balle et al.", mean_text(balle), number(ends["Balle et al."], 2)],
                ],
            }
        ],
        "claims": [
            make_claim(
                "Our algorithm significantly outperforms input perturbation and DP-SGD.",
                ends[first] - others >= 0.3,
                f"normalised return {number(ends[first], 2)} against {number(others, 2)} of the better one (0.3 more "
                "is asked for).",
            ),
            make_claim(
                "Balle et al. shares similar performance with ours.",
                abs(ends["Balle et al."] - ends[first]) <= 0.2,
                f"normalised return {number(ends['Balle et al.'], 2)} against {number(ends[first], 2)} (within 0.2 is "
                "asked for).",
            ),
        ],
    }


def appendix_e3(key: Mapping[str, Any], points: Points) -> dict[str, Any]:
    """Appendix E.3 once more: three formulas, what the theorem asks, and an audit of what is released."""
    del points
    from dprl_papers.paper_001_functional_q import sigma

    delta, rows, tails = key["delta"], [], []
    formulas = (("line 5, E.3", sigma.sigma_line_5), ("Theorem 5", sigma.sigma_theorem_5), ("proof", sigma.sigma_proof))
    settings = [(epsilon, d) for epsilon in key["epsilon"] for d in (delta / 2.0, delta)]
    for name, formula in formulas:
        rows.append([name, *(number(formula(Budget(epsilon, d), 5000, 64), 3) for epsilon, d in settings)])
    v = sigma.variation(64)
    for epsilon, std in zip(key["epsilon"], (0.32, 0.74), strict=False):
        for name, formula in formulas:
            k, there = theory.smallest_tail(lambda k, f=formula, e=epsilon: f(Budget(e, delta / 2.0), 5000, 64, tail=k))
            tails.append([plain(epsilon), name, "none below 100,000" if k is None else plain(k), or_dash(there)])
        printed = 8.68 * std / math.sqrt(v)
        tails.append([plain(epsilon), f"σ = {plain(std)}, k = 23", f"2k = 46 against {number(printed, 0)}", plain(std)])
    found = {epsilon: _audit(epsilon, std, key) for epsilon, std in zip(key["epsilon"], (0.32, 0.74), strict=False)}
    one = found[0.9]
    return {
        "tables": [
            {
                "caption": "σ by the three formulas that are printed (T = 5000, B = 64, α = 0.0003, k = 23, L² = 16; "
                "the paper uses 0.32 and 0.74).",
                "heads": ["", *(f"ε = {plain(e)}, δ = {plain(d)}" for e, d in settings)],
                "rows": rows,
            },
            {
                "caption": "Smallest k at which 2k − 8.68 sqrt(β) σ(k) leaves a tail of δ/2 for 78 paths, and σ there.",
                "heads": ["ε", "formula", "k", "σ"],
                "rows": tails,
            },
            {
                "caption": f"β = 1/v with v = 4α(k + 1)/B = {number(v)} is {number(1.0 / v, 0)} (printed 6.19e-5: "
                "16,155). E max of a path with σ = 1, by simulation, against 8.68 sqrt(β).",
                "heads": ["β", "E max", "8.68 sqrt(β)"],
                "rows": [
                    [plain(b), number(theory.largest_of_path(b, 300), 2), number(8.68 * math.sqrt(b), 1)]
                    for b in (1.0, 20.0, 2222.0)
                ],
            },
            {
                "caption": "Audit of Algorithm 1 as published: rewards r and r + 1, Q at 17 states, 95% confidence.",
                "heads": ["σ", "claimed ε", "at least", "runs that were counted, a side"],
                "rows": [
                    [plain(std), plain(e), number(found[e].epsilon_lower, 2), plain(found[e].bound.trials)]
                    for e, std in zip(key["epsilon"], (0.32, 0.74), strict=False)
                ],
            },
        ],
        "lines": [],
        "claims": [
            make_claim(
                "Algorithm 1 is (0.9, 1e-4)-differentially private at σ = 0.32.",
                not one.violated,
                f"its epsilon is at least {number(one.epsilon_lower, 2)} with 95% confidence.",
            )
        ],
    }


def _audit(epsilon: float, std: float, key: Mapping[str, Any]) -> Any:
    from dprl.audits.lower_bound import audit
    from dprl.environments.interval_walk import IntervalWalk
    from dprl.learning.learning_plan import make_learning_plan
    from dprl_papers.paper_001_functional_q.attack import canary_of_plan
    from dprl_papers.paper_001_functional_q.published import PublishedQ

    walk = IntervalWalk()
    config = PublishedQ(published_std=std)
    canary = canary_of_plan(make_learning_plan(config, walk.facts, Budget(epsilon, key["delta"])), walk)
    return audit(
        canary, trials=120 if key["quick"] else 400, selection_trials=30 if key["quick"] else 800, seed=key["seed"]
    )
