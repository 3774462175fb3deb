"""Constrained truncated concentrated differential privacy (ctCDP), as in paper 002, appendix A.

It serves reproduction, and certifies nothing here. Relation: replace one, samples of fixed size without replacement
(Bun, Dwork, Rothblum and Steinke 2018, "Composable and versatile privacy via truncated CDP"). A mechanism is (rho,
a)-ctCDP if its Renyi divergence of every order alpha in (1, omega_a) is at most ``rho alpha``. The rho of adaptive
compositions adds up (Lemma A.4). Numbered errata and derivations: docs/papers/002.md, docs/proofs/ctcdp.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dprl.errors import DprlError
from dprl.protocols import Precondition

LARGEST = 0.1
"""Largest rho before sampling, and largest sampling rate, for Lemma A.6."""
AMPLIFICATION = 13.0


def omega_a(a: float) -> float:
    """Return ``(1 + a) + sqrt(a (a + 1))``, Definition 3.1: the order at which ctCDP is cut.

    The constraint is ``a = log(1/delta)/epsilon``.

    >>> round(omega_a(100.0), 3)
    201.499
    """
    _positive("a", a)
    return (1.0 + a) + math.sqrt(a * (a + 1.0))


def rho_a(epsilon: float, delta: float) -> float:
    """Return the largest rho with which (rho, a)-ctCDP implies (epsilon, delta), Eq. (12).

    It is ``(sqrt(L + epsilon) - sqrt(L))^2`` with ``L = log(1/delta)``. This equals the printed formula
    (docs/proofs/ctcdp.md), and is computed without a difference of large numbers.

    >>> round(rho_a(1.0, 1e-5) + 2.0 * math.sqrt(rho_a(1.0, 1e-5) * math.log(1e5)), 12)
    1.0
    """
    _budget(epsilon, delta)
    log = -math.log(delta)
    return (epsilon / (math.sqrt(log + epsilon) + math.sqrt(log))) ** 2


def epsilon_of_ctcdp(rho: float, a: float) -> tuple[float, float]:
    """Return the (epsilon, delta) of a (rho, a)-ctCDP mechanism along ``delta = exp(-a epsilon)``, Lemma A.7.

    ``epsilon = (omega_a - 1) omega_a rho / (omega_a - a - 1)``. At ``rho = rho_a`` this is the budget from which ``a``
    was made. No bound on rho is needed: docs/proofs/ctcdp.md.

    >>> epsilon, delta = epsilon_of_ctcdp(rho_a(0.5, 1e-6), math.log(1e6) / 0.5)
    >>> round(epsilon, 12), round(delta, 15)
    (0.5, 1e-06)
    """
    _positive("a", a)
    _positive("rho", rho)
    # omega (omega - 1) / (omega - a - 1) = (sqrt(a + 1) + sqrt(a))^2, see the proof's page
    epsilon = rho * (math.sqrt(a + 1.0) + math.sqrt(a)) ** 2
    return epsilon, math.exp(-a * epsilon)


def gaussian_rho(noise_multiplier: float) -> float:
    """Return rho = ``1/(2 z^2)`` of the Gaussian mechanism, Lemma A.5; z is over the replace-one sensitivity."""
    _positive("noise multiplier", noise_multiplier)
    return 0.5 / noise_multiplier**2


@dataclass(frozen=True)
class Subsampled:
    """Result of Lemma A.6, with the conditions that it assumes.

    Attributes:
        rho: ``13 q^2 rho``; it is valid only where all conditions hold.
    """

    rho: float
    conditions: tuple[Precondition, ...]

    @property
    def holds(self) -> bool:
        return all(condition.holds for condition in self.conditions)


def subsampled(rho: float, sampling_rate: float, a: float, rho_limit: float) -> Subsampled:
    """Return the result of Lemma A.6: on a sample of fixed size, a rho-zCDP mechanism is ``(13 q^2 rho, a)``-ctCDP.

    The lemma has conditions, which are returned with it.

    Args:
        rho: rho of one step, for gradient and norm together.
        sampling_rate: sampling rate q = n/N.
        rho_limit: the limit rho_a.
    """
    _positive("rho", rho)
    _positive("rho_a", rho_limit)
    if not 0.0 < sampling_rate <= 1.0:
        raise DprlError("The sampling rate must be above 0 and at most 1.")
    log, q = -math.log(sampling_rate), sampling_rate
    spread, order = 3.0 * rho * (2.0 - math.log2(rho)), log / (4.0 * omega_a(a))
    rest = rho_limit / (AMPLIFICATION * q**2)
    conditions = (
        Precondition(f"Lemma A.6 needs rho <= 0.1, and it is {rho:.4g}", rho <= LARGEST),
        Precondition(f"Lemma A.6 needs q <= 0.1, and it is {q:.4g}", q <= LARGEST),
        Precondition(f"Eq. (9): 3 rho (2 + log2(1/rho)) = {spread:.4g} is at most log(1/q) = {log:.4g}", spread <= log),
        Precondition(f"Eq. (10): rho = {rho:.4g} is below log(1/q)/(4 omega_a) = {order:.4g}", rho < order),
        Precondition(f"Eq. (10): rho = {rho:.4g} is below rho_a/(13 q^2) = {rest:.4g}", rho < rest),
    )
    return Subsampled(AMPLIFICATION * q**2 * rho, conditions)


def largest_rho(sampling_rate: float, a: float, rho_limit: float) -> float:
    """Return ``rho_ub``, the largest rho of a step before sampling: Eq. (10), and the limit of 0.1 that it leaves out.

    For rho between 0 and 0.1, Eq. (9) follows from q <= 0.1 (docs/proofs/ctcdp.md).
    """
    log = -math.log(sampling_rate)
    return min(LARGEST, log / (4.0 * omega_a(a)), rho_limit / (AMPLIFICATION * sampling_rate**2))


@dataclass(frozen=True)
class Initialisation:
    """Result of Algorithm 3.

    Attributes:
        rho_tot: total rho that may be spent, rho_a.
        sigma_g: noise standard deviation of the uniform schedule, only for the gradients.
        sigma_min: noise standard deviation below which a step breaks a condition of Lemma A.6.
        q: sampling rate, ``batch / units``.
        batch: size of every sample.
        rho_0: rho of one step before sampling, ``rho_tot / (13 q^2 steps)``.
        re_estimated: whether step 6 had to choose q.
    """

    rho_tot: float
    sigma_g: float
    sigma_min: float
    q: float
    batch: int
    rho_0: float
    re_estimated: bool


def initialise(epsilon: float, delta: float, steps: int, units: int, sensitivity: float) -> Initialisation:
    """Return the result of Algorithm 3 with step 6 solved.

    Step 6 takes the sampling rate nearest to ``(sqrt(N) + 10)/N`` at which Lemma A.6 applies.

    q is a whole number of units over their total number, rounded up, because a smaller q would have a larger rho_0.

    Args:
        steps: number of steps T, at least 2.
        units: number of units N, which is public.
        sensitivity: sensitivity for replacing one, which is 2 C for a sum of gradients that are clipped to C.

    Raises:
        DprlError: no rate meets the conditions, or no rate with a whole batch does.
    """
    _budget(epsilon, delta)
    _positive("sensitivity", sensitivity)
    if steps < 2 or units < 1:
        raise DprlError("Algorithm 3 needs at least two steps and one unit.")
    a = -math.log(delta) / epsilon
    total = rho_a(epsilon, delta)
    each = total / steps
    least = least_rate(each, a)
    refused = DprlError(
        f"No sampling rate up to 0.1 meets the conditions of Lemma A.6 with {steps} steps at epsilon = {epsilon:g} and "
        f"delta = {delta:g} for {units} units: take more steps, or more units."
    )
    if least is None:
        raise refused
    first = (math.sqrt(units) + 10.0) / units
    wanted = min(max(first, least), LARGEST)
    batch = math.ceil(wanted * units * (1.0 - 1e-12))
    # the rate of the next whole number may be beyond 0.1, or a rounding error short of the root
    for size in (batch, batch + 1, batch - 1):
        q = size / units
        rho_0 = each / (AMPLIFICATION * q**2) if size > 0 else math.inf
        if size > 0 and subsampled(rho_0, q, a, total).holds:
            top = largest_rho(q, a, total)
            sigma_g, sigma_min = (sensitivity / math.sqrt(2.0 * rho) for rho in (rho_0, top))
            return Initialisation(total, sigma_g, sigma_min, q, size, rho_0, not least <= first <= LARGEST)
    raise refused


def least_rate(each: float, a: float) -> float | None:
    """Return the smallest q at which a step of cost ``each`` after sampling meets Lemma A.6.

    Return None where no q up to 0.1 does.

    With ``rho_0 = each/(13 q^2)``, the conditions are ``q >= sqrt(each/1.3)`` (rho_0 <= 0.1) and
    ``q^2 log(1/q) > 4 omega_a each/13``. The left side of the latter grows up to q = exp(-1/2) > 0.1, so both
    conditions hold from the larger of the two lower ends on. Eq. (9) follows from them.
    """
    from_size = math.sqrt(each / (AMPLIFICATION * LARGEST))
    target = 4.0 * omega_a(a) * each / AMPLIFICATION
    if from_size > LARGEST or LARGEST**2 * -math.log(LARGEST) <= target:
        return None
    low, high = 0.0, LARGEST
    for _ in range(200):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        if middle**2 * -math.log(middle) > target:
            high = middle
        else:
            low = middle
    return max(from_size, high)


def sinh_normal_rho(sensitivity: float, sigma: float, omega: float) -> Subsampled:
    """Return Theorem A.2: ``f + A arsinh(N(0, sigma^2)/A)`` with ``A = 8 sensitivity omega`` is ``(rho, omega)``-tCDP.

    Returns:
        ``rho = 8 sensitivity^2/sigma^2``, with the two bounds on its range as conditions.
    """
    for name, value in (("sensitivity", sensitivity), ("sigma", sigma)):
        _positive(name, value)
    if not omega > 1.0:
        raise DprlError("omega must be above 1.")
    rho, least = 8.0 * (sensitivity / sigma) ** 2, 0.25 / omega**2
    conditions = (
        Precondition(f"Theorem A.2 needs rho >= 1/(4 omega^2) = {least:.4g}, and it is {rho:.4g}", rho >= least),
        Precondition(f"Theorem A.2 needs rho < 16, and it is {rho:.4g}", rho < 16.0),
    )
    return Subsampled(rho, conditions)


def _budget(epsilon: float, delta: float) -> None:
    _positive("epsilon", epsilon)
    if not 0.0 < delta < 1.0:
        raise DprlError("delta must be above 0 and below 1.")


def _positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0.0):
        raise DprlError(f"The {name} must be a positive finite number.")
