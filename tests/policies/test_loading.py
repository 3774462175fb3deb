from __future__ import annotations

import sys
import warnings

import numpy as np
import pytest

from dprl.bounds import Bounds
from dprl.errors import DprlError
from dprl.policies import (
    ColumnPolicy,
    UniformPolicy,
    check_policy,
    load_policy,
    policy_name,
    policy_probabilities,
    synthetic_states,
)


def bounds(size: int = 2, actions: int | None = 3) -> Bounds:
    continuous = None if actions else ((0.0, 1.0),)
    return Bounds(
        units=100,
        horizon=1,
        reward=(0.0, 1.0),
        observation=((-2.0, 5.0),) * size,
        actions=actions,
        action=continuous,
    )


def softmax(states: np.ndarray) -> np.ndarray:
    weights = np.exp(states[:, :1] * np.arange(3))
    return weights / weights.sum(axis=1, keepdims=True)


FILE = """
from __future__ import annotations
import dataclasses
import numpy as np
import a_helper_beside_the_policy

@dataclasses.dataclass
class Settings:
    low: float = 350.0

def treat_low(states):
    low = states[:, 0] < Settings().low * a_helper_beside_the_policy.ONE
    return np.column_stack([~low, low]).astype(float)

number = 3
"""


def test_a_file_is_executed_with_its_helpers_and_dataclasses(tmp_path):
    (tmp_path / "a_helper_beside_the_policy.py").write_text("ONE = 1.0\n")
    file = tmp_path / "rules.py"
    file.write_text(FILE)
    path_before = list(sys.path)
    policy = load_policy(f"{file}:treat_low", 2)
    assert sys.path == path_before
    assert not isinstance(policy, ColumnPolicy)
    check_policy(policy, Bounds(units=9, horizon=1, reward=(0, 1), observation=((0.0, 700.0),), actions=2))
    np.testing.assert_array_equal(policy(np.array([[100.0], [400.0]])), [[0, 1], [1, 0]])


def test_one_action_everywhere():
    always = load_policy("always:2", 4)
    np.testing.assert_array_equal(always(np.zeros((3, 2))), np.tile([0.0, 0.0, 1.0, 0.0], (3, 1)))
    assert policy_name("always:2") == policy_name(always) == "always_2"


def test_uniform_column_and_callable():
    uniform = load_policy("uniform", 4)
    assert isinstance(uniform, UniformPolicy)
    np.testing.assert_array_equal(uniform(np.zeros((3, 2))), np.full((3, 4), 0.25))
    assert load_policy("column", 4) == ColumnPolicy("target_prob")
    assert load_policy("column:p_new", None) == ColumnPolicy("p_new")
    assert load_policy(softmax, 3) is softmax
    check_policy(ColumnPolicy("p"), bounds(actions=None))


@pytest.mark.parametrize(
    ("spec", "actions", "message"),
    [
        ("uniform", None, "needs discrete actions"),
        ("always:1", None, "needs discrete actions"),
        ("always:4", 4, "always:0 to always:3"),
        ("always:-1", 4, "names no action"),
        ("always", 4, "names no action"),
        ("column:", 2, "names no column"),
        ("policies.py", 2, "names no function"),
        ("nowhere.py:f", 2, "no policy file"),
        ("greedy", 2, "Unknown policy"),
        ("module:f", 2, "Unknown policy"),
        (3.5, 2, "must be a callable"),
    ],
)
def test_a_specification_that_names_nothing_is_refused(spec, actions, message):
    with pytest.raises(DprlError, match=message):
        load_policy(spec, actions)


@pytest.mark.parametrize(
    ("text", "function", "message"),
    [
        ("def f(: pass", "f", "raised SyntaxError"),
        ("raise KeyError('hidden words')", "f", "raised KeyError"),
        ("import sys; sys.exit(7)", "f", "raised SystemExit"),
        ("f = 3", "f", "not callable"),
        ("f = 3", "g", "no function 'g'"),
    ],
)
def test_a_file_that_does_not_work_is_refused(tmp_path, text, function, message):
    file = tmp_path / "broken_rules.py"
    file.write_text(text)
    with pytest.raises(DprlError, match=message) as caught:
        load_policy(f"{file}:{function}", 2)
    assert "hidden" not in str(caught.value)


def test_names():
    class Learned:
        def __call__(self, states):
            return states

    assert policy_name("uniform") == policy_name(UniformPolicy(2)) == "uniform"
    assert policy_name("/some/where/rules.py:treat_low") == policy_name("treat_low") == "treat_low"
    assert policy_name("column") == policy_name(ColumnPolicy()) == "target_prob"
    assert policy_name("column:p_new") == "p_new"
    assert policy_name(softmax) == "softmax"
    assert policy_name(Learned()) == "Learned"
    assert policy_name(lambda states: states) == "policy"


