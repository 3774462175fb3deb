"""Monte Carlo ridge regression on returns from noisy sufficient statistics, released once (AdaSSP).

Paper: Wang (2018), "Revisiting differentially private linear regression", Algorithm 2: statistics, noise, ridge. Here
the two statistics are clipped and released as one vector, the ridge is public, and few features are used.
Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: a noisy mean return, and one noisy vector of statistics around it; the solve is post-processing.
Proof: docs/proofs/adassp.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from typing_extensions import override

from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.layouts import Block, apply, project
from dprl.engine.program import PublicFacts, Query, Stage, ValueFunctionConfig
from dprl.errors import DprlError
from dprl.evaluation.private_constant import StartedProgram, StartLevel, queries_after_start
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.value_functions.features import Columns, Features, Fourier, Tabular
from dprl.value_functions.modes import MOST_COLUMNS, has_modes, make_modes

CONSTANT, STATISTICS = "constant", "statistics"
# prior variance of each weight of a value function in [-1, 1], except the constant's
_VARIANCE = 0.1


@dataclass(frozen=True, kw_only=True)
class StatisticsConfig(ValueFunctionConfig):
    """Options of an algorithm that releases statistics of modes, around a constant.

    Attributes:
        modes: number of smooth public functions of the state (cosines; for ``columns`` the features themselves) that
            the value function is made of; by default it depends on the number of units and the budget, see
            :func:`default_modes`.
        start_weight: weight of a trajectory's first row against the mean over all its rows, from 0 to 1.
        constant_share: share of mu^2 that pays for a constant value function, towards which the solution is shrunk.
            With 0 no constant is released, and the solution is shrunk towards the middle of the value range.
        kappa: weight of the part of the statistics that depends on rewards, relative to the part that does not.
    """

    modes: int | None = None
    start_weight: float = 0.5
    constant_share: float = 0.2
    kappa: float = 1.0

    ranges: ClassVar[Mapping[str, str]] = {
        "modes": "[1, inf)",
        "start_weight": "[0, 1]",
        "constant_share": "[0, 1)",
        "kappa": "[1e-3, 1e3]",
    }

    def released_start(self, facts: PublicFacts) -> StartLevel | None:
        """Return the release of the constant, or None where :attr:`constant_share` is 0."""
        return ShrunkenMean(facts, self.start_weight) if self.constant_share else None

    @override
    def queries(self, facts: PublicFacts) -> tuple[Query, ...]:
        statistics = Query(STATISTICS, *self.statistics(facts))
        return queries_after_start(self.released_start(facts), self.constant_share, statistics)

    def statistics(self, facts: PublicFacts) -> tuple[int, float]:
        """Return the dimension of the statistics, and the largest norm of one unit's statistics."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class AdaSSP(StatisticsConfig):
    """Options of AdaSSP; all of them are public facts.

    Attributes:
        kappa: weight of the products of features with returns, relative to the products of features with features.
    """

    kappa: float = 2.0

    algorithm: ClassVar[str] = "adassp"

    @override
    def statistics(self, facts: PublicFacts) -> tuple[int, float]:
        k = modes_of(self.algorithm, self.modes, facts)
        return k * (k + 1) // 2 + k, modes_bound(facts.features, k) ** 2 * math.hypot(1.0, self.kappa)

    @override
    def defaults(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> dict[str, Any]:
        return {"modes": modes_of(self.algorithm, self.modes, facts)}

    @override
    def program(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> AdaSSPProgram:
        return AdaSSPProgram(self.resolve(facts, stages), stages, facts)


class State(NamedTuple):
    """State of the program, made of noisy sums only, in public units."""

    level: Float[Array, ""]  # the constant value function
    theta: Float[Array, " n"]


def default_modes(facts: PublicFacts) -> int:
    """Return the default number of modes, ``n0^(1 / (2 + 2.5 / d))``.

    Here ``d`` is the number of state components that vary, and ``n0`` is :attr:`PublicFacts.strength`. With ``k`` modes
    the noise grows as a power of ``k`` over ``n0``, and the part of a smooth function that the modes cannot express
    shrinks as a power of ``k^(1/d)``. The exponent was chosen on simulated chains.
    """
    d = max(1, sum(high > low for low, high in facts.features.bounds))
    return max(1, int(max(facts.strength, 1.0) ** (1.0 / (2.0 + 2.5 / d))))


def modes_of(algorithm: str, asked: int | None, facts: PublicFacts) -> int:
    """Return how many modes are used: ``asked``, or the default.

    Raises:
        DprlError: no modes are known for these features, there are too many columns, or fewer modes exist than are
            asked for.
    """
    if not isinstance(facts.features, Columns | Tabular | Fourier):
        raise DprlError(f"{algorithm}: no smooth modes are known of these features; use columns, tabular or fourier.")
    if not has_modes(facts.features):
        raise DprlError(f"{algorithm}: statistics of more than {MOST_COLUMNS} columns are too many; use td.")
    most = make_modes(facts.features).size
    if asked is not None and asked > most:
        raise DprlError(f"{algorithm}: these features have at most {most} modes; choose fewer, or leave modes out.")
    return min(most, default_modes(facts)) if asked is None else asked


def modes_basis(features: Features, modes: int) -> Float[np.ndarray, "n modes"]:
    """Return the ``(n, modes)`` basis, whose columns are orthonormal; the first mode is the constant 1.

    ``phi @ basis`` gives the modes at a state. ``basis @ c`` turns the weights ``c`` of a function over the modes into
    its weights over the features.
    """
    return make_modes(features).to_features[:, :modes]


def modes_bound(features: Features, modes: int) -> float:
    """Return the largest norm of the first ``modes`` modes at a state, rounded up for rows in single precision."""
    return math.sqrt(float(make_modes(features).extreme[:, :modes].sum(axis=1).max())) * (1.0 + 1e-6)


def mixed_rows(block: Block, start_weight: float) -> tuple[Float[Array, "units rows"], Float[Array, "units rows"]]:
    """Return ``(B, L)`` weights of rows, and ``(B, L)`` weights times returns; a unit's weights sum to at most one."""
    rows = (1.0 - start_weight) * block.weight + start_weight * block.start
    return rows, (1.0 - start_weight) * block.weight_return + start_weight * block.start_return


@dataclass(frozen=True)
class ShrunkenMean(StartLevel):
    """Mean return, shrunk towards zero as far as the noise in it requires."""

    start_weight: float

    columns = ("returns", "start")

    @override
    def query(self) -> Query:
        return Query(CONSTANT, 1, 1.0)

    @override
    def vectors(self, block: Block) -> Float[Array, "units 1"]:
        return jnp.sum(mixed_rows(block, self.start_weight)[1], axis=-1, keepdims=True)

    @override
    def level(self, noisy: Float[Array, " 1"], mechanism: GaussianSum) -> Float[Array, ""]:
        return shrunken_level(noisy[0], mechanism.noise_std, self.facts.ratio / self.facts.units)


def shrunken_level(noisy: Float[Array, ...], noise: float, scale: float) -> Float[Array, ...]:
    """Return the constant in [-1, 1] from its noisy sum, shrunk towards zero as far as the noise requires.

    The prior variance is 1/3, that of a uniform level.
    """
    return jnp.clip(scale * noisy / (1.0 + 3.0 * (scale * noise) ** 2), -1.0, 1.0)


def svec(features: Float[Array, "*rows k"]) -> Float[Array, "*rows triangle"]:
    """Return the upper triangles ``(..., k (k + 1) / 2)`` of ``f f'`` for rows f, with off-diagonals times sqrt 2.

    The factor makes the norm ``|f|^2``. Independent noise of one size is then that of the Gaussian orthogonal ensemble.
    """
    i, j = np.triu_indices(features.shape[-1])
    scale = np.where(i == j, 1.0, math.sqrt(2.0))
    return features[..., i] * features[..., j] * jnp.asarray(scale, dtype=features.dtype)


def smat(vector: Float[Array, " triangle"], size: int) -> Float[Array, "size size"]:
    """Return the symmetric ``(size, size)`` matrix whose upper triangle, as :func:`svec` writes it, is ``vector``."""
    i, j = np.triu_indices(size)
    entries = vector / np.where(i == j, 1.0, math.sqrt(2.0))
    return jnp.zeros((size, size), vector.dtype).at[i, j].set(entries).at[j, i].set(entries)


@dataclass(frozen=True)
class StatisticsProgram(StartedProgram):
    """Program that releases a constant, if this has a share, and then statistics for a solution around the constant.

    Everything public is filled in.
    """

    own_columns = ("returns", "start")

    @override
    def start_at(self, level: Float[Array, ""]) -> State:
        return State(level, jnp.zeros(self.facts.features.size, jnp.float64))

    @override
    def advance(self, stage: int, state: State, noisy: Float[Array, " dim"], step: Any) -> State:
        return State(state.level, self.solution(state.level, noisy))

    def solution(self, level: Float[Array, ""], noisy: Float[Array, " dim"]) -> Float[Array, " n"]:
        """Return ``(n,)`` weights of the function that is added to the constant ``level``, from noisy statistics."""
        raise NotImplementedError

    def answer(self, state: State) -> Float[Array, " n"]:
        """Return the weights of constant plus solution; weights of indicators are clipped to the value range."""
        box = self.facts.box
        return jnp.clip(state.level * self.facts.features.constant() + state.theta, -box, box)


@dataclass(frozen=True)
class AdaSSPProgram(StatisticsProgram):
    """AdaSSP's program with everything public filled in."""

    @property
    def basis(self) -> Float[np.ndarray, "n modes"]:
        """Weights of the modes over the features."""
        return modes_basis(self.facts.features, self.config.modes)

    @property
    def ridge(self) -> float:
        """The ridge ``sigma sqrt(2 k)``: about the largest eigenvalue of the noise in the k x k matrix.

        Where ratios are large, the noise in the products of features and returns needs a larger ridge. It is then the
        best one for weights of variance :data:`_VARIANCE`, if the matrix were that of evenly spread states.
        """
        noise = self.stages[-1].mechanism.noise_std
        cross = noise * (self.facts.ratio + 1.0) / self._kappa
        return max(noise * math.sqrt(2.0 * self.config.modes), cross**2 / (self.facts.units * _VARIANCE))

    @property
    def _kappa(self) -> float:
        return self.config.kappa * modes_bound(self.facts.features, self.config.modes)

    @override
    def vectors(self, state: State, block: Block) -> Float[Array, "units dim"]:
        """Return ``(svec sum w f f', kappa sum w f e)`` with ``e = (W y - level) / (W + |level|)``."""
        rows, returns = mixed_rows(block, self.config.start_weight)
        dtype, ratio = block.phi.dtype, self.facts.ratio
        f = apply(block.phi, jnp.asarray(self.basis, dtype=dtype))
        level = state.level.astype(dtype)
        error = (ratio * returns - level * rows) / (ratio + jnp.abs(level))
        return jnp.concatenate([project(rows, svec(f)), self._kappa * project(error, f)], axis=-1)

    @override
    def solution(self, level: Float[Array, ""], noisy: Float[Array, " dim"]) -> Float[Array, " n"]:
        k = self.config.modes
        split = k * (k + 1) // 2
        # the matrix without noise has no negative eigenvalue
        values, vectors = jnp.linalg.eigh(smat(noisy[:split], k))
        cross = noisy[split:] / self._kappa * (self.facts.ratio + jnp.abs(level))
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
