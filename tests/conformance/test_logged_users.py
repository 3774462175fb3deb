"""People of a log who are met in blocks: what a mistake there would do is seen at the mechanisms' doors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dprl.audits.entering import Door, differ
from dprl.audits.neighbours import CELLS
from dprl.audits.user_neighbours import NOBODY, UNITS, Crowd, Users
from dprl.engine import program as engine
from dprl.environments.bandit import Bandit
from dprl.learning.policy_gradient import users
from dprl.learning.policy_gradient.users import Asked
from dprl.registry import find_audited

from .test_policy_gradient import LEAKED, TOO_FAR, leaking


def twice(original: Any) -> Any:
    """The first block of a batch is met again after the last."""

    def faulty(size: int, included: Any) -> np.ndarray:
        blocks = original(size, included)
        return np.concatenate([blocks, blocks[:1]])

    return faulty


def centred(original: Any) -> Any:
    """Rewards are less nine times the mean reward of the block."""

    def faulty(self: Bandit, places: np.ndarray, act: Any) -> Any:
        rows = original(self, places, act)
        answered = np.arange(rows.rewards.shape[1]) < rows.length[:, None]
        return rows._replace(rewards=rows.rewards - 9.0 * rows.rewards[answered].mean(dtype=np.float32))

    return faulty


def learned_from_leaks(original: Any) -> Any:
    """A step along the exact sum beside the one on the noised one."""

    def faulty(program: Any, stage: int, mechanism: Any, state: Any, points: Any, step: Any) -> Any:
        found = original(program, stage, mechanism, state, points, step)
        return found._replace(theta=found.theta + np.float32(1e-12 * np.abs(LEAKED[-1]).sum()))

    return faulty


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        pytest.param([], None, id="none"),
        pytest.param([(users, "blocks_of", twice)], TOO_FAR, id="a user in two blocks"),
        pytest.param([(Bandit, "answers", centred)], TOO_FAR, id="baseline of the block"),
        pytest.param(
            [(Asked, "total", leaking), (engine, "_advance", learned_from_leaks)],
            "the shapes of what is released differ",  # of policies as text
            id="a step on the exact sum",
        ),
    ],
)
def test_faults_are_caught_at_the_door(faults, words, monkeypatch, tmp_path):
    for owner, name, fault in faults:
        monkeypatch.setattr(owner, name, fault(getattr(owner, name)))
    learner, door = Users(find_audited("dp-pg"), "square root", "arrays", tmp_path), Door()
    crowds = (Crowd(range(UNITS), 1, cells) for cells in (NOBODY, CELLS["paid the most"]))
    found = differ(*(door.record(learner.trained_on(crowd)) for crowd in crowds))
    assert (found.problems == ()) == (words is None)
    assert words is None or words in found.problems
