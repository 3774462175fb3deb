"""``dprl evaluate``, ``dprl learn`` and ``dprl plan``: the commands that ask something of a log.

What would a policy that nobody ran have been worth, which rule is best, and what does it cost to know? Last comes
how every release is run, saved and printed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dprl
from dprl.cli import StoppedError, UnprintedReleaseError
from dprl.cli.command import Progress, configure, configure_named, print_result
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
    optional,
)
from dprl.errors import DprlError, WrongOptionsError
from dprl.registry import DEFAULT, evaluation_entries
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

    algorithms = staticmethod(evaluation_entries)


def evaluate(request: Evaluate) -> None:
    """Check the request, release, and print the values."""
    options = {"algorithm": configure_named(request), "outcome": request.outcome} | request.evaluation_options()
    _release(request, partial(dprl.evaluate, str(request.log), request.target_policy or [], **options))


VALUED_BY = {DEFAULT: "importance-sampling", "stratified": "stratified"}
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

    algorithms = staticmethod(lambda: {name: evaluation_entries()[name] for name in VALUED_BY.values()})


def learn(request: Learn) -> None:
    """Check the request, release, and print the rule and what it is worth."""
    names = ("bounds", "unit", "behavior_policy", "choosing_share", "policies", "outcome")
    options = request.given(*names) | request.rule_options()
    options["person"] = request.person_column
    options["algorithm"] = request.mistakes.attempt(configure, request, VALUED_BY[request.default_algorithm()])
    _release(request, partial(dprl.learn, str(request.log), **options))


PRINTED_FIELDS = ("choice", "value", "interval", "epsilon", "delta", "status", "targets", "contrasts", "subgroups",
                  "projections", "cautions")  # fmt: skip


def _release(request: Evaluate | Learn, call: Callable[..., dprl.Release]) -> None:
    refusal = "--resume goes on with a private release: --seed and --simulated begin anew each time."
    release, paths = run_and_save(request, call, request.private, refusal, "private updates")
    result = {name: release.estimate[name] for name in PRINTED_FIELDS if name in release.estimate}
    print_release(request, release, result | {"paths": paths}, release_lines(release), "data")


def release_lines(release: Any) -> Iterator[str]:
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
        interval = _interval(e.as_dict(), sure, together=False)
        yield f"{name:<{width}}  {e.value:10.4g}   {interval}   ({_errors(e.as_dict())}{weight})"
    for c in release.contrasts:
        interval = _interval(c, sure, together=len(release.contrasts) > 1)
        yield f"{c['policy']} less {c['against']}  {c['value']:.4g}   {interval}   ({_errors(c)})"
    for group in release.subgroups:
        yield f"{group['name']}: {group['people']:.0f} (privacy noise {group['people_standard_error']:.3g})"
        for name, found in _named_values(group):
            yield f"  {name}  {found['value']:.4g}   {_interval(found, sure, together=True)}"
    yield from map(_benefit, estimate.get("projections", {}).get("found", ()))
    yield from (f"caution: {sentence}" for sentence in estimate.get("cautions", ()))
    if release.certificate["privacy_unit"] == "transition":
        yield f"values are of the {estimate['quantity']}, not of a return"
    yield cost_of(release.certificate)


def _named_values(group: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
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

    log: Path | None = optional(metavar="LOG", argument=True)
    target_policy: list[str] | None = optional(metavar="POLICY")
    learn: bool = optional(default=False)
    cuts: list[str] | None = expert(metavar="NAME:CUTS")
    learner: str | None = expert(metavar="NAME")

    algorithms = staticmethod(evaluation_entries)


def plan(request: Plan) -> None:
    """Print what a release would cost, and the widths of its intervals."""
    budget, configured = request.budget(), configure_named(request)
    request.mistakes.check()

    from dprl.release.plan import plan_release

    log, targets = None if request.log is None else str(request.log), request.target_policy or ["uniform"]
    with Progress(quiet=request.as_json):
        options = request.rule_options() | request.evaluation_options()
        made = plan_release(log, targets, budget, configured, learn=request.learn, **options)
    print_result(made, _plan_lines(made), request.as_json)


def _plan_lines(made: dict[str, Any]) -> Iterator[str]:
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
        noise = ", ".join(f"{name} {found['privacy_standard_error']:.4g}" for name, found in _named_values(s))
        yield (
            f"subgroups {s['axis']} ({len(s['groups'])}): privacy noise {noise} in each if all have "
            f"{s['people_of_each']:,.0f} units, twice that in one of half the size; in their number "
            f"{s['people_standard_error']:.3g}"
        )
    yield from (f"caution: {sentence}" for sentence in made["cautions"])


# --- what every release does ------------------------------------------------------------------------------------------


def run_and_save(
    request: Any, call: Callable[..., Any], resumable: bool, refusal: str, doing: str, lost: str = ""
) -> tuple[Any, dict[str, str]]:
    """Run and save the release that is asked for. Return it, and the path of each of its files by name.

    Args:
        request: request with a budget and the options of :class:`~dprl.cli.requests.SaveOptions`.
        call: function of the library; called with the arguments that all releases share.
        resumable: whether the release can be resumed.
        refusal: error message for ``--resume`` if the release cannot be resumed.
        doing: what the progress bar counts.
        lost: said of an interrupted release that has no run folder.
    """
    run = _run_folder(request, resumable, refusal)
    with explain_interruption(run, lost):
        budget = request.budget()
        request.mistakes.check()
        with Progress(quiet=request.as_json, doing=doing) as progress:
            release = call(budget=budget, progress=progress, run=run, **request.release_options())
        paths = release.save(request.out, request.sign)
    return release, {name: str(path) for name, path in paths.items()}


def _run_folder(request: SaveOptions, resumable: bool, refusal: str) -> Path | None:
    """Note mistakes in a release's folder and signing key; return its run folder, or None if it has none."""
    from dprl.accounting.certificate import load_private
    from dprl.release.results import check_folder
    from dprl.release.run_folder import check_run, noted_folder

    mistakes, run = request.mistakes, None
    if request.sign is not None:
        mistakes.attempt(load_private, request.sign)
    if request.out is None:
        return None
    out = Path(os.path.abspath(request.out))
    if not out.name:
        mistakes.add(f"{str(request.out)!r} cannot be the folder of a release: name a new one.")
        return None
    if resumable:
        run = out.with_name(out.name + ".run")
        mistakes.attempt(check_run, run, request.resume)
    elif request.resume:
        mistakes.add(refusal)
    # a release that was interrupted at its very end is in its folder already
    if run is None or noted_folder(run) != out:
        mistakes.attempt(check_folder, request.out)
    return run


