"""Noised sums over batches of users of whom each takes part once: what one pass of a policy gradient releases.

Privacy unit: a user, in a public slot of a public batch. Neighbouring relation: zero out one (the user of a slot
answers nothing) or replace one (another one answers). Released: the noised sum of every round, hence every policy.
Proofs: docs/proofs/one-pass-users.md, correlated-noise.md; the clip and the grid: clipped-gaussian-sum.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from dprl import x64 as x64
from dprl.accounting import events
from dprl.accounting.rows import UserSumRow, written
from dprl.accounting.user_relation import CLIPS, Relation
from dprl.errors import DprlError
from dprl.mechanisms.answers import check_rounds
from dprl.mechanisms.arithmetic import Participation
from dprl.mechanisms.grid import MAX_DIMENSION, MAX_UNITS, clip_to_grid, grid_step
from dprl.mechanisms.rounded_gaussian import MAX_STD, MIN_STD
from dprl.mechanisms.strategy import Correlator, coefficients, column_norm, correlated, correlated_in_float
from dprl.protocols import NO_JOURNAL, Journal


@dataclass(frozen=True, kw_only=True)
class UserSum:
    """``steps`` noised sums of clipped vectors, of which a user takes part in ``epochs``.

    A user's vector has parts that are clipped apart: a statistic that is released beside a gradient does not make the
    gradient shorter.

    Attributes:
        parts: dimension and clip norm of each part, in order.
        steps: number of noised sums, T.
        batch: most users of one sum, m.
        noise_multiplier: standard deviation of a draw over :attr:`sensitivity` and :attr:`column_norm`.
        relation: ``zero-out`` or ``replace one``.
        noise: ``independent``, ``square-root`` or ``banded:B``, see :mod:`dprl.mechanisms.strategy`.
        epochs: sums that a user takes part in, one batch's after each other; more than one with independent noise.
    """

    parts: tuple[tuple[int, float], ...]
    steps: int
    batch: int
    noise_multiplier: float
    relation: Relation = "zero-out"
    noise: str = "square-root"
    epochs: int = 1
    certifies: ClassVar[bool] = True
    participation: ClassVar[Participation] = "once each"

    def __post_init__(self) -> None:
        check_rounds(self.steps, self.batch)
        if self.relation not in CLIPS:
            raise DprlError(f"The relation must be one of: {', '.join(CLIPS)}.")
        if not self.parts or min(size for size, _ in self.parts) < 1 or self.dimension > MAX_DIMENSION:
            raise DprlError(f"A released vector has between 1 and {MAX_DIMENSION} coordinates.")
        for _, clip_norm in self.parts:
            grid_step(clip_norm)  # refuses what is out of range
        if self.batch > MAX_UNITS:
            raise DprlError(f"A batch has at most {MAX_UNITS} users.")
        if self.epochs < 1 or self.steps % self.epochs:
            raise DprlError(
                "The number of steps must be a multiple of the epochs, the steps that each user takes part in."
            )
        if self.epochs > 1 and self.noise != "independent":
            raise DprlError("Several epochs need independent noise: correlated noise is for users who take part once.")
        # the norm of a column raises for what is no noise
        if not (math.isfinite(self.noise_multiplier) and MIN_STD <= self.std / self.grid_step <= MAX_STD):
            raise DprlError("The noise multiplier must be between 0.004 and 500: change epsilon or delta.")

    @property
    def dimension(self) -> int:
        """Length of a user's vector."""
        return sum(size for size, _ in self.parts)

    @property
    def clip_norm(self) -> float:
        """Largest L2 norm of a user's whole vector, C."""
        return math.hypot(*(clip_norm for _, clip_norm in self.parts))

    @property
    def sensitivity(self) -> float:
        """How far one user moves an un-noised sum: C when zeroed out, 2C when replaced."""
        return CLIPS[self.relation] * self.clip_norm

    @property
    def column_norm(self) -> float:
        """See :func:`~dprl.mechanisms.strategy.column_norm`."""
        return column_norm(self.noise, self.steps, self.dimension, self.noise_multiplier)

    @property
    def std(self) -> float:
        """Standard deviation of an independent draw in each coordinate; that of the noise, where it is independent."""
        return self.noise_multiplier * self.sensitivity * self.column_norm

    @property
    def grid_step(self) -> float:
        return grid_step(self.clip_norm)

    def event(self) -> events.DpEvent:
        """One Gaussian release for all steps together; as many as a user has epochs."""
        if self.epochs == 1:
            return events.gaussian(self.noise_multiplier)
        return events.poisson_gaussian(1.0, self.noise_multiplier, self.epochs)

    def delta(self, epsilon: float) -> float:
        """What the sampler's error adds to delta."""
        return events.sampler_delta(epsilon, self.steps * self.dimension)

    def describe(self, name: str, purpose: str) -> dict[str, Any]:
        """This mechanism as a row of a certificate."""
        parts = [{"dimension": size, "clip_norm": clip_norm} for size, clip_norm in self.parts]
        return written(UserSumRow, self, name=name, purpose=purpose, parts=parts)

    def clipped(self, vectors: Any) -> jax.Array:
        """``(B, dimension)`` int64 grid points of users' vectors; a part that is not finite becomes zero."""
        found, start = [], 0
        for size, clip_norm in self.parts:
            found.append(clip_to_grid(vectors[:, start : start + size], clip_norm, self.grid_step))
            start += size
        return found[0] if len(found) == 1 else jnp.concatenate(found, axis=-1)

    def clipped_sum(self, vectors: Any, included: Any) -> jax.Array:
        """Exact sum of the clipped vectors of one block of users.

        Args:
            vectors: ``(B, dimension)``; rows of users who are not ``included`` may hold anything.
            included: ``(B,)`` booleans.

        Returns:
            ``(dimension,)`` int64 grid points; blocks add up exactly, in any order.
        """
        return jnp.sum(jnp.where(jnp.asarray(included)[:, None], self.clipped(vectors), 0), axis=0)

    def bind(self, noise: Any) -> UserNoise:
        """The noise of all steps, from a stream of its own: all of it is drawn here, ``steps x dimension`` numbers.

        Args:
            noise: a :class:`~dprl.protocols.NoiseSource`.
        """
        std = self.std / self.grid_step
        if noise.secure:
            draws = noise.block(0, self.steps, self.dimension, std)
            correlator = Correlator(self.noise, self.steps, self.dimension)
            for row in draws:
                row[:] = correlator.correlated(row)
            return UserNoise(draws, self.grid_step)
        rows = jnp.arange(self.steps, dtype=jnp.uint32)
        if _uncorrelated(self):
            return UserNoise(_normals(noise, rows, self.dimension), self.grid_step, std, whole=True)
        draws = jax.vmap(lambda step: noise.gaussian(step, self.dimension, std))(rows)
        return UserNoise(correlated(self.noise, draws), self.grid_step)

    def in_order(self, noise: Any) -> NoiseInOrder:
        """The noise of :meth:`bind` drawn step by step, on the host: for vectors that are long."""
        return NoiseInOrder(self, noise)


