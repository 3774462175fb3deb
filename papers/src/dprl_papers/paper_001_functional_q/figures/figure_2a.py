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

import numpy as np

from dprl.environments.interval_walk import LONGEST_MOVE, IntervalWalk
from dprl.mechanisms.noise import SeededNoise
from dprl.report.formatting import number, plain
from dprl_papers.baselines.smooth_gaussian import SmoothGaussian
from dprl_papers.baselines.smooth_sensitivity import psi_w
from dprl_papers.harness.programmed import (
    Run,
    figure_contents,
    make_chart,
    make_claim,
    make_line,
    make_table,
    mean_text,
)
from dprl_papers.paper_001_functional_q import returns
from dprl_papers.paper_001_functional_q.returns import GRID, PAPERS_STEP, Point, policy_returns

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
    return figure_contents(
        charts=[make_chart(lines, "samples", "return", log_x=False, band=True)],
        tables=[make_table(caption, ["", "return", "normalised"], rows)],
        claims=claims,
    )


# --- the policy evaluation of Balle, Gomrokchi and Precup (2016) ------------------------------------------------------

CELLS, EPISODES = 10, 100


def balle_returns(epsilon: float, delta: float, seeds: int, seed: int = 0) -> np.ndarray:
    """Return the ``(seeds,)`` returns of the greedy policies of Balle et al., as Figure 2 may have run their method.

    Paper 001 gives neither its features nor its policy. The reading here is: 100 episodes of random actions; DP-LSW,
    with its own noise, on the first-visit returns of 10 cells times 2 actions; and the greedy policy of the result. It
    protects a trajectory, under replacing one, and no reward function; docs/papers/balle-2016.md says what its noise
    guarantees.
    """
    cells = np.minimum((np.linspace(0.0, 1.0, GRID) * CELLS).astype(int), CELLS - 1)
    values = np.stack([noisy_values(epsilon, delta, i) for i in range(seed, seed + seeds)])
    return policy_returns(np.argmax(values[:, cells], axis=-1))


def noisy_values(epsilon: float, delta: float, seed: int) -> np.ndarray:
    """Return the ``(cells, actions)`` noisy values of one seed."""
    walk = IntervalWalk()
    horizon, discount = walk.horizon, walk.discount
    rng = np.random.default_rng([seed, 2016])
    actions = rng.integers(0, 2, (EPISODES, horizon))
    moves = np.where(actions == 1, 1.0, -1.0) * rng.uniform(0.0, LONGEST_MOVE, (EPISODES, horizon))
    states = np.empty((EPISODES, horizon))
    states[:, 0] = rng.random(EPISODES)
    for t in range(1, horizon):
        states[:, t] = np.clip(states[:, t - 1] + moves[:, t - 1], 0.0, 1.0)
    returns = 0.5 - np.abs(states - 0.5)
    for t in reversed(range(horizon - 1)):
        returns[:, t] += discount * returns[:, t + 1]
    pairs = 2 * np.minimum((states * CELLS).astype(int), CELLS - 1) + actions
    counts, totals = np.zeros(2 * CELLS), np.zeros(2 * CELLS)
    for episode in range(EPISODES):
        visited, first = np.unique(pairs[episode], return_index=True)
        counts[visited] += 1.0
        totals[visited] += returns[episode, first]
    mechanism = SmoothGaussian(epsilon=epsilon, delta=delta, dimension=2 * CELLS)
    width = walk.reward_bounds[1] * (1.0 - discount**horizon) / (1.0 - discount)
    bound = width * math.sqrt(psi_w(np.ones(2 * CELLS), counts, mechanism.beta))
    noise = SeededNoise.from_seed(seed).stream("balle")
    return mechanism.add_noise(totals / np.maximum(counts, 1.0), bound, noise).reshape(CELLS, 2)
