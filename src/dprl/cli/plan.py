"""``dprl plan``: what to expect of a release before anything is spent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dprl.cli.command import configure_named
from dprl.cli.requests import Budgeted, Configured, OfLog, OfRule, Printed, expert, may
from dprl.cli.running import Progress, show
from dprl.registry import evaluating


@dataclass(frozen=True, kw_only=True)
class Plan(OfRule, Printed, Configured, Budgeted, OfLog):
    """What a release would cost and how wide its intervals would be, from public facts alone; reads no row.

    Attributes:
        log: the log; only its column names and types are looked at.
        learn: of the rule that dprl learn would find, in place of target policies.
        cuts: with learn, a component that rules may look at, as dprl learn takes it. Repeat the option for several.
        learner: with learn, rules, fitted-q, advantage or recommended, as dprl learn takes it.
        basis: with learn, of fitted-q and advantage, as dprl learn takes it.
        return_deviation: with learn, how far returns lie from the middle of their range, as dprl learn takes it.
    """

    log: Path | None = may(metavar="LOG", argument=True)
    target_policy: list[str] | None = may(metavar="POLICY")
    learn: bool = may(default=False)
    cuts: list[str] | None = expert(metavar="NAME:CUTS")
    learner: str | None = expert(metavar="NAME")

    algorithms = staticmethod(evaluating)


def plan(asked: Plan) -> None:
    """Print cost and widths."""
    budget, configured = asked.budget(), configure_named(asked)
    asked.mistakes.check()

    from dprl.release.plan import plan_release

    with Progress(quiet=asked.as_json):
        made = plan_release(
            None if asked.log is None else str(asked.log),
            asked.target_policy or ["uniform"],
            budget,
            configured,
            learn=asked.learn,
            **asked.rule(),
            **asked.facts(),
        )
    show(made, _words, asked.as_json)


def _words(made: dict[str, Any]) -> str:
    lines = [
        f"epsilon {made['epsilon']:g}, delta {made['delta']:g} per {made['unit']}; "
        f"{made['algorithm']}, {made['estimator']}"
    ]
    if made["unit"] == "transition":
        lines.append(f"values are of the {made['quantity']}, not of a return")
    for m in made["mechanisms"]:
        if "candidates" in m:
            lines.append(f"{m['purpose']}: noisy maximum of {m['candidates']} scores at epsilon {m['epsilon']:g}")
            continue
        rate = f"{m['steps']} release(s) of {m['dimension']} numbers at sampling rate {m['sampling_rate']:g}"
        lines.append(
            f"{m['purpose']}: noise multiplier {m['noise_multiplier']:.4g}, clip norm {m['clip_norm']:.4g}; {rate}"
        )
    ratio = made["max_cumulative_ratio"]
    if ratio["derived"]:
        lines.append(f"max_cumulative_ratio: {ratio['value']:.4g}, derived from the other bounds")
    if "choice" in made:
        c = made["choice"]
        lines.append(
            f"choice: about {c['units_that_choose']} units choose, {c['units_that_value']} value; "
            + (
                f"noise costs the choice at most {c['largest_loss_by_noise']:.4g} of value in the mean"
                if "largest_loss_by_noise" in c
                else "{name} with the basis {basis} of {size} functions".format(**c["learner"])
            )
        )
    if made["quantity"].startswith("discounted") and made["discount"] < 1.0 and made["horizon"] > 1:
        lines.append(
            f"rewards count {made['discount']:g} of what they are for each step later; --discount 1 adds them up"
        )
    width = max(len(t["name"]) for t in made["targets"])
    for t in made["targets"]:
        low, high = t["interval_half_width"]
        lines.append(
            f"{t['name']:<{width}}  privacy noise {t['privacy_standard_error']:.4g}; "
            f"interval half-width between {low:.4g} and {high:.4g}"
        )
    lines += [
        f"{c['policy']} less {c['against']}  privacy noise {c['privacy_standard_error']:.4g}" for c in made["contrasts"]
    ]
    for s in made["subgroups"]:
        of = [(t["name"], t) for t in s["targets"]]
        of += [(f"{c['policy']} less {c['against']}", c) for c in s["contrasts"]]
        noise = ", ".join(f"{name} {found['privacy_standard_error']:.4g}" for name, found in of)
        lines.append(
            f"subgroups {s['axis']} ({len(s['groups'])}): privacy noise {noise} in each if all have "
            f"{s['people_of_each']:,.0f} units, twice that in one of half the size; in their number "
            f"{s['people_standard_error']:.3g}"
        )
    lines += [f"caution: {sentence}" for sentence in made["cautions"]]
    return "\n".join(lines)
