"""Plans: what a release will do and what it will cost, from public facts only. No row is read here.

A plan is made before the ledger is charged; ``dprl plan`` prints the plan, and a release carries it out. Calibration is
the same for every algorithm. First, the part of delta that the sampler's finite precision takes is set aside. Then the
accountant says how much noise the rest of the budget requires.
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
from dprl.bounds import Bounds
from dprl.data.trajectories import Trajectories
from dprl.engine.program import Learned, Program, PublicFacts, Query, Stage, ValueFunctionConfig
from dprl.engine.rows import Rows, rows_of
from dprl.engine.sample_split import FirstPartQuestion
from dprl.engine.value_query import ValueQuery
from dprl.errors import DprlError
from dprl.mechanisms.filtered_sum import FilteredGaussianSum
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.protocols import Claim
from dprl.report.pages import HasPage, plan_page
from dprl.value_functions.features import Features

_TRIES = 20


@dataclass(frozen=True, repr=False)
class Plan(HasPage):
    """Everything about a release of a log that is known before its rows are read.

    Attributes:
        config: resolved options.
        query, value_mechanism: query for values and intervals, and the mechanism that answers it.
        features, program: feature map and program that learn the value function; None where none is learned.
        event: privacy event of the whole release.
        epsilon_of_event: epsilon of the event at ``delta_of_event``.
        delta_sampler: part of delta that comes from the sampler's distance from an exact Gaussian.
        shares: share of each stage of the program in the mu^2 of the value function.
        claim: claim about mechanisms that dprl did not calibrate; None where dprl calibrated all.
        contrasts: pairs of places of target policies whose differences are also released.
        first: question to the first part of the people, which gives the policy that is valued; ``bounds`` and all other
            attributes are then those of the second part, which values the policy. None where the policies are known.
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
    first: FirstPartQuestion | None = None

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
        """Return the value function, or whatever else these released weights stand for.

        A weight that is not finite counts as zero.
        """
        assert self.features is not None
        theta = np.nan_to_num(np.asarray(weights, dtype=np.float64), nan=0.0, posinf=0.0, neginf=0.0)
        return self.config.function(theta, self.features, self.bounds, self.stages)

    def expectation(self) -> list[dict[str, float]]:
        """Return the errors to expect for each target policy, from public facts, for ``dprl plan``."""
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
        """Refuse a release of values that would say nothing about any policy, as far as public facts tell."""
        if (self.program is None or self.config.around_function) and all(self.hopeless()):
            raise DprlError(
                f"{self.name}: the noise alone would make every interval as wide as the declared range: it "
                "takes more units, a larger epsilon, or a smaller max_importance_ratio or max_cumulative_ratio."
            )


# --- delta of the sampler, and the price --------------------------------------------------------------------------


def without_sampler(budget: Budget, draws: int, total_variation: float) -> tuple[Budget, float]:
    """Return what the sampler's finite precision leaves of a budget, and what it takes from delta.

    Each of the ``draws`` has a total variation distance of ``total_variation`` from an exact Gaussian.

    Raises:
        DprlError: the precision takes a tenth of delta or more.
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

    Raises:
        DprlError: it is larger than the budget's epsilon, which only a ``given`` noise multiplier can cause.
    """
    epsilon = epsilon_of(event, delta)
    if epsilon > budget.epsilon:
        if given is None:  # a mistake in the algorithm, from which no certificate may come
            raise RuntimeError("What will run is not what was calibrated to the budget.")
        raise DprlError(
            f"A noise multiplier of {given:g} costs epsilon = {epsilon:.4g} at this delta, more than the budget "
            f"of {budget.epsilon:g}: raise it, or leave it out."
        )
    return epsilon


# --- one mechanism ----------------------------------------------------------------------------------------------------


class Precise(Protocol):
    """A mechanism that knows how much its finite precision adds to delta."""

    def delta(self, epsilon: float) -> float:
        """Return how much finite precision adds to delta at this epsilon."""
        ...

    def event(self) -> events.DpEvent:
        """Return the mechanism's privacy event."""
        ...


M = TypeVar("M", bound=Precise)


class Costs(NamedTuple):
    """Epsilon of an event at the remaining delta, that delta, and the delta that the mechanism's precision takes."""

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
    """Return the mechanism of a release that has only one, its noise multiplier and its costs.

    Args:
        make: function that makes the mechanism with a noise multiplier.
        event_of: function that gives the mechanism's event from a noise multiplier.
        budget: budget of the release.
        given: noise multiplier in place of the calibrated one.
        advice: what to change where the precision is not enough, in words.

    Raises:
        DprlError: the budget cannot be met.
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
    if mechanism.event() != event_of(multiplier):  # a mistake in dprl, from which no certificate may come
        raise RuntimeError("The mechanism is not the one that was calibrated.")
    epsilon = epsilon_within(mechanism.event(), budget, inner.delta, given)
    return mechanism, multiplier, Costs(epsilon, inner.delta, sampler)


# --- the stages of a program --------------------------------------------------------------------------------------


def calibrated_stages(
    queries: Sequence[Query], before: Sequence[events.DpEvent], mu: float, budget: Budget, given: float | None = None
) -> tuple[Stage, ...]:
    """Return the stages: each gets its share of mu^2, but the last gets what the accountant leaves of the budget.

    Args:
        queries: sums that the stages ask for.
        before: other events that the same budget pays for.
        mu: Gaussian privacy parameter that is available for all stages.
        budget: budget of the stages and of the events ``before``.
        given: noise multiplier of the last stage in place of the calibrated one.
    """
    names = ["value", *(query.name for query in queries)]
    if len(set(names)) < len(names):  # two stages of the same name would share their noise
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
    """Return the stage that answers a query with this noise multiplier."""
    common = {"parts": ((query.dimension, query.clip_norm),), "sampling_rate": query.sampling_rate}
    if query.profile is None:
        return Stage(query.name, GaussianSum(**common, noise_multiplier=noise_multiplier, steps=query.steps))
    if len(query.profile) != query.steps:
        raise RuntimeError("A profile has a number for every step of its stage.")
    multipliers = tuple(noise_multiplier * w for w in query.profile)
    return Stage(query.name, GaussianSum(**common, multipliers=multipliers))


def program_at(config: ValueFunctionConfig, facts: PublicFacts, noise_multiplier: float) -> Any:
    """Return the program whose stages all have this noise multiplier, for experiments without a budget."""
    return config.program(facts, tuple(make_stage(query, noise_multiplier) for query in config.queries(facts)))


def filtered_stage(queries: Sequence[Query], budget: Budget, value_budget_fraction: float) -> tuple[float, Stage]:
    """Return the noise multiplier of the values, and the stage after them, whose noise is chosen step by step.

    The stage gets what the values leave of the budget at the best Renyi order. Without values before it, the noise
    multiplier is infinite.
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
    """Return the event of a whole release: of the values and of the stages that will run, whatever was calibrated.

    Where noise adapts, one filter covers the whole release, and the values are charged to it first.
    """
    if any(isinstance(stage.mechanism, FilteredGaussianSum) for stage in stages):
        if len(stages) != 1:  # a mistake in the algorithm
            raise RuntimeError("What will run is not what was calibrated to the budget.")
        filtered: Any = stages[0].mechanism.event()
        return replace(filtered, before=(value.noise_multiplier,))
    return events.compose([value.event(), *(stage.mechanism.event() for stage in stages)])
