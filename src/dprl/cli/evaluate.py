"""``dprl evaluate``, ``dprl learn`` and ``dprl plan``: the commands that ask something of a log.

What would a policy that nobody ran have been worth, which rule is best, and what does it cost to know?
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dprl
from dprl.cli.command import configure, configure_named
from dprl.cli.requests import (
    BudgetOptions,
    LogOptions,
    PeopleOptions,
    PrintOptions,
    ReleaseOptions,
    RuleOptions,
    RunFileOptions,
    SaveOptions,
    expert,
    may,
)
from dprl.cli.running import Progress, cost_of, released, show, show_release
from dprl.registry import DEFAULT, evaluating
from dprl.report.comparisons import learned_words


@dataclass(frozen=True, kw_only=True)
class Evaluate(PrintOptions, ReleaseOptions, BudgetOptions, LogOptions):
    """Evaluate target policies on a log, privately.

    Values, intervals, a certificate and a report are written. Everything that is public is checked first, then the
    ledger is charged, and only then is a row read. Until the release is in OUT, the folder OUT.run, as private as the
    log, holds what is needed to resume it.

    Attributes:
        outcome: what a value means, in words, for the report.
    """

    outcome: str | None = expert(metavar="TEXT")

    algorithms = staticmethod(evaluating)


def evaluate(asked: Evaluate) -> None:
    """Check the request, release, and print the values."""
    told = {"algorithm": configure_named(asked), "outcome": asked.outcome} | asked.facts()
    _release(asked, partial(dprl.evaluate, str(asked.log), asked.target_policy or [], **told))


VALUES = {DEFAULT: "importance-sampling", "stratified": "stratified"}
"""Default algorithm for the bounds of a log -> the algorithm by which ``dprl learn`` values policies on this log."""


@dataclass(frozen=True, kw_only=True)
class Learn(RuleOptions, PrintOptions, SaveOptions, RunFileOptions, BudgetOptions, PeopleOptions):
    """Learn a rule from a log, privately: one action for everybody, or one that one or two comparisons decide.

    One part of the people chooses the rule. The others value the rule, what was done and, where there is one decision,
    every action for everybody. The rule is written to OUT/policy.json, and --target-policy OUT reads it back.

    Attributes:
        log: .parquet or .csv file, one row per transition.
        policies: policy of your own to choose from as well, as a target policy of dprl evaluate. It may be repeated.
        outcome: what a value means, in words, for the report.
    """

    policies: list[str] | None = expert(metavar="POLICY")
    outcome: str | None = expert(metavar="TEXT")

    algorithms = staticmethod(lambda: {name: evaluating()[name] for name in VALUES.values()})


def learn(asked: Learn) -> None:
    """Check the request, release, and print the rule and what it is worth."""
    told = asked.only("bounds", "unit", "behavior_policy", "choosing_share", "policies", "outcome") | asked.rule()
    told["person"] = asked.person_column
    told["algorithm"] = asked.mistakes.attempt(configure, asked, VALUES[asked.default()])
    _release(asked, partial(dprl.learn, str(asked.log), **told))


@dataclass(frozen=True, kw_only=True)
class Plan(RuleOptions, PrintOptions, RunFileOptions, BudgetOptions, LogOptions):
    """What a release would cost and how wide its intervals would be, from public facts alone; reads no row.

    Attributes:
        log: the log; only its column names and types are looked at.
        learn: plan for the rule that dprl learn would find, in place of target policies.
        cuts: with learn, a component that rules may look at, as dprl learn takes it. Repeat the option for several.
        learner: with learn, rules, fitted-q, advantage or recommended, as dprl learn takes it.
        basis: with learn, basis of a policy by fitted-q or advantage, as dprl learn takes it.
        return_deviation: with learn, how far returns lie from the middle of their range, as dprl learn takes it.
    """

    log: Path | None = may(metavar="LOG", argument=True)
    target_policy: list[str] | None = may(metavar="POLICY")
    learn: bool = may(default=False)
    cuts: list[str] | None = expert(metavar="NAME:CUTS")
    learner: str | None = expert(metavar="NAME")

    algorithms = staticmethod(evaluating)


def plan(asked: Plan) -> None:
    """Print what a release would cost, and the widths of its intervals."""
    budget, configured = asked.budget(), configure_named(asked)
    asked.mistakes.check()

    from dprl.release.plan import plan_release

    log, targets = None if asked.log is None else str(asked.log), asked.target_policy or ["uniform"]
    with Progress(quiet=asked.as_json):
        made = plan_release(log, targets, budget, configured, learn=asked.learn, **asked.rule(), **asked.facts())
    show(made, _expected(made), asked.as_json)


NAMES = ("choice", "value", "interval", "epsilon", "delta", "status", "targets", "contrasts", "subgroups",
         "projections", "cautions")  # fmt: skip


def _release(asked: Evaluate | Learn, call: Callable[..., dprl.Release]) -> None:
    refusal = "--resume goes on with a private release: --seed and --simulated begin anew each time."
    release, paths = released(asked, call, asked.private, refusal)
    result = {name: release.estimate[name] for name in NAMES if name in release.estimate}
    show_release(asked, release, result | {"paths": paths}, lines(release), "data")


def lines(release: Any) -> Iterator[str]:
    """Yield the lines that are printed for a release. Their number follows from what is public or released."""
    estimate = release.estimate
    choice, learned = estimate.get("choice"), learned_words(dict(estimate))
    if learned is not None:
        yield from (line for line in (learned["lead"], learned["against_best"], learned["why"]) if line)
        made = f"learned by {learned['how']}" if "learner" in choice else f"chosen from {choice['of']} candidates"
        yield f"{made}: it is the chosen one, not proven the best"
    elif choice is not None:
        yield (
            f"chosen of {choice['of']} policies: {choice['policy']}. It is the chosen one, not proven the best; of the "
            "others nothing is released."
        )
    width, sure = max(len(name) for name in release.values), f"{100 * estimate['confidence']:g}% interval"
    for name, e in release.values.items():
        weight = "" if e.mean_weight is None else f"; mean weight {e.mean_weight:.3g}"
        told = _interval(e.as_dict(), sure, together=False)
        yield f"{name:<{width}}  {e.value:10.4g}   {told}   ({_errors(e.as_dict())}{weight})"
    for c in release.contrasts:
        told = _interval(c, sure, together=len(release.contrasts) > 1)
        yield f"{c['policy']} less {c['against']}  {c['value']:.4g}   {told}   ({_errors(c)})"
    for group in release.subgroups:
        yield f"{group['name']}: {group['people']:.0f} (privacy noise {group['people_standard_error']:.3g})"
        for name, found in _named(group):
            yield f"  {name}  {found['value']:.4g}   {_interval(found, sure, together=True)}"
    yield from map(_benefit, estimate.get("projections", {}).get("found", ()))
    yield from (f"caution: {sentence}" for sentence in estimate.get("cautions", ()))
    if release.certificate["privacy_unit"] == "transition":
        yield f"values are of the {estimate['quantity']}, not of a return"
    yield cost_of(release.certificate)


def _named(group: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the name and the content of each value and each difference in a subgroup."""
    yield from ((target["name"], target) for target in group["targets"])
    yield from ((f"{c['policy']} less {c['against']}", c) for c in group["contrasts"])


