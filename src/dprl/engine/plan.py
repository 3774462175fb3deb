"""What a release will do and what it will cost, from public facts alone: no row is read here.

A plan is made before the ledger is charged; ``dprl plan`` prints it, a release carries it out. Calibration is the same
for every algorithm: what the sampler's finite precision takes of delta is set aside, and the accountant then says how
much noise the rest of the budget asks for.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from dprl.accounting import events
from dprl.accounting.accountant import epsilon_of
from dprl.accounting.budget import Budget
from dprl.accounting.calibration import noise_multiplier_for
from dprl.accounting.renyi_filter import plan_filter
from dprl.data.trajectories import Trajectories
from dprl.engine.options import Learned, Program, PublicFacts, Query, Stage, ValueFunctionConfig
from dprl.engine.rows import Rows, rows_of
from dprl.engine.two_parts import FirstPart
from dprl.engine.value_query import ValueQuery
from dprl.errors import DprlError
from dprl.mechanisms.filtered_sum import FilteredGaussianSum
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.protocols import Bounds, Claim
from dprl.report.shown import Shown, plan_page
from dprl.value_functions.features import Features

_TRIES = 20


@dataclass(frozen=True, repr=False)
class Plan(Shown):
    """Everything about a release of a log that is known before its rows are read.

    Attributes:
        config: resolved options.
        query, value_mechanism: what pays for values and intervals.
        features, program: what pays for the value function; None without one.
        event: the privacy event of the whole release.
        epsilon_of_event: its epsilon at ``delta_of_event``.
        delta_sampler: what the sampler's distance from an exact Gaussian adds to delta.
        shares: of each stage of the program in the mu^2 of the value function.
        claim: what is said of mechanisms that dprl did not calibrate; None where it did.
        contrasts: pairs of places of target policies whose differences are released, too.
        first: what a first part of the people is asked, of which comes what is valued; ``bounds`` and all else are of
            the part that values. None where the policies are known.
    """

    config: Any
    bounds: Bounds
    budget: Budget
    query: ValueQuery
    value_mechanism: GaussianSum
    features: Features | None
    program: Program | None
    event: events.DpEvent
    epsilon_of_event: float
    delta_of_event: float
    delta_sampler: float
    shares: tuple[float, ...] = ()
    claim: Claim | None = None
    contrasts: tuple[tuple[int, int], ...] = ()
    first: FirstPart | None = None

    @property
    def name(self) -> str:
        """The algorithm's name."""
        return self.config.algorithm

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The program's stages; none without a program."""
        return () if self.program is None else self.program.stages

    @property
    def steps(self) -> int:
        """Number of steps of all stages, for a progress bar."""
        return sum(stage.mechanism.steps for stage in self.stages)

    @property
    def estimator(self) -> str:
        """Name of the estimator that gives the values, in words."""
        return self.query.words

    @property
    def around_function(self) -> bool:
        """Whether values are taken around the released value function, and therefore after it."""
        return self.query.around_function

    def rows(self, log: Trajectories, ratios: np.ndarray) -> Rows:
        """Return the log's rows as the program sees them, with importance ratios ``(N,)`` of its steps."""
        assert self.program is not None
        assert self.features is not None
        discount = self.config.discount
        return rows_of(
            log,
            ratios,
            self.features,
            discount,
            self.bounds.value_interval(discount),
            getattr(self.config, "weighting", "trajectory"),
            columns=self.program.columns,
            most=getattr(self.config, "max_rows_per_unit", None),
        )

    def function_of(self, weights: Any) -> Learned:
        """Return the value function, or whatever else these released weights are. One that is no number counts as
        zero.
        """
        assert self.features is not None
        theta = np.nan_to_num(np.asarray(weights, dtype=np.float64), nan=0.0, posinf=0.0, neginf=0.0)
        return self.config.function(theta, self.features, self.bounds, self.stages)

    def expectation(self) -> list[dict[str, float]]:
        """Return what to expect of each target policy's errors, from public facts, for ``dprl plan``."""
        z = NormalDist().inv_cdf(0.5 + self.query.config.confidence / 2.0)
        return [
            {
                "privacy_standard_error": privacy,
                "largest_sampling_standard_error": sampling,
                "interval_half_width_at_least": z * privacy,
                "interval_half_width_at_most": widest,
            }
            for privacy, sampling, widest in self.query.expect(self.value_mechanism)
        ]

    def __repr__(self) -> str:
        ends = [(e["interval_half_width_at_least"], e["interval_half_width_at_most"]) for e in self.expectation()]
        widths = ", ".join(f"{least:.4g} to {most:.4g}" for least, most in ends)
        of = f"{self.name} at epsilon {self.budget.epsilon:g}, delta {self.budget.delta:g}"
        return f"<Plan: {of}; half-widths of intervals {widths}>"

    def _page(self) -> str:
        return plan_page(self.name, self.estimator, self.budget.epsilon, self.budget.delta, self.expectation())

    def hopeless(self) -> list[bool]:
        """Return for each target policy whether the noise alone makes its interval as wide as the declared range."""
        low, high = self.query.bounds.value_interval(self.config.discount)
        return [low < high and 2.0 * e["interval_half_width_at_least"] >= high - low for e in self.expectation()]

    def refuse_the_hopeless(self) -> None:
        """Refuse a release of values that, by public facts, would say nothing about any policy."""
        if (self.program is None or self.config.around_function) and all(self.hopeless()):
            raise DprlError(
                f"{self.name}: the noise alone would make every interval as wide as the declared range: it "
                "takes more units, a larger epsilon, or a smaller max_importance_ratio or max_cumulative_ratio."
            )


