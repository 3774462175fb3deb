"""``dprl learn-protector``: learn on public tasks how to step and how to spread noise, for private data."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from dprl.cli.evaluate import Progress
from dprl.errors import DprlError

_PARTS = ("family", "hand", "architecture", "training")


class InterruptedLearningError(Exception):
    """Ctrl-C, and there may be a checkpoint to go on with."""


def learn_protector(
    tasks: Annotated[
        str | None,
        typer.Option(help="Public tasks to learn on: policy-evaluation; dprl-papers adds others."),
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Budget of the releases that it is for.")] = None,
    delta: Annotated[float | None, typer.Option(help="Budget of the releases that it is for.")] = None,
    value_share: Annotated[
        float, typer.Option(help="Share of that budget which pays for values and intervals, as the option of evaluate.")
    ] = 0.0,
    scheduler: Annotated[
        str | None, typer.Option(help="Noise: uniform, public (a learned schedule) or adaptive (a Renyi filter).")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Steps of a run, in place of the tasks' own.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Meta-gradient steps.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of tasks, noise and first weights: public.")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PART.NAME=VALUE",
            help="Any other option of family, hand, architecture or training, such as training.tasks=32; repeatable.",
        ),
    ] = None,
    start: Annotated[
        Path | None, typer.Option(help="Folder of a protector to begin with, such as that of a larger epsilon.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="New folder for the protector.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a training that was interrupted: the same command again.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Learn a protector on public simulated tasks: how to step, and how to spread noise over the steps.

    No private data are read, and nothing is charged. OUT holds the protector, where it comes from and the training's
    log. Use it with dprl evaluate --optimizer OUT. Until it is done, OUT.training holds what is needed to resume.
    """
    for name, value in (("tasks", tasks), ("epsilon", epsilon), ("delta", delta), ("out", out)):
        if value is None:
            raise DprlError(
                f"--{name} is missing: dprl learn-protector --tasks policy-evaluation --epsilon 0.1 --delta 1e-6 "
                "--out protector/ (see dprl learn-protector --help)."
            )
    assert tasks is not None
    assert epsilon is not None
    assert delta is not None
    assert out is not None
    chosen = _chosen(option, epochs, seed, scheduler)

    from dprl.accounting.budget import Budget
    from dprl.protectors import learn
    from dprl.protectors.meta_training import Training
    from dprl.protectors.projector import Architecture
    from dprl.protectors.protector import Protector
    from dprl.protectors.tasks import find_family
    from dprl.release.save import check_folder

    check_folder(out)
    budget = Budget(epsilon, delta)
    family = learn.tuned(find_family(tasks), budget, value_share)
    own = {f.name for f in dataclasses.fields(family)}
    if steps is not None:
        chosen["family" if "steps" in own else "hand"]["steps"] = steps
    family = _replaced(family, "family", chosen["family"])
    if chosen["hand"]:
        hand = _replaced(family.hand, "hand", chosen["hand"])
        if "hand" not in own:
            raise DprlError(f"The tasks {tasks} have a hand schedule of their own: leave hand and --steps out.")
        family = dataclasses.replace(family, hand=hand)
    architecture = _replaced(getattr(family, "architecture", Architecture()), "architecture", chosen["architecture"])
    training = _replaced(getattr(family, "training", Training()), "training", chosen["training"])
    refinement = getattr(family, "refinement", None)
    if start is not None or set(chosen["training"]) - {"seed"}:  # what is asked for is all there is
        refinement = None
    if refinement is not None:
        refinement = dataclasses.replace(refinement, seed=training.seed + 1)
    total = training.epochs + (0 if refinement is None else refinement.epochs)
    weights = None if start is None else _weights_of(Protector.load(start), architecture)
    checkpoint = out.with_name(out.name + learn.CHECKPOINT)
    try:
        with Progress(total, quiet=as_json, doing="meta-gradients") as progress:
            protector, trained = learn.learn(
                family,
                budget,
                architecture,
                training,
                value_share=value_share,
                weights=weights,
                checkpoint=checkpoint,
                resume=resume,
                progress=lambda epoch, _: progress(epoch),
                refinement=refinement,
            )
    except KeyboardInterrupt as stop:
        raise InterruptedLearningError from stop
    learn.save(protector, trained, out)
    _write_page(out, protector, [*trained.before, *trained.log])
    learn.remove_checkpoint(checkpoint)
    _print(protector, learn.best_of(trained), total, out, as_json)


