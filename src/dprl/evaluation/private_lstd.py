"""LSTD from noisy sufficient statistics: the matrix A and the vector b, released once.

LSTD: Bradtke and Barto (1996). Perturbed statistics with a public ridge: as AdaSSP does for regression (Wang 2018).
Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: a noisy mean return, and one noisy vector of statistics around it; the solve is post-processing.
Proof: docs/proofs/lstd.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from dprl.config import DERIVED
from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.layouts import Block, apply, project
from dprl.engine.program import PublicFacts, Query, Stage
from dprl.evaluation.adassp import (
    CONSTANT,
    STATISTICS,
    State,
    StatisticsConfig,
    StatisticsProgram,
    constant_shape,
    mixed_rows,
    modes_basis,
    modes_bound,
    modes_of,
)
from dprl.evaluation.noisy_counts import _offsets, reward_bound, support_of


@dataclass(frozen=True, kw_only=True)
class PrivateLSTD(StatisticsConfig):
    """Options of private LSTD; public facts, all of them.

    Attributes:
        support: in place of modes, the transitions that can happen between the states of tabular features, as offsets
            such as ``0,1`` or ``full``: then only the entries of A that can differ from zero are released.
        start_weight: as in AdaSSP, for the constant alone.
        kappa: weight of b against A.
    """

    support: str | None = None

    algorithm: ClassVar[str] = "lstd"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("give either modes or support, not both", self.modes is None or self.support is None)
        _offsets(self.algorithm, self.support or "full")

    def queries(self, facts: PublicFacts) -> tuple[Query, ...]:
        """Return the sums that are asked for, from public facts."""
        program = self.program(facts, ())
        # rows are in single precision
        clip = facts.bounds.max_importance_ratio * program.entry_bound * math.hypot(1.0, self.kappa) * (1.0 + 1e-6)
        return (
            *constant_shape(self.constant_share),
            Query(STATISTICS, len(program.entries[0]) + program.size, clip, share=1.0 - self.constant_share),
        )

    def program(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> PrivateLSTDProgram:
        """Return the program with everything public filled in."""
        pairs = None
        if self.support is None:
            size = modes_of(self.algorithm, self.modes, facts)
            bound = modes_bound(facts.features, size)
            entry = bound**2 * (1.0 + facts.discount)
        else:
            support = support_of(self.algorithm, self.support, facts)
            size = facts.features.size
            table = np.eye(size, dtype=bool)
            table[support.rows, support.columns] = True
            pairs = tuple((int(i), int(j)) for i, j in np.argwhere(table))
            bound, entry = 1.0, math.hypot(1.0, facts.discount)
        return PrivateLSTDProgram(
            config=self.replace(DERIVED, modes=size) if pairs is None and self.modes is None else self,
            stages=stages,
            features=facts.features,
            size=size,
            pairs=pairs,
            feature_bound=bound,
            entry_bound=entry,
            reward_bound=reward_bound(facts),
            units=facts.units,
            ratio=facts.ratio,
            box=facts.box,
        )


@dataclass(frozen=True, kw_only=True)
class PrivateLSTDProgram(StatisticsProgram):
    """Everything public filled in.

    Attributes:
        size: number of modes; of states, where a support is given.
        pairs: entries of A that are released; None for all.
        feature_bound, entry_bound: largest norms of a state's modes and of their outer product with a difference.
        reward_bound: largest size of a reward in public units.
    """

    size: int
    pairs: tuple[tuple[int, int], ...] | None
    feature_bound: float
    entry_bound: float
    reward_bound: float

    @property
    def basis(self) -> np.ndarray:
        """``(n, size)``: ``phi @ basis`` are the modes, or the indicators of the states."""
        if self.pairs is None:
            return modes_basis(self.features, self.size)
        return np.eye(self.size) / math.sqrt(self.size)

    @property
    def entries(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of the entries of A that are released."""
        if self.pairs is None:
            i, j = np.indices((self.size, self.size)).reshape(2, -1)
        else:
            i, j = np.array(self.pairs).T
        return i, j

    @property
    def ridge(self) -> float:
        """``sigma sqrt(2 k)``: about the largest eigenvalue of the symmetric part of the noise in a k x k matrix.

        On a support with at most ``r`` entries in a row or column the noise is smaller: ``sigma sqrt(2 (r + ln k))``.
        """
        size: float = self.size
        if self.pairs is not None:
            i, j = self.entries
            size = min(size, max(np.bincount(i).max(), np.bincount(j).max()) + math.log(self.size))
        return self.stages[-1].mechanism.noise_std * math.sqrt(2.0 * size)

    @property
    def _kappa(self) -> float:
        """Makes the norm of b's part kappa times that of A's."""
        return self.config.kappa * self.entry_bound / self.feature_bound

    def contribution(self, stage: int, state: State, block: Block) -> jax.Array:
        """Return the mean return; or the entries of A and kappa b, with rewards less what the constant explains."""
        if self.stages[stage].name == CONSTANT:
            return jnp.sum(mixed_rows(block, self.config.start_weight)[1], axis=-1, keepdims=True)
        dtype = block.phi.dtype
        basis, level = jnp.asarray(self.basis, dtype=dtype), state.level.astype(dtype)
        f, d = apply(block.phi, basis), apply(block.delta_phi, basis)
        i, j = self.entries
        going = apply(block.delta_phi, jnp.asarray(self.features.constant(), dtype=dtype))  # 1 - gamma [not terminal]
        reward = block.weight_rho_reward - level * block.weight_rho * going
        reward = reward / (self.reward_bound + jnp.abs(level))
        return jnp.concatenate(
            [project(block.weight_rho, f[..., i] * d[..., j]), self._kappa * project(reward, f)], axis=-1
        )

    def solution(self, level: jax.Array, noisy: jax.Array) -> jax.Array:
        """Return the weights of what is added to the constant, from the noisy statistics."""
        i, j = self.entries
        matrix = jnp.zeros((self.size, self.size), jnp.float64).at[i, j].set(noisy[: len(i)])
        b = noisy[len(i) :] / self._kappa * (self.reward_bound + jnp.abs(level))
        weights = jnp.linalg.solve(matrix + self.ridge * jnp.eye(self.size), b)
        return jnp.asarray(self.basis) @ weights


ALGORITHM = Algorithm(
    PrivateLSTD,
    settings={
        "around a constant": Setting(PrivateLSTD(discount=0.9, modes=2)),
        "on a support": Setting(PrivateLSTD(discount=0.9, support="-1,0,1"), features="tabular"),
        "without a constant": Setting(PrivateLSTD(discount=0.9, constant_share=0.0)),
    },
)
