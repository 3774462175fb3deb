"""``dprl evaluate``: what would a policy that nobody ran have been worth?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dprl.cli.command import configure_named
from dprl.cli.requests import Budgeted, OfLog, Printed, Released, expert
from dprl.cli.running import Progress, check_out, end_of, printing, show, stoppable
from dprl.registry import evaluating
from dprl.report.comparisons import learned_words


@dataclass(frozen=True, kw_only=True)
class Evaluate(Printed, Released, Budgeted, OfLog):
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
    mistakes, private = asked.mistakes, asked.seed is None and not asked.simulated
    run = check_out(
        asked, private, "--resume goes on with a private release: --seed and --simulated begin anew each time."
    )
    with stoppable(run):
        budget = asked.budget()
        configured = configure_named(asked)
        mistakes.check()
        assert asked.out is not None

        from dprl.release.evaluate import evaluate as release_of

        with Progress(quiet=asked.as_json) as progress:
            release = release_of(
                str(asked.log),
                asked.target_policy or [],
                budget,
                algorithm=configured,
                outcome=asked.outcome,
                progress=progress,
                run=run,
                **asked.facts(),
                **asked.how(),
            )
        paths = release.save(asked.out, asked.sign)
    show_release(asked, release, paths)


NAMES = ("choice", "value", "interval", "epsilon", "delta", "status", "targets", "contrasts", "subgroups",
         "projections", "cautions")  # fmt: skip


def show_release(asked: Printed, release: Any, paths: Mapping[str, Path]) -> None:
    """Print what was released, and where it is."""
    result = {name: release.estimate[name] for name in NAMES if name in release.estimate}
    with printing(asked.out):  # type: ignore[attr-defined]
        words = "\n".join(lines(release, asked.out))  # type: ignore[attr-defined]
        show(result | {"paths": {k: str(p) for k, p in paths.items()}}, lambda _: words, asked.as_json)


def lines(release: Any, out: Path) -> Iterator[str]:
    """Yield what is printed of a release. How many there are follows from what is public or released."""
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
    width = max(len(name) for name in release.values)
    for name, e in release.values.items():
        (low, high), weight = e.interval, e.mean_weight
        yield (
            f"{name:<{width}}  {e.value:10.4g}   {100 * estimate['confidence']:g}% interval {low:.4g} to {high:.4g}"
            f"   ({_errors(e.as_dict())}" + (")" if weight is None else f"; mean weight {weight:.3g})")
        )
    for c in release.contrasts:
        (low, high), (least, most) = c["interval"], c["simultaneous_interval"]
        together = "" if len(release.contrasts) == 1 else f", {least:.4g} to {most:.4g} of all together"
        yield (
            f"{c['policy']} less {c['against']}  {c['value']:.4g}   {100 * estimate['confidence']:g}% interval "
            f"{low:.4g} to {high:.4g}{together}   ({_errors(c)})"
        )
    for group in release.subgroups:
        yield f"{group['name']}: {group['people']:.0f} (privacy noise {group['people_standard_error']:.3g})"
        found = [(t["name"], t) for t in group["targets"]]
        found += [(f"{c['policy']} less {c['against']}", c) for c in group["contrasts"]]
        for name, e in found:
            (low, high), (least, most) = e["interval"], e["simultaneous_interval"]
            yield (
                f"  {name}  {e['value']:.4g}   {100 * estimate['confidence']:g}% interval {low:.4g} to {high:.4g}, "
                f"{least:.4g} to {most:.4g} of all together"
            )
    yield from map(_benefit, estimate.get("projections", {}).get("found", ()))
    yield from (f"caution: {sentence}" for sentence in estimate.get("cautions", ()))
    unit = release.certificate["privacy_unit"]
    if unit == "transition":
        yield f"values are of the {estimate['quantity']}, not of a return"
    yield f"{estimate['status']}: epsilon {estimate['epsilon']:g}, delta {estimate['delta']:g} per {unit}"
    yield from end_of(release.certificate, estimate["status"], out, "data")


def _errors(found: Mapping[str, Any]) -> str:
    """Return what is printed of both errors. A noisy second moment may come out below the square of the mean: then it
    tells nothing of the sampling error but what that is at most.
    """
    privacy, sampling, most = (
        found.get(f"{name}_standard_error{end}")
        for name, end in (("privacy", ""), ("sampling", ""), ("sampling", "_at_most"))
    )
    known = [f"about {sampling:.3g}"] * bool(sampling) + ([] if most is None else [f"at most {most:.3g}"])
    return f"privacy noise {privacy:.3g}, sampling error {', '.join(known) or 'hidden by it'}"


def _benefit(projection: dict[str, Any]) -> str:
    """Return what is printed of a projection: how much it rises over the range of each covariate."""
    name = " less ".join(projection[who] for who in ("policy", "against") if who in projection)
    if not projection["band"]:
        return f"{name} by covariates: no band"
    if projection["constant_only"]:
        return f"{name} by covariates: the budget buys a constant only"
    found = [(c["name"], c["value"], *c["interval"]) for c in projection["coefficients"]]
    return f"{name} by covariates: " + ", ".join(f"{n} {v:.3g} ({low:.3g} to {high:.3g})" for n, v, low, high in found)
