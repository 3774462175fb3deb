"""Propensities from a private multinomial regression on declared terms: what a unit contributes, and what is fitted.

Terms are public functions of the state. One noisy sum of products of terms, by action, gives an outcome model and a
start. Noisy Newton steps follow; each one uses a noisy score and a noisy information matrix. Derivation:
docs/proofs/stratified.md.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dprl.bounds import Bounds
from dprl.engine.layouts import Block, project
from dprl.engine.program import PublicProgram, Query
from dprl.errors import DprlError
from dprl.evaluation.adassp import smat, svec
from dprl.evaluation.strata import Axis, check_distinct_axes, place_of, read_axis

LINEAR = ":linear"
"""Suffix of the name of a component that is a term of the regression, and has no cells."""
MOST_COEFFICIENTS = 40
"""Most coefficients of a regression."""
NEWTON_STEPS = 2
"""Newton steps after the start, which is one itself."""
INFORMATION_WEIGHT = 0.5
"""Weight of the information of a Newton step against its score."""
MOMENTS_SHARE = 0.4
"""Share of the propensities' part of mu^2 that pays for products of terms and outcomes; the rest pays for the steps."""
_LEAST = 1e-9


def declares_regression(bounds: Bounds) -> bool:
    """Return whether the bounds declare terms of a regression, rather than only strata."""
    return any(_is_linear(declared) for declared in bounds.strata or ())


def _is_linear(declared: str) -> bool:
    return declared.replace(" ", "").endswith(LINEAR)


