"""What to expect of a release before it is paid for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dprl.accounting import events
from dprl.accounting.accountant import RELATION, accountant_name
from dprl.accounting.budget import Budget
from dprl.data.bounds_file import read_bounds
from dprl.data.readers import UNITS, read_log
from dprl.errors import DprlError
from dprl.evaluation.contrasts import asked_pairs, expected_noise
from dprl.evaluation.plan import Algorithm, make_plan
from dprl.mechanisms.rounded_gaussian import TOTAL_VARIATION
from dprl.policies.loading import ColumnPolicy
from dprl.release.artifacts import MEAN_REWARD, RETURN, mechanism_rows, public_cautions
from dprl.release.evaluate import load_policies


def plan_release(
    source: Any,
    target_policy: str | Sequence[Any],
    budget: Budget,
    algorithm: Algorithm,
    *,
    bounds: Any,
    unit: str | None = None,
    person: str | None = None,
    features: str = "columns",
    behavior_policy: Any = None,
    compare: Sequence[str] = (),
) -> dict[str, Any]:
    """Return noise, interval widths and cost as plain data, from public facts; of a log only names and types are
    read.
    """
    known = read_bounds(bounds)
    policies = load_policies(target_policy, known)
    if isinstance(behavior_policy, str) and behavior_policy.startswith("column"):
        raise DprlError("The behaviour policy must be a function of states; a column of the log is behavior_prob.")
    if source is not None:
        columns = [p.name for p in policies.values() if isinstance(p, ColumnPolicy)]
        log = read_log(
            source, bounds=bounds, unit=unit, person=person, target_columns=columns, behavior_policy=behavior_policy
        )
        unit = log.unit
    unit = unit or ("person" if person else "trajectory")
    if unit not in UNITS:
        raise DprlError(f"unit must be one of {', '.join(UNITS)}.")
    names = list(policies)
    pairs = asked_pairs(compare, names)
    plan = make_plan(algorithm, known, budget, list(policies.values()), features, TOTAL_VARIATION, unit, pairs)
    plan.refuse_the_hopeless()
    return {
        "algorithm": plan.name,
        "estimator": plan.estimator,
        "quantity": MEAN_REWARD if unit == "transition" else RETURN,
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "epsilon_of_event": plan.epsilon_of_event,
        "unit": unit,
        "mechanisms": mechanism_rows(plan),
        "cautions": public_cautions(plan, list(policies)),
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
            for name, expected in zip(policies, plan.expectation(), strict=True)
        ],
        "contrasts": [
            {"policy": names[a], "against": names[b], "privacy_standard_error": noise}
            for (a, b), noise in zip(pairs, expected_noise(plan.query, plan.value_mechanism, pairs), strict=True)
        ],
    }


def calibrate_release(
    budget: Budget, algorithm: Algorithm, *, bounds: Any, features: str = "columns"
) -> dict[str, Any]:
    """Return noise of every stage of a release that evaluates one policy, as plain data, from public facts.

    A stage's ``share`` is its part of mu^2; the last of them gets what the accountant leaves of the budget.
    """
    # of one target policy nothing matters here: any will do, also where actions are continuous
    plan = make_plan(algorithm, read_bounds(bounds), budget, [ColumnPolicy()], features, TOTAL_VARIATION)
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