@pytest.mark.parametrize("size", [1, 2, 4, 5, 40])
def test_synthetic_states_are_public_points_of_the_box(size):
    states = synthetic_states(bounds(size))
    assert states.shape == (64, size)
    assert states.min() == -2.0
    assert states.max() == 5.0
    for point in (-2.0, 5.0, 1.5):  # low corner, high corner, midpoint
        assert np.any(np.all(states == point, axis=1))
    np.testing.assert_array_equal(states, synthetic_states(bounds(size)))


def test_a_sound_policy_passes_and_does_not_see_what_it_overwrites():
    def rude(states):
        answer = softmax(states)
        states[:] = np.nan
        return answer

    check_policy(softmax, bounds())
    check_policy(rude, bounds())
    check_policy(lambda states: softmax(states).tolist(), bounds())


def _raise(states):
    raise RuntimeError(f"state {states[0, 0]}")


def _counting():
    calls = []

    def policy(states):
        calls.append(0)
        first = len(calls) % 2
        return np.tile([1.0 - first, float(first), 0.0], (len(states), 1))

    return policy


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (_raise, r"raised RuntimeError on public synthetic states"),
        (lambda s: softmax(s)[:, :2], r"returned shape \(64, 2\).*must return \(64, 3\)"),
        (lambda s: softmax(s)[0], r"returned shape \(3,\)"),
        (lambda s: softmax(s)[:1], r"returned shape \(1, 3\)"),
        (lambda s: "probabilities", "not an array of numbers"),
        (lambda s: softmax(s) - [1.0, -0.5, -0.5], "negative or non-finite"),
        (lambda s: softmax(s) * np.nan, "negative or non-finite"),
        (lambda s: softmax(s) * 1.00001, "do not sum to 1"),
        (lambda s: softmax(s - s.mean(axis=0)), "alone and among others"),
        (lambda s: np.roll(softmax(s), 1, axis=0), "alone and among others"),
        (_counting(), "alone and among others"),
        (lambda s: softmax(s) if len(s) > 1 else softmax(s)[0], "alone and among others"),
    ],
)
def test_what_is_no_policy_is_refused_in_one_sentence(policy, message):
    with pytest.raises(DprlError, match=message) as caught:
        check_policy(policy, bounds(), name="mine")
    text = str(caught.value)
    assert text.startswith("The policy 'mine' ")
    assert "\n" not in text
    assert caught.value.__cause__ is None
    assert "state -2" not in text


def test_probabilities_of_discrete_actions_are_refused_for_continuous_ones():
    with pytest.raises(DprlError, match="column of the log"):
        check_policy(softmax, bounds(actions=None))


def test_private_rows_never_raise_and_bad_ones_are_zero(recwarn, capfd):
    """The oracle asks row by row; the function asks in batches and halves those that fail."""

    def touchy(states):
        if np.any(states[:, 0] > 0.97):
            raise ValueError("a state that a row holds")
        if np.any(states[:, 0] > 0.95):
            sys.exit(3)
        if np.any(states[:, 0] > 0.93):
            return np.zeros((1, 1))
        warnings.warn("said aloud", stacklevel=1)
        answer = softmax(states / (states != 0.5))
        answer[states[:, 0] < 0.02] = [2.0, -1.0, 0.0]
        answer[(states[:, 0] > 0.02) & (states[:, 0] < 0.04)] *= 1.001
        answer[(states[:, 0] > 0.04) & (states[:, 0] < 0.06)] = np.inf
        return answer

    states = np.random.default_rng(1).random((3000, 2))
    states[::500] = np.nan
    states[7] = 0.5
    found = policy_probabilities(touchy, states, 3, batch=256)
    whole = policy_probabilities(touchy, states, 3)
    np.testing.assert_array_equal(found, whole)
    assert not recwarn.list
    assert capfd.readouterr() == ("", "")

    first = states[:, 0]
    with np.errstate(invalid="ignore"):
        good = (first > 0.06) & (first <= 0.93) & (first != 0.5)
    assert 0 < good.sum() < len(states)
    np.testing.assert_array_equal(found[~good], 0.0)
    np.testing.assert_allclose(found[good], softmax(states[good]), rtol=1e-12)
    assert found.dtype == np.float64


def test_no_rows_and_a_policy_that_always_fails():
    assert policy_probabilities(softmax, np.zeros((0, 2)), 3).shape == (0, 3)
    np.testing.assert_array_equal(policy_probabilities(_raise, np.ones((50, 2)), 3), np.zeros((50, 3)))
