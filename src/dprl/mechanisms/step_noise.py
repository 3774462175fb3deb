"""Noise of a sum's steps: independent or correlated, and drawn at a step, all at once, or one step after the other.

Compiled loops draw at a step or all at once, loops on the host draw in order. All three give the same draws.

Correlated noise is made by Toeplitz strategies for prefix sums, for units that take part once. With the strategy's
coefficients ``c_0 = 1, c_1, ...`` and independent draws z, the noise of round t is
``n_t = z_t - c_1 n_{t-1} - c_2 n_{t-2} - ...``. The sum of several rounds, which an iterate sees, is then far less
noisy than with independent noise, at the same guarantee. Proof: docs/proofs/correlated-noise.md.

Square root: Fichtenberger, Henzinger and Upadhyay (2023), "Constant matters: fine-grained error bound on
differentially private continual observation"; Henzinger, Upadhyay and Upadhyay (2023), "Almost tight error bounds on
differentially private continual counting". Its first bands: Kalinin and Lampert (2024), "Banded square root matrix
factorization for differentially private model training".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Num

from dprl import x64 as x64
from dprl.accounting.user_relation import bands_of, coefficients_of, column_norm_of
from dprl.arrays import AnyArray, Step
from dprl.errors import DprlError

if TYPE_CHECKING:
    from dprl.mechanisms.gaussian_sum import GaussianSum


# --- correlation --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Correlation:
    """Dependence of a step's noise on the noise of the steps before.

    Attributes:
        name: ``independent``, ``square-root`` or ``banded:B``, as in certificates.

    Raises:
        DprlError: no noise has this name.
    """

    name: str = "independent"

    def __post_init__(self) -> None:
        bands_of(self.name, 1)

    def bands(self, steps: int) -> int:
        """Return how many coefficients of the strategy are not zero; if only 1, every step's noise is its draw."""
        return bands_of(self.name, steps)

    def coefficients(self, steps: int) -> Float[np.ndarray, " bands"]:
        """Return the strategy's first column up to its last entry that is not zero."""
        return np.array(coefficients_of(self.name, steps))

    def inverse(self, steps: int) -> Float[np.ndarray, " steps"]:
        """Return the first column of the strategy's inverse, which turns independent draws into the noise."""
        column = self.coefficients(steps)
        found = np.zeros(steps)
        found[0] = 1.0
        for t in range(1, steps):
            reach = min(t, len(column) - 1)
            found[t] = -column[1 : reach + 1] @ found[t - reach : t][::-1]
        return found

    def whitened(self, rounds: Float[np.ndarray, "steps dim"]) -> Float[np.ndarray, "steps dim"]:
        """Return the strategy times ``rounds``, which makes the noise in ``rounds`` independent again.

        The same product is applied to what a unit changes. This is how an attack looks at rounds, and what a
        sensitivity measures.
        """
        steps = len(rounds)
        column = self.coefficients(steps)
        age = np.arange(steps)[:, None] - np.arange(steps)[None, :]
        inside = (age >= 0) & (age < len(column))
        return np.where(inside, column[np.clip(age, 0, len(column) - 1)], 0.0) @ np.asarray(rounds, np.float64)

    def column_norm(self, steps: int, dimension: int, noise_multiplier: float) -> float:
        """Return the factor on the sensitivity; see :func:`~dprl.accounting.user_relation.column_norm_of`."""
        return column_norm_of(self.name, steps, dimension, noise_multiplier)

    def prefix_error(self, steps: int) -> float:
        """Return the RMS error of running sums, divided by the error of independent noise at the same guarantee.

        >>> INDEPENDENT.prefix_error(100), round(Correlation("square-root").prefix_error(100), 2)
        (1.0, 0.33)
        """
        summed = np.cumsum(self.inverse(steps))
        variance = np.cumsum(summed**2)
        column = self.coefficients(steps)
        return float(np.sqrt(column @ column * np.mean(variance) / np.mean(np.arange(1, steps + 1))))

    def in_order(self, steps: int, dimension: int) -> Correlator:
        """Return a filter that makes the noise of one round after the other, on the host."""
        return Correlator(self.coefficients(steps), dimension)

    def at_once(self, draws: Int[Array, "steps dim"]) -> Int[Array, "steps dim"]:
        """Return the noise of all rounds from their independent ``draws``, in compiled code."""
        steps, dimension = draws.shape
        column = self.coefficients(steps)
        kept = len(column) - 1
        if kept == 0:
            return draws
        by_age = jnp.asarray(column)

        def one(past: jax.Array, given: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            t, draw = given
            ages = (t - 1 - jnp.arange(kept)) % kept + 1
            found = draw - jnp.round(by_age[ages] @ past).astype(jnp.int64)
            return past.at[t % kept].set(found.astype(jnp.float64)), found

        _, found = jax.lax.scan(one, jnp.zeros((kept, dimension), dtype=jnp.float64), (jnp.arange(steps), draws))
        return found

    def in_float(self, draws: Float[Array, "steps dim"]) -> Float[Array, "steps dim"]:
        """Return the noise of all rounds without the grid, by one matrix product, for experiments."""
        steps = draws.shape[0]
        column = self.inverse(steps)
        if not column[1:].any():
            return draws
        age = np.arange(steps)[:, None] - np.arange(steps)[None, :]
        return jnp.asarray(np.where(age >= 0, column[np.maximum(age, 0)], 0.0)) @ draws


INDEPENDENT = Correlation()


class Correlator:
    """Filter that turns independent draws into the noise of one round after the other, on the host.

    For a strategy with B bands it keeps the noise of the last B - 1 rounds, so none for independent noise.
    """

    def __init__(self, column: Float[np.ndarray, " bands"], dimension: int) -> None:
        self._column = column
        # float64 holds every noise exactly: the largest is below 2**53 grid points
        self._past = np.empty((len(column) - 1, dimension))
        self._done = 0

    def correlated(self, draw: Int[np.ndarray, " dim"]) -> Int[np.ndarray, " dim"]:
        """Return the noise of the next round, from its draw."""
        kept, t = len(self._past), self._done
        self._done += 1
        if kept == 0:
            return draw
        filled = min(t, kept)
        ages = (t - 1 - np.arange(filled)) % kept + 1
        found = draw - np.rint(self._column[ages] @ self._past[:filled]).astype(np.int64)
        self._past[t % kept] = found
        return found


# --- draws --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DrawnAtStep:
    """Independent noise that compiled code draws when a step asks for it."""

    mechanism: GaussianSum
    noise: Any = field(repr=False)

    def draw(self, step: Step, width: int | None = None) -> Num[AnyArray, " dim"]:
        """Draw the step's noise; see :meth:`GaussianSum.draw <dprl.mechanisms.gaussian_sum.GaussianSum.draw>`."""
        return self.mechanism.draw(self.noise, step, width)


jax.tree_util.register_dataclass(DrawnAtStep, data_fields=["noise"], meta_fields=["mechanism"])


@dataclass(frozen=True)
class AllDrawn:
    """Noise of all steps, drawn beforehand. A step that is asked twice gets the same noise, so never ask twice.

    Attributes:
        rows: ``(steps, dimension)``, int64 grid points or float64.
    """

    rows: Num[AnyArray, "steps dim"] = field(repr=False)

    def draw(self, step: Step, width: int | None = None) -> Num[Array, " dim"]:
        """Return the step's noise. If there is no such step, every entry is the least int64 or, in floating point, NaN.

        With a ``width``, the entries beyond the dimension are zero.
        """
        rows, step = jnp.asarray(self.rows), jnp.asarray(step)
        nothing = jnp.nan if jnp.issubdtype(rows.dtype, jnp.floating) else np.iinfo(np.int64).min
        inside = (step >= 0) & (step < rows.shape[0])
        row = jnp.where(inside, rows[jnp.where(inside, step, 0)], jnp.asarray(nothing, rows.dtype))
        return row if width is None else jnp.pad(row, (0, width - row.shape[0]))


jax.tree_util.register_dataclass(AllDrawn, data_fields=["rows"], meta_fields=[])


class DrawnInOrder:
    """Noise that is drawn on the host for one step after the other. The object keeps only what later steps need.

    A step may be left out if what it released is known. With correlated noise its draws are still made, when a later
    step asks.
    """

    def __init__(self, mechanism: GaussianSum, noise: Any) -> None:
        self._mechanism, self._noise = mechanism, noise
        self._correlated = mechanism.correlation.bands(mechanism.steps) > 1
        self._correlator = mechanism.correlation.in_order(mechanism.steps, mechanism.dimension)
        self._next = 0

    def draw(self, step: int, **level: Any) -> Num[AnyArray, " dim"]:
        """Return the step's noise, drawn at a ``level`` if the mechanism chooses its noise step by step.

        Raises:
            DprlError: ``step`` or a later step was drawn before, or the mechanism has no such step.
        """
        if not self._next <= step < self._mechanism.steps:
            raise DprlError("The steps of a release are noised in order, each of them once.")
        first, self._next = self._next, step + 1
        if not self._correlated:
            return self._mechanism.draw(self._noise, step, **level)
        found = np.zeros(0)
        for each in range(first, step + 1):
            found = self._correlator.correlated(np.asarray(self._mechanism.draw(self._noise, each)))
        return found