def _write_page(out: Path, protector: Any, log: list[dict[str, float]]) -> None:
    from dprl.accounting.certificate import write_atomically
    from dprl.protectors.protector import FACTS
    from dprl.report.protector import PAGE, protector_page

    facts = json.loads((out / FACTS).read_text(encoding="utf-8"))
    write_atomically(out / PAGE, protector_page(facts, log, protector.profile, protector.fingerprint).encode())


def _weights_of(protector: Any, architecture: Any) -> Any:
    if protector.architecture != architecture:
        raise DprlError("The protector to begin with has another architecture: give the same options.")
    return dict(protector.weights)


def _chosen(
    settings: list[str] | None, epochs: int | None, seed: int | None, scheduler: str | None
) -> dict[str, dict[str, Any]]:
    """What is asked of each part, by name."""
    import tomllib

    chosen: dict[str, dict[str, Any]] = {part: {} for part in _PARTS}
    for text in settings or ():
        name, equals, value = text.partition("=")
        part, dot, field = name.strip().partition(".")
        if not equals or not dot or part not in _PARTS or not field.isidentifier():
            raise DprlError(f"--set needs PART.NAME=VALUE with a part of {', '.join(_PARTS)}, such as hand.decay=1.")
        try:
            chosen[part][field] = tomllib.loads(f"x = {value.strip()}")["x"]
        except (ValueError, RecursionError):
            chosen[part][field] = value.strip()
    flags = (("training", "epochs", epochs), ("training", "seed", seed), ("architecture", "scheduler", scheduler))
    for part, field, value in flags:
        if value is not None:
            chosen[part][field] = value
    return chosen


def _replaced(owner: Any, part: str, changes: Mapping[str, Any]) -> Any:
    """``owner`` with ``changes``, each of the type that stands there."""
    known = {f.name: getattr(owner, f.name) for f in dataclasses.fields(owner)}
    made: dict[str, Any] = {}
    for name, value in changes.items():
        if name not in known:
            raise DprlError(f"--set: {part} has no option {name!r}; it has {', '.join(known)}.")
        old = known[name]
        if isinstance(old, tuple):
            several = value if isinstance(value, list) else [value]
            if not all(isinstance(x, int | float) and not isinstance(x, bool) for x in several):
                raise DprlError(f"--set: {part}.{name} must be a list of numbers.")
            value = tuple(float(x) for x in several)
        elif isinstance(old, float) and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        elif old is not None and type(value) is not type(old):
            raise DprlError(f"--set: {part}.{name} must be {_KINDS.get(type(old), 'another kind of value')}.")
        made[name] = value
    try:
        return dataclasses.replace(owner, **made) if made else owner
    except DprlError:
        raise
    except (TypeError, ValueError) as error:
        raise DprlError(f"--set: the options of {part} do not fit together.") from error


_KINDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def _print(protector: Any, best: dict[str, float], epochs: int, out: Path, as_json: bool) -> None:
    numbers = {
        name: best[name] for name in ("validation_loss", "hand_loss", "geometric_ratio", "worst_ratio") if name in best
    }
    if as_json:
        said = protector.provenance
        result = {name: said[name] for name in ("tasks", "epsilon", "delta", "value_share")}
        result |= {"fingerprint": protector.fingerprint, "epochs": epochs} | numbers
        typer.echo(json.dumps(result | {"path": str(out)}))
        return
    typer.echo(
        f"loss on unseen tasks {numbers['validation_loss']:.4g}, of the hand schedule {numbers['hand_loss']:.4g}; "
        f"geometric mean of the ratios {numbers['geometric_ratio']:.3g}, worst {numbers['worst_ratio']:.3g}"
    )
    typer.echo(f"learned on public tasks alone: nothing was charged; fingerprint {protector.fingerprint[:16]}")
    typer.echo(f"protector: {out}, page: {out / 'report.html'}")
