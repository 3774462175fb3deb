"""The command line: one file a command; arguments in, one library call, exit code out.

Importing this loads typer and nothing heavy, so that ``dprl --help`` answers at once.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated, Any

import typer

from dprl.cli import (
    audit,
    calibrate,
    data,
    evaluate,
    learn_protector,
    ledger,
    plan,
    report,
    reproduce,
    simulate,
    train,
    verify,
)
from dprl.errors import DprlError

app = typer.Typer(
    name="dprl",
    help="Differentially private reinforcement learning, with guarantees that hold.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
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
app.command(short_help="A paper's figures again, beside what it says.")(reproduce.reproduce)
app.add_typer(ledger.ledger_app, name="ledger")
app.add_typer(data.data_app, name="data")


def main(arguments: list[str] | None = None) -> Any:
    """Entry point. What a user did wrong is one sentence on stderr and exit code 2."""
    try:
        return app(args=arguments)
    except DprlError as error:
        sentence = " ".join(str(error).split())
        print(f"error: {sentence}", file=sys.stderr)
        sys.exit(2)
    except evaluate.InterruptedReleaseError:
        print(
            "error: interrupted; what was charged stays charged; the same command with --resume goes on.",
            file=sys.stderr,
        )
        sys.exit(130)
    except train.InterruptedTrainingError:
        print(
            "error: interrupted; nothing was released, and what was charged stays charged; the same command begins "
            "anew.",
            file=sys.stderr,
        )
        sys.exit(130)
    except learn_protector.InterruptedLearningError:
        print("error: interrupted; the same command with --resume goes on.", file=sys.stderr)
        sys.exit(130)
    except KeyboardInterrupt:  # before typer looks out for it
        print("error: interrupted.", file=sys.stderr)
        sys.exit(130)
    except SystemExit as stop:
        if stop.code == 130:  # typer has caught Ctrl-C; a release that has a run folder says more
            print("error: interrupted.", file=sys.stderr)
        raise
    except BrokenPipeError:
        sys.exit(1)
    except Exception as error:
        # a mistake of ours: its message and its traceback could quote a row, so both are kept back
        if os.environ.get("DPRL_DEBUG"):
            raise
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{os.path.basename(frame.filename)} line {frame.lineno}"
        print(
            f"error: a defect of dprl ({type(error).__name__}, {place}); "
            "please report it. DPRL_DEBUG=1 shows all of it, which may quote the log.",
            file=sys.stderr,
        )
        sys.exit(70)
