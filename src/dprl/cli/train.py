"""``dprl train``: learn what to do, and keep private what is paid, or whom it was learned from."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from dprl.cli.evaluate import (
    ADDRESS,
    ENGINE,
    SET,
    SHARDS,
    InterruptedReleaseError,
    Progress,
    merge_request,
    naming_run,
    printing,
    run_beside,
)
from dprl.errors import DprlError
from dprl.registry import LEARNING, find_learning

DEFAULT = "functional-q"
_REQUEST = ("environment", "bounds", "epsilon", "delta", "ledger", "dataset", "engine", "shards", "address")
_OWN = {
    "functional-q": ("variant", "reward_radius", "people", "reward_lipschitz", "samples"),
    "dp-pg": ("policy", "users", "batch", "steps", "relation", "noise"),
}
"""Flags that are options of one algorithm."""
_EXAMPLES = {"functional-q": "interval-walk", "dp-pg": "cart-pole"}


class InterruptedTrainingError(Exception):
    """Ctrl-C before anything was released."""


def train(
    algorithm: Annotated[str, typer.Argument(help=f"{', '.join(LEARNING)}.")] = DEFAULT,
    environment: Annotated[
        str | None,
        typer.Option(
            help="functional-q: interval-walk or gymnasium:ID. dp-pg: cart-pole, acrobot, mountain-car, pendulum, "
            "linear-bandit, gymnasium:ID, or bandit:FILE, which may be a log in parts."
        ),
    ] = None,
    variant: Annotated[
        str | None,
        typer.Option(help="functional-q: functional, observed-reward, gradient or output.  [default: observed-reward]"),
    ] = None,
    reward_radius: Annotated[
        float | None,
        typer.Option(help="functional-q: how far apart, at most, are reward functions that nobody shall tell apart."),
    ] = None,
    people: Annotated[
        int | None, typer.Option(help="functional-q, instead of the radius: rewards are means over so many people.")
    ] = None,
    reward_lipschitz: Annotated[
        float | None,
        typer.Option(help="functional-q: Lipschitz constant of their difference, over the scaled observation."),
    ] = None,
    bounds: Annotated[
        Path | None, typer.Option(help="TOML file with public bounds (gymnasium:ID, bandit:FILE).")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="functional-q: environment steps.  [default: 5000]")] = None,
    policy: Annotated[
        str | None,
        typer.Option(help="dp-pg: softmax, softmax:fourier:K, gaussian, mlp:HIDDEN.  [default: softmax or gaussian]"),
    ] = None,
    users: Annotated[
        int | None, typer.Option(help="dp-pg: places for people, each of whom answers once (a bandit's: its units).")
    ] = None,
    batch: Annotated[int | None, typer.Option(help="dp-pg: places in a batch.  [default: users / steps]")] = None,
    steps: Annotated[int | None, typer.Option(help="dp-pg: number of batches.  [default: up to 30]")] = None,
    relation: Annotated[
        str | None,
        typer.Option(help="dp-pg: what one person is exchanged for: zero-out or replace-one.  [default: zero-out]"),
    ] = None,
    noise: Annotated[
        str | None,
        typer.Option(help="dp-pg: independent, square-root or banded:BANDS.  [default: square-root]"),
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Privacy budget of this release.")] = None,
    delta: Annotated[float | None, typer.Option(help="Privacy budget of this release.")] = None,
    ledger: Annotated[Path | None, typer.Option(help="Ledger to charge before anything is asked for.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Name of these rewards' (or people's) budget there.")] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file with any of these options; flags win.")] = None,
    option: SET = None,
    seed: Annotated[int | None, typer.Option(help="Reproducible noise: NOT a private release.")] = None,
    simulated: Annotated[
        bool, typer.Option(help="Nobody is behind the rewards or answers: measure returns. NOT a private release.")
    ] = False,
    sign: Annotated[Path | None, typer.Option(help="Ed25519 private key (PEM) to sign the certificate with.")] = None,
    out: Annotated[Path | None, typer.Option(help="New folder for the release.")] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="bandit:FILE: go on with an interrupted release: the same command again."),
    ] = False,
    engine: ENGINE = None,
    shards: SHARDS = None,
    address: ADDRESS = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Learn by acting. functional-q protects the reward function and nothing else; dp-pg protects each person.

    functional-q releases a Q-function; states and transitions are not protected. dp-pg releases a policy that was
    learned from people who interact once each; its relation is zero out one or replace one person.
    Everything that is public is checked first, then the ledger is charged, and only then is a reward or a person asked
    for. What is released answers any number of questions at no further cost.
    """
    entry = find_learning(algorithm)
    flags = {
        "environment": environment, "bounds": bounds, "epsilon": epsilon, "delta": delta,
        "ledger": ledger, "dataset": dataset, "engine": engine, "shards": shards, "address": address,
    }  # fmt: skip
    chosen = {
        "variant": variant, "reward_radius": reward_radius, "people": people, "reward_lipschitz": reward_lipschitz,
        "samples": samples, "policy": policy, "users": users, "batch": batch, "steps": steps, "relation": relation,
        "noise": noise,
    }  # fmt: skip
    _check_flags(algorithm, chosen)
    request, options = merge_request(flags, chosen, config, option, _REQUEST)
    for name in ("environment", "epsilon", "delta"):
        if request.get(name) is None:
            raise DprlError(
                f"--{name} is missing: dprl train {algorithm} --environment {_EXAMPLES[algorithm]} ... "
                "(see dprl train --help)."
            )
    if out is None:
        raise DprlError("--out is missing: name a new folder for the release.")

    run = None
    try:
        from dprl.accounting.budget import Budget
        from dprl.config import merge
        from dprl.release.run_folder import check_run, noted_folder
        from dprl.release.save import check_folder, check_key

        configured = merge(entry.load_config(), options)
        logged = entry.unit == "user" and str(request["environment"]).startswith("bandit:")
        if logged and seed is None and not simulated and configured.calibration == "verified":
            run = run_beside(out)
            check_run(run, resume)
        elif resume:
            raise DprlError(
                "--resume goes on with a private release of dp-pg that is learned from a bandit's log: all else begins "
                "anew each time."
            )
        # a release that was interrupted at its very end is in its folder already
        if run is None or noted_folder(run) != Path(os.path.abspath(out)):
            check_folder(out)
        check_key(sign)
        budget = Budget(request["epsilon"], request["delta"])

        from dprl.release.train import train as release_of

        with Progress(quiet=as_json, doing="people" if entry.unit == "user" else "samples") as progress:
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
                run=run,
                resume=resume,
                **{name: request.get(name) for name in ("engine", "shards", "address")},
            )
        paths = release.save(out, sign)
    except KeyboardInterrupt as stop:
        held = run is not None and run.is_dir()
        raise (InterruptedReleaseError if held else InterruptedTrainingError) from stop
    except DprlError as error:
        raise naming_run(error, run) from error
    with printing(out):
        (_print_policy if entry.unit == "user" else _print)(release, paths, out, as_json)


