"""``dprl report``: draw the report of a results folder again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    results: Annotated[Path, typer.Argument(help="Folder that `dprl evaluate --out` or `dprl train --out` wrote.")],
    out: Annotated[Path | None, typer.Option(help="Write the page here and leave the sealed folder alone.")] = None,
) -> None:
    """Draw report.html again from the artifacts of a release; reads no log and costs no budget."""
    from dprl.report import render_folder

    typer.echo(str(render_folder(results, out)))
