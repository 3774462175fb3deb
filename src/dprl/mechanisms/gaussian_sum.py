"""Gaussian sum over privacy units: clips each unit's vector, says who takes part, adds noise, and knows its cost.

Privacy unit: whatever one row of ``vectors`` stands for. Released: every noisy sum. The neighbouring relation depends
on who takes part, and only these combinations are proved:

* Everybody takes part, or a secret Poisson sample. Relation: add or remove one unit. (With public ``units`` this covers
  zero-out: a zero vector and an absent unit give the same sum.) The noise is independent, on a public schedule.
* Every unit takes part in one public batch. Relation: zero out one (a place has no unit) or replace one (a place has
  another unit). The noise is independent or correlated. With independent noise a batch may be summed up several times
  in a row.

Proofs: docs/proofs/clipped-gaussian-sum.md; scheduled-noise.md for noise that changes from step to step;
one-pass-users.md and correlated-noise.md for units that take part once.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Num

from dprl import x64 as x64
from dprl.accounting import events
from dprl.accounting.rows import SumRow, UserSumRow, certificate_row
from dprl.accounting.user_relation import CLIPS_MOVED
from dprl.arrays import AnyArray, Mask, Real, Step
from dprl.errors import DprlError
from dprl.mechanisms.arithmetic import (
    MAX_DIMENSION,
    MAX_UNITS,
    Arithmetic,
    Members,
    Participation,
    Parts,
    clipped_on_grid,
    grid_step,
    member_list,
    small_member_list,
    sum_in_float,
    sum_on_grid,
    sum_plainly,
)
from dprl.mechanisms.rounded_gaussian import MAX_STD, MIN_STD
from dprl.mechanisms.step_noise import INDEPENDENT, AllDrawn, Correlation, DrawnAtStep, DrawnInOrder

RELATION = "add or remove one"
Stability = Literal["adds one unit", "alters one place"]
"""Change that one more person makes to the set of units that a source gives; all other units stay the same."""
ADDS_ONE_UNIT: tuple[Stability, ...] = ("adds one unit",)
ALTERS_ONE_PLACE: tuple[Stability, ...] = ("alters one place",)
MOST_LEVELS = 16
"""Distinct multipliers of a schedule: each is a privacy loss distribution of its own to compose."""


@dataclass(frozen=True, kw_only=True)
class GaussianSum:
    """Clipped Gaussian sum that is released ``steps`` times.

    A unit's vector has parts that are clipped separately, so that a statistic beside a gradient does not shorten the
    gradient. All parts lie on one grid.

    Attributes:
        parts: dimension and L2 clip norm of each part of a unit's vector, in order.
        noise_multiplier: standard deviation of a draw in each coordinate, divided by :attr:`sensitivity` and
            :attr:`column_norm`. With ``multipliers`` it is the multiplier of the constant schedule with the same sum of
            1/z^2. Then it only sets step sizes; the accounting does not use it.
        sampling_rate: public probability with which a unit takes part in a step; 1 for everybody.
        steps: number of releases; with ``multipliers`` it is the number of multipliers.
        multipliers: noise multiplier of each step, with at most 16 distinct values; None if it is constant. This is a
            public schedule, fixed before the first row is read, such as the schedule of a learned protector.
        batch: number of places in a batch, if every unit stands in one place and takes part only in the batch of that
            place; None if everybody or a sample takes part.
        epochs: number of consecutive steps that sum up the same batch.
        relation: ``add or remove one``, or with a ``batch`` either ``zero-out`` or ``replace one``.
        correlation: correlation of a step's noise with the noise of earlier steps.
        arithmetic: ``exact`` for a release, on the integer grid. The other kinds have no privacy event and certify
            nothing. ``float`` differs only by rounding, for experiments with many trials (:meth:`in_float`).
            ``unclipped`` adds the same noise to a sum that is not clipped. ``plain`` neither clips nor adds noise, for
            oracles and references.
        factor: number that multiplies every noisy sum in floating point, such as a step size; may be traced.
        noise_multiplier_override: noise multiplier to use instead in ``float`` and ``unclipped``; may be traced; 0 for
            no noise.
    """

    parts: Parts
    noise_multiplier: float = 0.0
    sampling_rate: float = 1.0
    steps: int = 1
    multipliers: tuple[float, ...] | None = None
    batch: int | None = None
    epochs: int = 1
    relation: str = RELATION
    correlation: Correlation = INDEPENDENT
    arithmetic: Arithmetic = "exact"
    factor: Real = 1.0
    noise_multiplier_override: Real | None = None

    def __post_init__(self) -> None:
        if self.arithmetic in ("exact", "plain") and (self.noise_multiplier_override is not None or self.factor != 1.0):
            raise DprlError("Only a sum in floating point has a factor, or a noise multiplier of its own.")
        if self.arithmetic == "plain":
            clips = any(clip_norm != math.inf for _, clip_norm in self.parts)
            if self.multipliers is not None or clips or self.noise_multiplier != 0.0:
                raise DprlError("A plain sum has neither a clip norm nor noise.")
            return
        if self.multipliers is not None:
            self._follow(self.multipliers)
        if not self.parts or min(size for size, _ in self.parts) < 1 or self.dimension > MAX_DIMENSION:
            raise DprlError(f"A released vector has between 1 and {MAX_DIMENSION} coordinates.")
        for _, clip_norm in self.parts:
            grid_step(clip_norm)  # refuses what is out of range
        self._check_proved()
        for multiplier, _ in self.noise_levels:
            self.check_noise(multiplier)
        self._composed()  # refuses a sampling rate or a number of steps out of range

    def _check_proved(self) -> None:
        """Refuse a combination of participation, relation and noise that has no proof."""
        if self.batch is None:
            if self.relation != RELATION:
                raise DprlError(
                    f"The relation of a sum over everybody, or over a sample, must be {RELATION}: {self.relation} is "
                    "for units of whom each stands in one batch."
                )
            if self.correlation != INDEPENDENT or self.epochs != 1:
                raise DprlError(
                    "Correlated noise and epochs are for units that take part once: everybody, or a sample, needs "
                    "independent noise and no epochs."
                )
            return
        if self.relation not in CLIPS_MOVED:
            raise DprlError(f"The relation of units of whom each takes part once must be {' or '.join(CLIPS_MOVED)}.")
        if self.sampling_rate != 1.0 or self.multipliers is not None:
            raise DprlError("Units that take part once are not sampled, and their noise has no schedule.")
        if not 1 <= self.batch <= MAX_UNITS:
            raise DprlError(f"A batch has at least 1 place, and at most {MAX_UNITS} units.")
        if self.steps < 1 or self.epochs < 1 or self.steps % self.epochs:
            raise DprlError(
                "The number of steps must be at least 1 and a multiple of the epochs, the steps that each unit takes "
                "part in."
            )
        if self.epochs > 1 and self.correlation != INDEPENDENT:
            raise DprlError("Several epochs need independent noise: correlated noise is for units that take part once.")

    def _follow(self, multipliers: tuple[float, ...]) -> None:
        """Set the fields that follow from a schedule, and refuse a schedule that makes no sense."""
        if not 1 <= len(multipliers) <= 10**6:
            raise DprlError("A noise schedule has between 1 and 1000000 steps.")
        levels = Counter(multipliers)
        if len(levels) > MOST_LEVELS:
            raise DprlError(f"A noise schedule has at most {MOST_LEVELS} distinct noise multipliers.")
        if not all(math.isfinite(z) and z > 0.0 for z in levels):
            raise DprlError("A noise schedule consists of positive finite noise multipliers.")
        precision = math.fsum(count / z**2 for z, count in levels.items())
        mean = multipliers[0] if len(levels) == 1 else math.sqrt(len(multipliers) / precision)
        if self.noise_multiplier not in (0.0, mean) or self.steps not in (1, len(multipliers)):
            raise DprlError("The noise multiplier and the number of steps of a schedule follow from it.")
        object.__setattr__(self, "noise_multiplier", mean)
        object.__setattr__(self, "steps", len(multipliers))

    def check_noise(self, noise_multiplier: float) -> None:
        """Refuse noise for which the sampler's error is not proved."""
        # checked first, since the column norm raises another error for a number that is no noise multiplier
        if not (math.isfinite(noise_multiplier) and MIN_STD <= self.on_grid(noise_multiplier) <= MAX_STD):
            raise DprlError("The noise multiplier must be between 0.004 and 2000: change epsilon or delta.")

    def in_float(self, factor: Real = 1.0, noise_multiplier_override: Real | None = None) -> GaussianSum:
        """Return the same sum in single precision, for experiments with many trials. It protects nobody."""
        return replace(self, arithmetic="float", factor=factor, noise_multiplier_override=noise_multiplier_override)

    def unclipped(self, noise_multiplier_override: Real | None = None) -> GaussianSum:
        """Return the same sum with its noise but without clipping, as in some papers. It protects nobody."""
        return replace(self, arithmetic="unclipped", noise_multiplier_override=noise_multiplier_override)

    def plain(self) -> GaussianSum:
        """Return the same sum with neither clipping nor noise, for oracles and references. It protects nobody."""
        return GaussianSum(
            parts=((self.dimension, math.inf),),
            sampling_rate=self.sampling_rate,
            steps=self.steps,
            batch=self.batch,
            epochs=self.epochs,
            arithmetic="plain",
        )

    # --- what it is and what it costs -------------------------------------------------------------------------------

    @property
    def certifies(self) -> bool:
        """Whether the sum may be part of a release: whether it has an exact sensitivity and an event."""
        return self.arithmetic == "exact"

    @property
    def dtype(self) -> Any:
        """Type of the numbers that the sum adds up: int64 for grid points, else float64."""
        return jnp.int64 if self.arithmetic == "exact" else jnp.float64

    @property
    def participation(self) -> Participation:
        """Steps that a unit takes part in, in words."""
        if self.batch is not None:
            return "once each"
        return "everyone" if self.sampling_rate == 1.0 else "Poisson"

    @property
    def stability(self) -> Stability:
        """The only change to the set of units that one more person may cause, so that the relation is about people."""
        return "adds one unit" if self.batch is None else "alters one place"

    def check_source(self, source: Any) -> None:
        """Refuse a source in which one more person changes the set of units in another way than the relation allows.

        Args:
            source: source of units with an attribute ``stability``; see :class:`~dprl.engine.unit_source.Source`.
        """
        if self.stability in source.stability:
            return
        if self.batch is None:
            raise DprlError(
                f"The relation {self.relation} needs a source to which one more person adds one unit, such as a log "
                "that is read whole: who has not come yet, or is simulated, stands in a numbered place and cannot be "
                "sampled."
            )
        raise DprlError(
            f"The relation {self.relation} needs a source of numbered places, of which one more person alters one: to "
            "this one a person adds a unit."
        )

    @property
    def dimension(self) -> int:
        """Length of a unit's vector."""
        return sum(size for size, _ in self.parts)

    @property
    def clip_norm(self) -> float:
        """Largest L2 norm of a unit's whole vector, C."""
        return math.hypot(*(clip_norm for _, clip_norm in self.parts))

    @property
    def grid_step(self) -> float:
        """Distance between neighbouring points of the grid on which all parts lie."""
        return grid_step(self.clip_norm)

    @property
    def sensitivity(self) -> float:
        """Largest L2 distance between the sums of two neighbours, before noise: 2C if one unit is replaced, else C."""
        return CLIPS_MOVED.get(self.relation, 1.0) * self.clip_norm

    @property
    def column_norm(self) -> float:
        """Factor :func:`~dprl.accounting.user_relation.column_norm_of` of correlated noise; 1 for independent noise."""
        return self.correlation.column_norm(self.steps, self.dimension, self.noise_multiplier)

    def expected(self, units: int) -> float:
        """Return how many units take part in a step on average.

        Sums are divided by this public number, never by the realised one.
        """
        return self.sampling_rate * units

    def most_members(self, units: int) -> int:
        """Return the largest number of units that may take part in a step; a subclass may draw one."""
        return units

    @property
    def noise_std(self) -> float:
        """Standard deviation of a draw in each coordinate. If the noise is independent, the draw is the noise."""
        return 0.0 if self.arithmetic == "plain" else self._std(self.noise_multiplier)

    @property
    def noise_std_of_step(self) -> Real:
        """Standard deviation of a step's noise in each coordinate, for correlated noise too; may be traced.

        It is that of the first step: a schedule that changes from step to step has others.
        """
        independent = 0.0 if self.arithmetic == "plain" else self._std(self.multiplier_at(0))
        return independent * float(np.linalg.norm(self.correlation.inverse(min(self.steps, 512))))

    def _std(self, noise_multiplier: Any) -> Any:
        return noise_multiplier * self.sensitivity * self.column_norm

    @property
    def noise_on_grid(self) -> float:
        """Standard deviation of a draw, in grid points."""
        return self.on_grid(self.noise_multiplier)

    def on_grid(self, noise_multiplier: Any) -> Any:
        """Return the standard deviation, in grid points, of draws with that multiplier."""
        return self._std(noise_multiplier) / self.grid_step

    @property
    def noise_levels(self) -> tuple[tuple[float, int], ...]:
        """Each distinct noise multiplier with its number of steps, in order of appearance."""
        if self.multipliers is None:
            return ((self.noise_multiplier, self.steps),)
        return tuple(Counter(self.multipliers).items())

    def multiplier_at(self, step: Step) -> Real:
        """Return the noise multiplier of one step, which may be traced."""
        if self.noise_multiplier_override is not None:
            return self.noise_multiplier_override
        if self.multipliers is None:
            return self.noise_multiplier
        if isinstance(step, int | np.integer):
            return self.multipliers[int(step)]
        return jnp.asarray(self.multipliers, dtype=jnp.float64)[step]

    def on_grid_at(self, step: Step) -> Real:
        """Return the standard deviation of one step's noise in grid points."""
        return self.on_grid(self.multiplier_at(step))

    @property
    def released(self) -> int:
        """Number of coordinates that a step releases."""
        return self.dimension

    @property
    def draws(self) -> int:
        """Number of Gaussian coordinates drawn in all; the sampler's error is charged for each."""
        return self.dimension * self.steps

    def delta(self, epsilon: float) -> float:
        """Return what the sampler's error adds to delta."""
        return events.sampler_delta(epsilon, self.draws)

    def event(self) -> events.DpEvent:
        """Return the privacy event of exactly what :meth:`included`, :meth:`clipped_sum` and :meth:`draw` do.

        If every unit stands in one batch, the event is one release for all steps together, or one release for each
        epoch.
        """
        self._check_certifies()
        return self._composed()

    def _composed(self) -> events.DpEvent:
        if self.batch is not None:
            releases = (1.0, self.noise_multiplier, self.epochs)
            return events.gaussian(self.noise_multiplier) if self.epochs == 1 else events.poisson_gaussian(*releases)
        if (self.steps, self.sampling_rate) == (1, 1.0):
            return events.gaussian(self.noise_multiplier)
        steps = [events.poisson_gaussian(self.sampling_rate, z, count) for z, count in self.noise_levels]
        return steps[0] if len(steps) == 1 else events.compose(steps)

    def _check_certifies(self) -> None:
        if not self.certifies:
            what = "An un-noised sum" if self.arithmetic == "plain" else "A sum in floating point"
            raise DprlError(f"{what} has no privacy event; it cannot be released.")

    def describe(self, name: str, purpose: str) -> dict[str, Any]:
        """Return this mechanism as a row of a certificate."""
        self._check_certifies()
        if self.batch is None:
            return certificate_row(SumRow, self, name=name, purpose=purpose)
        parts = [{"dimension": size, "clip_norm": clip_norm} for size, clip_norm in self.parts]
        stated = {"parts": parts, "noise": self.correlation.name, "std": self.noise_std}
        return certificate_row(UserSumRow, self, name=name, purpose=purpose, **stated)

    def rows(self, name: str, purpose: str) -> list[dict[str, Any]]:
        """Return the rows of a certificate: one for each part of :meth:`event`, in the same order."""
        whole = self.describe(name, purpose)
        return [whole | {"noise_multiplier": z, "steps": count} for z, count in self.noise_levels]

    # --- what a step does -------------------------------------------------------------------------------------------

    def participation_mask(self, noise: Any, step: Step, units: int) -> Mask:
        """Return the participation mask of this step."""
        return noise.participation_mask(step, units, self.sampling_rate)

    def included(self, noise: Any, step: int, units: int) -> Mask | range:
        """Return the participation mask of this step, or the places of its batch, which are public."""
        if self.batch is None:
            return np.asarray(self.participation_mask(noise, step, units))
        first = step // self.epochs * self.batch
        return range(first, min(first + self.batch, units))

    def members(self, noise: Any, step: Step, units: int, multiple: int) -> Members:
        """Return the list of units that take part in this step; see :func:`~dprl.mechanisms.arithmetic.member_list`."""
        few = (
            small_member_list(noise, step, units, self.sampling_rate, multiple) if self.arithmetic == "float" else None
        )
        return member_list(self.participation_mask(noise, step, units), multiple) if few is None else few

    def draw(self, noise: Any, step: Step, width: int | None = None) -> Num[AnyArray, " dim"]:
        """Draw the step's random numbers, of type :attr:`dtype`: one for each coordinate, or ``width`` if given.

        If the noise is independent, these numbers are the noise. For correlated noise see :meth:`bind` and
        :meth:`in_order`.
        """
        count = self.dimension if width is None else width
        match self.arithmetic:
            case "exact":
                return noise.gaussian(step, count, self.on_grid_at(step))
            case "float" | "unclipped":
                return noise.normals(step, count) * self._std(self.multiplier_at(step))
            case "plain":
                return jnp.zeros(count, dtype=jnp.float64)

    def bind(self, noise: Any) -> DrawnAtStep | AllDrawn:
        """Return the noise of every step for compiled code, from a stream that compiled code can draw from.

        Independent noise is drawn when a step asks for it; correlated noise is drawn here for all steps. Noise that is
        bound already is returned unchanged.
        """
        if isinstance(noise, AllDrawn | DrawnAtStep):
            return noise
        if self.correlation.bands(self.steps) == 1:
            return DrawnAtStep(self, noise)
        draws: Any = jax.vmap(lambda step: self.draw(noise, step))(jnp.arange(self.steps, dtype=jnp.uint32))
        return AllDrawn(self.correlation.at_once(draws) if self.certifies else self.correlation.in_float(draws))

    def drawn_before(self, noise: Any) -> AllDrawn:
        """Draw the noise of every step on the host, from a secure stream, which compiled code cannot draw from."""
        order = self.in_order(noise)
        return AllDrawn(np.stack([np.asarray(order.draw(step)) for step in range(self.steps)]))

    def in_order(self, noise: Any) -> DrawnInOrder:
        """Return the noise of :meth:`bind` for one step after the other, on the host. Use this for long vectors."""
        return DrawnInOrder(self, noise)

    def clipped(self, vectors: Float[AnyArray, "units dim"]) -> Int[AnyArray, "units dim"]:
        """Clip units' vectors and return int64 grid points. A part that is not finite becomes zero."""
        return clipped_on_grid(vectors, self.parts, self.grid_step)

    def clipped_sum(self, vectors: Float[AnyArray, "units dim"], included: Mask) -> Num[AnyArray, " dim"]:
        """Add up the clipped vectors of one block of units.

        Args:
            vectors: one row per unit; rows of units that are not ``included`` may hold anything. A release of a single
                sum passes a NumPy array.
            included: participation mask.

        Returns:
            The sum, of type :attr:`dtype`; blocks of grid points add up exactly, in any order.
        """
        if self.arithmetic == "exact":
            return sum_on_grid(vectors, included, self.parts, self.grid_step)
        vectors, included = jnp.asarray(vectors), jnp.asarray(included)
        match self.arithmetic:
            case "float" | "unclipped":
                return sum_in_float(vectors, included, self.parts, self.arithmetic == "float")
            case "plain":
                return sum_plainly(vectors, included)

    def add_noise(self, total: Num[AnyArray, " dim"], draw: Num[AnyArray, " released"]) -> Num[AnyArray, " released"]:
        """Return what is released, of type :attr:`dtype`: the step's ``total`` plus its ``draw``."""
        return total + draw  # type: ignore[return-value]

    def scaled(self, points: Num[AnyArray, " released"]) -> Float[AnyArray, " released"]:
        """Return the noisy sum: grid points times the grid's spacing, or floating point times :attr:`factor`."""
        return points.astype(np.float64) * (self.grid_step if self.certifies else self.factor)

    def release(self, total: Num[AnyArray, " _"], draw: Num[AnyArray, " _"]) -> Float[Array, " _"]:
        """Apply :meth:`add_noise` and then :meth:`scaled`, for loops that do not record single steps."""
        return self.scaled(self.add_noise(total, draw))  # type: ignore[return-value]
