"""Design of the vectors of residuals by stratum and action, once propensities are released, and how they are decoded.

A design is for everybody, or for one group that is made of whole strata. Everything here is post-processing of released
numbers and public facts. Outcomes are in units of half the declared range around its middle. Derivations:
docs/proofs/stratified.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import ndtr

from dprl.evaluation.intervals import product_weight
from dprl.evaluation.least_noise import least_noise_strategy
from dprl.evaluation.propensities import FEWEST_PEOPLE, Propensities


@dataclass(frozen=True)
class ResidualDesign:
    """Weights, outcome model and mixing of the policies' residuals. S strata, A actions, K policies, C contrasts.

    Attributes:
        released: released counts and outcomes.
        table: ``(K, S, A)`` action probabilities of the target policies; zeros for the logged policy.
        contrasts: pairs of policies whose residuals' product is asked for.
        trims: whether strata without overlap are left out.
        min_propensity: propensity below which an action is not supported.
    """

    released: Propensities
    table: Float[np.ndarray, "policies strata actions"]
    contrasts: Sequence[tuple[int, int]]
    trims: bool
    min_propensity: float

    @cached_property
    def is_logged(self) -> Bool[np.ndarray, " policies"]:
        """Whether each policy is the logged policy, whose weights are one whatever the propensities are."""
        return np.asarray(~self.table.any(axis=(1, 2)))

    # --- overlap, weights and outcomes ------------------------------------------------------------------------------

    @cached_property
    def supported(self) -> Bool[np.ndarray, "strata actions"]:
        """Where an action was taken often enough."""
        return self.released.supported(self.min_propensity)

    @cached_property
    def unsupported(self) -> Bool[np.ndarray, "strata actions"]:
        """Where an action that a target policy may take is not supported."""
        return np.asarray((self.table.max(axis=0) > 0.0) & ~self.supported)

    @cached_property
    def kept(self) -> Bool[np.ndarray, " strata"]:
        """Whether the values are about the people of each stratum; strata without overlap are left out if trimmed."""
        return np.asarray(~self.unsupported.any(axis=1) if self.trims else np.ones(len(self.unsupported), dtype=bool))

    @cached_property
    def people(self) -> float:
        """Noisy number of units in the strata that are kept; at least one."""
        return max(float(self.released.people[self.kept].sum()), 1.0)

    @cached_property
    def shares(self) -> Float[np.ndarray, " strata"]:
        """Share of each stratum in the people whom the values are about."""
        return np.where(self.kept, self.released.people, 0.0) / self.people

    @cached_property
    def cells(self) -> Float[np.ndarray, "strata actions"]:
        """Share of each stratum and action in the people whom the values are about.

        It is zero where an action is not supported, unless the logged policy is among the policies.
        """
        return (
            np.where((self.supported | self.is_logged.any()) & self.kept[:, None], self.released.counts, 0.0)
            / self.people
        )

    @cached_property
    def weights(self) -> Float[np.ndarray, "strata actions"]:
        """One over the released propensity; zero where the action is not supported or the stratum is not kept."""
        used = self.supported & (self.cells > 0.0)
        return np.divide(self.shares[:, None], self.cells, out=np.zeros_like(self.cells), where=used)

    @cached_property
    def outcomes(self) -> Float[np.ndarray, "strata actions"]:
        """The outcome model."""
        return self.released.outcomes

    @cached_property
    def raw(self) -> Float[np.ndarray, "strata actions"]:
        """Noisy mean outcomes where an action is supported, and the outcome model elsewhere."""
        counts = np.where(self.supported, self.released.counts, 1.0)
        return np.where(self.supported, np.clip(self.released.sums / counts, -1.0, 1.0), self.outcomes)

    # --- the vectors ------------------------------------------------------------------------------------------------

    @cached_property
    def largest_differences(self) -> Float[np.ndarray, "strata actions"]:
        """Largest difference of an outcome from the model."""
        return 1.0 + np.abs(self.outcomes)

    @cached_property
    def largest_residuals(self) -> Float[np.ndarray, "policies cells"]:
        """Largest residual of each policy in each stratum and action."""
        weights = np.where(self.is_logged[:, None, None], self.kept[:, None], self.table * self.weights)
        return (weights * self.largest_differences).reshape(len(self.table), -1)

    @cached_property
    def scale(self) -> Float[np.ndarray, " policies"]:
        """Largest residual of each policy."""
        return np.maximum(self.largest_residuals.max(axis=1), 1e-12)

    @cached_property
    def patterns(self) -> Float[np.ndarray, "cells policies"]:
        """Largest residuals, each over the policy's own scale."""
        return (self.largest_residuals / self.scale[:, None]).T

    @cached_property
    def strategy(self) -> Float[np.ndarray, "policies policies"]:
        """Mixing of the policies with least noise; see :mod:`~dprl.evaluation.least_noise`."""
        rounded = np.unique(np.ceil(self.patterns * 64.0) / 64.0, axis=0)
        rounded = rounded[rounded.max(axis=1) > 0.0]
        if not len(rounded):
            rounded = np.ones((1, len(self.table)))
        return least_noise_strategy(rounded, self.contrasts)

    @cached_property
    def products(self) -> Float[np.ndarray, "cells contrasts"]:
        """Largest products of two policies' residuals, over their scales."""
        pairs = [self.patterns[:, a] * self.patterns[:, b] for a, b in self.contrasts]
        return np.stack(pairs, axis=1) if pairs else np.zeros((len(self.patterns), 0))

    @cached_property
    def vector_factors(self) -> Float[np.ndarray, "cells dim"]:
        """Factors of a unit's residual over its largest size, then factors of the square of that ratio less one.

        No unit's vector is longer than one: its squared length is convex in that square, so it is largest where the
        square is 0 or 1.
        """
        first, second = self.patterns @ self.strategy.T, self.patterns**2 @ self.strategy.T
        third = product_weight(self.contrasts) * self.products
        ends = [np.sum(first**2, axis=1), np.sum(second**2, axis=1) + np.sum(third**2, axis=1)]
        longest = math.sqrt(max(float(np.max(ends)), 1e-300))
        return np.concatenate([first, second, third], axis=1) / longest

    @cached_property
    def _longest(self) -> float:
        first = self.patterns @ self.strategy.T
        norms, made = np.linalg.norm(first, axis=1), np.linalg.norm(self.vector_factors[:, : len(self.table)], axis=1)
        return float(norms.max() / made.max()) if made.max() > 0.0 else 1.0

    # --- the number of people ---------------------------------------------------------------------------------------

    def fewest_people(self, t: float) -> float:
        """Return a lower bound of the number of people; the noise in the number of everybody is negligible."""
        del t
        return self.people

    def has_enough_people(self, t: float) -> bool:
        """Return whether any stratum is kept; if none is, every value is possible."""
        del t
        return bool(self.kept.any())

    # --- decoding ---------------------------------------------------------------------------------------------------

    def decoded(
        self, noisy: Float[np.ndarray, " dim"], noise: float, weights: Float[np.ndarray, " policies"]
    ) -> tuple[float, float, float, float]:
        """Return mean and mean square of the sum over policies of ``weights`` times residuals, and the noise in both.

        Args:
            noise: standard deviation of the noise in each number of ``noisy``.
            weights: weights for one policy, or for a pair among the contrasts.
        """
        k, scaled, unit = len(self.table), weights * self.scale, self._longest / self.people
        inverse = np.linalg.inv(self.strategy)
        mean, rows = scaled @ inverse, scaled**2 @ inverse
        square, spread = float(rows @ noisy[k : 2 * k]) * unit, [float(np.linalg.norm(rows)) * noise * unit]
        expected = self.patterns**2 @ scaled**2
        for place, (a, b) in enumerate(self.contrasts):
            both = 2.0 * scaled[a] * scaled[b]
            if both != 0.0 and self.products[:, place].any():
                unmixed = both * unit / product_weight(self.contrasts)
                square += unmixed * float(noisy[2 * k + place])
                spread.append(abs(unmixed) * noise)
                expected = expected + both * self.products[:, place]
        square += float(self.cells.ravel() @ expected)
        spread.append(
            self.released.count_noise / self.people * float(np.linalg.norm(expected[self.cells.ravel() != 0.0]))
        )
        length = float(np.linalg.norm(mean)) * noise * unit
        return float(mean @ noisy[:k]) * unit, square, length, math.hypot(*spread)

    def model_values(self, weights: Float[np.ndarray, " policies"]) -> Float[np.ndarray, " strata"]:
        """Return the outcome model's part of the sum over policies of ``weights`` times values, in each stratum."""
        return np.asarray((np.tensordot(weights, self.table, 1) * self.outcomes).sum(axis=1))

    def largest_mean_square(self, weights: Float[np.ndarray, " policies"]) -> float:
        """Return the largest mean square that the sum of residuals can have."""
        return float(np.maximum(self.cells, 0.0).ravel() @ (self.patterns @ (weights * self.scale)) ** 2)

    def largest_sum(self, weights: Float[np.ndarray, " policies"]) -> float:
        """Return the largest absolute sum of residuals that a unit can have."""
        return float(np.abs(self.patterns @ (weights * self.scale)).max())

    def with_logged_policy(
        self,
        value: float,
        distances: Float[np.ndarray, " strata"],
        table: Float[np.ndarray, "strata actions"],
        logged: float,
    ) -> tuple[float, Float[np.ndarray, "strata actions"], float]:
        """Return value, distances of the model from its mean, and their variance, after adding the logged policy.

        Args:
            value, distances, table: numbers of the other policies: the model's mean plus all residuals, how far the
                model of each stratum lies from the model's mean, and the action probabilities.
            logged: weight of the logged policy.
        """
        middle, left = float((self.cells * self.outcomes).sum()), self.raw - self.outcomes
        cells = distances[:, None] + logged * (self.outcomes - middle)
        # part of the mean outcomes that the model lacks
        more = (table * left).sum(axis=1, keepdims=True) + logged * left
        beside = more**2 - ((table * self.weights + logged) * left) ** 2  # the residuals count the second term
        between = float((self.cells * cells * (cells + 2.0 * more)).sum() + max((self.cells * beside).sum(), 0.0))
        return value + logged * middle, cells, between

    def noise_of_shares(self, means: Float[np.ndarray, " strata *actions"]) -> float:
        """Return the standard error that the noise in shares causes in the shares' mean of ``means``.

        That mean has been subtracted from ``means``. The shares are those of strata, or of strata and actions.
        """
        spread = np.linalg.norm(means[self.kept]) if means.ndim > 1 else np.linalg.norm(np.where(self.kept, means, 0.0))
        noise = self.released.people_noise if means.ndim == 1 else self.released.count_noise
        return noise * float(spread) / self.people

    def noise_of_weights(self, table: Float[np.ndarray, "strata actions"]) -> float:
        """Return the standard error from the noise in the weights, which multiplies what the model leaves of a mean."""
        return float(np.linalg.norm(self._relative * self.shares[:, None] * table * (self.raw - self.outcomes)))

    def second_order_bias(self, table: Float[np.ndarray, "strata actions"]) -> float:
        """Return a bound of the bias of second order in the noise.

        Where strata are left out, the bound also counts strata that were kept because of their noise. Given that a
        count was kept, its noise has a positive mean. The released count stands in for the expected count in that mean;
        since it is larger, the mean is taken three times.
        """
        noise = self._relative
        if self.trims:
            above = (
                np.maximum(self.released.counts - self.released.needed_count(self.min_propensity), 0.0)
                / self.released.count_noise
            )
            # the mean of a standard normal that is known to lie above -x is pdf(x) / cdf(x)
            noise = noise + 3.0 * np.exp(-(above**2) / 2.0) / math.sqrt(2.0 * math.pi) / ndtr(above)
        left = noise * self._relative * self.shares[:, None] * table * (self.raw - self.outcomes)
        return abs(float(left.sum()))

    @cached_property
    def _relative(self) -> Float[np.ndarray, "strata actions"]:
        """Noise of each count relative to the count, for counts that are used; zero for others."""
        return np.where(self.cells > 0.0, self.released.count_noise / np.maximum(self.released.counts, 1.0), 0.0)

    def unsupported_width(self, table: Float[np.ndarray, "strata actions"], t: float) -> tuple[float, float]:
        """Return how far the outcomes of unsupported actions can carry a value below the model's, and above it."""
        open_ = np.where(self.unsupported & self.kept[:, None], table, 0.0)
        up, down = np.maximum(open_, 0.0), np.maximum(-open_, 0.0)
        sides = (
            up * (1.0 + self.outcomes) + down * (1.0 - self.outcomes),
            up * (1.0 - self.outcomes) + down * (1.0 + self.outcomes),
        )
        noise = self.released.people_noise / self.people
        found = [
            max(float(self.shares @ x.sum(axis=1)) + t * noise * float(np.linalg.norm(x.sum(axis=1))), 0.0)
            for x in sides
        ]
        return found[0], found[1]

    def confounder_factor(self, table: Float[np.ndarray, "strata actions"]) -> float:
        """Return the factor of the root mean square residual in the largest shift that a confounder can cause."""
        propensities = np.clip(
            np.divide(1.0, self.weights, out=np.ones_like(self.weights), where=self.weights > 0.0), 0.0, 1.0
        )
        inside = np.maximum(self.cells, 0.0) * (1.0 - propensities) ** 2 * (table != 0.0)
        return math.sqrt(float(inside.sum()))