@contextmanager
def explain_interruption(run: Path | None, lost: str) -> Iterator[None]:
    """Let Ctrl-C and errors in this block say what is left in the run folder; without one, Ctrl-C says ``lost``."""
    try:
        yield
    except KeyboardInterrupt as stop:
        goes_on = "; what was charged stays charged; the same command with --resume goes on"
        raise StoppedError(lost if run is None or not run.is_dir() else goes_on) from stop
    except DprlError as error:
        said = str(error)
        if run is None or not os.path.exists(run / "key") or str(run) in said or "--resume" in said:
            raise
        shown = os.path.relpath(run) if run.is_relative_to(Path.cwd()) else run
        left = f"elete {shown}, which holds the key to this release's noise"
        if "stays spent" in said:  # this run cannot be resumed
            raise DprlError(f"{said.removesuffix('.')}. D{left}.") from error
        left = f"go on by --resume, or d{left} (what was charged stays spent)."
        if isinstance(error, WrongOptionsError):
            raise WrongOptionsError([*error.sentences, f"Put that right and {left}"]) from error
        raise DprlError(f"{said.removesuffix('.')}: put that right and {left}") from error


def print_release(request: Any, release: Any, made: Mapping[str, Any], lines: Iterable[str], whose: str) -> None:
    """Print a release. If it cannot be printed, the error says at least that the release is in its folder.

    Args:
        request: request for the release.
        release: the saved release.
        made: what is printed as JSON.
        lines: what is printed in words; a note follows if nothing was charged or certified, and then the report's path.
        whose: what the release is of, for that note: ``data``, ``rewards`` or ``people``.
    """
    words, certificate = [*lines], release.certificate
    if certificate["status"] != "verified":
        words.append("This is a statement, not a certificate: what it promises is written in statement.json.")
    elif certificate["ledger"] is None:
        words.append(f"no ledger: nothing was charged, and nothing adds this release to others of the same {whose}.")
    words.append(f"report: {request.out / 'report.html'}")
    try:
        print_result(made, words, request.as_json)
    except BrokenPipeError:
        raise
    except OSError as error:
        said = f"the release is in {request.out}, whole; what is to be said of it cannot be printed ({error.strerror})."
        raise UnprintedReleaseError(said) from error


def cost_of(certificate: Mapping[str, Any]) -> str:
    """Return the status of a release, and what it costs, in words."""
    cost = f"epsilon {certificate['epsilon']:g}, delta {certificate['delta']:g}"
    return f"{certificate['status']}: {cost} per {certificate['privacy_unit']}"
