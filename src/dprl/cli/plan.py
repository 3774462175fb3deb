"""``dprl plan``: what to expect of a release before anything is spent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from dprl.cli.evaluate import FEATURES, SET, TARGET, configure, merge_request, served
from dprl.errors import DprlError
from dprl.registry import ALGORITHMS, DEFAULT


def plan(
    log: Annotated[Path | None, typer.Argument(help="The log; only its column names and types are looked at.")] = None,
    target_policy: TARGET = None,
    bounds: Annotated[Path | None, typer.Option(help="TOML file with the public bounds.")] = None,
    unit: Annotated[str | None, typer.Option(help="Privacy unit: person, trajectory or transition.")] = None,
    person_column: Annotated[str | None, typer.Option(help="Column that identifies the person.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Privacy budget.")] = None,
    delta: Annotated[float | None, typer.Option(help="Privacy budget, below one over the units.")] = None,
    discount: Annotated[float | None, typer.Option(help="Discount factor.  [default: 0.99]")] = None,
    algorithm: Annotated[str | None, typer.Option(help=f"{', '.join(ALGORITHMS)}.  [default: {DEFAULT}]")] = None,
    features: FEATURES = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Noise over clip norm, instead of calibrating.")
    ] = None,
    optimizer: Annotated[str | None, typer.Option(help="Folder of a protector that makes the steps.")] = None,
    behavior_policy: Annotated[str | None, typer.Option(help="Public behaviour policy, if the log lacks it.")] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file with any of these options; flags win.")] = None,
    option: SET = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """What a release would cost and how wide its intervals would be, from public facts alone; reads no row."""
    flags = {
        "log": log, "target_policy": target_policy or None, "bounds": bounds, "unit": unit,
        "person_column": person_column, "epsilon": epsilon, "delta": delta, "algorithm": algorithm,
        "features": features,
        "behavior_policy": behavior_policy,
    }  # fmt: skip
    request, options = merge_request(
        flags, {"discount": discount, "noise_multiplier": noise_multiplier, "optimizer": optimizer}, config, option
    )
    for name in ("bounds", "epsilon", "delta"):
        if request.get(name) is None:
            raise DprlError(f"--{name} is missing.")

    from dprl.accounting.budget import Budget
    from dprl.release.plan import plan_release

    targets = request.get("target_policy") or ["uniform"]
    made = plan_release(
        None if request.get("log") is None else str(request["log"]),
        [targets] if isinstance(targets, str) else targets,
        Budget(request["epsilon"], request["delta"]),
        configure(request.get("algorithm") or served(options), options),
        bounds=request["bounds"],
        unit=request.get("unit"),
        person=request.get("person_column"),
        features=request.get("features") or "columns",
        behavior_policy=request.get("behavior_policy"),
    )
    typer.echo(json.dumps(made, allow_nan=False) if as_json else _words(made))


def _words(made: dict[str, Any]) -> str:
    lines = [
        f"epsilon {made['epsilon']:g}, delta {made['delta']:g} a {made['unit']}; "
        f"{made['algorithm']}, {made['estimator']}"
    ]
    if made["unit"] == "transition":
        lines.append(f"values are of the {made['quantity']}, not of a return")
    for m in made["mechanisms"]:
        rate = f"{m['steps']} release(s) of {m['dimension']} numbers at sampling rate {m['sampling_rate']:g}"
        lines.append(
            f"{m['purpose']}: noise multiplier {m['noise_multiplier']:.4g}, clip norm {m['clip_norm']:.4g}; {rate}"
        )
    ratio = made["max_cumulative_ratio"]
    if ratio["derived"]:
        lines.append(f"max_cumulative_ratio: {ratio['value']:.4g}, derived from the other bounds")
    width = max(len(t["name"]) for t in made["targets"])
    for t in made["targets"]:
        low, high = t["interval_half_width"]
        lines.append(
            f"{t['name']:<{width}}  privacy noise {t['privacy_standard_error']:.4g}; "
            f"interval half-width between {low:.4g} and {high:.4g}"
        )
    lines += [f"caution: {sentence}" for sentence in made["cautions"]]
    return "\n".join(lines)
