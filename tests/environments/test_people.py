"""People who arrive: each answers once, and nothing that one of them does moves another's place or is told."""

from __future__ import annotations

import numpy as np
import pytest

from dprl.environments.people import Interaction, UserStream, to_environment
from dprl.errors import DprlError
from dprl.protocols import EnvironmentSpec

FACTS = EnvironmentSpec(
    name="shop", observation=((-1.0, 1.0), (0.0, 4.0)), actions=3, horizon=2, discount=0.9, reward_bounds=(0.0, 1.0)
)


def act(observations: np.ndarray, places: np.ndarray, turns: np.ndarray) -> np.ndarray:
    assert len(observations) == len(places) == len(turns)
    assert observations.dtype == np.float32
    return (observations[:, 1].astype(int)) % 3


def visitor(*rewards: float, seen: tuple[float, float] = (0.5, 2.0)):
    """Answers as the policy says, and is paid ``rewards``."""

    def answer(policy):
        actions = [policy(seen) for _ in rewards]
        assert all(type(action) is int for action in actions)
        return Interaction([seen] * len(rewards), actions, rewards, True)

    return answer


def stream(arrivals, named=True) -> UserStream:
    return UserStream(FACTS, arrivals, named=named)


def test_everybody_answers_once():
    """Who comes again, in the same batch or in a later one, leaves a place empty; the others keep theirs."""
    arrivals = [("a", visitor(0.5)), ("b", visitor(0.25, 0.75)), ("a", visitor(1.0)), (None, visitor(1.0)),
                ("b", visitor(1.0)), ("c", visitor(0.125)), (7, visitor(0.375))]  # fmt: skip
    users = stream(iter(arrivals))
    first, second, third = (users.batch(start, 3, act) for start in (0, 3, 6))
    assert [list(b.length) for b in (first, second, third)] == [[1, 2, 0], [0, 0, 1], [1, 0, 0]]
    np.testing.assert_array_equal(first.rewards, [[0.5, 0.0], [0.25, 0.75], [0.0, 0.0]])
    assert second.rewards[2, 0] == 0.125
    assert third.rewards[0, 0] == 0.375
    assert (first.actions[first.length > 0, 0] == 2).all()
    assert list(first.terminated) == [True, True, False]
    assert first.observations.shape == (3, 2, 2)
    # where nobody is named, a visit without a name is a person
    nameless = stream([(None, visitor(0.5))] * 2 + [("a", visitor(1.0))] * 2, named=False)
    assert list(nameless.batch(0, 4, act).length) == [1, 1, 1, 0]


def raises(_):
    raise RuntimeError("0.123456")


@pytest.mark.parametrize(
    "answer",
    [
        raises,
        lambda policy: None,
        lambda policy: Interaction([(0.0, 1.0)], [3], [0.5]),  # no such action
        lambda policy: Interaction([(0.0, 1.0)], [0.5], [0.5]),
        lambda policy: Interaction([(0.0, 1.0)], [0], [float("nan")]),
        lambda policy: Interaction([(0.0, float("inf"))], [0], [0.5]),
        lambda policy: Interaction([(0.0, 1.0)], [0, 1], [0.5]),
        lambda policy: Interaction([(0.0, 1.0, 2.0)], [0], [0.5]),
        lambda policy: Interaction([], [], []),
        lambda policy: Interaction([("x", 1.0)], [0], [0.5]),
        lambda policy: Interaction([(0.0, 1.0)], [0], [10**400]),
    ],
)
def test_what_is_no_answer_is_nothing_and_nobody_is_told(answer, recwarn, caplog):
    users = stream([("a", visitor(0.5)), ("b", answer), ("c", visitor(0.25))])
    found = users.batch(0, 3, act)
    assert list(found.length) == [1, 0, 1]
    assert not any(part[1].any() for part in found)
    assert not recwarn.list
    assert not caplog.records


def test_what_is_no_arrival_is_an_empty_place():
    odd = [None, 3, ("a",), (["a"], visitor(1.0)), (float("nan"), visitor(1.0)), ("b", 3), ("z", visitor(1.0))]
    assert list(stream(odd).batch(0, 7, act).length) == [0, 0, 0, 0, 0, 0, 1]


def test_cells_are_clamped_and_what_is_too_long_is_cut():
    users = stream([("a", lambda p: Interaction([(-5.0, 9.0)] * 4, [0, 1, 2, 0], [7.0, -3.0, 1.0, 1.0], False))])
    found = users.batch(0, 1, act)
    np.testing.assert_array_equal(found.observations[0], [[-1.0, 4.0]] * 2)
    np.testing.assert_array_equal(found.rewards[0], [1.0, 0.0])
    assert (found.length[0], found.terminated[0]) == (2, False)


def test_a_stream_is_read_once_and_in_order():
    users = stream([("a", visitor(0.5))])
    users.check()
    users.batch(0, 1, act)
    with pytest.raises(DprlError, match="in order"):
        users.batch(0, 1, act)
    with pytest.raises(DprlError, match="read once"):
        users.check()
    with pytest.raises(DprlError, match="public facts"):
        UserStream({}, [], named=True)  # type: ignore[arg-type]


def test_continuous_actions_are_kept_as_they_were_drawn():
    known = EnvironmentSpec(
        name="dose", observation=((0.0, 1.0),), actions=0, horizon=1, discount=1.0, reward_bounds=(0.0, 1.0),
        action=((0.0, 10.0), (-1.0, 1.0)),
    )  # fmt: skip
    given = []

    def answer(policy):
        action = policy([0.5])
        given.append(policy.to_environment(action))
        return Interaction([[0.5]], [action], [1.0])

    users = UserStream(known, [(1, answer)], named=True)
    found = users.batch(0, 1, lambda seen, *_: np.full((len(seen), 2), [1.5, -0.5], np.float32))
    np.testing.assert_array_equal(found.actions, [[[1.5, -0.5]]])
    np.testing.assert_allclose(given[0], [10.0, -0.5])
    np.testing.assert_array_equal(to_environment(np.array([1, 2]), FACTS), [1, 2])