def _check_flags(algorithm: str, chosen: dict[str, Any]) -> None:
    """Refuse a flag that is another algorithm's option."""
    for name, value in chosen.items():
        if value is not None and name not in _OWN[algorithm]:
            owner = next(other for other, names in _OWN.items() if name in names)
            raise DprlError(f"--{name.replace('_', '-')} is an option of {owner}, not of {algorithm}: leave it out.")


def _print_policy(release: Any, paths: dict[str, Path], out: Path, as_json: bool) -> None:
    training, certificate = release.training, release.certificate
    preconditions = certificate["assumed_public"].get("preconditions", [])
    (row,) = certificate["mechanisms"] or [{}]
    if as_json:
        names = ("algorithm", "status", "epsilon", "delta", "users", "batch", "steps", "returns")
        result = {name: training[name] for name in names}
        result["neighbouring_relation"] = certificate["neighbouring_relation"]
        result["noise_multiplier"] = row.get("noise_multiplier")
        result |= {"preconditions": preconditions} if preconditions else {}
        typer.echo(json.dumps(result | {"paths": {k: str(p) for k, p in paths.items()}}, allow_nan=False))
        return
    whose = "an episode of the simulator" if training["curve"] else "a person"
    for name, value in (training["returns"] or {}).items():
        typer.echo(f"{name:<27}{value:10.4g}   mean return of {whose}")
    typer.echo(
        f"{training['status']}: epsilon {training['epsilon']:g}, delta {training['delta']:g} a person, "
        f"{certificate['neighbouring_relation']}"
    )
    sampled = "sampling_rate" in row
    typer.echo(
        f"{training['users']} places {'sampled into' if sampled else 'in'} {training['steps']} batches of "
        f"{'about ' if sampled else ''}{training['batch']}"
        + (f"; noise multiplier {row['noise_multiplier']:.4g} (standard deviation over sensitivity)" if row else "")
    )
    for condition in preconditions:
        typer.echo(f"{condition['statement']}: this {'holds' if condition['holds'] else 'does not hold'} here")
    typer.echo(certificate["assumed_public"]["reading"])
    _print_end(training, certificate, out)


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
    _print_end(training, certificate, out)


def _print_end(training: dict[str, Any], certificate: dict[str, Any], out: Path) -> None:
    if certificate["ledger"] is None and training["status"] == "verified":
        typer.echo(
            "no ledger: nothing was charged, and nothing adds this release to others of the same "
            f"{'people' if certificate['privacy_unit'] == 'person' else 'rewards'}."
        )
    if training["status"] != "verified":
        typer.echo("This is a statement, not a certificate: what it promises is written in statement.json.")
    typer.echo(f"report: {out / 'report.html'}")
