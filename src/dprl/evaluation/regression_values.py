"""Doubly robust values around a released propensity regression: one noisy vector, and intervals.

A unit's score of a policy is the outcome model's prediction plus the weighted residual around it (Robins, Rotnitzky and
Zhao 1994). The vector also holds the scores' derivatives along the coefficients of the regression, by which the
interval counts the noise in the coefficients. Errors and intervals: docs/proofs/stratified.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from dprl.engine.columns import scale_of
from dprl.evaluation.intervals import CUT_WEIGHTS, PRODUCT_SCALE, confounder_odds, product_weight, quantile, skew_margin
from dprl.evaluation.propensity_regression import RegressionTerms
from dprl.evaluation.residuals import Estimate, EstimateQuery
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.policies.loading import policy_probabilities

SQUARE, DERIVATIVE, PRESENCE, CUT_WEIGHT = 0.33, 0.6, 0.3, 0.3
"""Weights against the scores: of squares, derivatives, a unit's presence, and what is cut of all policies together."""


@dataclass(frozen=True)
class RegressionQuery(EstimateQuery):
    """Query to the units around a released propensity regression, made from public facts and released numbers.

    Attributes:
        config: options with ``confidence`` and ``min_propensity``.
        patterns: ``(J, K)`` patterns that a person's weights can have over the K policies.
    """

    patterns: Float[np.ndarray, "patterns policies"]

    words: ClassVar[str] = "doubly robust, with propensities estimated by a multinomial regression"

    @property
    def strategy(self) -> Float[np.ndarray, "policies policies"]:
        """``(K, K)`` identity: the outcome model moves the scores of all policies at once, so no two are disjoint."""
        return np.eye(self.policies)

    @cached_property
    def terms(self) -> RegressionTerms:
        """The declared terms."""
        return RegressionTerms(self.bounds)

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self.policies * (3 + self.terms.coefficients) + 1 + len(self.contrasts)

    @property
    def clip_norm(self) -> float:
        """L2 norm that no vector exceeds."""
        products = PRODUCT_SCALE / 2.0 if self.contrasts else 0.0
        return math.hypot(1.0, SQUARE, DERIVATIVE, PRESENCE, CUT_WEIGHT, products) * (1.0 + 1e-9)

    @property
    def largest_weight(self) -> float:
        """Largest importance weight; larger weights are cut."""
        return min(self.bounds.max_importance_ratio, 1.0 / max(self.config.min_propensity, 1e-9))

    def _radius(self, outcome: float) -> float:
        """Return the largest norm of all policies' scores if the outcome model is at most ``outcome`` in size."""
        together = float(np.linalg.norm(self.patterns, axis=1).max())
        return (1.0 + outcome) * self.largest_weight * together + math.sqrt(self.policies) * outcome

    @property
    def radius(self) -> float:
        """Largest norm of all policies' scores."""
        return self._radius(self.released.largest_outcome)

    @property
    def _cuts(self) -> bool:
        """Whether weights can be cut at a state within the declared bounds."""
        return bool(self.released.least_probabilities.min() * self.largest_weight < 1.0)

    @override
    def _columns(self, policies: Sequence[Any], states: Any, action: Any, outcome: Any) -> list[np.ndarray]:
        model, actions, f = self.released, self.terms.actions, self.terms.of_states(states)
        taken, p, m = np.eye(actions)[action], model.probabilities(f), model.outcomes(f)
        table = [policy_probabilities(policy, states, actions) for policy in policies]
        floor = np.maximum(np.maximum.reduce(table) / self.largest_weight, 1e-300)
        floored = np.maximum(p, floor)
        own = np.arange(len(action)), action
        residual = (outcome - m[own]) / floored[own]
        gradient = ((p - taken) * (p >= floor)[own][:, None])[:, 1:] / self.terms.longest_score
        scores, moves, cut = [], [], []
        for chosen in table:
            weighted, direct, left = chosen[own] * residual, np.zeros(len(action)), np.zeros(len(action))
            for a in range(actions):
                direct += chosen[:, a] * m[:, a]
                left += chosen[:, a] * (1.0 - p[:, a] / floored[:, a])
            scores.append((direct + weighted) / self.radius)
            moves += [DERIVATIVE * weighted / self.radius * g * x for g in gradient.T for x in f.T]
            cut.append(CUT_WEIGHT / math.sqrt(self.policies) * left)
        squares = [SQUARE * x * x for x in scores]
        products = [product_weight(self.contrasts) * scores[a] * scores[b] for a, b in self.contrasts]
        return [*scores, *squares, *moves, *cut, PRESENCE * np.ones(len(action)), *products]

    def _estimate(
        self, mechanism: GaussianSum, noisy: Float[np.ndarray, " dim"], weights: Float[np.ndarray, " policies"]
    ) -> Estimate:
        """Return the estimate of the sum over policies of ``weights`` times values, with its errors."""
        model, t, radius, k = self.released, quantile(self.config.confidence), self.radius, self.policies
        ends = np.cumsum([k, k, k * self.terms.coefficients, k, 1])
        first, squares, moves, cut, count, products = np.split(noisy, ends)
        people = max(float(count[0]) / PRESENCE, 1.0)
        noise, size, m = mechanism.noise_std / people, float(np.abs(weights).sum()), model.largest_outcome
        length = float(np.linalg.norm(weights))
        value = radius * float(weights @ first) / people
        # the noise of the sum, and that of the number of people
        own = math.hypot(radius * length * noise, value * noise / PRESENCE)
        # the mean square, which includes the square of the mean
        square, spread = float(weights**2 @ squares) / SQUARE, [float(np.linalg.norm(weights**2)) / SQUARE]
        for (a, b), product in zip(self.contrasts, products, strict=True):
            both = 2.0 * float(weights[a] * weights[b]) / product_weight(self.contrasts)
            square += both * float(product)
            spread.append(abs(both))
        square, spread_of = square * radius**2 / people, math.hypot(*spread) * radius**2 * noise
        most = (size * (math.sqrt(self.largest_weight) * (1.0 + m) + m)) ** 2
        mean = max(value**2 - own**2, 0.0)
        variance, upper, surely = (min(max(square - mean, 0.0) + margin * spread_of, most) for margin in (0.0, 1.0, t))
        # effect of the noise in the coefficients, to first order along the released derivative
        unit = radius * self.terms.longest_score / DERIVATIVE
        slope = unit * (weights @ moves.reshape(k, -1)) / people
        covariance, each = model.covariance, (unit * length * noise) ** 2
        along = max(float(slope @ covariance @ slope) - each * float(np.trace(covariance)), 0.0)
        doubt = 2.0 * each**2 * float(np.sum(covariance**2)) + 4.0 * each * float(np.sum((covariance @ slope) ** 2))
        moved = along + math.sqrt(doubt)
        second = 0.5 * (1.0 + m) * size * model.log_odds_variance
        # the part that was cut is only known to lie between bounds
        lost, lost_noise = 0.0, 0.0
        if self._cuts:
            unit = (1.0 + m) * math.sqrt(k) / CUT_WEIGHT
            lost = unit * float(np.abs(weights) @ np.maximum(cut, 0.0)) / people
            lost_noise = unit * length * noise
        error = math.sqrt(upper / people + own**2 + lost_noise**2 + moved)
        skew = upper / people / error**2 * skew_margin(t, radius * length, people)
        side = t * error + skew + second + lost
        reach = math.sqrt(max(square, 0.0) + spread_of) + size * m
        strength = max(value - side, -value - side, 0.0) / reach
        errors = math.hypot(own, math.sqrt(moved)), math.sqrt(variance / people), math.sqrt(surely / people)
        notes = (CUT_WEIGHTS,) if self._cuts else ()
        return Estimate(value, *errors, side, side, 2.0 * lost, confounder_odds(strength), notes)

    def expect(self, mechanism: GaussianSum) -> list[tuple[float, float, float]]:
        """Return the errors to expect around an outcome model of half the largest size, from public facts only.

        Returns:
            For each target policy the privacy standard error, the largest sampling standard error, and half of the
            declared range; a smaller bound of the interval's half-width is not known before the overlap is.
        """
        half, units = scale_of(self.bounds.reward)[1], self.bounds.units
        noise = self._radius(0.5) * mechanism.noise_std / units
        return [(half * noise, half * math.sqrt(self.largest_weight / units), half)] * self.policies
