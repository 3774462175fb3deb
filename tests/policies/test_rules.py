"""Rules: what they decide, how they are written and read back, and which class public facts declare."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dprl.bounds import Bounds
from dprl.errors import DprlError
from dprl.policies.loading import check_policy, load_policy, policy_name
from dprl.policies.rules import FILE, Rule, Split, fixed_actions, public_cuts, read_rule, thresholds, trees

NAMES = ("age", "CD4 count", "site")
FINITE = st.floats(-1e6, 1e6, allow_nan=False).map(float)
TREES = st.recursive(
    st.integers(0, 3),
    lambda inner: st.builds(Split, st.integers(0, 2), FINITE, inner, inner),
    max_leaves=6,
)


CALLED = ("nothing", "action 7", "Médicament A", "")


@given(TREES, st.lists(st.tuples(FINITE, FINITE, FINITE), min_size=1, max_size=5), st.sampled_from([None, CALLED]))
def test_a_rule_is_read_back_as_it_was_written(tmp_path_factory, tree, states, called):
    rule, folder = Rule(tree, 4, NAMES, called), tmp_path_factory.mktemp("rule")
    (folder / FILE).write_bytes(rule.to_bytes())
    for path in (folder, folder / FILE):
        found = load_policy(path, 4)
        assert found == rule
        np.testing.assert_array_equal(found(np.array(states)), rule(np.array(states)))
    *cases, (_, last) = rule.cases()
    if called is None:
        assert rule.words.count("action") == 1 + sum(action != last for _, action in cases)


def test_comparisons_decide_and_words_say_so():
    rule = Rule(Split(1, 350.0, Split(0, 30.0, 2, 1), 0), 3, NAMES)
    assert rule.words == "action 2 where CD4 count < 350 and age < 30; action 1 where CD4 count < 350 and age >= 30; " \
        "else action 0"  # fmt: skip
    named = Rule(rule.tree, 3, NAMES, ("nothing", "A", "A and B"))
    assert (
        named.words == "A and B where CD4 count < 350 and age < 30; A where CD4 count < 350 and age >= 30; else nothing"
    )
    assert Rule(1, 3, NAMES, named.action_names).words == "A for everybody"
    states = np.array([[20, 349, 1], [30, 349, 1], [20, 350, 1]])
    np.testing.assert_array_equal(rule.action(states), [2, 1, 0])
    np.testing.assert_array_equal(rule(states).sum(axis=1), 1.0)
    # a state has the same action whatever its precision
    at = Rule(Split(0, 0.1, 1, 0), 2, ("x",))
    np.testing.assert_array_equal(at.action(np.array([[np.float32(0.1)]])), at.action(np.array([[0.1]])))
    check_policy(rule, Bounds(units=9, horizon=1, reward=(0, 1), observation=((0, 90), (0, 999), (0, 9)), actions=3))


@pytest.mark.parametrize(
    "change",
    [
        {"rule": 4}, {"rule": True}, {"rule": {"component": 3, "cut": 0.0, "below": 0, "above": 1}}, {"rule": None},
        {"rule": {"component": 0, "cut": "1", "below": 0, "above": []}}, {"actions": None}, {"components": []},
        {"components": "age"}, {"rule": {"component": 0, "below": 0, "above": 1}}, {"schema": "dprl.rule/2"},
        {"action_names": ["a", "b"]}, {"action_names": "abcd"}, {"action_names": [0, 1, 2, 3]},
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused(change, tmp_path):
    content = json.loads(Rule(1, 4, NAMES).to_bytes()) | change
    (tmp_path / FILE).write_text(json.dumps(content))
    with pytest.raises(DprlError, match=r"policy.json"):
        read_rule(tmp_path)


def test_what_the_log_knows_has_a_name():
    assert policy_name("logged") == "logged"
    assert policy_name(load_policy("logged")) == "logged"
    check_policy(load_policy("logged"), Bounds(units=9, horizon=1, reward=(0, 1), observation=((0, 1),), actions=2))


def test_cuts_are_coarse_first_and_between_whole_numbers():
    cuts = public_cuts([(20.0, 100.0), (1.0, 4.0), (0.0, 1.0), (5.0, 5.0)])
    assert cuts[:3] == ((0, 60.0), (1, 2.5), (2, 0.5))
    of = {i: sorted(at for j, at in cuts if j == i) for i in range(4)}
    assert of == {0: [30, 40, 50, 60, 70, 80, 90], 1: [1.5, 2.5, 3.5], 2: [0.25, 0.5, 0.75], 3: []}


@pytest.mark.parametrize("actions", [2, 3])
def test_no_two_rules_of_a_class_decide_alike(actions):
    cuts = public_cuts([(0.0, 8.0), (0.0, 9.0)])[:6]
    rules = list(
        itertools.chain(*(f(actions, NAMES[:2], *more) for f, more in
                          ((fixed_actions, ()), (thresholds, (cuts,)), (trees, (cuts,)))))
    )  # fmt: skip
    states = np.array(list(itertools.product(np.arange(0.125, 9, 0.25), repeat=2)))
    decided = {rule.action(states).tobytes() for rule in rules}
    assert len(decided) == len(rules)
    assert len({rule.words for rule in rules}) == len(rules)