def _interval(found: Mapping[str, Any], sure: str, together: bool) -> str:
    """Return the interval of a value in words and, if ``together``, the simultaneous interval."""
    words = "{} {:.4g} to {:.4g}".format(sure, *found["interval"])
    return words + (", {:.4g} to {:.4g} of all together".format(*found["simultaneous_interval"]) if together else "")


def _errors(found: Mapping[str, Any]) -> str:
    """Return the standard errors of privacy noise and of sampling in words.

    A noisy second moment may come out below the square of the mean, or above what is possible. Then only the upper
    bound of the sampling error is printed, if there is one.
    """
    names = ("privacy_standard_error", "sampling_standard_error", "sampling_standard_error_at_most")
    privacy, sampling, most = map(found.get, names)
    known = [f"about {sampling:.3g}"] * bool(sampling and (most is None or sampling <= most))
    known += [] if most is None else [f"at most {most:.3g}"]
    return f"privacy noise {privacy:.3g}, sampling error {', '.join(known) or 'hidden by it'}"


def _benefit(projection: dict[str, Any]) -> str:
    """Return a projection in words: how much it rises over the range of each covariate."""
    name = " less ".join(projection[who] for who in ("policy", "against") if who in projection)
    if not projection["band"]:
        return f"{name} by covariates: no band"
    if projection["constant_only"]:
        return f"{name} by covariates: the budget buys a constant only"
    found = [(c["name"], c["value"], *c["interval"]) for c in projection["coefficients"]]
    return f"{name} by covariates: " + ", ".join(f"{n} {v:.3g} ({low:.3g} to {high:.3g})" for n, v, low, high in found)


