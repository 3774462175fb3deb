"""``dprl reproduce``: compute a paper's figures again, and show them on one page beside what the paper says."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dprl_papers.harness.one_thread import one_thread_a_cell

if TYPE_CHECKING:
    from dprl_papers.harness.spec import Paper


def reproduce(
    paper: Annotated[str | None, typer.Argument(help="Number of the paper, such as 004.")] = None,
    figure: Annotated[str | None, typer.Option(help="One figure or table.  [default: all]")] = None,
    trials: Annotated[int | None, typer.Option(help="Trials of each point.  [default: the paper's]")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few trials on small logs, to see that it works.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder of results; what is there is not computed again.  [default: "
                                       "reproduction-PAPER]")
    ] = None,
    engine: Annotated[
        str,
        typer.Option(help="Where cells are computed: local, processes of this machine, or ray, which needs "
                     "dprl[cluster]; no digit depends on it."),
    ] = "local",
    workers: Annotated[
        int | None, typer.Option(help="Cells that are computed side by side.  [default: one for each processor]")
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Ray cluster that runs, such as 10.0.0.1:6379.  [default: one of its own]")
    ] = None,
    plugin: Annotated[Path | None, typer.Option(help="Python file with METHODS or a DOMAIN of your own.")] = None,
    pages: Annotated[
        bool, typer.Option("--pages", help="Compute nothing: put the results in the folder of --out on record in "
                           "papers/results, and write the tables of docs/papers from the record.")
    ] = False,
    listing: Annotated[bool, typer.Option("--list", help="Say which papers and figures there are.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as one JSON object.")] = False,
) -> None:  # fmt: skip
    """Regenerate a paper's figures and tables from simulations, and write them as one HTML page.

    An interrupted run can be continued: the same command computes only what is missing.
    """
    one_thread_a_cell()
    from dprl_papers.harness.spec import load_paper, papers

    if listing or paper is None:
        _list([load_paper(number) for number in (papers() if paper is None else (paper,))], as_json)
        return
    spec = load_paper(paper)
    folder = Path(f"reproduction-{spec.number}" if out is None else out)
    if pages:
        from dprl_papers.harness.record import write_pages

        typer.echo("\n".join(str(path) for path in write_pages(spec.number, folder / "results.json")))
        return
    if figure is not None and plugin is None:
        spec.figure(figure)  # refuses an unknown name before slow imports

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from dprl_papers.harness.plugin import load_plugin
    from dprl_papers.harness.reproduce import REPORT, make_request
    from dprl_papers.harness.reproduce import reproduce as run
    from dprl_papers.harness.workers import check_engine

    check_engine(engine, workers, address)
    request = make_request(spec, figure, trials, quick, None if plugin is None else load_plugin(plugin))
    for one in request.left_out:
        typer.echo(f"Figure {one.name} is left out: it needs pip install 'dprl[{one.extra}]'.", err=True)
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    silent = as_json or not sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=silent) as bars:
        task = bars.add_task("planning", total=None)

        def tell(done: int, total: int, doing: str) -> None:
            bars.update(task, completed=done, total=total, description=doing)

        results = run(request, folder, tell, workers, engine, address)
    typer.echo(json.dumps(results, allow_nan=False) if as_json else _words(results, folder / REPORT))


def _words(results: dict[str, Any], report: Path) -> str:
    """Return the text that is printed at the end: the verdict of each claim, and the path of the page."""
    lines = [
        f"{figure['name']}: {claim['verdict']}: {claim['words']} {claim['text'][:1].upper()}{claim['text'][1:]}"
        for figure in results["figures"]
        for claim in figure["claims"]
    ]
    return "\n".join([*lines, str(report)])


def _list(specifications: Sequence[Paper], as_json: bool) -> None:
    """Print the papers with their figures, and name the optional dependency that a figure needs."""
    if as_json:
        found = {
            spec.number: {
                "title": spec.title,
                "figures": {f.name: f.title for f in spec.figures},
                "extras": {f.name: f.extra for f in spec.figures if f.extra},
            }
            for spec in specifications
        }
        typer.echo(json.dumps(found))
        return
    for spec in specifications:
        typer.echo(f"{spec.number}: {spec.title}")
        for f in spec.figures:
            typer.echo(f"    {f.name}: {f.title}" + (f" (needs pip install 'dprl[{f.extra}]')" if f.extra else ""))
    typer.echo("dprl reproduce PAPER runs all of it, dprl reproduce PAPER --figure NAME one figure.")
