"""Best linear projections of the values of target policies on covariates of the first state, with bands.

The projection shows who benefits. It approximates a policy's value, as a function of the state in which a person
starts, by the linear function that is nearest in mean square. No model has to hold for that. (Semenova and Chernozhukov
2021, "Debiased machine learning of conditional average treatment effects and other causal functions".) The values and
differences for everybody are those of importance sampling.
Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one (zero-out, where the
number of units is public). Released: one noisy vector, which holds that of importance sampling and the moments of
features and weighted returns; projections and bands are post-processing.
Proof and bands: docs/proofs/best-linear-projection.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float

from dprl.arrays import unit_states
from dprl.bounds import Bounds
from dprl.data.trajectories import Trajectories
from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.program import ValuesConfig
from dprl.engine.ratios import step_ratios, unit_means
from dprl.engine.value_query import BaseValueQuery
from dprl.evaluation.importance_sampling import ImportanceQuery, ImportanceSampling
from dprl.evaluation.importance_vectors import mixed, unit_pairs
from dprl.evaluation.intervals import WEIGHTS_ABOVE_ONE, WEIGHTS_BELOW_ONE, Difference, ValueEstimate, product_weight
from dprl.evaluation.projections import Moments, Projection, Projections, critical_value, powers, solve, tensor
from dprl.evaluation.subgroups import first_states
from dprl.mechanisms.gaussian_sum import GaussianSum

MOST_COVARIATES = 8
"""Covariates of a projection: their moments up to the fourth are released."""
MOMENT_SHARES = (0.45, 0.03, 0.4, 0.04, 0.08)
"""Shares of the squared norm of the moments: for moments of features of second and of fourth order, then for features
of first, of third and of second order with returns; the last has squared returns."""


@dataclass(frozen=True, kw_only=True)
class BestLinearProjection(ValuesConfig):
    """Options of best linear projections; all of them are public facts.

    Attributes:
        discount: gamma, in [0, 1].
        covariates: names, with commas between them, of the components of the first state that values are projected on;
            by default all components that have more than one value.
        value_budget_fraction: share of mu^2 that pays for values and differences for everybody; the rest pays for the
            projections.
        confidence: nominal coverage of the intervals, and of all bands of a release together.
        variance_margin: number of standard errors of its own noise that are added to a sampling variance before an
            interval or a band uses it.
        noise_multiplier: overrides the calibration to the budget; the certificate then states what it costs.
    """

    discount: float = 0.99
    covariates: str | None = None
    value_budget_fraction: float = 0.25
    confidence: float = 0.95
    variance_margin: float = 1.0
    noise_multiplier: float | None = None

    algorithm: ClassVar[str] = "best-linear-projection"
    learns: ClassVar[str] = "best linear projections with their bands"
    ranges: ClassVar[Mapping[str, str]] = {
        "discount": "[0, 1]",
        "value_budget_fraction": "(0, 1)",
        "confidence": "(0.5, 1)",
        "variance_margin": "[0, 5]",
        "noise_multiplier": "(0, inf)",
    }

    def value_query(
        self, bounds: Bounds, policies: Sequence[Any], contrasts: Sequence[tuple[int, int]]
    ) -> ProjectionQuery:
        """Return the query for values of ``policies`` and for their projections."""
        self._check(
            "products of importance ratios would be cut, and nothing tells where: give one row a person, with horizon "
            "= 1, or declare no max_cumulative_ratio below the largest product",
            not bounds.cuts_products,
        )
        options = ImportanceSampling(
            discount=self.discount, confidence=self.confidence, variance_margin=self.variance_margin
        )
        inner = options.value_query(bounds, policies, contrasts)
        return ProjectionQuery(self, inner, self._components(bounds))

    def _components(self, bounds: Bounds) -> tuple[int, ...]:
        """Return the places of the covariates among the components of a state."""
        names = list(bounds.state_names)
        vary = [name for name, (low, high) in zip(names, bounds.state, strict=True) if low < high]
        asked = vary if self.covariates is None else [name.strip() for name in self.covariates.split(",")]
        for name in asked:
            self._check(
                f"covariates: no component {name!r} has more than one value; there are {', '.join(vary) or 'none'}",
                name in vary,
            )
        found = tuple(names.index(name) for name in asked)
        self._check("covariates name a component twice", len(set(found)) == len(found))
        self._check(
            f"there are {len(found)} covariates, and at most {MOST_COVARIATES} are possible: name some in covariates",
            len(found) <= MOST_COVARIATES,
        )
        return found


class MomentWeights(NamedTuple):
    """Factors in a unit's vector of the moments that :data:`MOMENT_SHARES` names, and of products of two returns."""

    gram: float
    quartic: float
    linear: float
    cubic: float
    square: float
    product: float


