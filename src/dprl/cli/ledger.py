"""``dprl ledger``: declare a dataset's budget, and see what was spent of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

import dprl
from dprl.cli import SETTINGS, Group
from dprl.cli.command import Command, print_result

ledger_app = typer.Typer(
    cls=Group, no_args_is_help=True, help="Declare a dataset's budget, and see what was spent of it.", **SETTINGS
)

_PATH = Annotated[Path, typer.Argument(help="The ledger, a SQLite file; its intents lie beside it.")]
_JSON = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@ledger_app.command("create", cls=Command)
def create(
    path: _PATH,
    dataset: Annotated[str, typer.Option(help="Name of the dataset; every release from it must use this name.")],
    epsilon: Annotated[float, typer.Option(help="Epsilon of all its releases together.")],
    delta: Annotated[float, typer.Option(help="Delta of all its releases together.")],
    unit: Annotated[str, typer.Option(help="Privacy unit: person, trajectory, transition or reward function.")],
    relation: Annotated[str, typer.Option(help="Neighbouring relation.")] = "add or remove one",
) -> None:
    """Declare a dataset with its whole budget, in a new or an existing ledger."""
    dprl.Ledger.create(path, dataset, dprl.Budget(epsilon, delta), unit, relation)
    typer.echo(f"{path}: {dataset} has epsilon {epsilon:g} and delta {delta:g} per {unit}, {relation}.")


@ledger_app.command("show", cls=Command)
def show(path: _PATH, as_json: _JSON = False) -> None:
    """Show what each dataset may spend, has spent and has left."""
    ledger = dprl.Ledger.open(path)
    rows: list[dict[str, Any]] = []
    for dataset in ledger.datasets():
        charges = ledger.history(dataset.name)
        rows.append(
            {
                "dataset": dataset.name,
                "unit": dataset.unit,
                "relation": dataset.relation,
                **_numbers(dataset.budget),
                **_numbers(ledger.spent(dataset.name), "_spent"),
                **_numbers(ledger.remaining(dataset.name), "_left"),
                "releases": len(charges),
                "unfinished": sum(charge.digest is None for charge in charges),
                "interrupted": sum(charge.settled is not None for charge in charges),
            }
        )
    print_result({"ledger": str(path), "datasets": rows}, _datasets(rows), as_json)


def _numbers(amount: Any, which: str = "") -> dict[str, float]:
    return {f"epsilon{which}": float(amount.epsilon), f"delta{which}": float(amount.delta)}


def _datasets(rows: list[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        unfinished = f", {row['unfinished']} of them unfinished" if row["unfinished"] else ""
        unfinished += f", {row['interrupted']} interrupted before recorded" if row["interrupted"] else ""
        yield f"{row['dataset']}  (unit: {row['unit']}, {row['relation']})"
        yield f"  budget  epsilon {row['epsilon']:g}  delta {row['delta']:g}"
        spent = f"epsilon {row['epsilon_spent']:g}  delta {row['delta_spent']:g}"
        yield f"  spent   {spent}  in {row['releases']} release{'s' * (row['releases'] != 1)}{unfinished}"
        yield f"  left    epsilon {row['epsilon_left']:g}  delta {row['delta_left']:g}"


@ledger_app.command("history", cls=Command)
def history(
    path: _PATH,
    dataset: Annotated[str | None, typer.Option(help="One dataset only.")] = None,
    as_json: _JSON = False,
) -> None:
    """List every charge, in order.

    A charge that is not finished, or was interrupted before it was recorded, counts as spent.
    """
    rows = [
        {
            "id": charge.id,
            "dataset": charge.dataset,
            **_numbers(charge.amount),
            "purpose": charge.purpose,
            "charged": charge.created,
            "interrupted": charge.settled is not None,
            "settled": charge.settled,
            "finished": charge.finished,
            "digest": charge.digest,
        }
        for charge in dprl.Ledger.open(path).history(dataset)
    ]
    print_result({"ledger": str(path), "charges": rows}, _charges(rows), as_json)


def _charges(rows: list[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        state = f"certificate {row['digest'][:12]}" if row["digest"] else "unfinished (counts as spent)"
        state += ", interrupted before it was recorded" if row["interrupted"] else ""
        cost = f"epsilon {row['epsilon']:g}  delta {row['delta']:g}"
        yield f"{row['id']:>4}  {row['charged']}  {row['dataset']}  {cost}  {state}  {row['purpose']}"
    if not rows:
        yield "Nothing was charged yet."


@ledger_app.command("correct", cls=Command)
def correct(
    path: _PATH,
    charge: Annotated[int, typer.Option(help="Number of the charge, as `history` lists it.")],
    epsilon: Annotated[float, typer.Option(help="Epsilon that the release has really cost.")],
    delta: Annotated[float, typer.Option(help="Delta that it has really cost.")],
    why: Annotated[str, typer.Option(help="A public note, such as the name of an advisory.")],
) -> None:
    """Charge what a past release has cost beyond its charge, as an advisory says; no charge is ever changed."""
    from dprl.accounting.advisories import correct as charged

    found = charged(dprl.Ledger.open(path), charge, epsilon, delta, why)
    typer.echo(f"{path}: charge {found.charge} adds epsilon {found.epsilon:g} to charge {charge}.")
    if found.missing > 0.0:
        typer.echo(
            f"The budget did not hold epsilon {found.missing:g} of it, which is spent all the same: release nothing "
            "more of this dataset."
        )
