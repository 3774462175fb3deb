"""Theorems 2 and 3, and the second moment, beside simulated errors

Where: Section 6, Theorems 2 and 3; chain, ε = 0.1, δ = 1e-5, one pass (m = N), start at zero, c₂ = 2

Statement: For this analysis, we assume that h is selected to be sufficiently large so that the l₂ norm of the gradient
estimate is not clipped. [...] We found this assumption held across all of our experiments.

Note: The constants that the theorems leave open are computed exactly, and bounds on the squared distance are turned
into an MSPBE by the largest eigenvalue of A'C⁻¹A. The second moment is that of the algorithm without clipping, and
without the noise of the draw. Simulated: Algorithm 1 in double precision, four runs on each of ten logs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dprl.engine.rows import rows_of
from dprl.report.formatting import number, plain
from dprl.value_functions.features import make_features
from dprl_papers.harness.domain import load_domain
from dprl_papers.harness.programmed import Run, figure_contents, make_claim, make_table
from dprl_papers.paper_004_gpope.published import noise_multiplier
from dprl_papers.paper_004_gpope.recursion import Recursion, second_moment
from dprl_papers.paper_004_gpope.theory import theory_curves

VALUES = (200, 1000, 5000, 20_000)
QUICK = (200, 1000)
EPSILON = (0.1,)
BOUNDS = ((1.0, 0.1), (0.01, 0.1))
SIMULATED = ((0.01, 0.1), (0.01, 1.0), (0.1, 0.03), (0.1, 0.1), (0.3, 0.1))
"""Clip norm h and step size beta."""
UNITS, LOGS, RUNS = 1000, 10, 4
NAMES = ("phi", "delta_phi", "weight", "rho", "reward")


def draw(run: Run) -> dict[str, Any]:
    """Draw both bounds and the second moment over m, and what is left of them where gradients are clipped."""
    (epsilon,), logs = run.epsilon, 2 if run.quick else LOGS
    recursion, variance = plain_recursion(), float(run.cached(variance_at_start, run.seed))
    theory = []
    for h, beta in BOUNDS:
        found = theory_curves(recursion, trajectories=run.whole, step_sizes=beta, clip_norm=h, epsilon=epsilon,
                              delta=run.delta, variance_at_start=variance)  # fmt: skip
        theory += [[f"{c.label}, h = {plain(h)}", *(number(x) for x in c.mspbe)] for c in found.curves]
    rows, clipped_by = [], {}
    for h, beta in SIMULATED:
        at = run.cached(simulated, h, beta, epsilon, run.delta, run.seed, logs)
        clipped_by[h] = at["share"]
        texts = [f"{number(m)} ± {number(e)}" for m, e in (at["free"], at["clipped"])]
        rows.append([plain(h), plain(beta), number(at["computed"]), *texts, f"{100.0 * at['share']:.0f}%"])
    caption = f"MSPBE at m = N = {plain(UNITS)} (mean ± standard error over {RUNS * logs} runs)."
    heads = ["h", "β", "computed", "simulated without clipping", "simulated with clipping", "gradients clipped"]
    words = "We found this assumption, that no gradient is clipped, held across all of our experiments."
    text = f"at h = {plain(SIMULATED[-1][0])} {100.0 * clipped_by[SIMULATED[-1][0]]:.0f}% of the gradients are clipped."
    return figure_contents(
        tables=[
            make_table("MSPBE, β = 0.1.", ["", *(f"m = N = {plain(m)}" for m in run.whole)], theory),
            make_table(caption, heads, rows),
        ],
        claims=[make_claim(words, max(clipped_by.values()) < 0.01, text)],
    )


def simulated(h: float, beta: float, epsilon: float, delta: float, seed: int, logs: int) -> dict[str, Any]:
    """Return the MSPBE of Algorithm 1's last iterate, ``free`` of a clip and ``clipped``, as mean and standard error.

    Beside them stand what is ``computed`` for the former, and the ``share`` of gradients that the latter clips.
    """
    recursion = plain_recursion()
    std = h * noise_multiplier(UNITS, UNITS, epsilon, delta)
    errors, shares = {True: [], False: []}, []
    for trial in range(seed, seed + logs):
        moments = _moments(trial)
        for clips, found in errors.items():
            theta, share = _last(moments, recursion, beta, h if clips else np.inf, std, trial)
            found += [recursion.mspbe(one) for one in theta]
            shares += [share] if clips else []
    moment = second_moment(recursion, beta, UNITS, std)
    spoken = {name: (float(np.mean(errors[c])), float(np.std(errors[c], ddof=1) / np.sqrt(RUNS * logs)))
              for name, c in (("free", False), ("clipped", True))}  # fmt: skip
    return {**spoken, "computed": moment.mspbe, "share": float(np.mean(shares))}


def plain_recursion() -> Recursion:
    """Return the recursion on the chain with indicators as features and rewards as they are, from zero."""
    domain = load_domain("chain")
    features = make_features(domain.features, domain.bounds(UNITS).observation)
    A, b, C = domain.moments(features)
    return Recursion(A / features.size, b / math.sqrt(features.size), C / features.size)


def variance_at_start(seed: int) -> float:
    """Return what stands for G^2: the variance of a trajectory's gradient at the start, where it is -b_i."""
    b = _moments(seed)[1]
    return float(((b - b.mean(axis=0)) ** 2).sum(axis=1).mean())


def _moments(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ``A, b, C`` of Eq. (2.2) of each trajectory of a log."""
    domain = load_domain("chain")
    log, features = domain.log(UNITS, seed), make_features(domain.features, domain.bounds(UNITS).observation)
    rows = rows_of(log, domain.ratios(log), features, domain.discount, (-1.0, 1.0), dtype=np.float64)
    scale, A, b, C = 1.0 / math.sqrt(features.size), [], [], []  # of an indicator with mean square one
    for first, end in zip(rows.offsets[:-1], rows.offsets[1:], strict=True):
        columns = (np.asarray(getattr(rows, name)[first:end], np.float64) for name in NAMES)
        phi, delta, weight, rho, reward = columns
        phi, delta = scale * phi, scale * delta
        A.append((phi * (weight * rho)[:, None]).T @ delta)
        b.append(phi.T @ (weight * rho * reward))
        C.append((phi * weight[:, None]).T @ phi)
    return np.array(A), np.array(b), np.array(C)


def _last(
    moments: tuple[np.ndarray, ...], recursion: Recursion, beta: float, h: float, std: float, seed: int
) -> tuple[np.ndarray, float]:
    """Return the last theta of some runs side by side, ``(RUNS, n)``, and how many of their gradients were clipped."""
    (A, b, C), n, rng, clipped = moments, recursion.features, np.random.default_rng(seed), 0.0
    x = np.tile(recursion.start, (RUNS, 1))
    for _ in range(UNITS):
        i, theta, w = rng.integers(0, len(b), RUNS), x[:, :n], x[:, n:]
        primal = -np.einsum("kij,ki->kj", A[i], w)
        dual = np.einsum("kij,kj->ki", A[i], theta) - b[i] + np.einsum("kij,kj->ki", C[i], w)
        gradient = np.concatenate([primal, dual], axis=1)
        length = np.linalg.norm(gradient, axis=1, keepdims=True)
        clipped += float(np.mean(length > h))
        gradient = gradient * np.minimum(1.0, h / np.maximum(length, 1e-300)) if np.isfinite(h) else gradient
        x = x - beta * (gradient + std * rng.normal(size=x.shape))
    return x[:, :n], clipped / UNITS