def _uncorrelated(mechanism: UserSum) -> bool:
    return len(coefficients(mechanism.noise, mechanism.steps)) == 1


def _normals(noise: Any, steps: Any, dimension: int) -> jax.Array:
    """``(len(steps), dimension)`` standard normals, in the float32 that they are made in."""
    return jax.vmap(lambda step: noise.normals(step, dimension).astype(jnp.float32))(steps)


@dataclass(frozen=True)
class UserNoise:
    """The noise of every step. A step asked twice gets the same noise: never ask one twice.

    Attributes:
        rows: ``(steps, dimension)``, the draws in units of ``scale``; or float32 standard normals of which a step makes
            its draws, in half of the memory and of the time.
        scale: the grid.
        std: of such draws, in units of ``scale``; None where ``rows`` are the draws.
        whole: whether such draws are rounded to whole numbers.
    """

    rows: Any = field(repr=False)
    scale: Any
    std: Any = field(default=None, repr=False)
    whole: bool = field(default=False, repr=False)

    @property
    def draws(self) -> jax.Array:
        """``(steps, dimension)``, in units of :attr:`scale`."""
        return self._drawn(jnp.asarray(self.rows))

    def _drawn(self, rows: jax.Array) -> jax.Array:
        if self.std is None:
            return rows
        found = rows.astype(jnp.float64) * self.std
        return jnp.round(found) if self.whole else found

    # compiled where it is called by itself
    @partial(jax.jit, inline=True)
    def noised(self, total: Any, step: Any) -> jax.Array:
        """The noised sum, ``(dimension,)`` float64; not a number where there is no such step.

        Args:
            total: ``(dimension,)``, the exact sum of the step's batch.
            step: its number, from 0; may be traced.
        """
        rows, step = jnp.asarray(self.rows), jnp.asarray(step)
        scale = jnp.where((step >= 0) & (step < rows.shape[0]), self.scale, jnp.nan)
        return (jnp.asarray(total) + self._drawn(rows[step])).astype(jnp.float64) * scale


