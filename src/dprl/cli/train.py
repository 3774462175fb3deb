"""``dprl train``: learn what to do in an environment, and keep what is paid there private."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from dprl.algorithms.registry import LEARNING, find_learning
from dprl.cli.evaluate import SET, Progress, merge_request
from dprl.errors import DprlError

DEFAULT = "functional-q"
_REQUEST = ("environment", "bounds", "epsilon", "delta", "ledger", "dataset")


class InterruptedTrainingError(Exception):
    """Ctrl-C before anything was released."""


def train(
    algorithm: Annotated[str, typer.Argument(help=f"{', '.join(LEARNING)}.")] = DEFAULT,
    environment: Annotated[str | None, typer.Option(help="interval-walk or gymnasium:ID.")] = None,
    variant: Annotated[
        str | None,
        typer.Option(help="functional, observed-reward, gradient or output.  [default: observed-reward]"),
    ] = None,
    reward_radius: Annotated[
        float | None,
        typer.Option(help="How far apart, at most, two reward functions are that shall not be told apart."),
    ] = None,
    people: Annotated[
        int | None, typer.Option(help="Instead of the radius: rewards are means over so many people.")
    ] = None,
    reward_lipschitz: Annotated[
        float | None,
        typer.Option(help="Lipschitz constant of their difference, over the observation scaled to [0, 1]."),
    ] = None,
    bounds: Annotated[
        Path | None, typer.Option(help="TOML file with public bounds of reward and observation (gymnasium:ID).")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Environment steps.  [default: 5000]")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Privacy budget of this release.")] = None,
    delta: Annotated[float | None, typer.Option(help="Privacy budget of this release.")] = None,
    ledger: Annotated[Path | None, typer.Option(help="Ledger to charge before the first reward is asked for.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Name of these rewards' budget in the ledger.")] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file with any of these options; flags win.")] = None,
    option: SET = None,
    seed: Annotated[int | None, typer.Option(help="Reproducible noise: NOT a private release.")] = None,
    simulated: Annotated[
        bool, typer.Option(help="Nobody is behind the rewards: measure true returns. NOT a private release.")
    ] = False,
    sign: Annotated[Path | None, typer.Option(help="Ed25519 private key (PEM) to sign the certificate with.")] = None,
    out: Annotated[Path | None, typer.Option(help="New folder for the release.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Learn a Q-function by acting; what is protected is the reward function, and nothing else.

    Everything that is public is checked first, then the ledger is charged, and only then is a reward asked for. What
    is released answers any number of questions at no further cost. States and transitions are not protected.
    """
    entry = find_learning(algorithm)
    flags = {
        "environment": environment, "bounds": bounds, "epsilon": epsilon, "delta": delta,
        "ledger": ledger, "dataset": dataset,
    }  # fmt: skip
    chosen = {
        "variant": variant, "reward_radius": reward_radius, "people": people, "reward_lipschitz": reward_lipschitz,
        "samples": samples,
    }  # fmt: skip
    request, options = merge_request(flags, chosen, config, option, _REQUEST)
    for name in ("environment", "epsilon", "delta"):
        if request.get(name) is None:
            raise DprlError(f"--{name} is missing: dprl train --environment interval-walk ... (see dprl train --help).")
    if out is None:
        raise DprlError("--out is missing: name a new folder for the release.")

    try:
        from dprl.accounting.budget import Budget
        from dprl.config import merge
        from dprl.releases.save import check_folder, check_key

        check_folder(out)
        check_key(sign)
        budget = Budget(request["epsilon"], request["delta"])
        configured = merge(entry.load_config(), options)

        from dprl.releases.train import train as release_of

        with Progress(quiet=as_json, doing="samples") as progress:
            release = release_of(
                request["environment"],
                budget,
                algorithm=configured,
                bounds=request.get("bounds"),
                ledger=request.get("ledger"),
                dataset=request.get("dataset"),
                seed=seed,
                simulated=simulated,
                progress=progress,
            )
        paths = release.save(out, sign)
    except KeyboardInterrupt as stop:
        raise InterruptedTrainingError from stop
    _print(release, paths, out, as_json)


def _print(release: Any, paths: dict[str, Path], out: Path, as_json: bool) -> None:
    training, certificate = release.training, release.certificate
    preconditions = certificate["assumed_public"].get("preconditions", [])
    if as_json:
        result = {k: training[k] for k in ("algorithm", "variant", "status", "epsilon", "delta", "samples", "returns")}
        result["neighbouring_relation"] = certificate["neighbouring_relation"]
        result |= {"preconditions": preconditions} if preconditions else {}
        typer.echo(json.dumps(result | {"paths": {k: str(p) for k, p in paths.items()}}, allow_nan=False))
        return
    for name, value in (training["returns"] or {}).items():
        typer.echo(f"{name:<12}{value:10.4g}   mean return of an episode, with the true rewards")
    typer.echo(f"{training['status']}: epsilon {training['epsilon']:g}, delta {training['delta']:g} a reward function")
    typer.echo(f"neighbours: {certificate['neighbouring_relation']}")
    for condition in preconditions:
        typer.echo(f"{condition['statement']}: this {'holds' if condition['holds'] else 'does not hold'} here")
    typer.echo("states, actions and transitions are not protected")
    if certificate["ledger"] is None and training["status"] == "verified":
        typer.echo("no ledger: nothing was charged, and nothing adds this release to others of the same rewards.")
    if training["status"] != "verified":
        typer.echo("This is a statement, not a certificate: what it promises is written in statement.json.")
    typer.echo(f"report: {out / 'report.html'}")
