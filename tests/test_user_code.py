"""Code that users bring: whatever it raises on rows is heard by nobody."""

from __future__ import annotations

import sys
import threading
import warnings

import numpy as np
import pytest

from dprl.data import memory
from dprl.environments.people import Interaction, UserStream
from dprl.policies.loading import policy_probabilities
from dprl.protocols import EnvironmentSpec
from dprl.user_code import quietly, suppress_warnings

SECRET = "PATIENT-ZERO"


class PanicException(BaseException):
    """What a panic in a library of Rust's becomes."""


def panic(*_):
    raise PanicException(SECRET)


def leave(*_):
    sys.exit(SECRET)


def stop(*_):
    raise GeneratorExit(SECRET)


RAISED = pytest.mark.parametrize("raised", [panic, leave, stop])


@RAISED
def test_what_is_raised_is_forgotten(raised):
    assert quietly(raised, "otherwise") == "otherwise"
    assert quietly(lambda: 3, "otherwise") == 3


def test_an_interruption_passes_without_its_text():
    def interrupted():
        try:
            panic()
        finally:
            raise KeyboardInterrupt(SECRET)

    with pytest.raises(KeyboardInterrupt) as caught:
        quietly(interrupted, None)
    assert caught.value.args == ()
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


def test_a_thread_is_not_heard_when_another_one_ends():
    """The filters are the process's: whoever put back its own would let others' warnings through."""
    begun, ended = threading.Event(), threading.Event()

    def other():
        with suppress_warnings():
            begun.set()
            ended.wait()
            warnings.warn(SECRET, stacklevel=1)

    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        thread, before = threading.Thread(target=other), warnings.filters[:]
        with suppress_warnings():
            thread.start()
            begun.wait()
        ended.set()
        thread.join()
        assert (heard, warnings.filters) == ([], before)


def test_whoever_enters_later_leaves_the_filter_where_it_is(monkeypatch):
    """To put it first again would take it away for a moment."""
    with suppress_warnings():
        monkeypatch.setattr(warnings, "simplefilter", lambda *_: pytest.fail("the filter was touched"))
        with suppress_warnings():
            warnings.warn(SECRET, stacklevel=1)


@RAISED
def test_a_policy_that_panics_at_a_row_makes_that_row_zero(raised):
    def policy(states):
        if (states[:, 0] == 7.0).any():
            raised()
        return np.full((len(states), 2), 0.5)

    states = np.arange(10.0)[:, None]
    found = policy_probabilities(policy, states, 2)
    np.testing.assert_array_equal(found, np.where(states == 7.0, 0.0, 0.5) * np.ones((1, 2)))


@RAISED
def test_an_answer_that_panics_when_it_is_looked_at(raised):
    class Array:
        def __array__(self, *_, **__):
            raised()

    assert not policy_probabilities(lambda states: Array(), np.ones((3, 1)), 2).any()


FACTS = EnvironmentSpec(
    name="shop", observation=((0.0, 1.0),), actions=2, horizon=1, discount=0.9, reward_bounds=(0.0, 1.0)
)


def pays(policy):
    return Interaction([[0.5]], [policy([0.5])], [1.0], True)


class Arrivals:
    """People of whom the second cannot even be asked for."""

    def __init__(self, raised):
        self.raised, self.turn = raised, 0

    def __iter__(self):
        return self

    def __next__(self):
        self.turn += 1
        if self.turn == 2:
            self.raised()
        return f"person {self.turn}", pays


class Name:
    """A name that panics when it is compared."""

    def __init__(self, raised):
        self.raised = raised

    def __hash__(self):
        return self.raised()

    __eq__ = __float__ = __str__ = __hash__


@RAISED
@pytest.mark.parametrize("where", ["answer", "arrival", "name"])
def test_a_person_who_panics_answers_nothing(raised, where):
    arrivals = {
        "answer": [("a", pays), ("b", raised), ("c", pays)],
        "arrival": Arrivals(raised),
        "name": [("a", pays), (Name(raised), pays), ("c", pays)],
    }
    found = UserStream(FACTS, arrivals[where], named=True).batch(0, 3, lambda seen, *_: np.zeros(len(seen), int))
    assert found.length.tolist() == [1, 0, 1]


@RAISED
def test_a_cell_that_panics_is_missing(raised):
    class Cell:
        __float__ = __str__ = __hash__ = lambda self: raised()

    assert memory._number(Cell()) is None