@dataclass(frozen=True)
class RegressionTerms:
    """Terms of the regression: a constant, linear components, and cell indicators of the other components.

    A component with cells has an indicator for each cell but the first.

    Attributes:
        bounds: public bounds, whose ``strata`` declare the terms.

    Raises:
        DprlError: a declaration names no component, two name the same component, or there are too many coefficients.
    """

    bounds: Bounds

    def __post_init__(self) -> None:
        check_distinct_axes([*self.linear_axes, *self.cell_axes], "bounds: strata")
        if self.coefficients > MOST_COEFFICIENTS:
            raise DprlError(
                f"bounds: strata make {self.coefficients} coefficients of a regression; at most {MOST_COEFFICIENTS} "
                "are fitted."
            )

    @cached_property
    def linear_axes(self) -> list[Axis]:
        """Components that enter linearly."""
        declared = filter(_is_linear, self.bounds.strata or ())
        names = [one.partition(":")[0].strip() for one in declared]
        return [Axis(place_of(name, self.bounds, "bounds: strata"), name, (), codes=False) for name in names]

    @cached_property
    def cell_axes(self) -> list[Axis]:
        """Components that enter through the cell that their value is in."""
        return [read_axis(declared, self.bounds) for declared in self.bounds.strata or () if not _is_linear(declared)]

    @property
    def size(self) -> int:
        """Number of terms, including the constant."""
        return 1 + len(self.linear_axes) + sum(axis.size - 1 for axis in self.cell_axes)

    @property
    def actions(self) -> int:
        """Number of actions."""
        return self.bounds.actions or 1

    @property
    def coefficients(self) -> int:
        """Number of coefficients: one for each term and each action but the first."""
        return (self.actions - 1) * self.size

    @property
    def norm(self) -> float:
        """Largest norm of the terms before they are scaled to at most one."""
        return math.sqrt(1.0 + len(self.linear_axes) + len(self.cell_axes)) * (1.0 + 1e-6)

    @property
    def names(self) -> list[str]:
        """Name of each term."""
        return [
            "constant",
            *(a.name for a in self.linear_axes),
            *(label for a in self.cell_axes for label in a.labels()[1:]),
        ]

    def of_states(self, states: Any, xp: Any = np) -> Any:
        """Return ``(..., D)`` terms of ``states`` ``(..., d)``, with a norm of at most one."""
        columns = [xp.ones_like(states[..., 0])]
        for axis in self.linear_axes:
            low, high = self.bounds.state[axis.component]
            middle, half = (low + high) / 2.0, max((high - low) / 2.0, 1e-300)
            columns.append(xp.clip((states[..., axis.component] - middle) / half, -1.0, 1.0))
        for axis in self.cell_axes:
            cells = axis.cells(states, xp)
            columns += [xp.where(cells == place, 1.0, 0.0).astype(states.dtype) for place in range(1, axis.size)]
        return xp.stack(columns, axis=-1) / xp.asarray(self.norm, dtype=states.dtype)

    # --- queries ------------------------------------------------------------------------------------------------------

    @property
    def triangle(self) -> int:
        """Number of products of two terms."""
        return self.size * (self.size + 1) // 2

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Pairs of actions with a block of the information matrix; actions are counted without the first."""
        return list(itertools.combinations_with_replacement(range(self.actions - 1), 2))

    @property
    def longest_score(self) -> float:
        """Largest norm of a score: indicators of the action taken less probabilities, without the first action's."""
        return 1.0 if self.actions == 2 else math.sqrt(2.0)

    @property
    def information_scale(self) -> float:
        """Weight of the information, whose norm is at most 1/4, or 1/2 with more than two actions."""
        return INFORMATION_WEIGHT * (4.0 if self.actions == 2 else 2.0)

    def queries(self) -> tuple[Query, Query]:
        """Return the queries: for moments, then for scores with their information."""
        moments = self.actions * (self.triangle + self.size)
        step = self.coefficients + len(self.pairs) * self.triangle
        longest = math.hypot(self.longest_score, INFORMATION_WEIGHT)
        return (
            Query("moments", moments, math.sqrt(2.0) * (1.0 + 1e-6), share=MOMENTS_SHARE),
            Query("scores", step, longest * (1.0 + 1e-6), steps=NEWTON_STEPS, share=1.0 - MOMENTS_SHARE),
        )

    @property
    def released_size(self) -> int:
        """How many numbers a release keeps: the length of :meth:`RegressionProgram.answer`."""
        return sum(query.dimension for query in self.queries()) + self.coefficients

    # --- what is computed from noisy sums -----------------------------------------------------------------------------

    def products(self, moments: Float[Array, " n"]) -> Float[Array, "actions size size"]:
        """Return ``(A, D, D)`` noisy sums of products of terms, over the people who got each action."""
        rows = moments[: self.actions * self.triangle].reshape(self.actions, self.triangle)
        return jnp.stack([smat(row, self.size) for row in rows])

    def start(self, moments: Float[Array, " n"], noise: float) -> Float[Array, " coefficients"]:
        """Return the coefficients after one Newton step from a model in which all people have the same propensities."""
        products = self.products(moments)
        counts = jnp.maximum(products[:, 0, 0] * self.norm**2, 1.0)
        shares = counts / jnp.sum(counts)
        columns = products[:, 0, :] * self.norm
        score = (columns - shares[:, None] * jnp.sum(columns, axis=0))[1:].reshape(-1)
        spread = (jnp.diag(shares) - jnp.outer(shares, shares))[1:, 1:]
        information = jnp.kron(spread, jnp.sum(products, axis=0))
        first = jnp.zeros((self.actions - 1, self.size)).at[:, 0].set(jnp.log(shares[1:] / shares[0]) * self.norm)
        return first.reshape(-1) + ridge_inverse(information, noise * math.sqrt(2.0 * self.size)) @ score

    def information(self, released: Float[Array, " n"]) -> Float[Array, "coefficients coefficients"]:
        """Return the information matrix from its released numbers."""
        out = jnp.zeros((self.coefficients, self.coefficients))
        for (a, b), row in zip(self.pairs, released.reshape(len(self.pairs), self.triangle), strict=True):
            both = np.zeros((self.actions - 1, self.actions - 1))
            both[a, b] = both[b, a] = 1.0 if a == b else math.sqrt(0.5)
            out = out + jnp.kron(jnp.asarray(both), smat(row, self.size))
        return out / self.information_scale

    def ridge(self, noise: float) -> float:
        """Return what is added to the eigenvalues of an information matrix whose released numbers have this noise."""
        return noise / self.information_scale * math.sqrt(2.0 * self.coefficients)