jax.tree_util.register_dataclass(UserNoise, data_fields=["rows", "scale", "std"], meta_fields=["whole"])


class NoiseInOrder:
    """The noise of one step after the other, each for one sum; only the noise that later steps need is kept."""

    def __init__(self, mechanism: UserSum, noise: Any) -> None:
        self._mechanism, self._noise = mechanism, noise
        self._correlator = Correlator(mechanism.noise, mechanism.steps, mechanism.dimension)
        self._next = 0

    def noised(self, total: Any, step: int) -> np.ndarray:
        """The noised sum, ``(dimension,)`` float64, of the exact ``total`` ``(dimension,)`` int64.

        Raises:
            DprlError: ``step`` is not the next one, or there is none left.
        """
        return self.kept(lambda: total, step, NO_JOURNAL)

    def kept(self, total: Callable[[], Any], step: int, journal: Journal) -> np.ndarray:
        """The same of a sum that is computed where the ``journal`` does not have the noised one.

        The step's noise is drawn all the same: that of later steps is made of it.
        """
        mechanism = self._mechanism
        if step != self._next or step >= mechanism.steps:
            raise DprlError("The steps of a release are noised in order, each of them once.")
        self._next += 1
        draw = np.asarray(self._noise.gaussian(step, mechanism.dimension, mechanism.std / mechanism.grid_step))
        noise = self._correlator.correlated(draw)
        noised = journal.step(step, mechanism.dimension, lambda: np.asarray(total()) + noise).astype(np.float64)
        noised *= mechanism.grid_step
        return noised


@dataclass(frozen=True, eq=False)
class FloatUserSum:
    """Stands in for ``exact`` in an experiment: no integer grid, hence many trials at once. It protects nobody.

    A floating-point sum has no exact sensitivity, so it has no privacy event.

    Attributes:
        exact: the mechanism of a release, whose numbers these are.
        noise_multiplier: another one than that of ``exact``; may be traced, 0 for no noise.
        clips: whether vectors are clipped; False with a multiplier of 0 is learning without privacy.
    """

    exact: UserSum
    noise_multiplier: Any = None
    clips: bool = True
    certifies: ClassVar[bool] = False
    participation: ClassVar[Participation] = "once each"

    @property
    def dimension(self) -> int:
        return self.exact.dimension

    @property
    def steps(self) -> int:
        return self.exact.steps

    @property
    def batch(self) -> int:
        return self.exact.batch

    def event(self) -> events.DpEvent:
        raise DprlError("A sum in floating point has no privacy event; it cannot be released.")

    def clipped_sum(self, vectors: Any, included: Any) -> jax.Array:
        """``(dimension,)`` float64 sum of the clipped rows of ``vectors`` ``(B, dimension)`` that are included."""
        vectors, included, found, start = jnp.asarray(vectors), jnp.asarray(included), [], 0
        for size, clip_norm in self.exact.parts:
            part = vectors[:, start : start + size]
            start += size
            square = jnp.sum(part * part, axis=1)
            # what is not finite contributes nothing, as on the grid
            finite = jnp.isfinite(square)
            scale = jnp.minimum(1.0, clip_norm * jax.lax.rsqrt(jnp.maximum(square, 1e-30))) if self.clips else 1.0
            scale = jnp.where(included & finite, scale, 0.0).astype(vectors.dtype)
            found.append((scale @ jnp.where(finite[:, None], part, 0.0)).astype(jnp.float64))
        return jnp.concatenate(found)

    def bind(self, noise: Any) -> UserNoise:
        """The noise of all steps, in float64."""
        exact = self.exact
        multiplier = exact.noise_multiplier if self.noise_multiplier is None else self.noise_multiplier
        std = multiplier * exact.sensitivity * exact.column_norm
        rows = jnp.arange(exact.steps, dtype=jnp.uint32)
        if _uncorrelated(exact):
            return UserNoise(_normals(noise, rows, exact.dimension), 1.0, std)
        draws = jax.vmap(lambda step: noise.normals(step, exact.dimension))(rows)
        return UserNoise(correlated_in_float(exact.noise, draws) * std, 1.0)


jax.tree_util.register_dataclass(FloatUserSum, data_fields=["noise_multiplier"], meta_fields=["exact", "clips"])
