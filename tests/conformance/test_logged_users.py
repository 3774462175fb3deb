"""Users of a log who are met in blocks: what a mistake there would do is seen by record and replay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dprl.audits.conformance.users import Crowd
from dprl.engine import program as engine
from dprl.learning.policy_gradient import users
from dprl.learning.policy_gradient.users import Asked

from .test_policy_gradient import TOO_FAR, compared, opposed


def twice(original: Any) -> Any:
    """The first block of a batch is met again after the last."""

    def faulty(size: int, included: Any) -> np.ndarray:
        blocks = original(size, included)
        return np.concatenate([blocks, blocks[:1]])

    return faulty


def centred(original: Any) -> Any:
    """Rewards are less the mean reward of the block."""

    def faulty(self: Crowd, places: np.ndarray, act: Any) -> Any:
        rows = original(self, places, act)
        answered = np.arange(rows.rewards.shape[1]) < rows.length[:, None]
        return rows._replace(rewards=rows.rewards - rows.rewards[answered].mean(dtype=np.float32))

    return faulty


LEAKED: list[Any] = []


def remembered(original: Any) -> Any:
    def faulty(*given: Any) -> Any:
        LEAKED.append(original(*given))
        return LEAKED[-1]

    return faulty


def learned_from_leaks(original: Any) -> Any:
    """A millionth of a millionth of the exact sum beside the noised one."""

    def faulty(program: Any, stage: int, mechanism: Any, state: Any, points: Any, step: Any) -> Any:
        found = original(program, stage, mechanism, state, points, step)
        return found._replace(theta=found.theta + np.float32(1e-12) * np.float32(np.abs(LEAKED[-1]).sum()))

    return faulty


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        pytest.param([], None, id="none"),
        pytest.param([(users, "blocks_of", twice)], TOO_FAR, id="a user in two blocks"),
        pytest.param([(Crowd, "answers", centred)], TOO_FAR, id="baseline of the block"),
        pytest.param(
            [(Asked, "total", remembered), (engine, "_advance", learned_from_leaks)],
            "what is made of the releases depends on more than them",
            id="a step on the exact sum",
        ),
    ],
)
def test_faults_are_caught_by_replay(faults, words, monkeypatch):
    for owner, name, fault in faults:
        monkeypatch.setattr(owner, name, fault(getattr(owner, name)))
    found = compared("square root", "a log", users=opposed())
    assert (found.problems == ()) == (words is None)
    assert words is None or words in found.problems
