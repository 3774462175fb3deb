"""Models of other libraries as policies: scikit-learn itself, and what others promise in public."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dprl.bounds import Bounds
from dprl.errors import DprlError
from dprl.policies.loading import check_policy, load_policy, policy_name, policy_probabilities, synthetic_states

BOUNDS = Bounds(
    units=10, horizon=1, reward=(0.0, 1.0), observation=((0.0, 1.0),) * 2, actions=3, action_names=("a", "b", "c"),
    max_importance_ratio=3.0,
)  # fmt: skip
STATES = synthetic_states(BOUNDS)
SEEN = np.random.default_rng(0).uniform(0.0, 1.0, (200, 2))
NUMBERS = np.where(SEEN[:, 0] > 0.6, 2, np.where(SEEN[:, 1] > 0.5, 1, 0))


def policy(model):
    found = load_policy(model, BOUNDS.actions, BOUNDS.action_names)
    check_policy(found, BOUNDS)
    return found(STATES)


@pytest.fixture(scope="module")
def linear_model():
    return pytest.importorskip("sklearn.linear_model")


@pytest.mark.parametrize("labels", [NUMBERS, np.array(BOUNDS.action_names)[NUMBERS]], ids=["numbers", "names"])
def test_a_classifier_gives_its_probabilities(linear_model, labels):
    model = linear_model.LogisticRegression().fit(SEEN, labels)
    np.testing.assert_array_equal(policy(model), model.predict_proba(STATES))
    assert policy_name(model) == policy_name(load_policy(model, 3, BOUNDS.action_names)) == "LogisticRegression"


def test_an_action_that_a_classifier_never_saw_is_never_taken(linear_model):
    model = linear_model.LogisticRegression().fit(SEEN, np.where(NUMBERS == 1, 2, NUMBERS))
    found = policy(model)
    np.testing.assert_array_equal(found[:, [0, 2]], model.predict_proba(STATES))
    np.testing.assert_array_equal(found[:, 1], 0.0)


@pytest.mark.parametrize("labels", [NUMBERS, np.array(BOUNDS.action_names)[NUMBERS]], ids=["numbers", "names"])
def test_a_classifier_without_probabilities_takes_its_action(linear_model, labels):
    model = linear_model.RidgeClassifier().fit(SEEN, labels)
    chosen = [list(BOUNDS.action_names or ()).index(a) if isinstance(a, str) else a for a in model.predict(STATES)]
    np.testing.assert_array_equal(policy(model), np.eye(3)[chosen])


def test_probabilities_come_before_the_likeliest_action():
    """A policy of SCOPE-RL explores, and its ``predict`` does not."""
    uniform = np.full((len(STATES), 3), 1 / 3)
    head = SimpleNamespace(
        predict=lambda states: np.zeros(len(states), int),
        calc_action_choice_probability=lambda states: uniform[: len(states)],
    )
    np.testing.assert_array_equal(policy(head), uniform)


def test_classes_that_are_no_actions_are_refused(linear_model):
    model = linear_model.LogisticRegression().fit(SEEN, NUMBERS + 7)
    with pytest.raises(DprlError, match="classes that are no actions: they must be numbers from 0 to 2"):
        load_policy(model, 3)


def test_an_action_that_does_not_exist_is_refused_on_public_states():
    with pytest.raises(DprlError, match="raised IndexError on public synthetic states"):
        policy(SimpleNamespace(predict=lambda states: np.full(len(states), 3)))


def test_actions_must_be_discrete(linear_model):
    with pytest.raises(DprlError, match="needs discrete actions"):
        load_policy(linear_model.LogisticRegression().fit(SEEN, NUMBERS), None)


def test_a_row_that_a_model_cannot_answer_is_zero_and_silent(linear_model, recwarn):
    """scikit-learn raises for the whole batch where one cell is no number."""
    model = load_policy(linear_model.LogisticRegression().fit(SEEN, NUMBERS), 3)
    states = STATES.copy()
    states[5] = np.nan
    found = policy_probabilities(model, states, 3)
    np.testing.assert_array_equal(found[5], 0.0)
    np.testing.assert_allclose(np.delete(found, 5, 0), np.delete(model(STATES), 5, 0), atol=1e-15)
    assert not recwarn
