"""The command line: each command turns a request into one library call and an exit code.

Importing this loads typer and no command, so that ``dprl --help`` answers at once.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from importlib import import_module
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from dprl import entry_points
from dprl.errors import DprlError, WrongOptionsError

COMMANDS = {
    "evaluate": ("evaluate", "Evaluate target policies on a log, privately."),
    "learn": ("evaluate", "Learn a rule from a log, privately, and what it is worth."),
    "train": ("train", "Learn by acting, and keep rewards or people private."),
    "plan": ("evaluate", "What a release would cost, and how wide its intervals."),
    "ledger": ("ledger", "Declare a dataset's budget, and see what was spent of it."),
    "verify": ("results", "Recompute a certificate's epsilon, check every digest."),
    "certificate": ("results", "A certificate as a registry's record, a label, a checklist."),
    "report": ("results", "Draw report.html again from a release's artifacts."),
    "simulate": ("logs", "Simulate a log that nobody is in, with its bounds."),
    "data": ("logs", "For the curator alone: a log's contents, and its parts."),
    "calibrate": ("calibrate", "Noise multiplier of a budget, or epsilon of a multiplier."),
    "audit": ("audit", "Attack an algorithm, and bound its epsilon from below."),
    "check": ("audit", "Look for faults in an algorithm of your own."),
    "learn-protector": ("learn_protector", "Learn on public tasks how to step on private data."),
}
"""Commands in the order in which a newcomer meets them: name -> its module in this folder, and what it does."""


class StoppedError(Exception):
    """Interruption by Ctrl-C. Its text says what is left of the release."""


class UnprintedReleaseError(Exception):
    """Failure to print about a release that is in its folder already."""


class Group(TyperGroup):
    """Group of commands whose help never cuts the sentence about a command."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the first argument names; refuse an unknown name."""
        if not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            close = get_close_matches(args[0], self.list_commands(ctx), 1)
            hint = f"did you mean {close[0]}?" if close else f"see {ctx.command_path} --help."
            raise DprlError(f"{ctx.command_path} has no command {args[0]!r}: {hint}")
        return super().resolve_command(ctx, args)

    def words(self, ctx: Any, name: str) -> str:
        """Return the first sentence of a command's help."""
        help_text = getattr(self.get_command(ctx, name), "help", None) or ""
        return " ".join(help_text.partition("\n\n")[0].split()).partition(". ")[0].removesuffix(".") + "."

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one entry per command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.words(ctx, name)) for name in self.list_commands(ctx)])


class Commands(Group):
    """Commands of this folder, each loaded only when it is used, and commands that other distributions add."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return [*COMMANDS, *entry_points.names(entry_points.COMMANDS)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command from its module or from another distribution; None for an unknown name."""
        if cmd_name not in {*COMMANDS, "reproduce", *entry_points.names(entry_points.COMMANDS)}:
            return None
        from dprl.cli.command import make_command

        if cmd_name not in COMMANDS:
            return make_command(cmd_name, entry_points.load(entry_points.COMMANDS, cmd_name, f"dprl {cmd_name}"))
        name, (home, _) = cmd_name.replace("-", "_"), COMMANDS[cmd_name]
        module = import_module(f"dprl.cli.{home}")
        several = getattr(module, f"{name}_app", None)
        return make_command(cmd_name, getattr(module, name)) if several is None else typer.main.get_command(several)

    def words(self, ctx: Any, name: str) -> str:
        """Return the first sentence of a command's help; the commands of this folder are not loaded for it."""
        return COMMANDS[name][1] if name in COMMANDS else super().words(ctx, name)


SETTINGS: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
app = typer.Typer(
    name="dprl",
    cls=Commands,
    help="Differentially private reinforcement learning, with guarantees that hold.",
    no_args_is_help=True,
    **dict[str, Any](SETTINGS, add_completion=True),
)


def _version(wanted: bool) -> None:
    if wanted:
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


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line. Each mistake of the user is one sentence on stderr; the exit code is then 2."""
    with _signals_as_ctrl_c() as terminated:
        try:
            return app(args=arguments, prog_name="dprl")
        except DprlError as error:
            _end(error.sentences if isinstance(error, WrongOptionsError) else (str(error),), 2)
        except UnprintedReleaseError as error:
            _discard_output()
            _end((str(error),), 1)
        except StoppedError as stop:
            _stopped(terminated, str(stop))
        except KeyboardInterrupt:  # before typer handles Ctrl-C itself
            _stopped(terminated)
        except SystemExit as stop:
            if stop.code == 130:  # typer has caught Ctrl-C; a release that has a run folder says more
                _stopped(terminated)
            if isinstance(stop.code, int | None):
                raise
            _defect(stop)  # Python would print its text
        except BrokenPipeError:
            _discard_output()
            sys.exit(1)
        except BaseException as error:  # a panic of a library written in Rust is no Exception
            if isinstance(error.__cause__, KeyboardInterrupt):  # Python 3.11 hides Ctrl-C while a class is made
                _stopped(terminated)
            if isinstance(error, OSError) and traceback.extract_tb(error.__traceback__)[-1].name == "echo":
                _discard_output()
                _end((f"the output cannot be printed ({error.strerror}).",), 1)
            _defect(error)


def _end(sentences: Iterable[str], code: int) -> NoReturn:
    for sentence in sentences:
        print(f"error: {' '.join(sentence.split())}", file=sys.stderr)
    sys.exit(code)


def _stopped(terminated: list[int], what_is_left: str = "") -> NoReturn:
    sentence = f"{'terminated' if terminated else 'interrupted'}{what_is_left}."
    _end((sentence,), 128 + (terminated or [signal.SIGINT])[0])


def _defect(error: BaseException) -> NoReturn:
    """End with a sentence about a defect of dprl or of code that the user brought.

    The error's message and traceback could quote a row, so neither is shown.
    """
    from dprl import user_code

    if os.environ.get("DPRL_DEBUG"):
        raise error
    if theirs := user_code.place_in_user_code(error):
        words = f"your file {theirs}, raised {type(error).__name__}: put that right. DPRL_DEBUG=1 shows the traceback, "
        _end((words + "which may quote the log.",), 2)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{os.path.basename(frame.filename)} line {frame.lineno}"
    words = (
        f"a defect of dprl ({type(error).__name__}, {place}); please report it. DPRL_DEBUG=1 shows all of it, which "
        "may quote the log."
    )
    _end((words,), 70)


@contextmanager
def _signals_as_ctrl_c() -> Iterator[list[int]]:
    """Let SIGTERM end this block as Ctrl-C does. Yields a list that holds SIGTERM once it has come."""
    came: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_code.co_name == "_xla_gc_callback":
            # Python drops what is raised during garbage collection: send the signal again, a little later
            threading.Timer(0.1, os.kill, (os.getpid(), number)).start()
            return
        came.extend([number] * (number == signal.SIGTERM))
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _discard_output() -> None:
    """Discard output that is not written yet. Python would try to write it when it ends, and complain again."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
