"""``python -m benchmarks.errata``: print the numbers of errata in ``docs/papers`` that follow from a formula.

Numbers that are measured in runs are in a figure (``dprl reproduce``) or in a test. These are the others, one per line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import stats
from scipy.integrate import quad
from scipy.linalg import solve_discrete_lyapunov
from scipy.special import logsumexp

from dprl.accounting import events
from dprl.accounting.accountant import epsilon_of
from dprl.accounting.budget import Budget
from dprl.accounting.calibration import noise_multiplier_for
from dprl.environments.cart_pole import CartPole
from dprl_papers.baselines.smooth_gaussian import SmoothGaussian, smooth_epsilon
from dprl_papers.first_sum import initial_release_epsilon
from dprl_papers.paper_000_dptd.privacy import JOINT, best_beta, multiplier, renyi_order, weights
from dprl_papers.paper_000_dptd.theory import chain
from dprl_papers.paper_003_dp_pg.published import noise_multipliers
from dprl_papers.paper_004_gpope.figures.moments import plain_recursion, variance_at_start
from dprl_papers.paper_004_gpope.recursion import Recursion, second_moment
from dprl_papers.paper_004_gpope.theory import Bound

Number = tuple[str, str, Any]
"""The erratum, what the number is, and the number."""


def of_paper_000() -> Iterator[Number]:
    """Yield numbers of E1, E3, E5, E13 and of figures ``2a``, ``privacy`` and ``slope``."""
    delta, units, steps = 1e-5, 1000, 1000
    sigma = multiplier(10_000, steps, 1.0, delta)
    yield "000 E1", "epsilon of the initial gradients", initial_release_epsilon(10_000, sigma, JOINT, delta)
    last = weights(steps)[-1]
    yield "000 E1", "noise of late gradients over what they need, T = 1000", 1.0 / last
    rho = (math.sqrt(1.0 - math.log(delta)) - math.sqrt(-math.log(delta))) ** 2
    yield "000 E3", "T over n^2 at least, by (i), epsilon 1", 0.2 * rho
    yield "000 E3", "n = T at most, by (i)", 5.0 / rho
    order, square = renyi_order(1.0, delta, best_beta(1.0, delta)), multiplier(240, 240, 1.0, delta) ** 2
    most = 2.0 / 3.0 * square * math.log(240 / (order * (1.0 + square / 4.0)))
    yield "000 E3", "left side of (ii), n = T = 240", order - 1.0
    yield "000 E3", "right side of (ii)", most
    yield "000 E5", "largest |grad_w f|, all weights 1, s' = -s", largest_dual_gradient(50)
    for over in (24, 27, 8):
        yield "000 E13", f"first t with nu_t at most 1/{over}", math.ceil((over / 4.0) ** 2 - 3.0)
    for epsilon in (0.1, 1.0, 10.0, 100.0):
        yield "000 2a", f"sigma over G on Cart Pole, epsilon {epsilon:g}", multiplier(411, 41_099, epsilon, delta)
    event = events.poisson_gaussian(1.0 / units, multiplier(units, 100_000, 1.0, delta) / JOINT, 100_000)
    yield "000 privacy", "epsilon, 2 G in each of 100,000 steps", epsilon_of(event, delta)
    z = noise_multiplier_for(lambda z: events.poisson_gaussian(1.0 / units, z, steps), Budget(0.1, delta))
    yield "000 privacy", "noise of the last step before the momentum, epsilon 0.1", z * last
    yield "000 privacy", "behind the momentum over that", multiplier(units, steps, 0.1, delta) / (z * last)
    five = chain()
    yield "000 slope", "L_F on the chain of five", five.problem.lipschitz
    yield "000 slope", "mu", five.problem.strong_concavity
    yield "000 slope", "G", five.gradient_bound()


def largest_dual_gradient(hidden: int) -> float:
    """Return the largest |(delta - q) Psi| over the dual box of an ELU network on Cart Pole whose weights are all 1."""
    elu = lambda x: np.where(x > 0.0, x, np.expm1(x))  # noqa: E731
    value = lambda state: hidden * elu(state.sum() + 1.0) + 1.0  # noqa: E731
    state = np.array([high for _, high in CartPole().observation_bounds])
    layer = np.append(np.tile(np.append(state, 1.0), hidden), np.full(hidden, elu(state.sum() + 1.0)))
    gradient = np.append(layer, 1.0)
    error = 1.0 + 0.95 * value(-state) - value(state)
    return float((abs(error) + gradient.sum()) * np.linalg.norm(gradient))


def of_paper_001() -> Iterator[Number]:
    """Yield numbers of E7, E9, E15, E20, E21 and E23."""
    yield "001 E7", "probability that the path exceeds its bound, at least", stats.norm.sf(8.68 * 0.1 + 5.0, scale=10.0)
    yield "001 E7", "as printed", math.exp(-(5.0**2) / 2.0)
    yield "001 E9", "largest variance of Eq. (2) in 20,000 draws", printed_variances(20_000, 0).max()
    yield "001 E15", "u", math.sqrt(2.0 * math.log(78 / 5e-5))
    yield "001 E15", "probability that 78 paths exceed 3.87", 78 * math.exp(-(3.87**2) / 2.0)
    yield "001 E20", "E|v' - v*| where every state stays", math.sqrt(2.0 / math.pi) / 0.1
    for n in (1, 10, 100, 1000):
        where = "001 E21" if n == 1 else "001 E20"
        yield where, f"Proposition 10, n = {n}", 2.0 * math.sqrt(2.0 / (n * math.pi)) / 0.1
    largest, _ = quad(lambda x: 100.0 * x * stats.norm.pdf(x) * stats.norm.cdf(x) ** 99, -8.0, 8.0)
    yield "001 E21", "E(v' - v*) where 100 actions stay in one state", largest / 0.1
    for side in (9, 17, 33, 65, 129):
        at = np.linspace(0.0, 1.0, side)
        inverse = np.linalg.inv(np.exp(-2.0 * np.abs(at[:, None] - at)))
        for name, f in (("|x - y|", np.abs(at[:, None] - at)), ("x y", np.outer(at, at))):
            # the kernel is a product, so that its inverse is the product of the components' inverses
            yield (
                "001 E23",
                f"f' K^-1 f of {name}, beta = 2, {side} points a side",
                float(np.sum(f * (inverse @ f @ inverse))),
            )


def printed_variances(count: int, seed: int) -> np.ndarray:
    """Return ``(count,)`` values of d in Eq. (2), each at a random point between two random neighbours.

    beta is drawn from 0.01 to 100.
    """
    rng = np.random.default_rng(seed)
    low, s, high = np.sort(rng.random((count, 3)), axis=1).T
    beta = 10.0 ** rng.uniform(-2.0, 2.0, count)
    a, b, whole = beta * (s - low), beta * (high - s), beta * (high - low)
    # the printed fractions, each over exp(whole), so that nothing overflows
    parts = [(1.0 - np.exp(-2.0 * x)) * np.exp(2.0 * x - whole) for x in (a, b)]
    return 1.0 - sum(parts) / -np.expm1(-2.0 * whole)


def of_paper_002(step: float = 0.1, batch: int = 20) -> Iterator[Number]:
    """Yield numbers of E19 and E20, for noisy gradient steps with eta L = ``step`` from the minimum of L x^2/2."""
    kept = (1.0 - step) ** 2
    yield "002 E19", "left side over right, m = 20", (1.0 - kept**batch) / (1.0 - kept)
    later = np.arange(1, batch)
    yield (
        "002 E20",
        "variance of a batch's mean loss over B.4's, 20 steps",
        1.0 + 2.0 * (1.0 - later / batch) @ kept**later,
    )


def of_paper_003() -> Iterator[Number]:
    """Yield numbers of E3, E5 and E7."""
    for epsilon in (8.0, 9.0, 20.0):
        stds = noise_multipliers(Budget(epsilon, 1e-6))
        for name in ("as published", "replace one"):
            yield "003 E3", f"noise over the sensitivity, {name}, epsilon {epsilon:g}", stds[name] / 2.0
    c = noise_multipliers(Budget(1.0, 1e-6))["as published"]
    yield "003 E5", "c", c
    yield "003 E5", "c^4", c**4
    yield "003 E5", "c^4 d^2, d = 36", c**4 * 36**2
    yield "003 E5", "c^4 d^2, d = 2", c**4 * 4
    hessian = 10.0 * np.array([[0.25, -0.25], [-0.25, 0.25]])  # lambda (diag(pi) - pi pi'), equal probabilities
    yield "003 E7", "largest curvature of the barrier, |A| = 2, lambda = 10", np.linalg.eigvalsh(hessian)[-1]


def of_paper_004() -> Iterator[Number]:
    """Yield numbers of E2, E3, E5, E9 to E11, E13, E14 and of the table of constants."""
    m, std = 200, 2.0 * math.sqrt(math.log(1e5) / 200)
    least = min(4.0 * math.expm1(1.0 / std**2), 2.0 * math.exp(1.0 / std**2))
    yield "004 E2", "sigma", std
    for alpha in (3, 4, 8):
        kept = math.comb(alpha, 2) * least / m**2
        dropped = sum(
            math.comb(alpha, j) * 2.0 * math.exp((j - 1) * j / (2.0 * std**2)) / m**j for j in range(3, alpha + 1)
        )
        yield "004 E2", f"alpha = {alpha}, kept", kept
        yield "004 E2", f"alpha = {alpha}, dropped", dropped
    for moment in (1, 2, 4):
        yield "004 E3", f"lambda = {moment}, Lemma 1", moment * (moment + 1) / (2.0 * m**2) * least
        for distance in (1.0, 2.0):
            k = np.arange(moment + 2)
            terms = [
                math.log(math.comb(moment + 1, i)) + (moment + 1 - i) * math.log1p(-1 / m) - i * math.log(m) for i in k
            ]
            yield (
                "004 E3",
                f"lambda = {moment}, D = {distance:g}",
                logsumexp(terms + k * (k - 1) * distance**2 / (2.0 * std**2)),
            )
    yield "004 E5", "sigma times sqrt(m) epsilon", 2.0 * math.sqrt(math.log(1e5))
    for m, epsilon in ((200, 1.0), (1000, 0.1)):
        std = 2.0 * math.sqrt(m * math.log(1e5)) / (m * epsilon)
        yield "004 E5", f"epsilon at most, m = N = {m}", 2.0 * math.log(m / std) / m
    recursion = plain_recursion()
    for name, value in recursion.constants().items():
        yield "004 E9 to E13", f"chain: {name}", value
    yield "004 constants", "G^2 at the start", variance_at_start(0)
    B = np.eye(2 * recursion.features) - recursion.Q
    values = np.linalg.eigvalsh(solve_discrete_lyapunov(B.T, np.eye(len(B))))
    yield "004 E10", "least eigenvalue of P, beta = 1", values[0]
    yield "004 E10", "largest eigenvalue of P", values[-1]
    yield "004 E11", "problems of 2,000 where the bound fails", wrong_bounds(2000, 0)
    beta, start = 1.0 / recursion.largest, float(recursion.xi @ recursion.xi)
    bound = Bound(
        smallest=recursion.smallest, largest=recursion.largest, start=start, dimension=2 * recursion.features,
        gradient_variance=0.0, clip_norm=0.0, epsilon=1.0, delta=1e-5,
    )  # fmt: skip
    yield "004 E13", "squared error at the start", start
    yield "004 E13", "after one update without noise", second_moment(recursion, beta, 1, 0.0).distance
    yield "004 E13", "as (6.4) allows", bound.theorem_2(beta, 1, 1)
    yield "004 E14", "steps above 1/lambda_max, eta = 1", recursion.largest / recursion.smallest
    yield "004 E14", "largest eta", (1.0 + math.sqrt(3.0)) / 2.0


def of_balle_2016() -> Iterator[Number]:
    """Yield the table of what the noise costs. Noise is measured in units of S."""
    delta = 1e-5
    for dimension, epsilon in ((39, 0.1), (39, 0.3), (39, 1.0), (39, 3.0), (2, 1.0)):
        at = f"d = {dimension}, epsilon {epsilon:g}"
        noise = SmoothGaussian(epsilon=epsilon, delta=delta, dimension=dimension)
        twice = smooth_epsilon(delta, dimension, noise.alpha, noise.beta)
        least = SmoothGaussian(epsilon=epsilon, delta=delta, dimension=dimension, calibration="exact")
        yield "Balle 2016", f"noise as published, {at}", noise.noise_over_bound
        yield "Balle 2016", f"epsilon if ln S moved by beta, {at}", twice
        yield "Balle 2016", f"true epsilon, {at}", noise.true_epsilon
        yield "Balle 2016", f"noise that the claim needs, {at}", least.noise_over_bound
        without = noise_multiplier_for(events.gaussian, Budget(epsilon, delta))
        yield "Balle 2016", f"the same without dilation, {at}", without


def wrong_bounds(count: int, seed: int) -> int:
    """Return on how many random problems in one to three dimensions Lemma 2's bound on the eigenvalues is false."""
    rng, wrong = np.random.default_rng(seed), 0
    for _ in range(count):
        n = int(rng.integers(1, 4))
        A, root = rng.normal(size=(n, n)), rng.normal(size=(n, n))
        problem = Recursion(A, np.ones(n), root @ root.T + 0.01 * np.eye(n))
        wrong += problem.smallest < 8.0 / 9.0 * problem.constants()["lambda_min of A'C^-1A"]
    return wrong


def main() -> None:
    for numbers in (of_paper_000, of_paper_001, of_paper_002, of_paper_003, of_paper_004, of_balle_2016):
        for erratum, what, value in numbers():
            print(f"{erratum:14} {what:70} {float(value):.5g}")


if __name__ == "__main__":
    main()
