"""LSTD from noisy sufficient statistics: the matrix A and the vector b are released once.

LSTD: Bradtke and Barto (1996). Noisy statistics with a public ridge: as AdaSSP does for regression (Wang 2018).
Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: a noisy mean return, and one noisy vector of statistics around it; the solve is post-processing.
Proof: docs/proofs/lstd.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from typing_extensions import override

from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.layouts import Block, apply, project
from dprl.engine.program import PublicFacts, Stage
from dprl.evaluation.adassp import State, StatisticsConfig, StatisticsProgram, modes_basis, modes_bound, modes_of
from dprl.evaluation.noisy_counts import Support, offsets_of, reward_bound, support_of


@dataclass(frozen=True, kw_only=True)
class PrivateLSTD(StatisticsConfig):
    """Options of private LSTD; all are public facts.

    Attributes:
        support: in place of modes, the transitions that can happen between the states of tabular features, as offsets
            such as ``0,1`` or ``full``; then only the entries of A that can differ from zero are released.
        start_weight: as in AdaSSP, but only for the constant.
        kappa: weight of b relative to A.
    """

    support: str | None = None

    algorithm: ClassVar[str] = "lstd"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("give either modes or support, not both", self.modes is None or self.support is None)
        offsets_of(self.algorithm, self.support or "full")

    @override
    def statistics(self, facts: PublicFacts) -> tuple[int, float]:
        program = self.program(facts, ())
        # rows are in single precision
        clip = facts.bounds.max_importance_ratio * program.entry_bound * math.hypot(1.0, self.kappa) * (1.0 + 1e-6)
        return len(program.entries[0]) + program.size, clip

    @override
    def defaults(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> dict[str, Any]:
        return {} if self.support is not None else {"modes": modes_of(self.algorithm, self.modes, facts)}

    @override
    def program(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> PrivateLSTDProgram:
        return PrivateLSTDProgram(self.resolve(facts, stages), stages, facts)


@dataclass(frozen=True)
class PrivateLSTDProgram(StatisticsProgram):
    """Program of private LSTD, with all public numbers filled in."""

    @cached_property
    def support(self) -> Support | None:
        """Transitions that can happen; None where modes are used."""
        given = self.config.support
        return None if given is None else support_of(self.config.algorithm, given, self.facts)

    @property
    def size(self) -> int:
        """Number of modes, or of states where a support is given."""
        return self.config.modes if self.support is None else self.facts.features.size

    @property
    def feature_bound(self) -> float:
        """Largest norm of a state's modes, or of its indicators where a support is given."""
        return modes_bound(self.facts.features, self.size) if self.support is None else 1.0

    @property
    def entry_bound(self) -> float:
        """Largest norm of the outer product of a state's modes and the discounted difference to the next state's."""
        discount = self.facts.discount
        return self.feature_bound**2 * (1.0 + discount) if self.support is None else math.hypot(1.0, discount)

    @property
    def basis(self) -> Float[np.ndarray, "n size"]:
        """``(n, size)`` matrix: ``phi @ basis`` gives the modes, or the indicators of the states."""
        if self.support is None:
            return modes_basis(self.facts.features, self.size)
        return np.eye(self.size) / math.sqrt(self.size)

    @cached_property
    def entries(self) -> tuple[Int[np.ndarray, " entries"], Int[np.ndarray, " entries"]]:
        """Rows and columns of the entries of A that are released."""
        released = np.eye(self.size, dtype=bool)
        if self.support is None:
            released[:] = True
        else:
            released[self.support.rows, self.support.columns] = True
        i, j = np.nonzero(released)
        return i, j

    @property
    def ridge(self) -> float:
        """Ridge ``sigma sqrt(2 k)``: about the largest eigenvalue of the symmetric part of the noise in a k x k matrix.

        On a support with at most ``r`` entries per row and column the noise is smaller: ``sigma sqrt(2 (r + ln k))``.
        """
        size: float = self.size
        if self.support is not None:
            i, j = self.entries
            size = min(size, max(np.bincount(i).max(), np.bincount(j).max()) + math.log(self.size))
        return self.stages[-1].mechanism.noise_std * math.sqrt(2.0 * size)

    @property
    def _kappa(self) -> float:
        """Factor of b, by which the largest norm of b's part is ``config.kappa`` times that of A's part."""
        return self.config.kappa * self.entry_bound / self.feature_bound

    @override
    def vectors(self, state: State, block: Block) -> Float[Array, "units dim"]:
        """Return each unit's entries of A and of kappa b, with rewards less the part that the constant explains."""
        dtype = block.phi.dtype
        basis, level = jnp.asarray(self.basis, dtype=dtype), state.level.astype(dtype)
        f, d = apply(block.phi, basis), apply(block.delta_phi, basis)
        i, j = self.entries
        constant = jnp.asarray(self.facts.features.constant(), dtype=dtype)
        going = apply(block.delta_phi, constant)  # 1 - gamma [not terminal]
        reward = block.weight_rho_reward - level * block.weight_rho * going
        reward = reward / (reward_bound(self.facts) + jnp.abs(level))
        return jnp.concatenate(
            [project(block.weight_rho, f[..., i] * d[..., j]), self._kappa * project(reward, f)], axis=-1
        )

    @override
    def solution(self, level: Float[Array, ""], noisy: Float[Array, " dim"]) -> Float[Array, " n"]:
        i, j = self.entries
        matrix = jnp.zeros((self.size, self.size), jnp.float64).at[i, j].set(noisy[: len(i)])
        b = noisy[len(i) :] / self._kappa * (reward_bound(self.facts) + jnp.abs(level))
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
