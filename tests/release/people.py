"""Trainings on neighbouring sets of people, through the front door: recorded, and replayed along the same answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import dprl
from dprl.audits.record_replay import Recorder
from dprl.mechanisms.arithmetic import grid_step

UNITS, STEPS, BATCH, ACTIONS = 48, 3, 16, 3
BOUNDS = {"units": UNITS, "observation": [[-1, 1]] * 2, "reward": [0, 1], "actions": ACTIONS, "horizon": 2}
FACTS = dprl.EnvironmentSpec(
    name="shop", observation=((-1.0, 1.0),) * 2, actions=ACTIONS, horizon=2, discount=0.0, reward_bounds=(0.0, 1.0)
)
BUDGET = dprl.Budget(8.0, 1e-4)


@dataclass(frozen=True)
class Training:
    """What one training let into its mechanism: the exact sum ``(dimension,)`` of every batch. Private."""

    recorder: Recorder
    totals: list[np.ndarray]


def trained(source: Any, first: Training | None = None, missing: int | None = None, **options: Any) -> Training:
    """A training of ``source``, with one key and the answers of the ``first``; ``missing`` is the place of the person
    whom the first one had and this one lacks."""
    sampled = options.get("sampling") == "poisson"
    own: dict[str, Any] = {"batch": BATCH, "noise_multiplier": 4.0 if sampled else 1.0}
    if sampled:
        own["steps"] = STEPS
    if not isinstance(source, dprl.Bandit):
        own["users"] = UNITS

    def train(seed: int) -> dict[str, np.ndarray]:
        release = dprl.train(source, BUDGET, algorithm=dprl.DPPG(**own | options), seed=seed)
        return {"policy": release.policy.theta}

    recorder = Recorder() if first is None else first.recorder
    (entries,) = recorder.record(train, missing).entries.values()
    return Training(recorder, [np.array(entry.total, np.int64) for entry in entries])


def moved(one: Training, other: Training) -> np.ndarray:
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
        def answer(policy: Any) -> dprl.Interaction:
            actions = [policy(seen) for seen in person.seen]
            return dprl.Interaction(
                person.seen, actions, [paid[a] for paid, a in zip(person.paid, actions, strict=True)]
            )

        return answer

    given = answers or {}
    arriving = [(p.name, given.get(i, own(p))) for i, p in enumerate(people)]
    return dprl.UserStream(FACTS, arriving, named=named)
