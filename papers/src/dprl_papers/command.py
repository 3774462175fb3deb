"""``dprl reproduce``: a paper's figures again, in one page beside what the paper says."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from dprl.errors import DprlError
from dprl_papers.harness.one_thread import one_thread_a_cell


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

    A run that was interrupted goes on where it was: the same command computes what is missing.
    """
    one_thread_a_cell()
    from dprl_papers.harness.spec import load_paper, papers

    if listing or paper is None:
        _list(papers() if paper is None else (load_paper(paper).number,), as_json)
        return
    spec = load_paper(paper)
    folder = Path(f"reproduction-{spec.number}" if out is None else out)
    if pages:
        from dprl_papers.harness.record import write_pages

        typer.echo("\n".join(str(path) for path in write_pages(spec.number, folder / "results.json")))
        return
    if figure is not None and plugin is None:
        spec.figure(figure)  # before anything heavy is imported
    if trials is not None and trials < 1:
        raise DprlError("--trials must be at least 1.")

    from dprl_papers.harness.plugin import load_plugin
    from dprl_papers.harness.reproduce import REPORT, make_request
    from dprl_papers.harness.reproduce import reproduce as run
    from dprl_papers.harness.work import check_engine

    check_engine(engine, workers, address)
    request = make_request(spec, figure, trials, quick, None if plugin is None else load_plugin(plugin))
    for one in request.left_out:
        typer.echo(f"Figure {one.name} is left out: it needs pip install 'dprl[{one.extra}]'.", err=True)
    with Bars(quiet=as_json) as bars:
        results = run(request, folder, bars, workers, engine, address)
    typer.echo(json.dumps(results, allow_nan=False) if as_json else _words(results, folder / REPORT))


class Bars:
    """A bar of the finished cells on stderr, with what is being computed beside it."""

    def __init__(self, quiet: bool) -> None:
        self._quiet, self._bar, self._task = quiet or not sys.stderr.isatty(), None, None

    def __enter__(self) -> Bars:
        if not self._quiet:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("planning", total=None)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, done: int, total: int, doing: str) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=total, description=doing)


def _words(results: dict[str, Any], report: Path) -> str:
    lines = []
    for figure in results["figures"]:
        for claim in figure["claims"]:
            lines.append(
                f"{figure['name']}: {claim['verdict']}: {claim['words']} {claim['text'][:1].upper()}{claim['text'][1:]}"
            )
    return "\n".join([*lines, str(report)])


def _list(numbers: tuple[str, ...], as_json: bool) -> None:
    from dprl_papers.harness.spec import load_paper

    found = {
        number: {
            "title": (spec := load_paper(number)).title,
            "figures": {f.name: f.title for f in spec.figures},
            "extras": {f.name: f.extra for f in spec.figures if f.extra},
        }
        for number in numbers
    }
    if as_json:
        typer.echo(json.dumps(found))
        return
    for number, about in found.items():
        typer.echo(f"{number}: {about['title']}")
        for name, title in about["figures"].items():
            extra = about["extras"].get(name)
            typer.echo(f"    {name}: {title}" + (f" (needs pip install 'dprl[{extra}]')" if extra else ""))
    typer.echo("dprl reproduce PAPER runs all of it, dprl reproduce PAPER --figure NAME one figure.")
