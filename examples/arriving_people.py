"""People who arrive one after the other: which of three greetings suits whom, learned from 5,000 visits.

Each visitor is met once by the policy of that moment. Who comes again is not asked again. Run it with a folder for the
release: ``python examples/arriving_people.py results/greetings``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import dprl

GREETINGS = 3
FACTS = dprl.EnvironmentSpec(
    name="greetings",
    observation=((0.0, 24.0), (0.0, 1.0)),  # hour of the day, share of earlier visits that ended well
    actions=GREETINGS,
    horizon=1,
    discount=1.0,
    reward_bounds=(0.0, 1.0),
)


def likes(seen: np.ndarray) -> np.ndarray:
    """``(N, 3)``: how likely each greeting is to be liked, which is what nobody knows."""
    hour, ended_well = seen[:, 0] / 24.0, seen[:, 1]
    return np.stack([0.9 - 0.8 * hour, 0.1 + 0.8 * hour, 0.2 + 0.5 * ended_well], axis=1)


def arriving(visits: int, seed: int = 0) -> Iterator[tuple[str, Any]]:
    """Who comes, and how that person answers."""
    draws = np.random.default_rng(seed)
    for _ in range(visits):
        # one in ten was there before
        person = f"visitor {draws.integers(9 * visits)}" if draws.random() < 0.9 else "a regular"
        seen = np.array([draws.uniform(0.0, 24.0), draws.uniform()])

        def answer(policy: Any, seen: np.ndarray = seen) -> dprl.Interaction:
            greeting = policy(seen)
            liked = draws.random() < likes(seen[None])[0, greeting]
            return dprl.Interaction([seen], [greeting], [float(liked)])

        yield person, answer


def demo(out: Path, visits: int = 5000) -> dprl.TrainedPolicy:
    """Learn from so many visits, and write the release into a new folder."""
    people = dprl.UserStream(FACTS, arriving(visits), named=True)
    release = dprl.train(people, dprl.Budget(1.0, 1e-6), algorithm=dprl.DPPG(users=visits))
    release.save(out)
    seen = np.random.default_rng(1).uniform((0.0, 0.0), (24.0, 1.0), (10_000, 2))
    chances = likes(seen)
    earned = float(np.sum(release.policy(seen) * chances, axis=1).mean())
    print(f"liked: {earned:.3f} of the time; at best {chances.max(axis=1).mean():.3f}, at random {chances.mean():.3f}")
    print(f"report: {out / 'report.html'}")
    return release


if __name__ == "__main__":
    demo(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("results/greetings"))