def ridge_inverse(matrix: Float[Array, "n n"], ridge: float) -> Float[Array, "n n"]:
    """Return the inverse of a noisy symmetric matrix, with a ridge. Negative eigenvalues are noise and count as 0."""
    values, vectors = jnp.linalg.eigh(matrix)
    return (vectors / (jnp.maximum(values, 0.0) + jnp.maximum(ridge, _LEAST))) @ vectors.T


class PropensityState(NamedTuple):
    """State of the propensity regression between steps, computed from noisy sums only."""

    moments: Float[Array, " moments"]
    before: Float[Array, " coefficients"]
    beta: Float[Array, " coefficients"]
    information: Float[Array, " n"]


@dataclass(frozen=True)
class RegressionProgram(PublicProgram):
    """Program that releases products of terms and outcomes by action, then noisy Newton steps."""

    columns = ("step", "raw_reward", "states", "actions")

    @cached_property
    def terms(self) -> RegressionTerms:
        """The declared terms."""
        return RegressionTerms(self.facts.bounds)

    def init(self) -> PropensityState:
        """Return the state before the first step."""
        moments, scores = self.terms.queries()
        beta = jnp.zeros(self.terms.coefficients)
        return PropensityState(
            jnp.zeros(moments.dimension), beta, beta, jnp.zeros(scores.dimension - self.terms.coefficients)
        )

    def contribution(self, stage: int, state: PropensityState, block: Block) -> Float[Array, "units dim"]:
        """Return a unit's products of terms and outcomes, or its score and information at the coefficients so far."""
        terms, dtype = self.terms, block.step.dtype
        f = terms.of_states(block.states.astype(dtype), jnp)
        taken = (block.actions[..., None] == jnp.arange(terms.actions)).astype(dtype)
        if stage == 0:
            return jnp.concatenate(
                [
                    project(block.step, _row_products(taken, svec(f))),
                    project(block.step_raw_reward, _row_products(taken, f)),
                ],
                axis=-1,
            )
        beta = state.beta.reshape(-1, terms.size).astype(dtype)
        logits = jnp.concatenate([jnp.zeros_like(f[..., :1]), f @ beta.T], axis=-1)
        p = jax.nn.softmax(logits, axis=-1)
        known = taken.sum(axis=-1, keepdims=True)  # a row with none of the actions contributes nothing
        left, q = ((taken - p) * known)[..., 1:], (p * known)[..., 1:]
        spread = jnp.stack(
            [
                q[..., a] * (1.0 - p[..., a + 1]) if a == b else -math.sqrt(2.0) * q[..., a] * p[..., b + 1]
                for a, b in terms.pairs
            ],
            axis=-1,
        )
        rows = [
            _row_products(left, f),
            jnp.asarray(terms.information_scale, dtype=dtype) * _row_products(spread, svec(f)),
        ]
        return project(block.step, jnp.concatenate(rows, axis=-1))

    def update(self, stage: int, state: PropensityState, noisy: Float[Array, " dim"], step: Any) -> PropensityState:
        """Return the state after one noisy sum: the start, or a Newton step."""
        del step
        terms, noise = self.terms, self.stages[stage].mechanism.noise_std
        if stage == 0:
            beta = terms.start(noisy, noise)
            return state._replace(moments=noisy, before=beta, beta=beta)
        score, information = jnp.split(noisy, [terms.coefficients])
        moved = ridge_inverse(terms.information(information), terms.ridge(noise)) @ score
        return state._replace(before=state.beta, beta=state.beta + moved, information=information)

    def answer(self, state: PropensityState) -> Float[Array, " n"]:
        """Return what was released: the moments, the coefficients before and after the last step, its information."""
        return jnp.concatenate(state)


def _row_products(left: Float[Array, "*rows k"], right: Float[Array, "*rows n"]) -> Float[Array, "*rows kn"]:
    """Return, row by row, all products of a number of ``left`` and a number of ``right``."""
    return (left[..., None] * right[..., None, :]).reshape(*right.shape[:-1], left.shape[-1] * right.shape[-1])
