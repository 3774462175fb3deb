"""Turn the options of an evaluation into its plan: the query for values, and the stages for the value function.

A release may be about two parts of the people: the second part values what the first part chose or learned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dprl.accounting import events
from dprl.accounting.accountant import epsilon_of
from dprl.accounting.budget import Budget
from dprl.accounting.calibration import noise_multiplier_for
from dprl.accounting.rows import MOST_CANDIDATES
from dprl.bounds import Bounds
from dprl.engine.plan import Plan, calibrated_stages, epsilon_within, event_of_stages, filtered_stage, without_sampler
from dprl.engine.program import Program, PublicFacts, Query, Stage, ValueFunctionConfig, ValuesConfig
from dprl.engine.sample_split import FirstPartQuestion, checked_share
from dprl.engine.value_query import ExtendedQuery, ValueQuery, value_mechanism
from dprl.entry_points import config_in_calibration
from dprl.errors import DprlError
from dprl.evaluation.best_policy import make_choice
from dprl.evaluation.blended import BlendedQuery
from dprl.evaluation.importance_sampling import ImportanceQuery, ImportanceSampling
from dprl.evaluation.protected import with_loaded_protector
from dprl.evaluation.residuals import ResidualQuery
from dprl.evaluation.stratified import with_subgroups_of_strata
from dprl.evaluation.subgroups import with_subgroups
from dprl.mechanisms.arithmetic import MAX_UNITS
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.value_functions.features import Features, make_features

EvaluationOptions = ValueFunctionConfig | ValuesConfig


def make_plan(
    config: EvaluationOptions,
    bounds: Bounds,
    budget: Budget,
    policies: Sequence[Any],
    features: str = "columns",
    total_variation: float = 0.0,
    unit: str = "trajectory",
    contrasts: Sequence[tuple[int, int]] = (),
    subgroups: Sequence[str] = (),
    share: float = 1.0,
) -> Plan:
    """Resolve the options, calibrate the noise to the budget, and compute what the release will cost.

    Args:
        config: options of any registered evaluation algorithm.
        bounds: public bounds of the log.
        budget: what the release may spend.
        policies: target policies; the value function is that of the first.
        features: feature map of the value function.
        total_variation: distance of one draw of the noise source from an exact Gaussian.
        contrasts: pairs of places in ``policies`` whose differences are asked for.
        subgroups: subgroups whose values are asked for as well; see :func:`~dprl.evaluation.subgroups.subgroup_axes`.
        share: share of the people who are asked; a coin decides for each person. ``bounds`` declare their mean number.
        unit: privacy unit. Where it is ``transition``, the values are mean rewards of a transition, because nothing
            connects the transitions of a trajectory.

    Raises:
        DprlError: the budget cannot be met, or an option contradicts it.
    """
    if isinstance(policies, str) or callable(policies) or not policies:
        raise DprlError("policies must be a list of target policies; of one, a list of one.")
    if len(policies) > MOST_CANDIDATES:
        raise DprlError(f"At most {MOST_CANDIDATES} target policies fit in one release; these are {len(policies)}.")
    if not isinstance(config, ValueFunctionConfig | ValuesConfig):
        raise DprlError("config must be the options of an evaluation algorithm, such as dprl.Recommended().")
    if not isinstance(bounds, Bounds) or not isinstance(budget, Budget):
        raise DprlError(
            "bounds must be dprl.Bounds, which dprl.read_bounds reads from a file, and budget a dprl.Budget."
        )
    budget.check_units(bounds.units)
    if bounds.units > MAX_UNITS:
        raise DprlError(f"bounds: units may be at most {MAX_UNITS}.")
    feature_map = make_features(features, bounds.state)  # refuses a wrong name even where no features are used
    if isinstance(config, ValueFunctionConfig):
        config = with_loaded_protector(config_in_calibration(config))
    elif unit not in config.units_served:
        raise DprlError(f"{config.algorithm} has no statement for the privacy unit {unit}.")
    config = config.for_bounds(bounds)
    asked = bounds.of_one_transition() if unit == "transition" else bounds
    query = _of_a_part(_query(config, asked, policies, feature_map, contrasts), share, config.algorithm)
    if isinstance(query, ResidualQuery):
        query = with_subgroups_of_strata(query, subgroups, unit)
    else:
        query = with_subgroups(query, subgroups, unit, config.algorithm)
    if isinstance(config, ValuesConfig):
        return _plan_of_values(config, bounds, budget, query, total_variation, contrasts)
    facts = _facts(config, bounds, feature_map, budget, 1.0 - config.value_budget_fraction, unit)
    return _plan_with_function(config, facts, budget, query, total_variation, contrasts)


def _plan_of_values(
    config: ValuesConfig,
    bounds: Bounds,
    budget: Budget,
    query: ValueQuery,
    total_variation: float,
    contrasts: Sequence[tuple[int, int]],
) -> Plan:
    """Return the plan of a release of values, for which the whole budget pays."""
    inner, sampler = without_sampler(budget, query.dimension, total_variation)
    whole, given = noise_multiplier_for(events.gaussian, inner), config.noise_multiplier
    value = value_mechanism(query, whole if given is None else given)
    epsilon = epsilon_within(value.event(), budget, inner.delta, given)
    costs = (value.event(), epsilon, inner.delta, sampler)
    return Plan(config, bounds, budget, query, value, None, None, *costs, contrasts=tuple(contrasts))


def _plan_with_function(
    config: ValueFunctionConfig,
    facts: PublicFacts,
    budget: Budget,
    query: ValueQuery,
    total_variation: float,
    contrasts: Sequence[tuple[int, int]],
) -> Plan:
    """Return the plan of a release of a value function and of values, which share the budget."""
    queries = config.queries(facts)
    draws = sum((each.dimension + (each.adaptive is not None)) * each.steps for each in queries)
    inner, sampler = without_sampler(budget, query.dimension + draws, total_variation)
    of_all = noise_multiplier_for(events.gaussian, inner)
    value = value_mechanism(query, of_all / math.sqrt(config.value_budget_fraction))
    claimed = config.claimed(facts, queries, budget)
    if claimed is not None:
        value, stages = claimed.value(value), claimed.stages
    else:
        stages, of_values = _calibrated(config, facts, queries, inner, value)
        value = value if of_values is None else value_mechanism(query, of_values)
    program = config.program(facts, stages)
    event = event_of_stages(value, program.stages)
    claim, given = None if claimed is None else claimed.claim, getattr(config, "noise_multiplier", None)
    epsilon = epsilon_of(event, inner.delta) if claim else epsilon_within(event, budget, inner.delta, given)
    resolved = getattr(program, "config", None)
    if isinstance(resolved, type(config)):  # an algorithm may run another algorithm's program under its own name
        config = resolved
    shares = tuple(each.share for each in queries)
    costs = (event, epsilon, inner.delta, sampler)
    public = (config, facts.bounds, budget, query, value, facts.features, program)
    return Plan(*public, *costs, shares, claim, tuple(contrasts))


def plan_of_best(
    config: EvaluationOptions,
    bounds: Bounds,
    budget: Budget,
    policies: Mapping[str, Any],
    features: str = "columns",
    total_variation: float = 0.0,
    unit: str = "trajectory",
    share: float | None = None,
) -> Plan:
    """Return the plan of a release that chooses the best of ``policies``, and values it.

    One part of the people chooses, and the other part values. With a single policy there is nothing to choose, and the
    plan is the ordinary one.

    Args:
        config, bounds, budget, features, total_variation, unit: see :func:`make_plan`.
        policies: policies to choose from, by name; the cost of valuing does not depend on which of them is chosen.
        share: share of the people on whom the policy is chosen; None for the default.

    Raises:
        DprlError: see :func:`make_plan` and :func:`~dprl.evaluation.best_policy.make_choice`.
    """
    how = (features, total_variation, unit)
    checked_share(share)
    valued = list(policies.values())[:1]
    if len(policies) == 1:
        return make_plan(config, bounds, budget, valued, *how)
    budget.check_units(bounds.units)
    estimator = config.estimator if isinstance(config, ImportanceSampling) else "auto"
    asked = bounds.of_one_transition() if unit == "transition" else bounds
    first = make_choice(config.discount, estimator, asked, policies, budget.epsilon, share)
    return plan_of_two_parts(first, config, bounds, budget, valued, *how)


def plan_of_two_parts(
    first: FirstPartQuestion,
    config: EvaluationOptions,
    bounds: Bounds,
    budget: Budget,
    policies: Sequence[Any],
    features: str = "columns",
    total_variation: float = 0.0,
    unit: str = "trajectory",
    contrasts: Sequence[tuple[int, int]] = (),
) -> Plan:
    """Return the plan of a release in which a second part of the people values what the first part chose or learned.

    Each part may spend the whole budget, because nobody is in both.

    Args:
        first: question to the first part; this function calibrates its noise.
        config, budget, features, total_variation, unit, contrasts: see :func:`make_plan`.
        bounds: public bounds of the log of all people.
        policies: policies to value; another policy may stand in for a policy that is not known yet.
    """
    split, how = first.split, (features, total_variation, unit, contrasts)
    of_values = split.bounds_of(bounds, False)
    inner, sampler = without_sampler(budget, first.draws, total_variation)  # each part pays for the draws of both
    plan = make_plan(config, of_values, inner, policies, *how, share=split.second / split.units)
    if plan.claim is not None:
        raise DprlError(f"{plan.name}: a paper's formula gives the noise: it values no best policy.")
    first = first.calibrated(Budget(budget.epsilon, plan.delta_of_event))
    event = events.parallel([first.event(), plan.event])
    return replace(
        plan,
        budget=budget,
        event=event,
        epsilon_of_event=epsilon_of(event, plan.delta_of_event),
        delta_sampler=plan.delta_sampler + sampler,
        first=first,
    )


def program_for(
    config: ValueFunctionConfig, bounds: Bounds, features: Features, budget: Budget, unit: str = "trajectory"
) -> Program:
    """Return the program of the value function with all of ``budget``, for experiments that release nothing else."""
    config = with_loaded_protector(config_in_calibration(config))
    facts = _facts(config, bounds, features, budget, 1.0, unit)
    queries = config.queries(facts)
    claimed = config.claimed(facts, queries, budget)
    stages = _calibrated(config, facts, queries, budget, None)[0] if claimed is None else claimed.stages
    return config.program(facts, stages)


def _calibrated(
    config: ValueFunctionConfig, facts: PublicFacts, queries: Sequence[Query], budget: Budget, value: GaussianSum | None
) -> tuple[tuple[Stage, ...], float | None]:
    """Return the stages that ``budget`` pays for beside ``value``, and a new noise multiplier for the values or None.

    The values need a new noise multiplier where the noise of the stages is chosen adaptively. There the option
    ``noise_multiplier`` is refused.
    """
    given = getattr(config, "noise_multiplier", None)
    if all(query.adaptive is None for query in queries):
        before = [] if value is None else [value.event()]
        return calibrated_stages(queries, before, facts.mu, budget, given), None
    if given is not None:
        raise DprlError(
            f"{config.algorithm}: noise that adapts is calibrated to the budget: leave noise_multiplier out."
        )
    of_values, stage = filtered_stage(queries, budget, 0.0 if value is None else config.value_budget_fraction)
    return (stage,), of_values


def _query(
    config: EvaluationOptions,
    bounds: Bounds,
    policies: Sequence[Any],
    features: Features,
    contrasts: Sequence[tuple[int, int]],
) -> ValueQuery:
    """Return the query that asks for values and intervals."""
    if bounds.strata is not None and not config.estimates_propensities:
        raise DprlError(
            f"{config.algorithm} needs behaviour probabilities, and the bounds declare strata in which they are to be "
            "estimated: leave the algorithm out, or strata."
        )
    if isinstance(config, ValuesConfig):
        return config.value_query(bounds, policies, contrasts)
    own = config.value_query(bounds, features, policies, contrasts)
    if own is not None:
        return own
    options = ImportanceSampling(discount=config.discount, confidence=config.confidence)
    query = options.value_query(bounds, policies, contrasts)
    return BlendedQuery(query) if config.blends_value_function and bounds.cuts_products else query


def _of_a_part(query: ValueQuery, share: float, name: str) -> ValueQuery:
    """Return the query to a ``share`` of the people; a coin decides who is asked."""
    if share == 1.0 or isinstance(query, ResidualQuery):  # a residual query counts the people itself
        return query
    if isinstance(query, ExtendedQuery):
        return replace(query, inner=_of_a_part(query.inner, share, name))
    if not isinstance(query, ImportanceQuery):
        raise DprlError(f"{name} has no intervals for a part of the people: use another algorithm.")
    return replace(query, asked_share=share)


def _facts(
    config: ValueFunctionConfig, bounds: Bounds, features: Features, budget: Budget, share: float, unit: str
) -> PublicFacts:
    """Return public facts with the mu of ``share`` of the budget's mu^2.

    Raises:
        DprlError: the algorithm cannot learn with these features, or cannot protect this privacy unit.
    """
    if not features.linear and not config.neural:
        raise DprlError(
            f"{config.algorithm} learns a linear value function: use columns, tabular or fourier:ORDER, or the "
            f"algorithm dptd or neural-td for {features.name}."
        )
    if unit not in config.units_served:
        raise DprlError(f"{config.algorithm} has no statement for the privacy unit {unit}: use dptd or neural-td.")
    mu = math.sqrt(share) / noise_multiplier_for(events.gaussian, budget)
    return PublicFacts(bounds, features, config.discount, mu, unit)
