"""Paper 000's utility: the metric of Eq. (4) where it can be computed exactly, and the rate of Theorem 5.2, measured.

Paper: Zhao, Ze, Dong, Wang, Li, "Differentially Private Temporal Difference Learning with Stochastic
Nonconvex-Strongly-Concave Optimization", Eq. (4), Theorem 5.2. Errata: docs/papers/000.md. Nothing here reads anybody's
data: transitions are drawn from a chain that is known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dprl import x64 as x64
from dprl.accounting.budget import Budget
from dprl.accounting.calibration import gaussian_noise_multiplier
from dprl.mechanisms.noise import SeededNoise
from dprl_papers.paper_000_dptd.privacy import feasible_beta, multiplier

ALPHA, OFFSET = 3.0, 3.0


@dataclass(frozen=True, eq=False)
class LinearProblem:
    """F(theta, w) = w'(b - A theta) - w'Cw/2: Eq. (3) for a linear value function.

    Attributes:
        A, b, C: ``(d, d)``, ``(d,)``, ``(d, d)``; C is symmetric and positive definite.
    """

    A: np.ndarray
    b: np.ndarray
    C: np.ndarray

    @cached_property
    def lipschitz(self) -> float:
        """L_F: the gradient is linear, and this is the norm of its symmetric matrix [[0, -A'], [-A, -C]]."""
        matrix = np.block([[np.zeros_like(self.C), -self.A.T], [-self.A, -self.C]])
        return float(np.abs(np.linalg.eigvalsh(matrix)).max())

    @cached_property
    def strong_concavity(self) -> float:
        """mu of Assumption 3.5: the smallest eigenvalue of C."""
        return float(np.linalg.eigvalsh(self.C)[0])

    def largest_steps(self) -> tuple[float, float]:
        """Return the largest kappa and eta of Theorem 5.2."""
        eta = self.strong_concavity / (4.0 * self.lipschitz**2)
        return eta * (self.strong_concavity / self.lipschitz) ** 2 / 9.0, eta


def slope(xs: Sequence[float] | np.ndarray, ys: np.ndarray) -> tuple[float, float]:
    """Return slope of log y against log x by least squares, and its standard error.

    Args:
        xs: ``(X,)`` positive, at least two different ones.
        ys: ``(S, X)`` positive, a row for each of at least two seeds: a line is fitted to each.
    """
    x = np.log(np.asarray(xs, dtype=np.float64))
    x = x - x.mean()
    slopes = np.log(np.asarray(ys, dtype=np.float64)) @ x / (x @ x)
    return float(slopes.mean()), float(slopes.std(ddof=1) / math.sqrt(len(slopes)))


# --- Theorem 5.2's rate on a chain ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Transitions:
    """A finite distribution of transitions over tabular states, drawn independently (Assumption 3.6).

    Attributes:
        state, following: ``(K,)`` indices; ``following`` is the number of states where s' is terminal.
        reward, probability: ``(K,)``.
        states: how many.
        discount: discount factor.
    """

    state: np.ndarray
    following: np.ndarray
    reward: np.ndarray
    probability: np.ndarray
    states: int
    discount: float

    @cached_property
    def differences(self) -> tuple[np.ndarray, np.ndarray]:
        """``(K, states)`` each: phi, and phi - gamma phi'."""
        eye = np.vstack([np.eye(self.states), np.zeros(self.states)])
        return eye[self.state], eye[self.state] - self.discount * eye[self.following]

    @cached_property
    def problem(self) -> LinearProblem:
        phi, difference = self.differences
        weighted = phi * self.probability[:, None]
        return LinearProblem(weighted.T @ difference, weighted.T @ self.reward, weighted.T @ phi)

    def gradient_bound(self) -> float:
        """Return G: the largest norm of (grad_theta f, grad_w f) with theta and w in [-1, 1].

        grad_theta f = -q (phi - gamma phi'), grad_w f = (delta - q) phi with q = w(s), so |delta - q| is largest at a
        corner where |q| = 1.
        """
        phi, difference = self.differences
        residual = np.abs(self.reward) + np.abs(difference).sum(axis=1) + 1.0
        return float(np.sqrt((difference**2).sum(axis=1) + residual**2 * (phi**2).sum(axis=1)).max())


def chain(states: int = 5, discount: float = 0.95) -> Transitions:
    """Return paper 004's chain with a few transient states, each as likely: it stays or goes on, and the end pays 1."""
    s = np.repeat(np.arange(states), 2)
    following = s + np.tile([0, 1], states)
    reward = (following == states).astype(np.float64)
    return Transitions(s, following, reward, np.full(2 * states, 0.5 / states), states, discount)


def random_mdp(states: int, seed: int, branches: int = 3, discount: float = 0.95) -> Transitions:
    """Return a random chain without an end: each state as likely, few random successors, and values within [0, 1]."""
    draw = np.random.default_rng(seed)
    s = np.repeat(np.arange(states), branches)
    chance = draw.dirichlet(np.ones(branches), states).ravel() / states
    reward = draw.uniform(0.0, 1.0 - discount, len(s))
    return Transitions(s, draw.integers(0, states, len(s)), reward, chance, states, discount)


@dataclass(frozen=True)
class Rate:
    """One line of the figure.

    Attributes:
        name, label: for the legend.
        units: n, of each point.
        steps: T.
        mean, spread: of Eq. (4) at the algorithm's output, and its standard deviation over seeds.
        predicted: exponent of n in the bound.
        slope, slope_error: fitted, in a log-log plot.
    """

    name: str
    label: str
    units: tuple[int, ...]
    steps: tuple[int, ...]
    mean: tuple[float, ...]
    spread: tuple[float, ...]
    predicted: float
    slope: float
    slope_error: float


def rates(
    units: Sequence[int],
    epsilon: float,
    delta: float,
    seeds: int = 10,
    seed: int = 0,
    most_steps: int = 100_000,
    transitions: Transitions | None = None,
) -> list[Rate]:
    """Return Theorem 5.2's metric against n, with its step sizes at their largest, on :func:`chain` by default.

    - published: one transition a step, Theorem 5.1's noise after the momentum, T = n epsilon/sqrt(d log(1/delta));
    - published, with the noise at which Theorem 5.1's conditions hold (the scale-free reading), where there is one;
    - verified: full batches, noise of z G/n with z = sqrt(T + 1)/mu before the momentum, with that T, and with the T
      at which the two parts of the bound are equal: 1/c^2, c = G sqrt(d)/(n mu), but at most ``most_steps``.

    Gradients of the verified rows are those of F itself: what a sample of n adds is left out. mu is that of Gaussian
    differential privacy. The expectation over the uniform choice of an iterate is taken exactly.
    """
    transitions = chain() if transitions is None else transitions
    G, d = transitions.gradient_bound(), transitions.states
    mu = 1.0 / gaussian_noise_multiplier(Budget(epsilon, delta))
    short = [max(1, round(n * epsilon / math.sqrt(d * math.log(1.0 / delta)))) for n in units]
    long = [min(most_steps, max(1, round((n * mu / G) ** 2 / d))) for n in units]
    after = [G * multiplier(n, T, epsilon, delta) for n, T in zip(units, short, strict=True)]
    feasible = [feasible_beta(n, T, epsilon, delta, "scale-free") for n, T in zip(units, short, strict=True)]
    enough = [
        None if b is None else G * multiplier(n, T, epsilon, delta, b)
        for n, T, b in zip(units, short, feasible, strict=True)
    ]
    before = lambda steps: [G * math.sqrt(T + 1) / (mu * n) for n, T in zip(units, steps, strict=True)]  # noqa: E731
    rows = (
        ("published", "published noise, T ∝ nε", short, after, False, -0.25),
        ("published-feasible", "published noise, conditions met", short, enough, False, -0.25),
        ("verified-short", "noise before momentum, T ∝ nε", short, before(short), True, -0.25),
        ("verified", "noise before momentum, T ∝ (nε)²", long, before(long), True, -0.5),
    )
    out = []
    for name, label, steps, noise, full, predicted in rows:
        kept = [i for i, sigma in enumerate(noise) if sigma is not None]
        if len(kept) < 2:
            continue
        found = np.stack([metrics(transitions, steps[i], noise[i], full, seeds, seed) for i in kept], axis=1)
        at = [units[i] for i in kept]
        out.append(
            Rate(
                name,
                label,
                tuple(at),
                tuple(steps[i] for i in kept),
                tuple(found.mean(axis=0).tolist()),
                tuple(found.std(axis=0, ddof=1).tolist()),
                predicted,
                *slope(at, found),
            )
        )
    return out


def metrics(transitions: Transitions, steps: int, noise: Any, full: bool, seeds: int, seed: int) -> np.ndarray:
    """Return ``(seeds,)`` means of Eq. (4) over the iterates t = 0 .. T - 1."""
    problem = transitions.problem
    phi, difference = transitions.differences
    tables = {
        "A": problem.A, "b": problem.b, "C": problem.C, "lipschitz": problem.lipschitz, "phi": phi,
        "difference": difference, "reward": transitions.reward, "logit": np.log(transitions.probability),
    }  # fmt: skip
    keys = jax.vmap(jax.random.key)(jnp.arange(seed, seed + seeds))
    sources = [SeededNoise.from_seed(s) for s in range(seed, seed + seeds)]
    draws = jax.tree.map(lambda *leaves: jnp.stack(leaves), *sources)
    total = _algorithm_1(tables, steps, float(noise), problem.largest_steps(), full, keys, draws)
    return np.asarray(total, dtype=np.float64) / steps


@jax.jit
def _algorithm_1(tables: Any, steps: Any, noise: Any, step_sizes: Any, full: Any, keys: Any, draws: Any) -> Any:
    """Return ``(S,)`` sums of Eq. (4) over the iterates of Algorithm 1, for tables, from zero in boxes [-1, 1]."""
    A, b, C = tables["A"], tables["b"], tables["C"]
    kappa, eta = step_sizes
    zero = jnp.zeros(len(b))

    def gradient(key: Any, draw: SeededNoise, theta: Any, w: Any, t: Any) -> Any:
        """Return what enters the momentum, and the noise that is added after it."""
        u = noise * draw.normals(t, 2 * len(b)).reshape(2, len(b))
        k = jax.random.categorical(jax.random.fold_in(key, t), tables["logit"])
        phi, difference = tables["phi"][k], tables["difference"][k]
        q = phi @ w
        one = jnp.stack([-q * difference, (tables["reward"][k] - difference @ theta - q) * phi])
        mean = jnp.stack([-A.T @ w, b - A @ theta - C @ w])
        return jnp.where(full, mean + u, one), jnp.where(full, 0.0, u)

    def run(key: Any, draw: SeededNoise) -> Any:
        def step(t: Any, carry: Any) -> Any:
            theta, w, p, total = carry
            moved = jnp.clip(theta - kappa * p[0], -1.0, 1.0) - theta
            best = jnp.clip((b - A @ theta) / jnp.diag(C), -1.0, 1.0)  # C is diagonal: tabular
            away = jnp.linalg.norm(-A.T @ w - p[0])
            total += jnp.linalg.norm(moved) / kappa + away + tables["lipschitz"] * jnp.linalg.norm(w - best)
            nu = 0.25 / jnp.sqrt(t + OFFSET)
            theta = theta + nu * moved
            w = w + nu * (jnp.clip(w + eta * p[1], -1.0, 1.0) - w)
            g, u = gradient(key, draw, theta, w, t + 1)
            return theta, w, (1.0 - ALPHA * nu) * p + ALPHA * nu * g + u, total

        return jax.lax.fori_loop(0, steps, step, (zero, zero, sum(gradient(key, draw, zero, zero, 0)), jnp.zeros(())))[
            3
        ]

    return jax.vmap(run)(keys, draws)
