"""``dprl evaluate``: what would a policy that nobody ran have been worth?"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from dprl.errors import DprlError
from dprl.registry import ALGORITHMS, DEFAULT

TARGET = Annotated[
    list[str] | None,
    typer.Option(
        "--target-policy",
        help="uniform, FILE.py:function, column:NAME or the folder of a released policy; repeat it to evaluate several "
        "in one release.",
    ),
]
FEATURES = Annotated[
    str | None,
    typer.Option(
        help="columns, tabular, fourier:ORDER, fourier-coupled:ORDER or rbf:N, or a network: mlp:HIDDEN.  "
        "[default: columns]"
    ),
]
SET = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any other option of the algorithm; repeatable."),
]
ENGINE = Annotated[
    str | None,
    typer.Option(
        help="Where a log in parts is summed: local, or ray, which needs dprl[cluster]; no digit depends on it.  "
        "[default: local]"
    ),
]
SHARDS = Annotated[int | None, typer.Option(help="Workers of the engine ray.  [default: one for each processor]")]
ADDRESS = Annotated[
    str | None, typer.Option(help="Ray cluster that runs, such as 10.0.0.1:6379.  [default: one of its own]")
]
# what a run file may name besides the algorithm's own options
_REQUEST = (
    "log", "target_policy", "bounds", "unit", "person_column", "epsilon", "delta", "algorithm", "features",
    "ledger", "dataset", "behavior_policy", "outcome", "engine", "shards", "address",
)  # fmt: skip


RUN, KEY = ".run", "key"


class InterruptedReleaseError(Exception):
    """Ctrl-C, and there is something to resume."""


def evaluate(
    log: Annotated[
        Path | None,
        typer.Argument(
            help="The log: a .parquet or .csv file, one row a transition; or a folder of dprl data partition."
        ),
    ] = None,
    target_policy: TARGET = None,
    bounds: Annotated[Path | None, typer.Option(help="TOML file with the public bounds.")] = None,
    unit: Annotated[str | None, typer.Option(help="Privacy unit: person, trajectory or transition.")] = None,
    person_column: Annotated[str | None, typer.Option(help="Column that identifies the person.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Privacy budget of this release.")] = None,
    delta: Annotated[
        float | None, typer.Option(help="Privacy budget of this release, below one over the units.")
    ] = None,
    discount: Annotated[float | None, typer.Option(help="Discount factor.  [default: 0.99]")] = None,
    algorithm: Annotated[str | None, typer.Option(help=f"{', '.join(ALGORITHMS)}.  [default: {DEFAULT}]")] = None,
    features: FEATURES = None,
    ledger: Annotated[Path | None, typer.Option(help="Ledger to charge before the rows are read.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Name of this data's budget in the ledger.")] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Noise over clip norm, instead of calibrating it to the budget.")
    ] = None,
    optimizer: Annotated[
        str | None, typer.Option(help="Folder of a protector (dprl learn-protector) that makes the steps.")
    ] = None,
    behavior_policy: Annotated[
        str | None, typer.Option(help="Public behaviour policy, for a log without behavior_prob.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file with any of these options; flags win.")] = None,
    option: SET = None,
    seed: Annotated[int | None, typer.Option(help="Reproducible noise: NOT a private release.")] = None,
    simulated: Annotated[
        bool, typer.Option(help="The log is simulated: show the non-private reference. NOT a private release.")
    ] = False,
    outcome: Annotated[str | None, typer.Option(help="What a value means, in words, for the report.")] = None,
    sign: Annotated[Path | None, typer.Option(help="Ed25519 private key (PEM) to sign the certificate with.")] = None,
    out: Annotated[Path | None, typer.Option(help="New folder for the release.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a release that was interrupted: the same command again.")
    ] = False,
    engine: ENGINE = None,
    shards: SHARDS = None,
    address: ADDRESS = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Evaluate target policies on a log, privately: value, interval, value function, certificate, report.

    Everything that is public is checked first, then the ledger is charged, and only then is a row read. Until the
    release is in OUT, the folder OUT.run, as private as the log, holds what is needed to resume it.
    """
    flags = {
        "log": log, "target_policy": target_policy or None, "bounds": bounds, "unit": unit,
        "person_column": person_column, "epsilon": epsilon, "delta": delta, "algorithm": algorithm,
        "features": features, "ledger": ledger,
        "dataset": dataset, "behavior_policy": behavior_policy, "outcome": outcome,
        "engine": engine, "shards": shards, "address": address,
    }  # fmt: skip
    chosen = {"discount": discount, "noise_multiplier": noise_multiplier, "optimizer": optimizer}
    request, options = merge_request(flags, chosen, config, option)
    for name in ("log", "target_policy", "epsilon", "delta"):
        if request.get(name) is None:
            what = "The log" if name == "log" else "--" + name.replace("_", "-")
            raise DprlError(f"{what} is missing: dprl evaluate LOG --target-policy ... (see dprl evaluate --help).")
    if out is None:
        raise DprlError("--out is missing: name a new folder for the release.")

    run = run_beside(out) if seed is None and not simulated else None
    try:
        from dprl.accounting.budget import Budget
        from dprl.release.run_folder import check_run, noted_folder
        from dprl.release.save import check_folder, check_key

        if run is not None:
            check_run(run, resume)
        elif resume:
            raise DprlError("--resume goes on with a private release: --seed and --simulated begin anew each time.")
        # a release that was interrupted at its very end is in its folder already
        if run is None or noted_folder(run) != run.with_name(run.name.removesuffix(RUN)):
            check_folder(out)
        check_key(sign)
        budget = Budget(request["epsilon"], request["delta"])
        configured = configure(request.get("algorithm") or served(options), options)
        targets = request["target_policy"]

        from dprl.release.evaluate import evaluate as release_of

        with Progress(quiet=as_json) as progress:
            release = release_of(
                str(request["log"]),
                [targets] if isinstance(targets, str) else targets,
                budget,
                algorithm=configured,
                bounds=request.get("bounds"),
                unit=request.get("unit"),
                person=request.get("person_column"),
                features=request.get("features") or "columns",
                behavior_policy=request.get("behavior_policy"),
                ledger=request.get("ledger"),
                dataset=request.get("dataset"),
                seed=seed,
                simulated=simulated,
                outcome=request.get("outcome"),
                progress=progress,
                run=run,
                resume=resume,
                engine=request.get("engine"),
                shards=request.get("shards"),
                address=request.get("address"),
            )
        paths = release.save(out, sign)
    except KeyboardInterrupt as stop:
        if run is not None and run.is_dir():
            raise InterruptedReleaseError from stop
        raise
    except DprlError as error:
        raise naming_run(error, run) from error
    with printing(out):
        _print(release, paths, out, as_json)


