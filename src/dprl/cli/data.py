"""``dprl data``: commands for the curator, the only one who may look at rows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from dprl.cli import SETTINGS, Group
from dprl.cli.command import Command
from dprl.cli.running import Progress, show
from dprl.errors import require
from dprl.files import write_atomically

data_app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="For the curator alone: bounds to fill in, logs made of tables, what is in a log, and logs in parts.",
    **SETTINGS,
)


@data_app.command("template", cls=Command)
def template(
    log: Annotated[Path, typer.Argument(help="The log.")],
    out: Annotated[Path, typer.Option(help="New file for the public bounds.")] = Path("bounds.toml"),
    person_column: Annotated[str | None, typer.Option(help="Column that identifies the person.")] = None,
) -> None:
    """Write a bounds file to fill in, from the names and types of a log's columns: no row is read."""
    from dprl.data.bounds_file import PLACEHOLDER
    from dprl.data.template import bounds_template

    text = bounds_template(str(log), person_column)
    require(not os.path.lexists(out), f"{out.name!r} is there already: name another file with --out.")
    write_atomically(out, text.encode())
    typer.echo(
        f"{out}: say what is public wherever it says {PLACEHOLDER}; then `dprl plan` says what a release would tell."
    )


@data_app.command("prepare", cls=Command)
def prepare(
    table: Annotated[Path, typer.Argument(help="The table: a .parquet or .csv file.")],
    bounds: Annotated[Path, typer.Option(help="TOML file with the public bounds and a section [prepare].")],
    out: Annotated[Path, typer.Option(help="New Parquet file for the log.")] = Path("log.parquet"),
) -> None:
    """Make a log of a table as people have it, by the section [prepare] of the bounds. Nothing is learned from rows."""
    from dprl.data.bounds_file import read_bounds_and_preparation
    from dprl.data.readers import prepare as make

    with Progress():
        made, (_, declared) = make(str(table), bounds, out), read_bounds_and_preparation(bounds)
    typer.echo("NOT private: the log holds what the table holds, and is to be kept as it is.")
    typer.echo(f"{out}: {', '.join(name for name in made.schema.names if not name.startswith('observation_'))}")
    for i, component in enumerate(declared.components() if declared else ()):
        typer.echo(f"observation_{i}: {component}")
    typer.echo(f"`dprl data describe {table} --bounds {bounds}` tells the curator how many contribute, and why not.")


@data_app.command("describe", cls=Command)
def describe(
    log: Annotated[Path, typer.Argument(help="The log.")],
    bounds: Annotated[Path | None, typer.Option(help="TOML file with the public bounds.")] = None,
    unit: Annotated[str | None, typer.Option(help="Privacy unit: person, trajectory or transition.")] = None,
    person_column: Annotated[str | None, typer.Option(help="Column that identifies the person.")] = None,
    behavior_policy: Annotated[str | None, typer.Option(help="Policy of a log without behavior_prob.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print what the rows hold and why some contribute nothing.

    NOT private: for the curator's eyes, never to be released.
    """
    from dprl.data.describe import describe_log

    with Progress(quiet=as_json):
        found = describe_log(str(log), bounds, unit, person_column, behavior_policy)
    show(found, _words(found), as_json)


def _words(found: dict[str, Any]) -> Iterator[str]:
    yield "NOT private: for the curator's eyes, never to be released."
    for name, value in found.items():
        shown = f"{value:.6g}" if isinstance(value, float) else value
        words, of, column = name.partition(" ")
        yield f"{words.replace('_', ' ') + of + column:<34} {shown}"


@data_app.command("partition", cls=Command)
def partition(
    logs: Annotated[Path, typer.Argument(help="The log: a .parquet or .csv file, or a folder of such files.")],
    out: Annotated[Path, typer.Option(help="New folder for the parts.")],
    by: Annotated[str | None, typer.Option(help="Column of the privacy unit, such as person_id.")] = None,
    parts: Annotated[int, typer.Option(help="How many parts; fewer are made where there are fewer units.")] = 64,
) -> None:
    """Write a log in parts that are aligned to the privacy unit, for `dprl evaluate` on logs larger than memory."""
    from dprl.data.partition import partition as write

    with Progress(doing="rows") as progress:
        written, layout = write(logs, by, parts, out, progress)
    size = sum(part.bytes + part.offsets_bytes + part.came_bytes for part in written.parts)
    typer.echo("NOT private: the parts hold what the log holds, and are to be kept as it is.")
    typer.echo(f"{len(written.parts)} parts by {layout.by}, {size / 1e6:.3g} MB, in {out}")
    for name in layout.left_out:
        typer.echo(f"left out, for it holds no numbers: column {name}")
