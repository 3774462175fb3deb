"""What commands share while they run: the progress bar, the run folder beside a release, and the final output."""

from __future__ import annotations

import json
import math
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from dprl.cli import StoppedError, UnprintedReleaseError
from dprl.cli.requests import SaveOptions
from dprl.errors import DprlError, WrongOptionsError

RUN, KEY = ".run", "key"
GOES_ON = "; what was charged stays charged; the same command with --resume goes on"


def show(made: Mapping[str, Any], lines: Iterable[str], as_json: bool) -> None:
    """Print a result as one JSON object, or in words, line by line."""
    typer.echo(json.dumps(made, allow_nan=False) if as_json else "\n".join(lines))


def released(
    asked: Any, call: Callable[..., Any], resumable: bool, refusal: str, doing: str = "private updates", lost: str = ""
) -> tuple[Any, dict[str, str]]:
    """Run and save the release that is asked for. Return it, and the path of each of its files by name.

    Args:
        asked: request with a budget and the options of :class:`~dprl.cli.requests.SaveOptions`.
        call: function of the library; called with the arguments that all releases share.
        resumable: whether the release can be resumed.
        refusal: error message for ``--resume`` if the release cannot be resumed.
        doing: what the progress bar counts.
        lost: said of an interrupted release that has no run folder.
    """
    run = _run_folder(asked, resumable, refusal)
    with stoppable(run, lost):
        budget = asked.budget()
        asked.mistakes.check()
        with Progress(quiet=asked.as_json, doing=doing) as progress:
            release = call(budget=budget, progress=progress, run=run, **asked.how())
        paths = release.save(asked.out, asked.sign)
    return release, {name: str(path) for name, path in paths.items()}


def _run_folder(asked: SaveOptions, resumable: bool, refusal: str) -> Path | None:
    """Note mistakes in a release's folder and signing key; return its run folder, or None if it has none."""
    from dprl.accounting.certificate import load_private
    from dprl.release.results import check_folder
    from dprl.release.run_folder import check_run, noted_folder

    mistakes, run = asked.mistakes, None
    if asked.sign is not None:
        mistakes.attempt(load_private, asked.sign)
    if asked.out is None:
        return None
    out = Path(os.path.abspath(asked.out))
    if not out.name:
        mistakes.add(f"{str(asked.out)!r} cannot be the folder of a release: name a new one.")
        return None
    if resumable:
        run = out.with_name(out.name + RUN)
        mistakes.attempt(check_run, run, asked.resume)
    elif asked.resume:
        mistakes.add(refusal)
    # a release that was interrupted at its very end is in its folder already
    if run is None or noted_folder(run) != out:
        mistakes.attempt(check_folder, asked.out)
    return run


@contextmanager
def stoppable(run: Path | None, lost: str) -> Iterator[None]:
    """Let Ctrl-C and errors in this block say what is left in the run folder; without one, Ctrl-C says ``lost``."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise StoppedError(lost if run is None or not run.is_dir() else GOES_ON) from stop
    except DprlError as error:
        said = str(error)
        if run is None or not os.path.exists(run / KEY) or str(run) in said or "--resume" in said:
            raise
        shown = os.path.relpath(run) if run.is_relative_to(Path.cwd()) else run
        left = f"elete {shown}, which holds the key to this release's noise"
        if "stays spent" in said:  # this run cannot be resumed
            raise DprlError(f"{said.removesuffix('.')}. D{left}.") from error
        left = f"go on by --resume, or d{left} (what was charged stays spent)."
        if isinstance(error, WrongOptionsError):
            raise WrongOptionsError([*error.sentences, f"Put that right and {left}"]) from error
        raise DprlError(f"{said.removesuffix('.')}: put that right and {left}") from error


def show_release(asked: Any, release: Any, made: Mapping[str, Any], lines: Iterable[str], whose: str) -> None:
    """Print a release. If it cannot be printed, the error says at least that the release is in its folder.

    Args:
        asked: request for the release.
        release: the saved release.
        made: what is printed as JSON.
        lines: what is printed in words; a note follows if nothing was charged or certified, and then the report's path.
        whose: what the release is of, for that note: ``data``, ``rewards`` or ``people``.
    """
    words, certificate = [*lines], release.certificate
    if certificate["status"] != "verified":
        words.append("This is a statement, not a certificate: what it promises is written in statement.json.")
    elif certificate["ledger"] is None:
        words.append(f"no ledger: nothing was charged, and nothing adds this release to others of the same {whose}.")
    words.append(f"report: {asked.out / 'report.html'}")
    try:
        show(made, words, asked.as_json)
    except BrokenPipeError:
        raise
    except OSError as error:
        said = f"the release is in {asked.out}, whole; what is to be said of it cannot be printed ({error.strerror})."
        raise UnprintedReleaseError(said) from error


def cost_of(certificate: Mapping[str, Any]) -> str:
    """Return the status of a release, and what it costs, in words."""
    cost = f"epsilon {certificate['epsilon']:g}, delta {certificate['delta']:g}"
    return f"{certificate['status']}: {cost} per {certificate['privacy_unit']}"


def conditions_of(conditions: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return each condition of a theorem, and whether it holds, in words."""
    return [f"{c['statement']}: this {'holds' if c['holds'] else 'does not hold'} here" for c in conditions]


def rounded_down(number: float) -> str:
    """Return a number with three decimals, rounded down, so that a printed lower bound is still a lower bound.

    >>> rounded_down(0.9999)
    '0.999'
    """
    return f"{math.floor(number * 1000.0) / 1000.0:.3f}"


class Progress:
    """A progress bar on stderr, with the time that is left; without a number of steps it appears after three seconds.

    In a release the number of updates is public: it does not depend on the rows. ``steps`` is left out if the number is
    not known yet, so that :meth:`expect` tells it once the public facts are read, or if nobody can say.
    """

    def __init__(self, steps: int = 0, *, quiet: bool = False, doing: str = "private updates") -> None:
        self._steps, self._doing, self._bar, self._task = steps, doing, None, None
        self._quiet, self._lock = quiet or not sys.stderr.isatty(), threading.Lock()
        self._patience = threading.Timer(3.0, self._show, ("preparing", None))
        self._patience.daemon = True

    def __enter__(self) -> Progress:
        self.expect(self._steps)
        if self._bar is None and not self._quiet:
            self._patience.start()
        return self

    def expect(self, steps: int) -> None:
        """Show the bar for this number of updates; show none for 0."""
        if steps:
            self._show(self._doing, steps)

    def _show(self, doing: str, steps: int | None) -> None:
        with self._lock:
            if self._quiet:
                return
            if self._bar is None:
                from rich.console import Console
                from rich.progress import Progress as Bar

                self._bar = Bar(console=Console(stderr=True), transient=True)
                self._task = self._bar.add_task(doing, total=steps)
                self._bar.start()
            elif steps is not None and self._task is not None:
                self._bar.reset(self._task, description=doing, total=steps)

    def __exit__(self, *_: object) -> None:
        self._patience.cancel()
        with self._lock:
            self._quiet = True  # the timer may be late
            if self._bar is not None:
                self._bar.stop()

    def __call__(self, done: int) -> None:
        """Show how many steps are done."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done)
