"""Theorem 1: the epsilon that its noise has

Where: Section 4, Theorem 1; δ = 1e-5, every iterate released

Statement: Given a data set consisting of m points and fixing the number of iterations, N, there exist constants c₁ and
c₂, such that for any ε < c₁ N/m², Algorithm 1 is (ε, δ)-differentially private for δ > 0 if σ ≥ c₂ √(N log(1/δ))/(m ε).

Note: Nothing is simulated: a pair of logs, composed by the accountant. The proof prints c₂ = 2, and its own steps give
4. “Its conditions” are what the proof assumes of σ and ε, at each c₂. Where “at least” is above the claim the theorem
is wrong; where it is below, nothing follows, as no worst pair is known.
"""

from __future__ import annotations

from typing import Any

from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import Run, figure_contents, make_claim, make_table
from dprl_papers.paper_004_gpope.privacy import PublishedEpsilon, published_epsilon, smooth_epsilons
from dprl_papers.paper_004_gpope.published import theorem_1_conditions

VALUES = (200, 1000, 5000)
QUICK = (200,)
EPSILON = (0.1, 0.3, 1.0, 3.0)
WITHIN = ((100, 10_000, 1.0), (200, 20_000, 1.0))
"""m, N and epsilon at which all conditions hold."""
CONSTANTS = (2.0, 4.0)


def draw(run: Run) -> dict[str, Any]:
    """Draw the epsilon of Theorem 1's noise with both constants, and that of output perturbation."""
    one_pass = [(m, m, epsilon) for m in run.whole for epsilon in run.epsilon]
    places = [*(WITHIN[:1] if run.quick else WITHIN), *one_pass]
    rows, broken = [], []
    for m, steps, epsilon in places:
        found = [PublishedEpsilon(**_given(run, m, steps, epsilon, c2)) for c2 in CONSTANTS]
        rows.append([plain(m), plain(steps), plain(epsilon), *(text for one in found for text in _texts(one))])
        if _conditions_hold(found[0]) and found[0].at_least > epsilon:
            broken.append(f"{number(found[0].at_least, 2)} at m = {plain(m)}, N = {plain(steps)}, ε = {plain(epsilon)}")
    heads = [
        f"{what}, c₂ = {plain(c)}" for c in CONSTANTS for what in ("σ", "its conditions", "at least", "pair at most")
    ]
    smooth = smooth_epsilons(epsilons=run.epsilon, delta=run.delta)
    tables = [
        make_table("Epsilon of all iterates together.", ["m", "N", "claimed ε", *heads], rows),
        make_table(
            "Output perturbation (DP-LSW and DP-LSL, 39 features) on logs where its conditions hold.",
            ["claimed ε", "true ε", "noise over S, published", "noise over S that the claim needs"],
            [[plain(s.claimed), *(number(x) for x in (s.epsilon, s.noise, s.noise_needed))] for s in smooth],
        ),
    ]
    words = "Within its conditions Algorithm 1 with Theorem 1's σ, c₂ = 2, is (ε, δ)-differentially private."
    text = f"at least {'; '.join(broken)}." if broken else "no pair of logs here shows otherwise."
    return figure_contents(tables=tables, claims=[make_claim(words, not broken, text)])


def _given(run: Run, m: int, steps: int, epsilon: float, c2: float) -> dict[str, Any]:
    found = run.cached(published_epsilon, m, steps, epsilon, run.delta, c2)
    return {name: x for name, x in found.items() if name != "type"}


def _conditions_hold(found: PublishedEpsilon) -> bool:
    return all(c.holds for c in theorem_1_conditions(found.sigma, found.steps, found.units, found.claimed))


def _texts(found: PublishedEpsilon) -> list[str]:
    held = "hold" if _conditions_hold(found) else "fail"
    return [number(found.sigma), held, number(found.at_least), number(found.pair_at_most)]
