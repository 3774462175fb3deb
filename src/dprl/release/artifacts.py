"""Write an evaluation's estimate and unsealed certificate as plain data, from its plan and its noisy values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dprl.accounting.accountant import accountant_name
from dprl.accounting.certificate import NOT_A_TRAJECTORY
from dprl.config import DERIVED
from dprl.data.readers import Log
from dprl.engine.plan import Plan
from dprl.engine.program import ValueFunctionConfig
from dprl.engine.value_query import LearningQuery
from dprl.evaluation.contrasts import Contrast
from dprl.evaluation.intervals import (
    CUT_WEIGHTS,
    NO_OVERLAP,
    OUTSIDE_RANGE,
    SAYS_NOTHING,
    TRIMMED,
    WEIGHTS_ABOVE_ONE,
    WEIGHTS_BELOW_ONE,
    ValueEstimate,
    quantile,
)
from dprl.evaluation.propensities import Propensities, PropensityModel
from dprl.evaluation.propensity_regression import RegressionTerms, declares_regression
from dprl.evaluation.protected import Protected
from dprl.evaluation.subgroups import GroupedQuery, Subgroup
from dprl.mechanisms.filtered_sum import FilteredGaussianSum
from dprl.mechanisms.gaussian_sum import RELATION
from dprl.policies.greedy import GreedyPolicy
from dprl.policies.loading import AlwaysPolicy, policy_name, policy_words
from dprl.policies.rules import Rule
from dprl.release.pipeline import certificate_from
from dprl.release.private_rows import ReleasedEstimates

NOT_PROTECTED = (
    "The target policies, the feature map, the public bounds and every hyper-parameter: they must not have been "
    "fitted on this log.",
    "Whether the log was evaluated at all, when, and how long it took.",
    "What follows about a person from facts that do not depend on that person's own record.",
)

RETURN, MEAN_REWARD = "discounted return of a trajectory", "mean reward of a transition"
"""Quantities that a value can estimate, in words."""


def estimate_of(
    plan: Plan,
    log: Log,
    values: Mapping[str, ValueEstimate],
    released: ReleasedEstimates,
    references: list[float] | None,
    status: str,
    outcome: str | None,
) -> dict[str, Any]:
    """Return the content of ``estimate.json``: released values and public facts."""
    first, contrasts, twice = {}, released.contrasts, []
    if plan.first is not None and released.first is not None:
        contrasts, of_rule = _of_rule(list(released.first.policies.values()), contrasts)
        name, *others = values
        twice = [
            f"{name} and {others[c.against - 1]} are one policy; each of their values has noise of its own."
            for c in released.contrasts
            if c not in contrasts
        ]
        first = {"choice": {"policy": released.first.name} | plan.first.described() | of_rule}
    public = public_cautions(plan, list(values) if plan.first is None else plan.first.names)
    targets = [
        {"name": name, **e.as_dict(), "reference": None if references is None else references[i]}
        for i, (name, e) in enumerate(values.items())
    ]
    request = {"log": log.name, "unit": log.unit, "discount": plan.config.discount}
    request |= {"unit_column": log.unit_column} if log.unit_column else {}
    request |= {"outcome": outcome} if outcome else {}
    learned: dict[str, Any] = {"value_function": None}
    if released.learned is not None:
        learned[released.learned.kind] = released.learned.described(list(values), log.bounds.state_names)
    return {
        "schema": "dprl.estimate/1",
        "status": status,
        "algorithm": plan.name,
        "estimator": plan.estimator,
        "quantity": plan.config.quantity or (MEAN_REWARD if log.unit == "transition" else RETURN),
        "epsilon": plan.budget.epsilon,
        "delta": plan.budget.delta,
        "confidence": plan.query.config.confidence,
        "discount": plan.config.discount,
        "value": targets[0]["value"],
        "interval": targets[0]["interval"],
        **first,
        "targets": targets,
        **({"contrasts": [contrast.as_dict(list(values)) for contrast in contrasts]} if contrasts else {}),
        **({"subgroups": [group.as_dict(list(values)) for group in released.groups]} if released.groups else {}),
        **learned,
        "public_cautions": public,
        "cautions": public
        + twice
        + _of_people(plan, released.learned)
        + _cautions(plan, values, log.unit)
        + _of_groups(released.groups),
        "request": request,
        "bounds": bounds_in_force(plan, log),
    }


def _of_rule(policies: Sequence[Any], contrasts: Sequence[Contrast]) -> tuple[list[Contrast], dict[str, Any]]:
    """Return the differences to report, and the facts about the learned rule.

    Where the rule is one action for everybody, its difference from that same action is left out. The rule's advantage
    over the best single action is the smallest of its differences from each action. The ends of its interval are the
    smallest ends in the same way, so the interval holds whenever the intervals of all differences do.
    """
    rule = policies[0]
    out: dict[str, Any] = {"cases": [list(case) for case in rule.cases()]} if isinstance(rule, Rule) else {}
    out |= {"learned_policy": rule.described()} if isinstance(rule, GreedyPolicy) else {}
    kept, ends = [], []
    for contrast in contrasts:
        against = policies[contrast.against]
        if isinstance(rule, Rule) and isinstance(against, AlwaysPolicy) and rule.tree == against.action:
            ends.append((0.0, 0.0, 0.0))
            continue
        kept.append(contrast)
        if isinstance(against, AlwaysPolicy):
            ends.append((contrast.value, *contrast.simultaneous_interval))
    if ends:
        value, low, high = (min(column) for column in zip(*ends, strict=True))
        out["less_best_action"] = {"value": value, "simultaneous_interval": [low, high]}
    return kept, out


def bounds_in_force(plan: Plan, log: Log) -> dict[str, Any]:
    """Return the log's public bounds, with the bound on a trajectory's importance ratio that its values used."""
    return {**plan.bounds.in_force(), "units": log.bounds.units}


def public_cautions(plan: Plan, names: Sequence[str]) -> list[str]:
    """Return the cautions about the values of the policies called ``names`` that follow from public facts only."""
    asked, said = plan.query.bounds, []
    if asked.cuts_products:
        origin = "derived" if asked.derives_cumulative_ratio else "declared"
        said.append(
            f"Importance ratios are multiplied along a trajectory and cut at {asked.cumulative_ratio:g} (the {origin} "
            f"max_cumulative_ratio), though they could reach {asked.largest_product:.3g}. The mean weight shows how "
            "much was cut, and the intervals are wider by what that can hide; a learned value function is not "
            "corrected for it."
        )
    if asked.strata is not None:
        within = (
            ", ".join(RegressionTerms(asked).names[1:] if declares_regression(asked) else asked.strata)
            or "no covariate"
        )
        lost = "" if asked.kinds == asked.actions else ", and of those who got it, who was lost"
        said.append(
            f"Behaviour probabilities are estimated by a multinomial regression on {within}. "
            "Values are right if, given these, nothing else that bears on the outcome decided who got which action, "
            "and if the regression has the right form, or the outcome of each action is linear in the same terms."
            if declares_regression(asked)
            else f"Behaviour probabilities are estimated within strata of {within}. Values are right if, among people "
            f"of one stratum, nothing that also bears on the outcome decided who got which action{lost}."
        )
    if isinstance(plan.query, LearningQuery):
        said += plan.query.cautions(plan.value_mechanism)
    if isinstance(plan.query, GroupedQuery):
        for declared, size, expected in zip(
            plan.query.declared, plan.query.sizes, plan.query.expect_in_groups(plan.value_mechanism), strict=True
        ):
            low, high = asked.value_interval(plan.config.discount)
            if all(2.0 * quantile(plan.query.config.confidence) * noise >= high - low for noise, *_ in expected):
                said.append(
                    f"The privacy noise in the values of a group of {declared} is alone as wide as the declared range "
                    f"if its {size} groups are of one size: it takes fewer groups, more units or a larger epsilon."
                )
    return said + [
        f"The privacy noise in the value of {name} is alone as wide as the declared range: its interval says nothing. "
        "It takes more units, a larger epsilon, or smaller importance ratios."
        for name, hides in zip(names, plan.hopeless(), strict=True)
        if hides
    ]


def _of_people(plan: Plan, learned: Any) -> list[str]:
    """Return a caution if propensities are estimated and clearly fewer units than declared are behind the values.

    "Clearly" means more than three standard errors of the noisy count of usable units.
    """
    bounds = plan.query.bounds
    if not isinstance(learned, Propensities | PropensityModel) or bounds.horizon > 1:
        return []
    (total, noise), coins = learned.total, 0.0 if plan.first is None else math.sqrt(bounds.units)
    if total + 3.0 * math.hypot(noise, coins) >= bounds.units:
        return []
    return [
        f"Of {bounds.units} declared units about {max(total, 0.0):.0f} can be used, and the values are of these alone: "
        "whoever has no outcome, or one that cannot be read, may be unlike them. The curator can look with `dprl data "
        "describe`."
    ]


def _cautions(plan: Plan, values: Mapping[str, ValueEstimate], unit: str) -> list[str]:
    """Return the cautions about each value that a reader must see first, from released values and public facts."""
    one = "transition" if unit == "transition" else "trajectory"
    low, high = plan.query.bounds.value_interval(plan.config.discount)
    below = (
        "what was cut, and what the log does not show, is counted in the interval."
        if plan.query.bounds.cuts_products or plan.query.bounds.strata is not None
        else "rows that contribute nothing, such as empty outcomes (the curator sees them by `dprl data describe`; "
        "people who were lost are declared by `censored`), or a declared fact that is not true (a ratio that is too "
        "small, wrong behaviour probabilities, fewer units, or decisions that were never taken in the log); the "
        "interval is wider by what that can hide."
    )
    out = []
    for name, e in values.items():
        weight = math.nan if e.mean_weight is None else e.mean_weight
        error = "" if not e.mean_weight_error else f" (standard error {e.mean_weight_error:.1g})"
        sums = f"The weights of {name} add up to {weight:.2g}{error} where they should add up to 1: "
        said = {
            WEIGHTS_BELOW_ONE: sums + below,
            WEIGHTS_ABOVE_ONE: sums + "behaviour probabilities are wrong, or there are more units than declared.",
            OUTSIDE_RANGE: f"The value of {name} lies outside of what a {one} can return by the declared bounds "
            f"({low:g} to {high:g}): noise, a wrong number of units, or a log whose rows cannot be used; the curator "
            "can look with `dprl data describe`.",
            SAYS_NOTHING: f"The interval of {name} is the whole declared range: this release says nothing about it.",
        }
        out += [said[note] for note in e.notes if note in said]
    for note, of_several in (
        (NO_OVERLAP, "In some strata an action that {} may take was hardly ever taken: for the people there anything "
        "within the declared range is counted as possible, and the interval is wider for it."),
        (TRIMMED, "Strata in which an action that {} may take was hardly ever taken are left out: the value is of the "
        "people in the other strata; the noisy counts say how many they are."),
        (CUT_WEIGHTS, "Where an action that {} may take is rarer than the declared max_importance_ratio allows, its "
        "weight is cut; the interval is wider by what that can hide."),
    ):  # fmt: skip
        names = [name for name, e in values.items() if note in e.notes]
        out += [of_several.format(" or ".join(names))] if names else []
    return out


def _of_groups(groups: Sequence[Subgroup]) -> list[str]:
    """Return the cautions about subgroups that a reader must see before their values."""
    out, weights = [], (WEIGHTS_BELOW_ONE, WEIGHTS_ABOVE_ONE)
    for group in groups:
        if all(SAYS_NOTHING in e.notes for e in group.values):
            out.append(f"The budget does not suffice for the subgroup {group.name}: its intervals are the whole range.")
        elif any(note in e.notes for e in group.values for note in weights):
            out.append(
                f"In the subgroup {group.name} weights do not add up to one: there something is cut, rows contribute "
                "nothing, or a declared fact is not true."
            )
    return out


def _options(plan: Plan) -> dict[str, Any]:
    """Return every option that was in force, and where its value came from."""
    own, values = plan.config.hyper_parameters(), plan.query.config.hyper_parameters()
    shared = ("discount", "confidence", "noise_multiplier")  # the same in both, or stated by the mechanisms
    same = plan.config is plan.query.config
    renamed = {n if same or n not in own or n in shared else f"values: {n}": entry for n, entry in values.items()}
    program = getattr(plan.program, "config", None)
    chosen = getattr(plan.program, "choices", {})
    if program is not None and type(program) is not type(plan.config):  # another algorithm's program
        chosen = {
            f"{program.algorithm}: {n}": e["value"] for n, e in program.hyper_parameters().items() if n not in own
        }
    return renamed | own | {name: {"value": value, "provenance": DERIVED} for name, value in chosen.items()}


def mechanism_rows(plan: Plan) -> list[dict[str, Any]]:
    """Return one row for each mechanism: its description, and its ``share`` of the squared Gaussian parameter mu^2.

    A stage with several noise levels has a row for each level. Its share is divided among them by what each level would
    add to mu^2 if all units took part.
    """
    first = plan.config.value_budget_fraction if isinstance(plan.config, ValueFunctionConfig) else 1.0
    found = [] if plan.first is None else plan.first.rows()
    found.append(plan.value_mechanism.describe("Gaussian vector", "values and intervals") | {"share": first})
    for stage, share in zip(plan.stages, plan.shares, strict=True):
        sampled = "Poisson-sampled clipped" if stage.mechanism.sampling_rate < 1.0 else "Clipped"
        filtered = " and its norm, under a Renyi filter" if isinstance(stage.mechanism, FilteredGaussianSum) else ""
        rows = stage.mechanism.rows(f"{sampled} Gaussian sum{filtered}", stage.name)
        spent = [row["steps"] / row["noise_multiplier"] ** 2 for row in rows]
        parts = [(1.0 - first) * share * (part / sum(spent)) for part in spent]
        found += [row | {"share": part} for row, part in zip(rows, parts, strict=True)]
    return found


def certificate_of(
    plan: Plan, log: Log, policies: Mapping[str, Any], behavior: Any, noise: Any, status: str, features: str
) -> dict[str, Any]:
    """Return the unsealed certificate: only public facts, which are known before the first row is read."""
    learned = getattr(plan.config, "learns", "")
    around = f", around the released {learned}," if plan.around_function else ""
    of_groups = " of everybody and of each subgroup" if isinstance(plan.query, GroupedQuery) else ""
    released = f"One noisy vector, from which{around} every value and interval{of_groups} is computed"
    released += f", and the {learned}" if isinstance(plan.query, LearningQuery) else ""
    if plan.stages:
        if any(isinstance(stage.mechanism, FilteredGaussianSum) for stage in plan.stages):
            released += ", the noisy sum of every step and its noisy norm, as many as the budget admitted, from which"
        else:
            released += ", and the noisy sum of every step, from which"
        released += f" the {learned} is computed"
    if plan.first is not None:
        released = f"{plan.first.words}: {released[0].lower()}{released[1:]}"
    options = _options(plan)
    asked = plan.query.bounds
    if asked.derives_cumulative_ratio:
        options["max_cumulative_ratio"] = {"value": asked.cumulative_ratio, "provenance": DERIVED}
    if plan.first is not None:
        options |= plan.first.options()
    if plan.features is not None:
        options["features"] = {"value": features, "provenance": "stated public"}
    if getattr(plan.config, "clip_norm", 0.0) is None:  # the algorithm leaves it open, and its mechanism has derived it
        options["clip_norm"] = {
            "value": plan.stages[-1].mechanism.clip_norm,
            "provenance": "derived from the public horizon and features",
        }
    protector = plan.program.described if isinstance(plan.program, Protected) else None
    if protector is not None:  # the folder's name would mean nothing to readers elsewhere
        options["optimizer"] = {"value": protector["fingerprint"], "provenance": "the protector named below"}
    public = {"bounds": bounds_in_force(plan, log), "hyper_parameters": options, "policies": list(policies)}
    public["behavior_probabilities"] = "column behavior_prob" if behavior is None else f"policy {policy_name(behavior)}"
    if log.bounds.strata is not None:
        public["behavior_probabilities"] = "estimated within declared strata"
    said = {name: policy_words(policy, log.bounds.action_names) for name, policy in policies.items()}
    if said := {name: words for name, words in said.items() if words}:
        public["policies_in_words"] = said
    if plan.first is not None:
        described = plan.first.described()
        public |= {name: described[name] for name in ("rules", "learner") if name in described}
    if log.preparation is not None:
        public["prepare"] = dict(log.preparation.declared)
    if isinstance(plan.query, GroupedQuery):
        public["subgroups"] = list(plan.query.declared)
    if protector is not None:
        public["protector"] = protector
    return certificate_from(
        plan,
        noise,
        status,
        privacy_unit=log.unit,
        neighbouring_relation=RELATION if plan.claim is None else plan.claim.relation,
        released=released + ".",
        not_protected=[*NOT_PROTECTED, *([NOT_A_TRAJECTORY] if log.unit == "transition" else [])],
        mechanisms=mechanism_rows(plan),
        accountant=accountant_name(plan.event),
        assumed_public=public,
    )
