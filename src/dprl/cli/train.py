"""``dprl train``: learn by acting, and keep the rewards private, or the people from whom a policy is learned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dprl
from dprl.cli.command import conditions_of, configure
from dprl.cli.evaluate import cost_of, print_release, run_and_save
from dprl.cli.requests import BudgetOptions, PrintOptions, PublicOptions, ReleaseOptions, optional, required
from dprl.entry_points import VERIFIED
from dprl.registry import LEARNING

LOST = "; nothing was released, and what was charged stays charged; the same command begins anew"
NOT_RESUMABLE = (
    "--resume goes on with a private release of dp-pg that is learned from a bandit's log: all else begins anew each "
    "time."
)


@dataclass(frozen=True, kw_only=True)
class Train(PrintOptions, ReleaseOptions, BudgetOptions, PublicOptions):
    """Learn by acting. functional-q protects the reward function and nothing else; dp-pg protects each person.

    functional-q releases a Q-function; states and transitions are not protected. dp-pg releases a policy that was
    learned from people who interact once each; its relation is zero out one or replace one person.
    Everything that is public is checked first, then the ledger is charged, and only then is a reward or a person asked
    for. What is released answers any number of questions at no further cost.

    Attributes:
        environment: interval-walk, cart-pole, gymnasium:ID or bandit:FILE. functional-q learns in interval-walk or
            gymnasium:ID; dp-pg in cart-pole, acrobot, mountain-car, pendulum, linear-bandit, gymnasium:ID, or
            bandit:FILE, where FILE may be a log in parts.
        bounds: TOML file with the public bounds. For gymnasium:ID and bandit:FILE.
        algorithm: functional-q or dp-pg.
    """

    environment: str | None = required(metavar="NAME")
    bounds: Path | dict | None = optional(metavar="FILE")
    algorithm: str = optional(default="functional-q", metavar="ALGORITHM", argument=True, file=False)

    algorithms = staticmethod(lambda: LEARNING)


def train(request: Train) -> None:
    """Check the request, release, and print what was learned."""
    config = request.mistakes.attempt(configure, request, request.algorithm)
    people = request.algorithm == "dp-pg"
    verified = config is not None and config.calibration == VERIFIED
    resumable = request.private and verified and people and str(request.environment).startswith("bandit:")

    call = partial(dprl.train, request.environment, algorithm=config, bounds=request.bounds)
    whose = "people" if people else "rewards"
    release, paths = run_and_save(request, call, resumable, NOT_RESUMABLE, "people" if people else "samples", LOST)
    training, certificate = release.training, release.certificate
    (row,) = certificate["mechanisms"] if people and certificate["mechanisms"] else [{}]
    own = ("users", "batch", "steps") if people else ("variant", "samples")
    result = {name: training[name] for name in ("algorithm", "status", "epsilon", "delta", *own, "returns")}
    result["neighbouring_relation"] = certificate["neighbouring_relation"]
    if people:
        result["noise_multiplier"] = row.get("noise_multiplier")
    if conditions := certificate["assumed_public"].get("preconditions", []):
        result["preconditions"] = conditions
    lines = _of_people(training, certificate, row) if people else _of_rewards(training, certificate)
    print_release(request, release, result | {"paths": paths}, lines, whose)


def _of_people(training: Mapping[str, Any], certificate: Mapping[str, Any], row: Mapping[str, Any]) -> Iterator[str]:
    whose = "an episode of the simulator" if training["curve"] else "a person"
    for name, value in (training["returns"] or {}).items():
        yield f"{name:<27}{value:10.4g}   mean return of {whose}"
    yield f"{cost_of(certificate)}, {certificate['neighbouring_relation']}"
    sampled = "sampling_rate" in row
    yield (
        f"{training['users']} places {'sampled into' if sampled else 'in'} {training['steps']} batches of "
        f"{'about ' if sampled else ''}{training['batch']}"
        + (f"; noise multiplier {row['noise_multiplier']:.4g} (standard deviation over sensitivity)" if row else "")
    )
    yield from conditions_of(certificate["assumed_public"].get("preconditions", []))
    yield certificate["assumed_public"]["reading"]


def _of_rewards(training: Mapping[str, Any], certificate: Mapping[str, Any]) -> Iterator[str]:
    for name, value in (training["returns"] or {}).items():
        yield f"{name:<12}{value:10.4g}   mean return of an episode, with the true rewards"
    yield cost_of(certificate)
    yield f"neighbours: {certificate['neighbouring_relation']}"
    yield from conditions_of(certificate["assumed_public"].get("preconditions", []))
    yield "states, actions and transitions are not protected"
