"""Trainings on neighbouring sets of people, through the front door: recorded, and replayed along the same answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import dprl
from dprl.audits.record_replay import RecordingNoise
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.grid import grid_step
from dprl.mechanisms.noise import SecureNoise

KEY = bytes(range(9, 41))
UNITS, STEPS, BATCH, ACTIONS = 48, 3, 16, 3
BOUNDS = {"units": UNITS, "observation": [[-1, 1]] * 2, "reward": [0, 1], "actions": ACTIONS, "horizon": 2}
FACTS = dprl.LearningFacts(
    name="shop", observation=((-1.0, 1.0),) * 2, actions=ACTIONS, horizon=2, discount=0.0, reward_bounds=(0.0, 1.0)
)
BUDGET = dprl.Budget(8.0, 1e-4)


@dataclass
class Tape:
    """Of one training: the exact sum of every batch, and what was answered. Private."""

    totals: list[np.ndarray] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)


@contextmanager
def recorded(first: Tape | None, missing: int | None) -> Iterator[Tape]:
    """A tape of what is trained meanwhile, with a key that is always the same and the answers of a ``first`` one."""
    tape = Tape()

    def noted(original: Any) -> Any:
        def noised(self: Any, total: Any, *more: Any) -> Any:
            answer = original(self, total, *more)
            answer = answer if first is None else first.answers[len(tape.totals)]
            tape.totals.append(np.asarray(total))
            tape.answers.append(answer)
            return answer

        return noised

    kept = [(SecureNoise, "fresh"), (GaussianSum, "noised")]
    originals = [(owner, name, vars(owner)[name]) for owner, name in kept]
    try:
        SecureNoise.fresh = classmethod(  # type: ignore[method-assign]
            lambda cls: RecordingNoise(cls(KEY), [], missing=missing)
        )
        for owner, name, original in originals[1:]:
            setattr(owner, name, noted(original))
        yield tape
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


def trained(source: Any, first: Tape | None = None, missing: int | None = None, **options: Any) -> Tape:
    """A training of ``source``; ``missing`` is the place of the person whom the first one had and this one lacks."""
    sampled = options.get("sampling") == "poisson"
    own: dict[str, Any] = {"batch": BATCH, "noise_multiplier": 4.0 if sampled else 1.0}
    if sampled:
        own["steps"] = STEPS
    if not isinstance(source, dprl.Bandit):
        own["users"] = UNITS
    with recorded(first, missing) as tape:
        dprl.train(source, BUDGET, algorithm=dprl.DPPG(**own | options))
    return tape


def moved(one: Tape, other: Tape) -> np.ndarray:
    """``(STEPS,)``: how far apart the exact sums of each batch are, in clip norms."""
    assert len(one.totals) == len(other.totals) == STEPS
    difference = (np.stack(one.totals) - np.stack(other.totals)).astype(np.float64)
    return np.linalg.norm(difference, axis=1) * grid_step(1.0)


# --- people ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Person:
    """What one person would see and be paid at each of several visits."""

    name: str
    seen: np.ndarray
    paid: np.ndarray

    @classmethod
    def number(cls, i: int, visits: int = 2) -> Person:
        draws = np.random.default_rng([7, i])
        paid = np.eye(ACTIONS)[draws.integers(ACTIONS, size=visits)]
        return cls(f"p{(37 * i) % 211}", draws.uniform(-1.0, 1.0, (visits, 2)), paid)


def log_of(people: Sequence[Person], named: bool = True) -> dprl.Bandit:
    """First visits in this order, then second ones."""
    visits = [(p.name, p.seen[i], p.paid[i]) for i in range(2) for p in people if i < len(p.seen)]
    names, seen, paid = zip(*visits, strict=True) if visits else ((), np.zeros((0, 2)), np.zeros((0, ACTIONS)))
    return dprl.Bandit.of_arrays(np.array(seen), np.array(paid), BOUNDS, list(names) if named else None)


def stream_of(people: Sequence[Person], named: bool = True, answers: Any = None) -> dprl.UserStream:
    """The same people, who arrive; ``answers`` has the answer of some of them in place of their own, by place."""

    def own(person: Person) -> Any:
        def answer(policy: Any) -> dprl.Answer:
            actions = [policy(seen) for seen in person.seen]
            return dprl.Answer(person.seen, actions, [paid[a] for paid, a in zip(person.paid, actions, strict=True)])

        return answer

    given = answers or {}
    arriving = [(p.name, given.get(i, own(p))) for i, p in enumerate(people)]
    return dprl.UserStream(FACTS, arriving, named=named)
