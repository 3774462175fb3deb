"""Monte Carlo ridge regression on returns from noisy sufficient statistics, released once (AdaSSP).

Paper: Wang (2018), "Revisiting differentially private linear regression", Algorithm 2: statistics, noise, ridge.
Here the two statistics are clipped and noised as one vector, the ridge is public, and few features are used.
Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: a noisy mean return, and one noisy vector of statistics around it; the solve is post-processing.
Proof: docs/proofs/adassp.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dprl.config import DERIVED
from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.layouts import Block, apply, project
from dprl.engine.program import PublicFacts, Query, Stage, ValueFunctionConfig
from dprl.errors import DprlError
from dprl.evaluation.recommended_modes import MOST_COLUMNS, make_modes
from dprl.value_functions.features import Columns, Features, Fourier, Tabular

CONSTANT, STATISTICS = "constant", "statistics"
# what is expected of the weights of a value function in [-1, 1], but for the constant
_VARIANCE = 0.1


@dataclass(frozen=True, kw_only=True)
class StatisticsConfig(ValueFunctionConfig):
    """Options of an algorithm that releases statistics of modes, around a constant.

    Attributes:
        modes: number of smooth public functions of the state (cosines; for ``columns`` the features themselves) that
            the value function is made of; by default it follows the units and the budget, see :func:`default_modes`.
        start_weight: weight of a trajectory's first row against the mean over all its rows, from 0 to 1.
        constant_share: share of mu^2 that pays for a constant value function, around which the solution shrinks; 0
            for none, and then it shrinks to the middle of the value range.
        kappa: weight of the part of the statistics that depends on rewards against the part that does not.
    """

    modes: int | None = None
    start_weight: float = 0.5
    constant_share: float = 0.2
    kappa: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("modes must be at least 1", self.modes is None or self.modes >= 1)
        self._check("start_weight must be between 0 and 1", 0.0 <= self.start_weight <= 1.0)
        self._check("constant_share must be at least 0 and below 1", 0.0 <= self.constant_share < 1.0)
        self._check("kappa must be between 1e-3 and 1e3", 1e-3 <= self.kappa <= 1e3)


@dataclass(frozen=True, kw_only=True)
class AdaSSP(StatisticsConfig):
    """Options of AdaSSP; public facts, all of them.

    Attributes:
        kappa: weight of the products of features and returns against those of features and features.
    """

    kappa: float = 2.0

    algorithm: ClassVar[str] = "adassp"

    def queries(self, facts: PublicFacts) -> tuple[Query, ...]:
        """Return the sums that are asked for, from public facts."""
        k = modes_of(self.algorithm, self.modes, facts)
        clip = modes_bound(facts.features, k) ** 2 * math.hypot(1.0, self.kappa)
        return (
            *constant_shape(self.constant_share),
            Query(STATISTICS, k * (k + 1) // 2 + k, clip, share=1.0 - self.constant_share),
        )

    def program(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> AdaSSPProgram:
        """Return the program with everything public filled in."""
        k = modes_of(self.algorithm, self.modes, facts)
        return AdaSSPProgram(
            config=self.replace(DERIVED, modes=k) if self.modes is None else self,
            stages=stages,
            features=facts.features,
            units=facts.units,
            ratio=facts.ratio,
            box=facts.box,
            modes=k,
        )


class State(NamedTuple):
    """Made of noisy sums alone, in public units."""

    level: jax.Array  # () the constant value function
    theta: jax.Array  # (n,)


def default_modes(facts: PublicFacts) -> int:
    """Return ``n0^(1 / (2 + 2.5 / d))`` for ``d`` components that vary and ``n0`` = :attr:`PublicFacts.strength`.

    With ``k`` modes the noise grows as a power of ``k`` over ``n0``, and the part of a smooth function that they cannot
    express shrinks as a power of ``k^(1/d)``. The exponent was chosen on simulated chains.
    """
    d = max(1, sum(high > low for low, high in facts.features.bounds))
    return max(1, int(max(facts.strength, 1.0) ** (1.0 / (2.0 + 2.5 / d))))


def modes_of(algorithm: str, asked: int | None, facts: PublicFacts) -> int:
    """Return how many modes are used; refuses features of which none are known, and more than there are."""
    if not isinstance(facts.features, Columns | Tabular | Fourier):
        raise DprlError(f"{algorithm}: no smooth modes are known of these features; use columns, tabular or fourier.")
    if isinstance(facts.features, Columns) and facts.features.size > MOST_COLUMNS + 1:
        raise DprlError(f"{algorithm}: statistics of more than {MOST_COLUMNS} columns are too many; use td.")
    most = make_modes(facts.features).size
    if asked is not None and asked > most:
        raise DprlError(f"{algorithm}: these features have at most {most} modes; choose fewer, or leave modes out.")
    return min(most, default_modes(facts)) if asked is None else asked


def modes_basis(features: Features, modes: int) -> np.ndarray:
    """Return ``(n, modes)`` with orthonormal columns; the first mode is the constant 1.

    ``phi @ basis`` are the modes at a state; ``basis @ c`` are the weights over the features of the function that has
    weights ``c`` over the modes.
    """
    return make_modes(features).to_features[:, :modes]


def modes_bound(features: Features, modes: int) -> float:
    """Return largest norm of the first ``modes`` modes at a state; rounded up, as the rows are in single precision."""
    return math.sqrt(float(make_modes(features).extreme[:, :modes].sum(axis=1).max())) * (1.0 + 1e-6)


def constant_shape(share: float) -> tuple[Query, ...]:
    """Return the stage of the constant; none if it has no share."""
    return (Query(CONSTANT, 1, 1.0, share=share),) if share else ()


def mixed_rows(block: Block, start_weight: float) -> tuple[jax.Array, jax.Array]:
    """Return ``(B, L)`` weights of rows, at most one in sum over a unit, and the same times the rows' returns."""
    rows = (1.0 - start_weight) * block.weight + start_weight * block.start
    return rows, (1.0 - start_weight) * block.weight_return + start_weight * block.start_return


