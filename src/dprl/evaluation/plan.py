"""What a release will do and what it will cost, from public facts alone: no row is read here.

A plan is made before the ledger is charged; ``dprl plan`` prints it, ``evaluate`` carries it out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from dprl.accounting import events
from dprl.accounting.accountant import epsilon_of
from dprl.accounting.budget import Budget
from dprl.accounting.calibration import noise_multiplier_for
from dprl.accounting.renyi_filter import plan_filter
from dprl.added import in_calibration
from dprl.data.trajectories import Trajectories
from dprl.engine.program import Facts, Program, Shape, Stage, ValueFunctionConfig
from dprl.engine.rows import Rows, rows_of
from dprl.errors import DprlError
from dprl.evaluation import estimators
from dprl.evaluation import importance_sampling as importance
from dprl.evaluation.around import AroundQuery
from dprl.evaluation.importance_sampling import ImportanceSampling
from dprl.evaluation.protected import loaded
from dprl.evaluation.strategy import public_patterns
from dprl.mechanisms.filtered_sum import FilteredGaussianSum
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.grid import MAX_UNITS
from dprl.protocols import Bounds, Claim
from dprl.value_functions.features import Features, make_features
from dprl.value_functions.linear import ValueFunction

Algorithm = ValueFunctionConfig | ImportanceSampling
ESTIMATOR_NAMES = {**importance.ESTIMATOR_NAMES, AroundQuery.estimator: "doubly robust"}


@dataclass(frozen=True)
class Plan:
    """Everything about a release that is known before the data are read.

    Attributes:
        config: resolved options.
        query, value_mechanism: what pays for values and intervals.
        features, program: what pays for the value function; None without one.
        event: the privacy event of the whole release.
        epsilon_of_event: its epsilon at ``delta_of_event``.
        delta_sampler: what the sampler's distance from an exact Gaussian adds to delta.
        shares: of each stage of the program in the mu^2 of the value function.
        claim: what is said of mechanisms that dprl did not calibrate; None where it did.
    """

    config: Algorithm
    bounds: Bounds
    budget: Budget
    query: estimators.ValueQuery
    value_mechanism: GaussianSum
    features: Features | None
    program: Program | None
    event: events.DpEvent
    epsilon_of_event: float
    delta_of_event: float
    delta_sampler: float
    shares: tuple[float, ...] = ()
    claim: Claim | None = None

    @property
    def name(self) -> str:
        return self.config.algorithm

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The program's; none without one."""
        return () if self.program is None else self.program.stages

    @property
    def steps(self) -> int:
        """Of all stages: for a progress bar."""
        return sum(stage.mechanism.steps for stage in self.stages)

    @property
    def estimator(self) -> str:
        """What the values come from, in words."""
        return ESTIMATOR_NAMES[self.query.estimator]

    @property
    def around_function(self) -> bool:
        """Whether values are taken around the released value function, and therefore after it."""
        return isinstance(self.query, AroundQuery)

    def rows(self, log: Trajectories, ratios: np.ndarray) -> Rows:
        """The rows of a log as the program sees them, with importance ratios ``(N,)`` of its steps."""
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
            most=getattr(self.config, "rows", None),
        )

    def function_of(self, weights: Any) -> ValueFunction:
        """The value function with these released weights; what is no number counts as zero."""
        assert self.features is not None
        theta = np.nan_to_num(np.asarray(weights, dtype=np.float64), nan=0.0, posinf=0.0, neginf=0.0)
        return ValueFunction(theta, self.features, self.bounds.value_interval(self.config.discount))

    def expectation(self) -> list[dict[str, float]]:
        """What to expect of each target policy's errors, from public facts: for ``dprl plan``."""
        z = NormalDist().inv_cdf(0.5 + self.query.config.confidence / 2.0)
        expected = estimators.expect(self.query, self.value_mechanism)
        return [
            {
                "privacy_standard_error": privacy,
                "largest_sampling_standard_error": sampling,
                "interval_half_width_at_least": z * privacy,
                "interval_half_width_at_most": widest,
            }
            for privacy, sampling, widest in expected
        ]

    def hopeless(self) -> list[bool]:
        """Of each target policy, whether the noise alone makes its interval as wide as the declared range."""
        low, high = self.query.bounds.value_interval(self.config.discount)
        return [low < high and 2.0 * e["interval_half_width_at_least"] >= high - low for e in self.expectation()]

    def refuse_the_hopeless(self) -> None:
        """Refuse a release of values alone of which public facts show that it would say nothing of any of them."""
        for_values = self.around_function or isinstance(self.config, ImportanceSampling)
        if for_values and all(self.hopeless()):
            raise DprlError(
                f"{self.name}: the noise alone would make every interval as wide as the declared range: it "
                "takes more units, a larger epsilon, or a smaller max_importance_ratio or max_cumulative_ratio."
            )