class UnprintedReleaseError(Exception):
    """The release is in its folder, and standard output refuses what is said of it."""


@contextmanager
def printing(out: Path) -> Iterator[None]:
    """Where nothing can be printed, say at least that the release is in ``out``."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        words = f"the release is in {out}, whole; what is to be said of it cannot be printed ({error.strerror})."
        raise UnprintedReleaseError(words) from error


def naming_run(error: DprlError, run: Path | None) -> DprlError:
    """The ``error``, and what to do with the run folder that it leaves, if it says nothing of it."""
    said = str(error).removesuffix(".")
    if run is None or not os.path.exists(run / KEY) or str(run) in said or "--resume" in said:
        return error
    return DprlError(
        f"{said}: put that right and go on by --resume, or delete {run}, which holds the key to this release's noise "
        "(what was charged stays spent)."
    )


def run_beside(out: Path) -> Path:
    """The run folder of a release into ``out``."""
    path = Path(os.path.abspath(out))
    if not path.name:
        raise DprlError(f"{str(out)!r} cannot be the folder of a release: name a new one.")
    return path.with_name(path.name + RUN)


def merge_request(
    flags: dict[str, Any],
    chosen: dict[str, Any],
    config: Path | None,
    settings: list[str] | None,
    names: tuple[str, ...] = _REQUEST,
) -> tuple[dict[str, Any], list[tuple[dict[str, Any], str]]]:
    """What is asked, and the algorithm's options with their sources, weakest first: run file, --set, flags.

    ``names`` are those of what is asked; whatever else a run file names is an option of the algorithm.
    """
    options: list[tuple[dict[str, Any], str]] = []
    request: dict[str, Any] = {}
    if config is not None:
        content = _read_toml(config)
        request = {k: _checked(k, v, config.name) for k, v in content.items() if k in names}
        options.append(({k: v for k, v in content.items() if k not in names}, config.name))
    options.append((dict(_setting(text) for text in settings or ()), "--set"))
    options.append(({k: v for k, v in chosen.items() if v is not None}, "flag"))
    return request | {k: v for k, v in flags.items() if v is not None}, options


def served(options: list[tuple[dict[str, Any], str]]) -> str:
    """The algorithm where none is named: the one that the protector was learned for, if there is one."""
    folder = next((given["optimizer"] for given, _ in reversed(options) if "optimizer" in given), None)
    if not isinstance(folder, str):
        return DEFAULT
    from dprl.protectors.protector import Protector

    return Protector.load(folder).algorithm or DEFAULT


def configure(name: str, options: list[tuple[dict[str, Any], str]]) -> Any:
    """The algorithm's configuration, each option marked with where it came from."""
    from dprl.config import merge
    from dprl.registry import find

    return merge(find(name).load_config(), options)