def _expected(made: dict[str, Any]) -> Iterator[str]:
    budget = f"epsilon {made['epsilon']:g}, delta {made['delta']:g} per {made['unit']}"
    yield f"{budget}; {made['algorithm']}, {made['estimator']}"
    if made["unit"] == "transition":
        yield f"values are of the {made['quantity']}, not of a return"
    for m in made["mechanisms"]:
        if "candidates" in m:
            yield f"{m['purpose']}: noisy maximum of {m['candidates']} scores at epsilon {m['epsilon']:g}"
            continue
        rate = f"{m['steps']} release(s) of {m['dimension']} numbers at sampling rate {m['sampling_rate']:g}"
        noise = f"noise multiplier {m['noise_multiplier']:.4g}, clip norm {m['clip_norm']:.4g}"
        yield f"{m['purpose']}: {noise}; {rate}"
    ratio = made["max_cumulative_ratio"]
    if ratio["derived"]:
        yield f"max_cumulative_ratio: {ratio['value']:.4g}, derived from the other bounds"
    if "choice" in made:
        c = made["choice"]
        which = "noise costs the choice at most {largest_loss_by_noise:.4g} of value in the mean"
        if "largest_loss_by_noise" not in c:
            which, c = "{name} with the basis {basis} of {size} functions", c | c["learner"]
        chosen = "choice: about {units_that_choose} units choose, {units_that_value} value; "
        yield (chosen + which).format(**c)
    if made["quantity"].startswith("discounted") and made["discount"] < 1.0 and made["horizon"] > 1:
        yield f"rewards count {made['discount']:g} of what they are for each step later; --discount 1 adds them up"
    width = max(len(t["name"]) for t in made["targets"])
    for t in made["targets"]:
        between = "between {:.4g} and {:.4g}".format(*t["interval_half_width"])
        noise = f"privacy noise {t['privacy_standard_error']:.4g}"
        yield f"{t['name']:<{width}}  {noise}; interval half-width {between}"
    for c in made["contrasts"]:
        yield f"{c['policy']} less {c['against']}  privacy noise {c['privacy_standard_error']:.4g}"
    for s in made["subgroups"]:
        noise = ", ".join(f"{name} {found['privacy_standard_error']:.4g}" for name, found in _named(s))
        yield (
            f"subgroups {s['axis']} ({len(s['groups'])}): privacy noise {noise} in each if all have "
            f"{s['people_of_each']:,.0f} units, twice that in one of half the size; in their number "
            f"{s['people_standard_error']:.3g}"
        )
    yield from (f"caution: {sentence}" for sentence in made["cautions"])
