"""``dprl learn-protector``: learn on public tasks how to step and how to spread noise, for private data."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dprl.cli import StoppedError
from dprl.cli.command import Progress, print_result
from dprl.cli.requests import BudgetOptions, PrintOptions, Settings, expert, optional, required, toml_value
from dprl.config import read_fields
from dprl.errors import DprlError, Mistakes, require

_PARTS = ("family", "hand", "architecture", "training")


@dataclass(frozen=True, kw_only=True)
class LearnProtector(PrintOptions, Settings, BudgetOptions):
    """Learn a protector on public simulated tasks: how to step, and how to spread noise over the steps.

    No private data are read, and nothing is charged. OUT holds the protector, where it comes from and the training's
    log. Use it with dprl evaluate --optimizer OUT. Until it is done, OUT.training holds what is needed to resume.

    Attributes:
        tasks: public tasks to learn on: policy-evaluation; dprl-papers adds others.
        epsilon: epsilon of the releases that the protector is for.
        delta: delta of these releases.
        out: new folder for the protector.
        value_budget_fraction: share of their budget that pays for values and intervals, as in dprl evaluate.
        scheduler: noise: uniform, public (a learned schedule) or adaptive (a Renyi filter).
        steps: steps of a run, in place of the tasks' own.
        epochs: meta-gradient steps.
        seed: seed of tasks, noise and first weights: public.
        setting: any other option of family, hand, architecture or training, such as training.tasks=32. It may be
            repeated.
        start: folder of a protector to begin with, such as one for a larger epsilon.
        resume: go on with a training that was interrupted. Say the same command again.
    """

    tasks: str | None = required(metavar="NAME")
    out: Path | None = required(metavar="FOLDER")
    epochs: int | None = optional(metavar="N")
    scheduler: str | None = optional(metavar="NAME")
    resume: bool = optional(default=False, flag="--resume")
    value_budget_fraction: float = expert(default=0.0, metavar="NUMBER")
    steps: int | None = expert(metavar="N")
    seed: int | None = expert(metavar="N")
    setting: list[str] | None = expert(flag="--set", metavar="PART.NAME=VALUE")
    start: Path | None = expert(metavar="FOLDER")

    @classmethod
    def parse_setting(cls, text: str) -> tuple[str, Any]:
        """Return the dotted name PART.NAME of a setting, and its value."""
        name, equals, value = text.partition("=")
        part, _, field = name.strip().partition(".")
        if not equals or part not in _PARTS or not field.isidentifier():
            raise DprlError(f"--set needs PART.NAME=VALUE with a part of {', '.join(_PARTS)}, such as hand.decay=1.")
        return name.strip(), toml_value(value)


def learn_protector(request: LearnProtector) -> None:
    """Learn a protector, save it, and print how good it is."""
    budget, mistakes = request.budget(), request.mistakes

    from dprl.files import write_atomically
    from dprl.protectors import meta_training
    from dprl.protectors.protector import FACTS, Protector
    from dprl.protectors.tasks import find_family
    from dprl.release.results import check_folder
    from dprl.report.pages import REPORT, protector_page

    out = request.out
    if out is not None:
        mistakes.attempt(check_folder, out)
    family = mistakes.attempt(find_family, request.tasks) if request.tasks is not None else None
    mistakes.check()
    assert out is not None
    chosen, family = _chosen(request), meta_training.tuned_for(family, budget, request.value_budget_fraction)
    family, architecture, training = _parts(request, chosen, family)
    weights, refinement, total = None, None, training.epochs
    if request.start is not None:
        first = Protector.load(request.start)
        same = "The protector to begin with has another architecture: give the same options."
        require(first.architecture == architecture, same)
        weights = dict(first.weights)
    elif chosen["training"].keys() <= {"seed"}:  # the tasks' own refinement runs only if no other training is asked for
        refinement = getattr(family, "refinement", None)
    if refinement is not None:
        refinement, total = dataclasses.replace(refinement, seed=training.seed + 1), total + refinement.epochs
    checkpoint = out.with_name(out.name + meta_training.CHECKPOINT_SUFFIX)
    try:
        with Progress(total, quiet=request.as_json, doing="meta-gradients") as progress:
            protector, trained = meta_training.learn_protector(
                family,
                budget,
                architecture,
                training,
                value_budget_fraction=request.value_budget_fraction,
                weights=weights,
                checkpoint=checkpoint,
                resume=request.resume,
                progress=lambda epoch, _: progress(epoch),
                refinement=refinement,
            )
    except KeyboardInterrupt as stop:
        raise StoppedError("; the same command with --resume goes on") from stop
    meta_training.save_with_log(protector, trained, out)
    facts, log = json.loads((out / FACTS).read_text(encoding="utf-8")), [*trained.earlier_log, *trained.log]
    write_atomically(out / REPORT, protector_page(facts, log, protector.profile, protector.fingerprint).encode())
    meta_training.remove_checkpoint(checkpoint)
    best, said = meta_training.best_validation(trained), protector.provenance
    names = ("validation_loss", "hand_loss", "geometric_ratio", "worst_ratio")
    result = {name: said[name] for name in ("tasks", "epsilon", "delta", "value_budget_fraction")}
    result |= {"fingerprint": protector.fingerprint, "epochs": total, "path": str(out)}
    result |= {name: best[name] for name in names if name in best}
    print_result(result, _words(result), request.as_json)


def _chosen(request: LearnProtector) -> dict[str, dict[str, Any]]:
    """Return the options that are asked for each part, by name; flags win over ``--set``."""
    flags = {
        "training.epochs": request.epochs,
        "training.seed": request.seed,
        "architecture.scheduler": request.scheduler,
    }
    options = request.options[-1][0] | {dotted: value for dotted, value in flags.items() if value is not None}
    return {
        part: {dotted.partition(".")[2]: value for dotted, value in options.items() if dotted.startswith(f"{part}.")}
        for part in _PARTS
    }


def _parts(request: LearnProtector, chosen: dict[str, dict[str, Any]], family: Any) -> tuple[Any, Any, Any]:
    """Return tasks, architecture and training, changed by the options that are asked for."""
    from dprl.protectors.meta_training import Training
    from dprl.protectors.projector import Architecture

    own = {one.name for one in dataclasses.fields(family)}
    if request.steps is not None:
        chosen["family" if "steps" in own else "hand"]["steps"] = request.steps
    family = _replaced(family, "family", chosen["family"])
    if chosen["hand"]:
        hand = _replaced(family.hand, "hand", chosen["hand"])
        if "hand" not in own:
            raise DprlError(f"The tasks {request.tasks} have a hand schedule of their own: leave hand and --steps out.")
        family = dataclasses.replace(family, hand=hand)
    architecture = _replaced(getattr(family, "architecture", Architecture()), "architecture", chosen["architecture"])
    return family, architecture, _replaced(getattr(family, "training", Training()), "training", chosen["training"])


def _replaced(owner: Any, part: str, changes: Mapping[str, Any]) -> Any:
    """Return ``owner`` with ``changes``, each read as its field's type."""
    hints, mistakes = typing.get_type_hints(type(owner)), Mistakes()
    hints = {one.name: hints[one.name] for one in dataclasses.fields(owner)}
    made = read_fields(hints, changes, "--set", part, mistakes, called="{whose}.{name}")
    mistakes.check()
    try:
        return dataclasses.replace(owner, **made) if made else owner
    except DprlError:
        raise
    except (TypeError, ValueError) as error:
        raise DprlError(f"--set: the options of {part} do not fit together.") from error


def _words(made: dict[str, Any]) -> Iterator[str]:
    yield (
        f"loss on unseen tasks {made['validation_loss']:.4g}, of the hand schedule {made['hand_loss']:.4g}; "
        f"geometric mean of the ratios {made['geometric_ratio']:.3g}, worst {made['worst_ratio']:.3g}"
    )
    yield f"learned on public tasks alone: nothing was charged; fingerprint {made['fingerprint'][:16]}"
    yield f"protector: {made['path']}, page: {Path(made['path']) / 'report.html'}"
