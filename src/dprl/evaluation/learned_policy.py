"""A rule learned from a log: the best of a declared class, chosen by one part of the people and valued by the other.

The class is made of public facts and has three levels: the same action for everybody, rules of one comparison, and
rules of two. The more rules a level has, the better its luckiest rule looks by chance and noise. So a level starts
behind by a public handicap, and is left out where the handicap is too large. The second part of the people values the
rule, the behaviour policy and, for logs of one decision, each action given to everybody. Simultaneous intervals tell
how much more the rule is worth than each of these. In place of the class, a policy may be learned from noisy sums
(:mod:`dprl.evaluation.learning_question`).

Privacy unit, relation, event and proofs: those of :mod:`dprl.evaluation.best_policy`. Proof: docs/proofs/two-parts.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from dprl.accounting.budget import Budget
from dprl.accounting.rows import MOST_CANDIDATES
from dprl.bounds import Bounds
from dprl.engine.plan import Plan
from dprl.engine.sample_split import SampleSplit, checked_share
from dprl.errors import DprlError
from dprl.evaluation.advantage import ADVANTAGE
from dprl.evaluation.best_policy import PolicyChoice, make_choice
from dprl.evaluation.fitted_q import FITTED_Q
from dprl.evaluation.importance_sampling import ImportanceSampling
from dprl.evaluation.learning_question import make_question, question_within_strata, recommended_question
from dprl.evaluation.least_noise import UnknownPolicy, public_states
from dprl.evaluation.plan import plan_of_two_parts
from dprl.evaluation.propensity_regression import declares_regression
from dprl.evaluation.strata import read_axes
from dprl.evaluation.stratified import Stratified
from dprl.policies.loading import AlwaysPolicy, LoggedPolicy, policy_probabilities
from dprl.policies.rules import Cut, Rule, fixed_actions, public_cuts, thresholds, trees

# All numbers were chosen on the seeds for choosing of benchmarks/handicaps.py.
HANDICAP = 0.3, 2.0
"""Factors of both parts of a handicap: the standard error of a return at an end of its range, and the mean noise."""
DECLARED = 0.8, 1.0
"""The same factors where bounds declare how far returns lie from the middle: the standard error is of such a return."""
TOO_FAR = 0.25
"""Handicap above which a level of rules is left out, in half-widths of the value range."""
MOST_BESIDE = 20
"""Actions that are valued beside a rule; of more the plan alone would take minutes."""
LEVELS = ("one action for everybody", "one comparison", "two comparisons")
LEARNED = "the learned rule"
"""Name of the learned rule among the policies that are valued."""
LEARNERS = ("recommended", "rules", FITTED_Q, ADVANTAGE)
LOGGED = "logged"


def plan_of_learned(
    config: ImportanceSampling | Stratified,
    bounds: Bounds,
    budget: Budget,
    total_variation: float = 0.0,
    unit: str = "trajectory",
    *,
    cuts: Sequence[str] = (),
    candidates: Mapping[str, Any] | None = None,
    behavior: Any = None,
    censored: bool = False,
    share: float | None = None,
    learner: str = "recommended",
    basis: str | None = None,
    deviation: float | None = None,
) -> Plan:
    """Return the plan of a release that learns a rule or a policy.

    Args:
        config, bounds, budget, total_variation, unit: see :func:`~dprl.evaluation.plan.make_plan`. Where the bounds
            declare strata, values are those of :class:`~dprl.evaluation.stratified.Stratified`, and the rule has an
            action for each stratum (:mod:`dprl.evaluation.strata_q`).
        cuts: components that rules may look at, each with or without cut points, declared as subgroups are; by default
            all components, at public cut points.
        candidates: the analyst's own policies, by name, as further candidates.
        behavior: public behaviour policy. Rules that propose, in some state, an action that it never takes are left
            out.
        censored: whether the log tells who was lost from it.
        share: share of the people who choose; None for the default.
        learner: ``rules``, ``fitted-q`` (:mod:`dprl.evaluation.fitted_q`), ``advantage``
            (:mod:`dprl.evaluation.advantage`), or ``recommended``: over several steps the one of the last two that the
            budget serves, and rules otherwise.
        basis: basis of a policy: ``table``, ``products:0``, ``products:1`` or ``products:2``; None for the largest that
            the budget serves.
        deviation: root mean square distance of returns from the middle of their range; a public guess, with which
            larger levels start less far behind. None for returns at the ends of the range.

    Raises:
        DprlError: actions are continuous, no rule is left to propose, or the budget cannot be met.
    """
    if learner not in LEARNERS:
        raise DprlError(f"learner must be one of {', '.join(LEARNERS)}.")
    taught = learner in (FITTED_Q, ADVANTAGE)
    stratified = isinstance(config, Stratified)
    if (bounds.strata is not None) != stratified:
        raise DprlError(
            "learn: behaviour probabilities are either estimated within strata of the bounds, for values of "
            "dprl.Stratified(...), or known, for those of dprl.ImportanceSampling(...)."
        )
    if declares_regression(bounds):
        raise DprlError("learn: a rule has an action for each stratum: declare strata without :linear.")
    for_rules = bool(cuts or candidates) or deviation is not None
    if stratified and (learner in ("rules", ADVANTAGE) or basis is not None or for_rules):
        raise DprlError(
            "learn: where behaviour probabilities are estimated, a rule has an action for each stratum, by regression "
            "for each action: leave learner, basis, cuts, policies of your own and return_deviation out."
        )
    if stratified and (censored or bounds.censoring_hazard is not None):
        raise DprlError(
            "learn: where people are lost and behaviour probabilities are estimated, nobody can tell what would have "
            "been done to those who were lost: evaluate target policies instead."
        )
    if basis is not None and not taught:
        raise DprlError(
            f"learn: a basis is for {FITTED_Q} and {ADVANTAGE}: choose one as the learner, or leave basis out."
        )
    if taught and for_rules:
        raise DprlError(f"{learner}: cuts, policies of your own and a return_deviation are for rules: leave them out.")
    if bounds.actions is None:
        raise DprlError("learn: rules propose discrete actions; these are continuous.")
    budget.check_units(bounds.units)
    asked = bounds.of_one_transition() if unit == "transition" else bounds
    own = dict(candidates or {})
    fixed = _supported(fixed_actions(bounds.actions, bounds.state_names), bounds, behavior, bounds.actions)
    further_policies: dict[str, Any] = {LOGGED: LoggedPolicy(steady=not censored)}
    if asked.horizon == 1 and len(fixed) <= MOST_BESIDE:  # they exclude one another: all cost little more than one
        actions = [AlwaysPolicy(int(rule.tree), rule.actions) for rule in fixed]  # type: ignore[arg-type]
        called = bounds.action_names or range(bounds.actions)
        further_policies |= {f"always_{called[policy.action]}": policy for policy in actions}
    pairs = tuple((0, place) for place in range(1, len(further_policies) + 1))
    valued = [UnknownPolicy(), *further_policies.values()]
    rest = (config, bounds, budget, valued, "columns", total_variation, unit, pairs)
    split, first = SampleSplit(bounds.units, checked_share(share)), None
    how = (asked, config.discount, budget, split, behavior, basis)
    if isinstance(config, Stratified):
        first = question_within_strata(asked, config.discount, split, config.min_propensity)
    elif taught:
        first = make_question(*how, learner)
    elif learner == "recommended" and asked.horizon > 1 and not for_rules:
        first = recommended_question(*how)
    if first is None:
        assert isinstance(config, ImportanceSampling)
        choice = make_choice(config.discount, config.estimator, asked, {LEARNED: None}, budget.epsilon, share)
        first = _with_class(choice, fixed, asked, declared_cuts(cuts, bounds), own, behavior, deviation)
    return plan_of_two_parts(replace(first, further_policies=further_policies), *rest)


def values_of_learned(algorithm: Any, bounds: Bounds) -> ImportanceSampling | Stratified:
    """Return the options for the values of what is learned.

    They are ``algorithm`` if it is of the kind that these bounds need, else default options with the same discount.
    """
    kind = ImportanceSampling if bounds.strata is None else Stratified
    return algorithm if isinstance(algorithm, kind) else kind(discount=algorithm.discount)


def declared_cuts(cuts: Sequence[str], bounds: Bounds) -> tuple[Cut, ...]:
    """Return where rules may cut components, from declarations such as ``age:30,50`` or ``site``."""
    axes = read_axes(cuts, bounds, "cuts")
    return tuple(cut for axis in axes for cut in axis.cuts()) if axes else public_cuts(bounds.state)


def _with_class(
    first: PolicyChoice,
    fixed: Sequence[Rule],
    bounds: Bounds,
    cuts: Sequence[Cut],
    own: dict[str, Any],
    behavior: Any,
    deviation: float | None,
) -> PolicyChoice:
    """Return the choice among all levels that are not too far behind, and the analyst's own policies.

    Handicaps are counted from the handicap of the fixed actions.
    """
    names, actions = bounds.state_names, bounds.actions or 1
    rules, behind, room = list(fixed), [0.0] * len(fixed), MOST_CANDIDATES - len(fixed) - len(own)
    if room < 0:
        raise DprlError(
            f"learn: at most {MOST_CANDIDATES} policies fit in one choice; there are {len(fixed)} actions, and "
            f"{len(own)} policies of your own."
        )
    levels, left_out, spread = {LEVELS[0]: len(fixed)}, None, _spread(first, deviation)
    for level, more in zip(LEVELS[1:], (thresholds, trees), strict=True):
        found = _supported(more(actions, names, cuts), bounds, behavior, room)
        handicap = _handicap(first, len(rules) + len(found), spread) - _handicap(first, len(fixed), spread)
        if handicap > TOO_FAR and fixed:
            left_out = {"level": level, "rules": len(found), "handicap": handicap}
            break
        if found:
            levels[level] = len(found)
        rules, behind, room = rules + found, behind + [handicap] * len(found), room - len(found)
    candidates: dict[str, Any] = {rule.words: rule for rule in rules} | own
    if len(candidates) < len(rules) + len(own):
        raise DprlError("learn: two of the rules and policies have the same words: cut points and names must differ.")
    if not candidates:
        raise DprlError("learn: the behaviour policy never does at some states what any of these rules would propose.")
    low, high = first.query.bounds.value_interval(first.query.config.discount)
    points = [round(first.points_of(h * (high - low) / 2.0)) for h in behind] + [0] * len(own)
    made_of: dict[str, Any] = {"levels": levels, "own": len(own), "left_out": left_out}
    made_of |= {} if deviation is None else {"return_deviation": float(deviation)}
    made_of["cuts"] = {name: sorted(at for i, at in cuts if i == place) for place, name in enumerate(names)}
    return replace(
        first,
        mechanism=replace(first.mechanism, candidates=len(candidates)),
        candidates=candidates,
        handicaps=tuple(points),
        policy_name=LEARNED,
        made_of=made_of,
    )


def _spread(first: PolicyChoice, deviation: float | None) -> float | None:
    """Return a declared deviation of returns in half-widths of the value range."""
    low, high = first.query.bounds.value_interval(first.query.config.discount)
    number = isinstance(deviation, int | float) and not isinstance(deviation, bool)
    if deviation is not None and not (number and 0.0 < deviation <= (high - low) / 2.0):
        raise DprlError("learn: return_deviation must be above 0, and at most half of the range of a return.")
    return None if deviation is None else deviation / ((high - low) / 2.0)


def _handicap(first: PolicyChoice, rules: int, spread: float | None) -> float:
    """Return how far the luckiest of ``rules`` rules leads by chance and noise, in half-widths of the value range."""
    ratio, people = first.query.scale.largest, first.split.first
    errors, noises = HANDICAP if spread is None else DECLARED
    chance = (spread or 1.0) * math.sqrt(ratio * math.log(max(rules, 1)) / people)
    return errors * chance + noises * ratio * math.log(max(rules, 1)) / (people * first.mechanism.epsilon)


def _supported(rules: Any, bounds: Bounds, behavior: Any, most: int) -> list[Rule]:
    """Return the first ``most`` rules that propose only actions likely enough in the log for the declared ratio.

    The rules' actions get the names that the bounds declare.
    """
    rules = (replace(rule, action_names=bounds.action_names) for rule in rules)
    if behavior is None:  # then the declared ratio says that every action is likely enough
        return list(islice(rules, most))
    states = public_states(bounds)
    taken = policy_probabilities(behavior, states, bounds.actions or 1)
    never = taken < (1.0 - 1e-9) / bounds.max_importance_ratio
    return list(islice((rule for rule in rules if not never[np.arange(len(states)), rule.action(states)].any()), most))
