"""Open the log of a request, load and try its policies, and plan what a release will cost and how exact it can be.

Only the names and types of a log's columns are read here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dprl.accounting import events
from dprl.accounting.accountant import RELATION, accountant_name
from dprl.accounting.budget import Budget
from dprl.bounds import Bounds
from dprl.data.bounds_file import read_bounds, read_bounds_and_preparation
from dprl.data.readers import UNITS, Log, read_log
from dprl.data.sources import LogSource
from dprl.data.trajectories import Trajectories
from dprl.engine.plan import Plan
from dprl.errors import DprlError
from dprl.evaluation.contrasts import asked_pairs, expected_noise
from dprl.evaluation.learned_policy import plan_of_learned, values_of_learned
from dprl.evaluation.plan import EvaluationOptions, make_plan, plan_of_best
from dprl.evaluation.subgroups import GroupedQuery
from dprl.mechanisms.rounded_gaussian import TOTAL_VARIATION
from dprl.policies.loading import (
    LOG_ONLY_POLICIES,
    ColumnPolicy,
    UniformPolicy,
    check_policy,
    load_policy,
    policies_in_file,
    policy_name,
)
from dprl.release.artifacts import MEAN_REWARD, RETURN, mechanism_rows, public_cautions

_OF_PROPENSITIES = (
    "The privacy noise above is that with known behaviour probabilities; what the noise in estimated ones adds depends "
    "on the log, and can be more."
)
_OF_OUTCOME = (
    "Each trajectory has one reward, at its end, and the others are 0, yet returns are taken to lie between "
    "{:g} and {:g}: declare return_range, which the bounds of the reward may give, and noise and intervals are smaller."
)


def opened_log(
    log: LogSource, policies: Mapping[str, Any], bounds: Any, unit: Any, person: Any, behavior_policy: Any
) -> Log:
    """Return the log with the columns that the policies need; no row is read."""
    columns = [p.name for p in policies.values() if isinstance(p, ColumnPolicy)]
    if isinstance(log, Log | Trajectories) and any(x is not None for x in (bounds, unit, person)):
        raise DprlError("The log is open already: bounds, unit and person belong into read_log.")
    if not isinstance(log, Log):
        return read_log(
            log, bounds=bounds, unit=unit, person=person, target_columns=columns, behavior_policy=behavior_policy
        )
    if any(f"target:{c}" not in log.schema.scalars for c in columns):
        raise DprlError("The log was opened without the target policy's column: name it in target_columns.")
    return log if behavior_policy is None else replace(log, behavior_policy=behavior_policy)


def named_policies(target: Any) -> dict[str, Any]:
    """Return the target policies of a request by name, not loaded yet; policies of a list get names of their own."""
    if isinstance(target, Mapping):
        named = dict(target)
    else:
        several = list(target) if isinstance(target, Sequence) and not isinstance(target, str) else [target]
        named = {}
        for spec in several:
            for name, policy in (policies_in_file(spec) or {policy_name(spec): spec}).items():
                named[name if name not in named else f"{name}_{len(named)}"] = policy
    if not named:
        raise DprlError("Name at least one target policy.")
    return {
        str(name): load_policy(p, None) if isinstance(p, str) and p.startswith("column") else p
        for name, p in named.items()
    }


def load_policies(named: Mapping[str, Any], bounds: Bounds) -> dict[str, Any]:
    """Return the policies that :func:`named_policies` gave, each loaded and tried on public states."""
    actions = bounds.actions, bounds.action_names
    policies = {name: load_policy(policy, *actions) for name, policy in named.items()}
    for name, policy in policies.items():
        if not isinstance(policy, LOG_ONLY_POLICIES):
            if bounds.actions is None:
                raise DprlError("Actions are continuous: give the target policy as a column of the log (column:NAME).")
            check_policy(policy, bounds, name)
    return policies


def load_behavior(named: Any, bounds: Bounds) -> Any:
    """Load the public behaviour policy that ``named`` names and try it on public states; None for None."""
    if named is not None and bounds.strata is not None:
        raise DprlError("bounds: behaviour probabilities are estimated within strata: leave the behaviour policy out.")
    behavior = None if named is None else load_policy(named, bounds.actions)
    if behavior is not None:
        if isinstance(behavior, LOG_ONLY_POLICIES):
            raise DprlError("The behaviour policy must be a function of states; a column of the log is behavior_prob.")
        check_policy(behavior, bounds, "behaviour policy")
    return behavior


def check_best(
    best: bool,
    share: float | None,
    named: Mapping[str, Any],
    compare: Sequence[str],
    subgroups: Sequence[str],
) -> None:
    """Refuse a request for the best policy that contradicts itself; ``named`` holds the policies before loading."""
    if not best:
        if share is not None:
            raise DprlError("choosing_share is for a choice among policies: ask for the best, or leave it out.")
        return
    if compare:
        raise DprlError("best: only the chosen policy is valued, and no other to compare it with: leave compare out.")
    if subgroups:
        raise DprlError("best: the chosen policy is valued for all people together: leave subgroups out.")
    seen: dict[Any, str] = {}
    for name, policy in named.items():
        key = policy if isinstance(policy, (str, Path, *LOG_ONLY_POLICIES)) else id(policy)
        if key in seen:
            raise DprlError(f"best: the policies {seen[key]} and {name} are one and the same: name it once.")
        seen[key] = name


def plan_release(
    source: Any,
    target_policy: Any,
    budget: Budget,
    algorithm: EvaluationOptions,
    *,
    bounds: Any,
    unit: str | None = None,
    person: str | None = None,
    features: str = "columns",
    behavior_policy: Any = None,
    compare: Sequence[str] = (),
    subgroups: Sequence[str] = (),
    best: bool = False,
    choosing_share: float | None = None,
    learn: bool = False,
    cuts: Sequence[str] = (),
    learner: str = "recommended",
    basis: str | None = None,
    return_deviation: float | None = None,
) -> dict[str, Any]:
    """Return noise, interval widths and cost of a release as plain data, from public facts.

    Only the names and types of a log's columns are read. For a rule that is to be learned, no policies are named.
    """
    known, preparation = read_bounds_and_preparation(bounds)
    policies = load_policies(named_policies(target_policy), known)
    behavior = load_behavior(behavior_policy, known)
    if source is not None:
        unit = opened_log(source, policies, bounds, unit, person, behavior_policy).unit
    unit = unit or ("person" if person else "trajectory")
    if unit not in UNITS:
        raise DprlError(f"unit must be one of {', '.join(UNITS)}.")
    if learn and (best or compare or subgroups):
        raise DprlError("learn: what a rule is compared with is part of it: leave best, compare and subgroups out.")
    check_best(best or learn, choosing_share, policies, compare, subgroups)
    if (cuts or basis or learner != "recommended" or return_deviation is not None) and not learn:
        raise DprlError(
            "cuts, learner, basis and return_deviation are of what is to be learned: ask for learn, or leave them out."
        )
    pairs = asked_pairs(compare, list(policies))
    facts, how = (algorithm, known, budget), (features, TOTAL_VARIATION, unit)
    if learn:
        config = values_of_learned(algorithm, known)
        plan = plan_of_learned(
            config, known, budget, TOTAL_VARIATION, unit, cuts=cuts, behavior=behavior, share=choosing_share,
            learner=learner, basis=basis, deviation=return_deviation,
        )  # fmt: skip
    elif best:
        plan = plan_of_best(*facts, policies, *how, choosing_share)
    else:
        plan = make_plan(*facts, list(policies.values()), *how, pairs, subgroups)
    names = list(policies) if plan.first is None else list(plan.first.names)
    plan.refuse_the_hopeless()
    cautions = public_cautions(plan, names) + [_OF_PROPENSITIES] * (known.strata is not None)
    if preparation is not None and preparation.outcome != "each" and known.horizon > 1 and known.return_range is None:
        cautions.append(_OF_OUTCOME.format(*known.value_interval(plan.config.discount)))
    return {
        "algorithm": plan.name,
        "estimator": plan.estimator,
        "quantity": plan.config.quantity or (MEAN_REWARD if unit == "transition" else RETURN),
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "epsilon_of_event": plan.epsilon_of_event,
        "unit": unit,
        "mechanisms": mechanism_rows(plan),
        **({} if plan.first is None else {"choice": plan.first.described()}),
        "discount": plan.config.discount,
        "horizon": known.horizon,
        "cautions": cautions,
        "max_cumulative_ratio": {
            "value": plan.query.bounds.cumulative_ratio,
            "derived": plan.query.bounds.derives_cumulative_ratio,
        },
        "targets": [
            {
                "name": name,
                "privacy_standard_error": expected["privacy_standard_error"],
                "largest_sampling_standard_error": expected["largest_sampling_standard_error"],
                "interval_half_width": [
                    expected["interval_half_width_at_least"],
                    expected["interval_half_width_at_most"],
                ],
            }
            for name, expected in zip(names, plan.expectation(), strict=True)
        ],
        "contrasts": _contrasts(plan, names),
        "subgroups": _subgroups(plan, names),
    }


def _contrasts(plan: Plan, names: Sequence[str], noise_factor: float = 1.0) -> list[dict[str, Any]]:
    """Return the noise in each difference that is asked for: the noise among all people times ``noise_factor``."""
    found = zip(plan.contrasts, expected_noise(plan.query, plan.value_mechanism, plan.contrasts), strict=True)
    return [
        {"policy": names[a], "against": names[b], "privacy_standard_error": noise * noise_factor}
        for (a, b), noise in found
    ]


def _subgroups(plan: Plan, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the noise in a group of each axis, if all its groups have one size. Half the size has twice the noise."""
    query, mechanism, out = plan.query, plan.value_mechanism, []
    if not isinstance(query, GroupedQuery):
        return []
    for place, (declared, axis, size, factor) in enumerate(
        zip(query.declared, query.axes, query.sizes, query.relative_noise.groups, strict=True)
    ):
        out.append({
            "axis": declared,
            "groups": axis.labels(),
            "people_of_each": query.bounds.units / size,
            "people_standard_error": query.count_noise(mechanism)[place],
            "targets": [
                {"name": name, "privacy_standard_error": privacy, "interval_half_width_at_most": widest}
                for name, (privacy, _, widest) in zip(names, query.expect_in_groups(mechanism)[place], strict=True)
            ],
            "contrasts": _contrasts(plan, names, noise_factor=size * factor / query.relative_noise.whole),
        })  # fmt: skip
    return out


def calibrate_release(
    budget: Budget, algorithm: EvaluationOptions, *, bounds: Any, features: str = "columns"
) -> dict[str, Any]:
    """Return the noise of every stage of a release that evaluates one policy, as plain data, from public facts.

    A stage's ``share`` is its part of mu^2; the last stage gets what the accountant leaves of the budget.
    """
    # the noise does not depend on which policy is evaluated, so take any, also for continuous actions
    public = read_bounds(bounds)
    policy = ColumnPolicy() if public.actions is None else UniformPolicy(public.actions)
    plan = make_plan(algorithm, public, budget, [policy], features, TOTAL_VARIATION)
    if plan.claim is not None:
        raise DprlError(f"{plan.name}: a paper's formula gives the noise: nothing is calibrated to the budget.")
    names = ("purpose", "noise_multiplier", "sampling_rate", "steps", "share")
    return {
        "algorithm": plan.name,
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "relation": RELATION,
        "stages": [{name: row[name] for name in names} for row in mechanism_rows(plan)],
        "epsilon_of_event": plan.epsilon_of_event,
        "delta_of_event": plan.delta_of_event,
        "event": events.to_json(plan.event),
        "accountant": accountant_name(plan.event),
    }
