"""The command line: one file a command; arguments in, one library call, exit code out.

Importing this loads typer and nothing heavy, so that ``dprl --help`` answers at once.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from dprl import added
from dprl.cli import (
    audit,
    calibrate,
    data,
    evaluate,
    learn_protector,
    ledger,
    plan,
    report,
    simulate,
    train,
    verify,
)
from dprl.errors import DprlError


class _Commands(TyperGroup):
    """The commands of this folder, and those that other distributions add."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *added.names(added.COMMANDS)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None or cmd_name not in {"reproduce", *added.names(added.COMMANDS)}:
            return command
        function = added.load(added.COMMANDS, cmd_name, f"dprl {cmd_name}")
        alone = typer.Typer(**_SETTINGS)
        alone.command(cmd_name)(function)
        return typer.main.get_command(alone)


_SETTINGS: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
app = typer.Typer(
    name="dprl",
    cls=_Commands,
    help="Differentially private reinforcement learning, with guarantees that hold.",
    no_args_is_help=True,
    **_SETTINGS,
)


def _version(asked: bool) -> None:
    if asked:
        from dprl import __version__

        typer.echo(f"dprl {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


app.command(short_help="Evaluate target policies on a log, privately.")(evaluate.evaluate)
app.command(short_help="Learn by acting, and keep rewards or people private.")(train.train)
app.command(short_help="Learn on public tasks how to step on private data.")(learn_protector.learn_protector)
app.command(short_help="What a release would cost, and how wide its intervals.")(plan.plan)
app.command(short_help="Noise multiplier of a budget, or epsilon of a multiplier.")(calibrate.calibrate)
app.command(short_help="Attack an algorithm, and bound its epsilon from below.")(audit.audit)
app.command(short_help="Simulate a log that nobody is in, with its bounds.")(simulate.simulate)
app.command(short_help="Recompute a certificate's epsilon, check every digest.")(verify.verify)
app.command(short_help="Draw report.html again from a release's artifacts.")(report.report)
app.add_typer(ledger.ledger_app, name="ledger")
app.add_typer(data.data_app, name="data")


def main(arguments: list[str] | None = None) -> Any:
    """Entry point. What a user did wrong is one sentence on stderr and exit code 2."""
    with _sigterm_as_ctrl_c() as terminated:
        try:
            return app(args=arguments)
        except DprlError as error:
            _end(" ".join(str(error).split()), 2)
        except evaluate.UnprintedReleaseError as error:
            _discard_output()
            _end(str(error), 1)
        except evaluate.InterruptedReleaseError:
            _stopped(terminated, "; what was charged stays charged; the same command with --resume goes on")
        except train.InterruptedTrainingError:
            lost = "; nothing was released, and what was charged stays charged; the same command begins anew"
            _stopped(terminated, lost)
        except learn_protector.InterruptedLearningError:
            _stopped(terminated, "; the same command with --resume goes on")
        except KeyboardInterrupt:  # before typer looks out for it
            _stopped(terminated)
        except SystemExit as stop:
            if stop.code == 130:  # typer has caught Ctrl-C; a release that has a run folder says more
                _stopped(terminated)
            if isinstance(stop.code, int | None):
                raise
            _defect(stop)  # its text would be printed
        except BrokenPipeError:
            _discard_output()
            sys.exit(1)
        except BaseException as error:  # a panic of a library written in Rust is no Exception
            if isinstance(error, OSError) and traceback.extract_tb(error.__traceback__)[-1].name == "echo":
                _discard_output()
                _end(f"the output cannot be printed ({error.strerror}).", 1)
            _defect(error)


def _end(sentence: str, code: int) -> NoReturn:
    print(f"error: {sentence}", file=sys.stderr)
    sys.exit(code)


def _stopped(terminated: list[int], what_is_left: str = "") -> NoReturn:
    _end(f"{'terminated' if terminated else 'interrupted'}{what_is_left}.", 128 + (terminated or [signal.SIGINT])[0])


def _defect(error: BaseException) -> NoReturn:
    """A mistake of ours, or of code that a user brought: its message and its traceback could quote a row, so both are
    kept back."""
    if os.environ.get("DPRL_DEBUG"):
        raise error
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{os.path.basename(frame.filename)} line {frame.lineno}"
    _end(
        f"a defect of dprl ({type(error).__name__}, {place}); "
        "please report it. DPRL_DEBUG=1 shows all of it, which may quote the log.",
        70,
    )


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[list[int]]:
    """While this lasts SIGTERM ends what runs as Ctrl-C does; gives a list that it is then noted in."""
    came: list[int] = []

    def end(number: int, _: object) -> None:
        came.append(number)
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGTERM)
    if before is signal.SIG_IGN or threading.current_thread() is not threading.main_thread():
        yield came
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield came
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


def _discard_output() -> None:
    """Python writes what is left when it ends, and would complain again."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