# --- delta of the sampler, and the price --------------------------------------------------------------------------


def without_sampler(budget: Budget, draws: int, total_variation: float) -> tuple[Budget, float]:
    """Return what the sampler's precision leaves of a budget, and what it takes of delta.

    Each of ``draws`` draws is ``total_variation`` from an exact Gaussian.
    """
    sampler = events.sampler_delta(budget.epsilon, draws, total_variation)
    if sampler >= 0.1 * budget.delta:
        if 10.0 * events.sampler_delta(1.0, draws, total_variation) < 0.1 * budget.delta:
            raise DprlError(
                "epsilon is too large for this delta: what the rounding of the noise adds to delta grows with "
                "e^epsilon. Take a smaller epsilon or a larger delta."
            )
        raise DprlError(
            "delta is too small for so many draws of noise: take a larger delta, fewer features or, where the "
            "algorithm has that option, fewer steps."
        )
    return Budget(budget.epsilon, budget.delta - sampler), sampler


def epsilon_within(event: events.DpEvent, budget: Budget, delta: float, given: float | None) -> float:
    """Return the epsilon of an event at ``delta``.

    Refuse more than the budget's, which only a ``given`` multiplier can ask for.
    """
    epsilon = epsilon_of(event, delta)
    if epsilon > budget.epsilon:
        if given is None:  # a mistake of the algorithm's, and no certificate may come of it
            raise RuntimeError("What will run is not what was calibrated to the budget.")
        raise DprlError(
            f"A noise multiplier of {given:g} costs epsilon = {epsilon:.4g} at this delta, more than the budget "
            f"of {budget.epsilon:g}: raise it, or leave it out."
        )
    return epsilon


# --- one mechanism ----------------------------------------------------------------------------------------------------


class Precise(Protocol):
    """A mechanism that knows what its finite precision adds to delta."""

    def delta(self, epsilon: float) -> float:
        """Return what finite precision adds to delta at this epsilon."""
        ...

    def event(self) -> events.DpEvent:
        """Return the mechanism's privacy event."""
        ...


M = TypeVar("M", bound=Precise)


class Costs(NamedTuple):
    """Epsilon of an event at the delta that is left, and the delta that the mechanism's precision takes."""

    epsilon: float
    delta: float
    delta_sampler: float


def calibrate(
    make: Callable[[float], M],
    event_of: Callable[[float], events.DpEvent],
    budget: Budget,
    given: float | None,
    advice: str,
) -> tuple[M, float, Costs]:
    """Return the one mechanism of a release, its noise multiplier, and what it costs.

    Args:
        make: the mechanism with this noise multiplier.
        event_of: its event.
        given: a noise multiplier in place of the calibrated one.
        advice: what to take where the precision is not enough, in words.

    Raises:
        DprlError: one sentence: the budget cannot be met.
    """
    sampler = 0.0
    for _ in range(_TRIES):
        if sampler >= 0.5 * budget.delta:
            raise DprlError(f"delta is too small for the precision of so many draws of noise: take {advice}.")
        inner = Budget(budget.epsilon, budget.delta - sampler)
        multiplier = noise_multiplier_for(event_of, inner) if given is None else given
        mechanism = make(multiplier)
        needed = mechanism.delta(budget.epsilon)
        if needed <= sampler:
            break
        sampler = needed
    else:
        raise DprlError("The precision of the noise is not enough for this delta: take a larger one.")
    if mechanism.event() != event_of(multiplier):  # a mistake of ours, and no certificate may come of it
        raise RuntimeError("The mechanism is not the one that was calibrated.")
    epsilon = epsilon_within(mechanism.event(), budget, inner.delta, given)
    return mechanism, multiplier, Costs(epsilon, inner.delta, sampler)


