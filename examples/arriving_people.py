"""People who arrive one after the other: which of three greetings suits whom, learned from 5,000 visits.

The current policy greets each visitor once. Visitors who come again are not asked again. Run the example with a folder
for the release: ``python examples/arriving_people.py results/greetings``.
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
    """Return ``(N, 3)`` the probability that each greeting is liked. Nobody knows it in practice."""
    hour, ended_well = seen[:, 0] / 24.0, seen[:, 1]
    return np.stack([0.9 - 0.8 * hour, 0.1 + 0.8 * hour, 0.2 + 0.5 * ended_well], axis=1)


def arriving(visits: int, seed: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield each visitor's name and how the visitor answers a policy."""
    draws = np.random.default_rng(seed)
    for _ in range(visits):
        # one visit in ten is by the same regular visitor
        person = f"visitor {draws.integers(9 * visits)}" if draws.random() < 0.9 else "a regular"
        seen = np.array([draws.uniform(0.0, 24.0), draws.uniform()])

        def answer(policy: Any, seen: np.ndarray = seen) -> dprl.Interaction:
            greeting = policy(seen)
            liked = draws.random() < likes(seen[None])[0, greeting]
            return dprl.Interaction([seen], [greeting], [float(liked)])

        yield person, answer


def demo(out: Path, visits: int = 5000) -> dprl.TrainedPolicy:
    """Learn from ``visits`` visits, and write the release into the new folder ``out``."""
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
