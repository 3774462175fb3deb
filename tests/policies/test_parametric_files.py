"""A released policy: what is read back is what was written, and nothing else is taken for one."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from dprl.bounds import Bounds
from dprl.errors import DprlError
from dprl.policies.loading import check_policy, load_policy, policy_name
from dprl.policies.parametric import CONSTANT, FILE, Parametric, ReleasedPolicy, read_policy

SEEN = ((-1.0, 1.0), (0.0, 10.0))


def policy(kind: str = "softmax", **changes: Any) -> ReleasedPolicy:
    known = {"actions": None, "action": ((0.0, 4.0),)} if "gaussian" in kind else {"actions": 3}
    parametric = Parametric(kind, SEEN, **(known | changes))
    return ReleasedPolicy(parametric, np.random.default_rng(1).normal(size=parametric.size).astype(np.float32))


def states(count: int = 50) -> np.ndarray:
    return np.random.default_rng(0).uniform(-2.0, 12.0, (count, 2))


@pytest.mark.parametrize("kind", ["softmax", "mlp:64"])
def test_a_state_is_answered_alike_whoever_else_is_asked_about(kind):
    """Else one person more would move others' vectors."""
    one, many = policy(kind), states(1030)
    found = one(many)
    for some in (slice(0, 1), slice(0, 3), slice(1, None), slice(1025, None), slice(0, 0)):
        assert one(many[some]).tobytes() == found[some].tobytes()
    assert one(many[::-1])[::-1].tobytes() == found.tobytes()


@pytest.mark.parametrize("kind", ["softmax", "mlp:4", "gaussian"])
def test_what_is_read_is_what_was_written(tmp_path, kind):
    one = policy(kind)
    (tmp_path / FILE).write_bytes(one.to_bytes())
    assert one.to_bytes() == one.to_bytes()
    for where in (tmp_path, tmp_path / FILE):
        other = read_policy(where)
        assert other.parametric == one.parametric
        np.testing.assert_array_equal(other.theta, one.theta)
        assert other.to_bytes() == one.to_bytes()
    many = states(4000)
    best = one.greedy(many)
    np.testing.assert_array_equal(best, read_policy(tmp_path).greedy(many))
    drawn = one.sample(many, 3)
    if kind == "gaussian":
        low, high = 0.0, 4.0
        assert best.shape == (4000, 1)
        assert ((drawn >= low) & (drawn <= high)).all()
        with pytest.raises(DprlError, match="densities"):
            one(states())
        assert [len(piece["values"]) for piece in one.slices(points=5)] == [1, 1]
        return
    found = one(many)
    np.testing.assert_array_equal(np.argmax(found, axis=1), best)
    # actions come as often as they are said to be likely
    share = np.bincount(drawn, minlength=3) / 4000
    np.testing.assert_allclose(share, found.mean(axis=0), atol=0.03)
    piece = one.slices(points=5)[1]
    np.testing.assert_allclose(np.sum(piece["values"], axis=0), 1.0)
    assert piece["policy"] == np.argmax(piece["values"], axis=0).tolist()
    assert (piece["grid"][0], piece["grid"][-1]) == SEEN[1]


def test_a_linear_softmax_is_what_its_parameters_say():
    one = policy()
    table = one.theta.reshape(3, 3).astype(np.float64)
    x = np.clip(np.column_stack([states()[:, 0], states()[:, 1] / 5.0 - 1.0]), -1.0, 1.0)
    weights = np.exp(np.column_stack([np.full(50, CONSTANT), x]) @ table.T)
    np.testing.assert_allclose(one(states()), weights / weights.sum(axis=1, keepdims=True), rtol=1e-5)


def test_it_is_a_target_policy(tmp_path):
    folder = tmp_path / "learned"
    folder.mkdir()
    (folder / FILE).write_bytes(policy().to_bytes())
    bounds = Bounds(units=1, horizon=1, reward=(0.0, 1.0), observation=SEEN, actions=3)
    for spec in (str(folder), folder, str(folder / FILE)):
        found = load_policy(spec)
        assert isinstance(found, ReleasedPolicy)
        check_policy(found, bounds)
        assert policy_name(spec) == "learned"
    assert policy_name(str(folder) + "/") == "learned"
    with pytest.raises(DprlError, match=r"States must have shape \(N, 2\)"):
        policy()(np.zeros((3, 4)))


def test_names_that_are_words_stay_words(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "uniform").mkdir()
    assert policy_name("uniform") == "uniform"
    assert not isinstance(load_policy("uniform", 2), ReleasedPolicy)


@pytest.mark.parametrize(
    ("tensors", "metadata"),
    [
        *((lambda theta: {"theta": theta}, change) for change in (
            {"schema": "dprl.policy/2"}, {"constant": "1.0"}, {"observation": None}, {"actions": "4"},
            {"observation": "[[0, Infinity], [0, 1]]"}, {"policy": "transformer"},
        )),
        (lambda theta: {"weights": theta}, {}),
        (lambda theta: {"theta": theta[:-1]}, {}),
        (lambda theta: {"theta": theta.astype(np.float64)}, {}),
        (lambda theta: {"theta": np.full_like(theta, np.nan)}, {}),
    ],
)  # fmt: skip
def test_what_is_damaged_is_refused(tmp_path, tensors, metadata):
    """Files without tensors: tests/bad_input/test_hostile_artifacts.py."""
    one = policy()
    raw = one.to_bytes()
    end = 8 + int.from_bytes(raw[:8], "little")
    stated = json.loads(raw[8:end])["__metadata__"] | metadata
    kept = {name: value for name, value in stated.items() if value is not None}
    save_file(tensors(one.theta), tmp_path / FILE, kept)
    with pytest.raises(DprlError, match=r"is damaged|missing or damaged|of a version"):
        read_policy(tmp_path)
    with pytest.raises(DprlError, match="do not fit their policy"):
        ReleasedPolicy(one.parametric, one.theta[:-1])