# --- the stages of a program --------------------------------------------------------------------------------------


def calibrated_stages(
    queries: Sequence[Query], before: Sequence[events.DpEvent], mu: float, budget: Budget, given: float | None = None
) -> tuple[Stage, ...]:
    """Give every stage but the last its share of mu^2, and the last one what the accountant leaves of the budget.

    Args:
        before: events that the budget pays for as well.
        mu: Gaussian privacy parameter that is available for all stages.
        given: noise multiplier of the last stage in place of the calibrated one.
    """
    names = ["value", *(query.name for query in queries)]
    if len(set(names)) < len(names):  # two of one name would share their noise
        raise RuntimeError("The stages of a program need names of their own, other than 'value'.")
    *first, last = queries
    if any(query.sampling_rate < 1.0 or query.profile is not None for query in first):
        raise RuntimeError("Only the last stage of a program may sample units, or have a profile.")
    stages = [make_stage(query, math.sqrt(query.steps / query.share) / mu) for query in first]
    spent = [*before, *(stage.mechanism.event() for stage in stages)]
    levels = {1.0: last.steps} if last.profile is None else Counter(last.profile)

    def together(noise_multiplier: float) -> events.DpEvent:
        steps = [
            events.poisson_gaussian(last.sampling_rate, noise_multiplier * w, count) for w, count in levels.items()
        ]
        return events.compose([*spent, *steps])

    multiplier = noise_multiplier_for(together, budget) if given is None else given
    return (*stages, make_stage(last, multiplier))


def make_stage(query: Query, noise_multiplier: float) -> Stage:
    """Return the stage for a requested sum with this noise multiplier."""
    common = {"parts": ((query.dimension, query.clip_norm),), "sampling_rate": query.sampling_rate}
    if query.profile is None:
        return Stage(query.name, GaussianSum(**common, noise_multiplier=noise_multiplier, steps=query.steps))
    if len(query.profile) != query.steps:
        raise RuntimeError("A profile has a number for every step of its stage.")
    multipliers = tuple(noise_multiplier * w for w in query.profile)
    return Stage(query.name, GaussianSum(**common, multipliers=multipliers))


def program_at(config: ValueFunctionConfig, facts: PublicFacts, noise_multiplier: float) -> Any:
    """Return the program whose stages all have this noise multiplier, for experiments that have no budget."""
    return config.program(facts, tuple(make_stage(query, noise_multiplier) for query in config.queries(facts)))


def filtered_stage(queries: Sequence[Query], budget: Budget, value_budget_fraction: float) -> tuple[float, Stage]:
    """Return the stage whose noise is chosen on the way, and the noise multiplier of the values before it.

    The stage gets what the values leave of the best order's budget.
    """
    query = queries[0]
    if len(queries) != 1 or query.profile is not None or query.adaptive is None:
        raise RuntimeError("A stage with adaptive noise is the only one of its program, and has no profile.")
    made = plan_filter(
        budget.epsilon, budget.delta, query.sampling_rate, query.steps, query.adaptive.norm, share=value_budget_fraction
    )
    z = made.noise_multiplier
    mechanism = FilteredGaussianSum(
        parts=((query.dimension, query.clip_norm),),
        noise_multiplier=z,
        sampling_rate=query.sampling_rate,
        steps=query.steps,
        levels=tuple(z * level for level in query.adaptive.levels),
        norm_multiplier=z * query.adaptive.norm,
        order=made.order,
        budget=made.budget,
    )
    return math.inf if made.before is None else made.before, Stage(query.name, mechanism)


def event_of_stages(value: GaussianSum, stages: Sequence[Stage]) -> events.DpEvent:
    """Return the event of a whole release: the values, and the stages that will run, whatever was calibrated.

    Where noise adapts there is one filter, in which the values were charged first.
    """
    if any(isinstance(stage.mechanism, FilteredGaussianSum) for stage in stages):
        if len(stages) != 1:  # a mistake of the algorithm's
            raise RuntimeError("What will run is not what was calibrated to the budget.")
        filtered: Any = stages[0].mechanism.event()
        return replace(filtered, before=(value.noise_multiplier,))
    return events.compose([value.event(), *(stage.mechanism.event() for stage in stages)])