def level_of(noisy: jax.Array, noise: float, scale: float) -> jax.Array:
    """Return the constant from its noisy sum, for a prior variance of 1/3 (that of a uniform level): near zero where it
    is noise, and in [-1, 1].
    """
    return jnp.clip(scale * noisy / (1.0 + 3.0 * (scale * noise) ** 2), -1.0, 1.0)


def svec(features: jax.Array) -> jax.Array:
    """Return ``(..., k)`` to the upper triangles ``(..., k (k + 1) / 2)`` of ``f f'``, off-diagonals times sqrt 2.

    So its norm is ``|f|^2``, and independent noise of one size is that of the Gaussian orthogonal ensemble.
    """
    i, j = np.triu_indices(features.shape[-1])
    scale = np.where(i == j, 1.0, math.sqrt(2.0))
    return features[..., i] * features[..., j] * jnp.asarray(scale, dtype=features.dtype)


def smat(vector: jax.Array, size: int) -> jax.Array:
    """Return the symmetric ``(size, size)`` matrix of which ``vector`` is the :func:`svec`."""
    i, j = np.triu_indices(size)
    entries = vector / np.where(i == j, 1.0, math.sqrt(2.0))
    return jnp.zeros((size, size), vector.dtype).at[i, j].set(entries).at[j, i].set(entries)


@dataclass(frozen=True, kw_only=True)
class StatisticsProgram:
    """A constant, if it has a share, and then a solution around it; everything public filled in.

    Attributes:
        ratio: scale W of the returns in the rows (1 on-policy).
    """

    config: StatisticsConfig
    stages: tuple[Stage, ...]
    features: Features
    units: int
    ratio: float
    box: float

    columns = ("returns", "start")

    def init(self) -> State:
        """Return the state before the first step."""
        return State(jnp.zeros((), jnp.float64), jnp.zeros(self.features.size, jnp.float64))

    def update(self, stage: int, state: State, noisy: jax.Array, step: Any) -> State:
        """Return the state after a step, from its noisy sum."""
        del step
        if self.stages[stage].name == CONSTANT:
            noise = self.stages[stage].mechanism.noise_std
            return State(level_of(noisy[0], noise, self.ratio / self.units), state.theta)
        return State(state.level, self.solution(state.level, noisy))

    def solution(self, level: jax.Array, noisy: jax.Array) -> jax.Array:
        """Return ``(n,)`` weights of what is added to the constant ``level``, from the noisy statistics."""
        raise NotImplementedError

    def finish(self, stage: int, state: State) -> State:
        """Return the state after the stage's last step."""
        del stage
        return state

    def answer(self, state: State) -> jax.Array:
        """Return the constant and the solution around it; indicators are kept where the value range allows them."""
        return jnp.clip(state.level * self.features.constant() + state.theta, -self.box, self.box)


@dataclass(frozen=True, kw_only=True)
class AdaSSPProgram(StatisticsProgram):
    """Everything public filled in."""

    modes: int

    @property
    def basis(self) -> np.ndarray:
        """Weights of the modes over the features."""
        return modes_basis(self.features, self.modes)

    @property
    def ridge(self) -> float:
        """``sigma sqrt(2 k)``: about the largest eigenvalue of the noise in the k x k matrix.

        Where ratios are large, the noise in the products of features and returns asks for more: as much as is best
        for weights of variance :data:`_VARIANCE`, were the matrix that of evenly spread states.
        """
        noise = self.stages[-1].mechanism.noise_std
        cross = noise * (self.ratio + 1.0) / self._kappa
        return max(noise * math.sqrt(2.0 * self.modes), cross**2 / (self.units * _VARIANCE))

    @property
    def _kappa(self) -> float:
        return self.config.kappa * modes_bound(self.features, self.modes)

    def contribution(self, stage: int, state: State, block: Block) -> jax.Array:
        """Return the mean return; or ``(svec sum w f f', kappa sum w f e)`` with ``e = (W y - level) / (W +
        |level|)``.
        """
        rows, returns = mixed_rows(block, self.config.start_weight)
        if self.stages[stage].name == CONSTANT:
            return jnp.sum(returns, axis=-1, keepdims=True)
        dtype = block.phi.dtype
        f = apply(block.phi, jnp.asarray(self.basis, dtype=dtype))
        level = state.level.astype(dtype)
        error = (self.ratio * returns - level * rows) / (self.ratio + jnp.abs(level))
        return jnp.concatenate([project(rows, svec(f)), self._kappa * project(error, f)], axis=-1)

    def solution(self, level: jax.Array, noisy: jax.Array) -> jax.Array:
        """Return the weights of what is added to the constant, from the noisy statistics."""
        k = self.modes
        split = k * (k + 1) // 2
        # the matrix without noise has no negative eigenvalue
        values, vectors = jnp.linalg.eigh(smat(noisy[:split], k))
        cross = noisy[split:] / self._kappa * (self.ratio + jnp.abs(level))
        weights = vectors @ ((vectors.T @ cross) / (jnp.maximum(values, 0.0) + self.ridge))
        return jnp.asarray(self.basis) @ weights


ALGORITHM = Algorithm(
    AdaSSP,
    settings={
        "around a constant": Setting(AdaSSP(discount=0.9, modes=2)),
        "without a constant": Setting(AdaSSP(discount=0.9, constant_share=0.0)),
        "Fourier features": Setting(AdaSSP(discount=0.9, modes=3), features="fourier:3"),
    },
)