@dataclass(frozen=True)
class ProjectionQuery(BaseValueQuery):
    """Query to the units, made from public facts only; it turns their noisy sum into values and projections.

    Attributes:
        inner: query for values and differences for everybody.
        components: places of the covariates among the components of a state.
    """

    config: BestLinearProjection
    inner: ImportanceQuery
    components: tuple[int, ...]

    clip_norm: ClassVar[float] = 1.0

    @property
    def words(self) -> str:
        """The estimator's name as a report says it."""
        return f"{self.inner.words} and its linear projection"

    @property
    def bounds(self) -> Bounds:
        """Public bounds of the log."""
        return self.inner.bounds

    @property
    def strategy(self) -> Float[np.ndarray, "policies policies"]:
        """Matrix over the target policies."""
        return self.inner.strategy

    @property
    def size(self) -> int:
        """Number of features: a constant and the covariates."""
        return 1 + len(self.components)

    @property
    def blocks(self) -> tuple[tuple[int, int, float], ...]:
        """Number of rows, order in the features, and weight of each kind of moment, in the order of the vector."""
        policies, pairs, w = len(self.strategy), len(self.inner.contrasts), self.weights
        return (
            (1, 2, w.gram), (1, 4, w.quartic), (policies, 1, w.linear), (policies, 3, w.cubic), (policies, 2, w.square),
            *([(pairs, 2, w.product)] if pairs else []),
        )  # fmt: skip

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        orders = (rows * math.comb(self.size + order - 1, order) for rows, order, _ in self.blocks)
        return self.inner.dimension + sum(orders)

    @cached_property
    def weights(self) -> MomentWeights:
        """Weights with which no pattern of the policies makes a unit's vector longer than one."""
        product = math.sqrt(MOMENT_SHARES[-1]) * product_weight(self.inner.contrasts)
        alone = MomentWeights._make([*map(math.sqrt, MOMENT_SHARES), product])
        patterns = self.inner.patterns
        first, squares = (np.sum((x @ self.strategy.T) ** 2, axis=1) for x in (patterns, patterns**2))
        both = sum(((patterns[:, a] * patterns[:, b]) ** 2 for a, b in self.inner.contrasts), np.zeros(len(patterns)))
        # every part grows with the features and with the sizes of returns: the vector is longest where they are largest
        longest = alone.gram**2 + alone.quartic**2 + first * (alone.linear**2 + alone.cubic**2)
        longest = float((longest + alone.square**2 * squares + product**2 * both).max())
        scale = math.sqrt((1.0 - self.config.value_budget_fraction) / longest)
        return MomentWeights._make(scale * weight for weight in alone)

    def with_confidence(self, confidence: float) -> ProjectionQuery:
        """Return the same query with intervals of another nominal confidence."""
        return replace(
            self, config=self.config.replace(confidence=confidence), inner=self.inner.with_confidence(confidence)
        )

    # --- a unit's vector ----------------------------------------------------------------------------------------------

    def unit_vectors(
        self, log: Trajectories, policies: Sequence[Any], behavior: Any = None
    ) -> Float[np.ndarray, "units dim"]:
        """Return ``(U, dimension)`` vectors of the units, before they are clipped. Private."""
        states = unit_states(first_states(log)[:, self.components], self._bounds_of_covariates)
        features = np.concatenate([np.ones((log.units, 1)), 2.0 * states - 1.0], axis=1) / math.sqrt(self.size)
        present = unit_means(log, np.ones(log.episodes))
        pairs = [unit_pairs(self.inner, log, step_ratios(policy, log, behavior)) for policy in policies]
        returns = np.stack([above - below for above, below in pairs], axis=1)
        share = math.sqrt(self.config.value_budget_fraction) / self.inner.clip_norm
        of_values = share * self.inner.unit_vectors(log, policies, behavior)
        return np.concatenate([of_values, self.moments(features, present[:, None], returns)], axis=1)

    def moments(
        self,
        features: Float[np.ndarray, "units size"],
        present: Float[np.ndarray, "units 1"],
        returns: Float[np.ndarray, "units policies"],
    ) -> Float[np.ndarray, "units n"]:
        """Return the part of the units' vectors that is for projections.

        Args:
            features: the units' features, of norm at most one.
            present: share of a unit's trajectories that can be used.
            returns: weighted distances to the middle of the range, in [-1, 1].
        """
        rows = [present, present**2, mixed(returns, self.strategy)]
        rows += [present * rows[-1], mixed(returns**2, self.strategy)]
        if self.inner.contrasts:
            rows.append(np.stack([returns[:, a] * returns[:, b] for a, b in self.inner.contrasts], axis=1))
        out = []
        for (_, order, weight), row in zip(self.blocks, rows, strict=True):
            of_features = powers(features, order)
            out += [weight * row[:, k : k + 1] * of_features for k in range(row.shape[1])]
        return np.concatenate(out, axis=1)

    @property
    def _bounds_of_covariates(self) -> tuple[tuple[float, float], ...]:
        return tuple(self.bounds.state[place] for place in self.components)

    # --- from the noisy sum to values ---------------------------------------------------------------------------------

    def _of_values(
        self, mechanism: GaussianSum, noisy: Float[np.ndarray, " dim"] | None = None
    ) -> tuple[GaussianSum, Any]:
        """Return the mechanism and the noisy sum of the query for values only (``inner``)."""
        share = math.sqrt(self.config.value_budget_fraction)
        inner, parts = self.inner, ((self.inner.dimension, self.inner.clip_norm),)
        own = replace(mechanism, parts=parts, noise_multiplier=mechanism.noise_multiplier / share)
        return own, None if noisy is None else noisy[: inner.dimension] * inner.clip_norm / share

    def decode(self, mechanism: GaussianSum, noisy: Float[np.ndarray, " dim"]) -> list[ValueEstimate]:
        """Return values and intervals of all target policies from the released vector: post-processing."""
        return self.inner.decode(*self._of_values(mechanism, noisy))

    def difference(self, mechanism: GaussianSum, noisy: Float[np.ndarray, " dim"], a: int, b: int) -> Difference:
        """Return the value of policy ``a`` less that of ``b``, for a pair that was asked for."""
        return self.inner.difference(*self._of_values(mechanism, noisy), a, b)

    def expect(self, mechanism: GaussianSum) -> list[tuple[float, float, float]]:
        """Return the errors of the values to expect, from public facts only."""
        return self.inner.expect(self._of_values(mechanism)[0])

    # --- from the noisy sum to projections ----------------------------------------------------------------------------

    def learned(self, mechanism: GaussianSum, noisy: Float[np.ndarray, " dim"]) -> Projections:
        """Return the projections of all target policies and differences: post-processing."""
        policies, contrasts = len(self.strategy), self.inner.contrasts
        asked = [*((a, None) for a in range(policies)), *contrasts]
        # where weights show that a declared fact is false, nothing bounds the bias of the projection
        false = [not {WEIGHTS_BELOW_ONE, WEIGHTS_ABOVE_ONE}.isdisjoint(e.notes) for e in self.decode(mechanism, noisy)]
        scale = self.inner.scale
        unit, centre = scale.width / 2.0, (scale.low + scale.high) / 2.0
        found = []
        for (a, b), moments in zip(asked, self._moments(mechanism.noise_std, noisy, asked), strict=True):
            solved = None
            if not any(false[p] for p in (a, b) if p is not None):
                solved = solve(moments, self._critical, self.config.variance_margin)
            if solved is None:
                found.append(Projection(a, b))
                continue
            weights, covariance = unit / math.sqrt(self.size) * solved[0], unit**2 / self.size * solved[1]
            weights[0] += centre if b is None else 0.0
            found.append(Projection(a, b, weights, covariance))
        names = tuple(self.bounds.state_names[place] for place in self.components)
        bounds = tuple((float(low), float(high)) for low, high in self.bounds.state)
        return Projections(self.components, names, bounds, self._critical, tuple(found))

    def cautions(self, mechanism: GaussianSum) -> list[str]:
        """Return a warning where no band can be given, whatever the log holds."""
        noise = self._critical * mechanism.noise_std / self.weights.gram
        # the smallest eigenvalue of the matrix is at most the mean of all eigenvalues
        if noise < self.bounds.units / self.size:
            return []
        return ["The privacy noise hides the covariates' moments whatever the log holds: there will be no band. It "
                "takes more units, a larger epsilon, or fewer covariates."]  # fmt: skip

    @property
    def _critical(self) -> float:
        """Half-width of a band in standard errors; all bands of a release must hold together (Bonferroni)."""
        bands = len(self.strategy) + len(self.inner.contrasts)
        return critical_value(1.0 - (1.0 - self.config.confidence) / bands, self.size)

    def _moments(
        self, noise: float, noisy: Float[np.ndarray, " dim"], asked: Sequence[tuple[int, int | None]]
    ) -> list[Moments]:
        """Return the moments of each policy or difference, with the noise in each."""
        found, start = [], self.inner.dimension
        for rows, order, weight in self.blocks:
            stop = start + rows * math.comb(self.size + order - 1, order)
            found.append(noisy[start:stop].reshape(rows, -1) / weight)
            start = stop
        gram, quartic, *of_returns = found
        inverse, w = np.linalg.inv(self.strategy), self.weights
        linear, cubic, square = (inverse @ part for part in of_returns[:3])
        whole = tensor(gram[0], self.size, 2), tensor(quartic[0], self.size, 4)
        out = []
        for a, b in asked:
            row, squares, of_square = inverse[a], square[a], noise / w.square * float(np.linalg.norm(inverse[a]))
            first, third = linear[a], cubic[a]
            if b is not None:
                row, first, third = row - inverse[b], first - linear[b], third - cubic[b]
                squares = squares + square[b] - 2.0 * of_returns[3][self.inner.contrasts.index((a, b))]
                of_square = noise / w.square * float(np.linalg.norm(inverse[a] + inverse[b]))
                of_square = math.hypot(of_square, 2.0 * noise / w.product)
            long = float(np.linalg.norm(row))
            noises = noise / w.gram, noise / w.quartic, long * noise / w.linear, long * noise / w.cubic, of_square
            third, squares = tensor(third, self.size, 3), tensor(squares, self.size, 2)
            out.append(Moments(whole[0], whole[1], first, third, squares, noises))
        return out


_ONE_STEP = {"horizon": 1, "max_cumulative_ratio": 1.6}
ALGORITHM = Algorithm(
    BestLinearProjection,
    settings={
        "one decision": Setting(BestLinearProjection(discount=0.9), facts=_ONE_STEP),
        "several steps": Setting(
            BestLinearProjection(discount=0.9), facts={"horizon": 2, "max_cumulative_ratio": 2.56}
        ),
        "differences": Setting(BestLinearProjection(discount=0.9), facts=_ONE_STEP, compare=("all",)),
    },
    canary="dprl.audits.attacks.programs:importance_canary",
)