class Progress:
    """A bar of the updates done, on stderr: public, for their number does not depend on the rows.

    ``steps`` is left out where public facts say how many there are: :meth:`expect` tells it once they are read.
    """

    def __init__(self, steps: int = 0, *, quiet: bool, doing: str = "private updates") -> None:
        self._steps, self._doing, self._bar, self._task = steps, doing, None, None
        self._quiet = quiet or not sys.stderr.isatty()

    def __enter__(self) -> Progress:
        self.expect(self._steps)
        return self

    def expect(self, steps: int) -> None:
        """Show the bar, for so many updates; none for none."""
        if steps and self._bar is None and not self._quiet:
            from rich.console import Console
            from rich.progress import Progress as Bar

            self._bar = Bar(console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(self._doing, total=steps)
            self._bar.start()

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, done: int) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done)


def _checked(name: str, value: Any, source: str) -> Any:
    """What a run file names, of the type that the flag would have."""
    several = name == "target_policy" and isinstance(value, list) and value
    if name in ("epsilon", "delta"):
        fits, kind = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300, "a number"
    elif name == "shards":
        fits, kind = isinstance(value, int) and not isinstance(value, bool), "a whole number"
    elif several:
        fits, kind = all(isinstance(v, str) for v in value), "text, or a list of texts"
    else:
        fits, kind = isinstance(value, str) or (name == "bounds" and isinstance(value, dict)), "text"
    if not fits:
        raise DprlError(f"{source}: {name} must be {kind}.")
    return value


def _setting(text: str) -> tuple[str, Any]:
    import tomllib

    name, equals, value = text.partition("=")
    if not equals or not name.strip().isidentifier():
        raise DprlError("--set needs NAME=VALUE, such as --set steps=200.")
    try:
        return name.strip(), tomllib.loads(f"x = {value.strip()}")["x"]
    except (ValueError, RecursionError):
        return name.strip(), value.strip()


def _read_toml(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DprlError(f"Cannot read the run file {path.name!r}: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise DprlError(f"The run file {path.name!r} is not valid TOML.") from error


def _print(release: Any, paths: dict[str, Path], out: Path, as_json: bool) -> None:
    estimate = release.estimate
    if as_json:
        result = {k: estimate[k] for k in ("value", "interval", "epsilon", "delta", "status", "targets")}
        typer.echo(json.dumps(result | {"paths": {k: str(p) for k, p in paths.items()}}, allow_nan=False))
        return
    width = max(len(name) for name in release.values)
    level = f"{100 * estimate['confidence']:g}%"
    for name, e in release.values.items():
        (low, high), most, weight = e.interval, e.sampling_standard_error_at_most, e.mean_weight
        typer.echo(
            f"{name:<{width}}  {e.value:10.4g}   {level} interval {low:.4g} to {high:.4g}"
            f"   (privacy noise {e.privacy_standard_error:.3g}, sampling error about {e.sampling_standard_error:.3g}"
            + ("" if most is None else f", at most {most:.3g}")
            + (")" if weight is None else f"; mean weight {weight:.3g})")
        )
    # only what follows from public facts: the lines that are printed never depend on the rows
    for sentence in release.public_cautions:
        typer.echo(f"caution: {sentence}")
    unit = release.certificate["privacy_unit"]
    if unit == "transition":
        typer.echo(f"values are of the {estimate['quantity']}, not of a return")
    typer.echo(f"{estimate['status']}: epsilon {estimate['epsilon']:g}, delta {estimate['delta']:g} a {unit}")
    if release.certificate["ledger"] is None and estimate["status"] == "verified":
        typer.echo("no ledger: nothing was charged, and nothing adds this release to others of the same data.")
    if estimate["status"] != "verified":
        typer.echo("This is a statement, not a certificate: what it promises is written in statement.json.")
    typer.echo(f"report: {out / 'report.html'}")
