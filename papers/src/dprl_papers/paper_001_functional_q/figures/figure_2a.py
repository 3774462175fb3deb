"""Figure 2(a). All methods with the noise that the paper gives them, ε = 0.9

Where: Section 4, Figure 2(a), appendices E.2 and E.3; claims of (0.9, 1e-4)

Statement: The policy evaluation method proposed by Balle, Gomrokchi and Precup [...] shares similar performance with
ours. [...] Both the approaches [input perturbation, Abadi et al.] are differentially private under our setting, while
our algorithm significantly outperforms them.

Note: Radius 1, with rewards in [0, 0.5]: every two reward functions are neighbours, so no method that keeps its
promise can do well (figure “radius”). The baselines and DQN learn as this library's learner does; how they learned in
the paper is not said. Algorithm 1 claims what it has not (figure “e3”).
"""

from __future__ import annotations

import math
from typing import Any

from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import Run, drawn, make_chart, make_claim, make_line, make_table, mean_text
from dprl_papers.paper_001_functional_q import returns
from dprl_papers.paper_001_functional_q.balle import balle_returns
from dprl_papers.paper_001_functional_q.returns import PAPERS_STEP, Point

EPSILON = (0.9,)
SIGMA = {0.9: 0.32, 0.45: 0.74}
SAMPLES, BATCH = 4992, 64


def draw(run: Run) -> dict[str, Any]:
    """Draw each method with the noise that the paper gives it; the baselines learn as this library does."""
    (epsilon,), delta = run.epsilon, run.delta
    rewards = math.sqrt(2.0 * SAMPLES * math.log(1.25 / delta) * math.log(math.e + epsilon / delta)) / epsilon
    gradients = math.sqrt(2.0) * math.sqrt(SAMPLES / BATCH * math.log(1.0 / delta)) / epsilon
    # radius 1 on rewards in [0, 0.5]: half a person
    base = {"people": 0.5, "samples": SAMPLES, "batch": BATCH, "curve": True}
    runs = {
        "DQN, no privacy": Point(method="none", **base),
        "DQN, no privacy, 1 update a round": Point(method="none", updates=1 / BATCH, **base),
        "input perturbation": Point(method="observed-reward", multiplier=rewards, **base),
        "DP-SGD": Point(method="gradient", multiplier=gradients, network="mlp:32", step_size=PAPERS_STEP, **base),
    }
    first = f"Algorithm 1, σ = {plain(SIGMA[epsilon])}"
    found = {first: returns.published_curves([SIGMA[epsilon]], [78], PAPERS_STEP, run.seed, run.trials)[0, 0]}
    found |= {name: returns.measured(run, point)["return"] for name, point in runs.items()}
    balle = balle_returns(epsilon, delta, run.trials, run.seed)
    lines = [
        make_line(
            name,
            {BATCH * (t + 1): v for t, v in enumerate(values.T)},
            look="none" if "no privacy" in name else "private",
        )
        for name, values in found.items()
    ]
    lines.append({"label": "Balle et al.", "points": [[64.0, balle.mean(), balle.std()], [4992.0, balle.mean(), 0.0]]})
    last = {name: values[:, -1] for name, values in found.items()} | {"Balle et al.": balle}
    ends = {name: float(returns.normalised(values).mean()) for name, values in last.items()}
    others = max(ends["input perturbation"], ends["DP-SGD"])
    caption = (
        f"After {SAMPLES} samples, {run.trials} seeds. Noise in a reward of input perturbation {number(rewards)}, "
    )
    caption += f"noise multiplier of DP-SGD {number(gradients)}; both for a radius of 1."
    rows = [[name, mean_text(values), number(ends[name], 2)] for name, values in last.items()]
    claims = [
        make_claim(
            "Our algorithm significantly outperforms input perturbation and DP-SGD.",
            ends[first] - others >= 0.3,
            f"normalised return {number(ends[first], 2)} against {number(others, 2)} of the better one (0.3 more is "
            "asked for).",
        ),
        make_claim(
            "Balle et al. shares similar performance with ours.",
            abs(ends["Balle et al."] - ends[first]) <= 0.2,
            f"normalised return {number(ends['Balle et al.'], 2)} against {number(ends[first], 2)} (within 0.2 is "
            "asked for).",
        ),
    ]
    return drawn(
        charts=[make_chart(lines, "samples", "return", log_x=False, band=True)],
        tables=[make_table(caption, ["", "return", "normalised"], rows)],
        claims=claims,
    )