def make_plan(
    config: Algorithm,
    bounds: Bounds,
    budget: Budget,
    policies: Sequence[Any],
    features: str = "columns",
    total_variation: float = 0.0,
    unit: str = "trajectory",
) -> Plan:
    """Resolve options, calibrate the noise to the budget, and compose what the release will cost.

    Args:
        config: of any registered evaluation algorithm.
        bounds: public bounds of the log.
        budget: what the release may spend.
        policies: target policies; the value function is that of the first.
        features: feature map of the value function.
        total_variation: of one draw of the noise source that will be used.
        unit: privacy unit. Of ``transition`` the values are mean rewards of a transition: nothing follows a trajectory.

    Raises:
        DprlError: the budget cannot be met, or an option contradicts it.
    """
    if isinstance(policies, str) or callable(policies) or not policies:
        raise DprlError("policies must be a list of target policies; of one, a list of one.")
    if not isinstance(config, ValueFunctionConfig | ImportanceSampling):
        raise DprlError("config must be the options of an evaluation algorithm, such as dprl.Recommended().")
    budget.check_units(bounds.units)
    if bounds.units > MAX_UNITS:
        raise DprlError(f"bounds: units may be at most {MAX_UNITS}.")
    feature_map = make_features(features, bounds.observation)  # a wrong name is refused even where none are used
    asked = bounds.of_one_transition() if unit == "transition" else bounds
    query = _query(config, asked, policies, feature_map)
    shapes: tuple[Shape, ...] = ()
    claim: Claim | None = None
    facts, draws = None, query.dimension
    if isinstance(config, ValueFunctionConfig):
        config = loaded(in_calibration(config))
        facts = _facts(config, bounds, feature_map, budget, 1.0 - config.value_share, unit)
        shapes = config.shapes(facts)
        draws += sum((shape.dimension + (shape.adaptive is not None)) * shape.steps for shape in shapes)
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
    inner = Budget(budget.epsilon, budget.delta - sampler)
    whole = noise_multiplier_for(events.gaussian, inner)
    program = None
    if isinstance(config, ValueFunctionConfig):
        assert facts is not None
        value = estimators.mechanism(query, whole / math.sqrt(config.value_share))
        if any(shape.adaptive is not None for shape in shapes):
            filtered = _filtered(config, shapes, inner, config.value_share)
            value = estimators.mechanism(query, filtered.value)
            program = config.program(facts, (filtered.stage,))
            event = _filtered_event(value, program.stages)
        else:
            found = config.claimed(facts, shapes, budget)
            if found is None:
                stages = _calibrated(shapes, [value.event()], facts.mu, inner, _given(config))
            else:
                value, stages, claim = found.value(value), found.stages, found.claim
            program = config.program(facts, stages)
            # of the stages that will run, whatever was calibrated
            event = events.compose([value.event(), *(stage.mechanism.event() for stage in program.stages)])
        resolved = getattr(program, "config", None)
        if isinstance(resolved, type(config)):  # an algorithm may run another one's program, under its own name
            config = resolved
    else:
        given = config.noise_multiplier
        value = estimators.mechanism(query, whole if given is None else given)
        event = value.event()
    epsilon = epsilon_of(event, inner.delta)
    used = None if program is None else feature_map
    shares = tuple(shape.share for shape in shapes)
    plan = Plan(
        config, bounds, budget, query, value, used, program, event, epsilon, inner.delta, sampler, shares, claim
    )
    if epsilon > budget.epsilon and claim is None:
        given = getattr(config, "noise_multiplier", None)
        if given is None:  # a mistake of the algorithm's, and no certificate may come of it
            raise RuntimeError("A program's stages are not those that were calibrated to the budget.")
        raise DprlError(
            f"A noise multiplier of {given:g} costs epsilon = {epsilon:.4g} at this delta, "
            f"more than the budget of {budget.epsilon:g}: raise it, or leave it out."
        )
    return plan


def program_for(
    config: ValueFunctionConfig, bounds: Bounds, features: Features, budget: Budget, unit: str = "trajectory"
) -> Program:
    """The value function alone, with all of ``budget``: for experiments that release nothing else."""
    config = loaded(in_calibration(config))
    facts = _facts(config, bounds, features, budget, 1.0, unit)
    shapes = config.shapes(facts)
    if any(shape.adaptive is not None for shape in shapes):
        return config.program(facts, (_filtered(config, shapes, budget, 0.0).stage,))
    found = config.claimed(facts, shapes, budget)
    stages = _calibrated(shapes, [], facts.mu, budget, _given(config)) if found is None else found.stages
    return config.program(facts, stages)


def _query(config: Algorithm, bounds: Bounds, policies: Sequence[Any], features: Features) -> estimators.ValueQuery:
    """What asks for values and intervals."""
    if isinstance(config, ValueFunctionConfig) and config.around_function:
        return AroundQuery(config, bounds, features, len(policies))
    if not isinstance(config, ImportanceSampling):
        config = ImportanceSampling(discount=config.discount, confidence=config.confidence)
    return importance.make_query(config, bounds, public_patterns(policies, bounds))