@dataclass(frozen=True)
class GroupDesign(ResidualDesign):
    """Design for one group, with the released counts of its strata; its vectors are those of everybody's design.

    Attributes:
        whole: design for everybody.
        within: ``(S,)`` whether each stratum belongs to the group.
    """

    whole: ResidualDesign
    within: Bool[np.ndarray, " strata"]

    @cached_property
    def unsupported(self) -> Bool[np.ndarray, "strata actions"]:
        """Where in the group a target policy may take an action that is not supported."""
        return self.whole.unsupported & self.within[:, None]

    @cached_property
    def kept(self) -> Bool[np.ndarray, " strata"]:
        """Whether the group's values are about the people of each stratum."""
        return self.whole.kept & self.within

    @cached_property
    def weights(self) -> Float[np.ndarray, "strata actions"]:
        """One over the released propensities, as in everybody's design."""
        return self.whole.weights

    @cached_property
    def largest_residuals(self) -> Float[np.ndarray, "policies cells"]:
        """Largest residuals, as in everybody's design."""
        return self.whole.largest_residuals

    @cached_property
    def strategy(self) -> Float[np.ndarray, "policies policies"]:
        """Mixing of the policies, as in everybody's design."""
        return self.whole.strategy

    def largest_sum(self, weights: Float[np.ndarray, " policies"]) -> float:
        """Return the largest absolute sum of residuals that a unit of the group can have."""
        inside = np.repeat(self.within, self.table.shape[2])
        return float(np.abs(self.patterns[inside] @ (weights * self.scale)).max())

    @property
    def counted(self) -> tuple[float, float]:
        """Noisy number of people whom the values are about, and the standard deviation of its noise."""
        return float(self.released.people[self.kept].sum()), self.released.people_noise * math.sqrt(self.kept.sum())

    def fewest_people(self, t: float) -> float:
        """Return a lower bound of the number of people: ``t`` standard deviations of noise below the noisy count."""
        people, noise = self.counted
        return max(people - t * noise, 1.0)

    def has_enough_people(self, t: float) -> bool:
        """Return whether enough people are left for values; if not, every value is possible."""
        return self.fewest_people(t) >= FEWEST_PEOPLE