def _facts(
    config: ValueFunctionConfig, bounds: Bounds, features: Features, budget: Budget, share: float, unit: str
) -> Facts:
    """With the mu of ``share`` of the budget's mu^2. Refuses what the algorithm cannot learn or protect."""
    if not features.linear and not config.neural:
        raise DprlError(
            f"{config.algorithm} learns a linear value function: use columns, tabular or fourier:ORDER, or the "
            f"algorithm dptd or neural-td for {features.name}."
        )
    if unit not in config.units_served:
        raise DprlError(f"{config.algorithm} has no statement for the privacy unit {unit}: use dptd or neural-td.")
    mu = math.sqrt(share) / noise_multiplier_for(events.gaussian, budget)
    return Facts(bounds, features, config.discount, mu, unit)


def _calibrated(
    shapes: Sequence[Shape], before: list[events.DpEvent], mu: float, inner: Budget, given: float | None = None
) -> tuple[Stage, ...]:
    """Every stage but the last gets its share of mu^2; the last what the accountant then leaves of the budget."""
    names = ["value", *(shape.name for shape in shapes)]
    if len(set(names)) < len(names):  # two of one name would share their noise
        raise RuntimeError("The stages of a program need names of their own, other than 'value'.")
    spent, stages = list(before), []
    for shape in shapes[:-1]:
        if shape.sampling_rate < 1.0:
            raise RuntimeError("Only the last stage of a program may sample units.")
        stages.append(_stage(shape, math.sqrt(shape.steps / shape.share) / mu))
        spent.append(stages[-1].mechanism.event())
    last = shapes[-1]

    if any(shape.profile is not None for shape in shapes[:-1]):
        raise RuntimeError("Only the last stage of a program may have a profile.")
    levels = {1.0: last.steps} if last.profile is None else Counter(last.profile)

    def together(noise_multiplier: float) -> events.DpEvent:
        steps = [
            events.poisson_gaussian(last.sampling_rate, noise_multiplier * w, count) for w, count in levels.items()
        ]
        return events.compose([*spent, *steps])

    multiplier = noise_multiplier_for(together, inner) if given is None else given
    return (*stages, _stage(last, multiplier))


def _stage(shape: Shape, noise_multiplier: float) -> Stage:
    common = {"clip_norm": shape.clip_norm, "sampling_rate": shape.sampling_rate, "dimension": shape.dimension}
    if shape.profile is None:
        return Stage(shape.name, GaussianSum(**common, noise_multiplier=noise_multiplier, steps=shape.steps))
    if len(shape.profile) != shape.steps:
        raise RuntimeError("A profile has a number for every step of its stage.")
    multipliers = tuple(noise_multiplier * w for w in shape.profile)
    return Stage(shape.name, GaussianSum(**common, multipliers=multipliers))


class _Filtered(NamedTuple):
    value: float  # noise multiplier of the value query
    stage: Stage


def _filtered(config: ValueFunctionConfig, shapes: Sequence[Shape], inner: Budget, value_share: float) -> _Filtered:
    """The one stage of noise that is chosen on the way: what the value query leaves of the best order's budget."""
    if len(shapes) != 1 or shapes[0].profile is not None:
        raise RuntimeError("A stage with adaptive noise is the only one of its program, and has no profile.")
    if _given(config) is not None:
        raise DprlError(
            f"{config.algorithm}: noise that adapts is calibrated to the budget: leave noise_multiplier out."
        )
    (shape,) = shapes
    assert shape.adaptive is not None
    made = plan_filter(
        inner.epsilon, inner.delta, shape.sampling_rate, shape.steps, shape.adaptive.norm, share=value_share
    )
    z = made.noise_multiplier
    mechanism = FilteredGaussianSum(
        clip_norm=shape.clip_norm,
        noise_multiplier=z,
        sampling_rate=shape.sampling_rate,
        steps=shape.steps,
        dimension=shape.dimension,
        levels=tuple(z * level for level in shape.adaptive.levels),
        norm_multiplier=z * shape.adaptive.norm,
        order=made.order,
        budget=made.budget,
    )
    return _Filtered(math.inf if made.before is None else made.before, Stage(shape.name, mechanism))


def _filtered_event(value: GaussianSum, stages: tuple[Stage, ...]) -> events.DpEvent:
    """All of a release whose noise adapts: one filter, in which the value query was charged first."""
    steps = stages[0].mechanism
    if len(stages) != 1 or not isinstance(steps, FilteredGaussianSum):  # a mistake of the algorithm's
        raise RuntimeError("A program's stages are not those that were calibrated to the budget.")
    return replace(steps.event(), before=(value.noise_multiplier,))


def _given(config: ValueFunctionConfig) -> float | None:
    """A noise multiplier that overrides the calibration."""
    return getattr(config, "noise_multiplier", None)
