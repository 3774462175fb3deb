"""Greedy policies: what a basis spans, what the scores are, and that a file says the same as what it was made of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import dprl
from dprl.errors import DprlError
from dprl.policies.greedy import Basis, GreedyPolicy
from dprl.policies.parametric import FILE, read_policy

BOUNDS = ((0.0, 1.0), (-2.0, 2.0), (1.0, 4.0))
NAMES = ("stage", "marker", "site")


def linear(kind: str = "products:2", actions: int = 3) -> GreedyPolicy:
    rng, basis = np.random.default_rng(0), Basis(BOUNDS, kind)
    theta, root = rng.normal(size=(actions, basis.size)), rng.normal(size=(actions, basis.size, basis.size))
    return GreedyPolicy(basis, theta, 0.1 * root, NAMES)


def table() -> GreedyPolicy:
    basis = Basis(((2.0, 6.0),), "table")
    return GreedyPolicy(basis, np.array([[1.0, 1, 0, 0, 0], [0, 0, 2, 2, 0], [0, 0, 0, 0, 1]]), np.zeros(0), ("s",))


def states(rows: int = 50) -> np.ndarray:
    rng = np.random.default_rng(1)
    return np.column_stack([rng.random(rows), rng.uniform(-2.0, 2.0, rows), rng.integers(1, 5, rows)])


def test_functions_are_orthonormal_under_the_uniform_distribution():
    """Midpoints of a grid integrate them; a site is a whole number."""
    x = (np.arange(20) + 0.5) / 20
    grid = np.stack(np.meshgrid(x, 4.0 * x - 2.0, np.arange(1.0, 5.0), indexing="ij"), axis=-1)
    basis = Basis(BOUNDS, "products:2")
    phi = basis(grid.reshape(-1, 3))
    assert phi.shape[1] == basis.size == len(basis.words(NAMES)) == 1 + 5 + 1 + 3 + 3
    np.testing.assert_allclose(phi.T @ phi / len(phi), np.eye(basis.size), atol=0.05)
    assert "stage x site (2)" in basis.words(NAMES)
    assert Basis(BOUNDS, "products:1").size == 6
    assert Basis(BOUNDS, "products:0").words(NAMES) == ["1"]


def test_codes_are_told_apart():
    """Any function of a site is linear in its columns."""
    phi = Basis(((1.0, 4.0),), "products:1")(np.arange(1.0, 5.0)[:, None])
    assert np.linalg.matrix_rank(phi) == 4


def test_a_score_is_the_value_less_the_norm_and_a_row_stands_alone():
    policy, at = linear(), states()
    phi = policy.basis(at)
    expected = phi @ policy.theta.T - np.linalg.norm(np.einsum("np,apq->naq", phi, policy.root), axis=2)
    np.testing.assert_allclose(policy.scores(at), expected, rtol=1e-10)
    np.testing.assert_array_equal(policy.action(at), np.argmax(expected, axis=1))
    alone = np.vstack([policy.scores(row[None]) for row in at])
    assert alone.tobytes() == policy.scores(at).tobytes()
    assert np.all(policy(at).sum(axis=1) == 1.0)


def test_a_table_is_told_in_words():
    policy = table()
    assert policy.action(np.arange(2.0, 7.0)).tolist() == [0, 0, 1, 1, 2]
    assert policy.words == "by s: action 0 at 2-3; action 1 at 4-5; action 2 at 6"
    assert policy.described()["table"] == [0, 0, 1, 1, 2]
    named = replace(policy, action_names=("stay", "treat", "refer"))
    assert named.words == "by s: stay at 2-3; treat at 4-5; refer at 6"
    same = GreedyPolicy(policy.basis, np.array([[1.0] * 5, [2.0] * 5]), np.zeros(0), ("s",))
    assert same.words == "action 1 for everybody"
    assert linear("products:0").words.endswith("for everybody")


@pytest.mark.parametrize("policy", [linear(), linear("products:0"), replace(table(), action_names=("a", "b", "c"))])
def test_the_file_is_the_policy(policy, tmp_path):
    (tmp_path / FILE).write_bytes(policy.to_bytes())
    again = dprl.load_policy(str(tmp_path))
    assert again.to_bytes() == policy.to_bytes()
    at = states() if len(policy.names) == 3 else np.arange(2.0, 7.0)[:, None]
    np.testing.assert_array_equal(again(at), policy(at))


def test_what_does_not_fit_is_refused(tmp_path):
    policy = linear()
    with pytest.raises(DprlError, match="do not fit"):
        GreedyPolicy(policy.basis, policy.theta[:, 1:], policy.root, NAMES)
    with pytest.raises(DprlError, match="finite"):
        GreedyPolicy(policy.basis, policy.theta * np.nan, policy.root, NAMES)
    raw = policy.to_bytes()
    for changed in (raw.replace(b"products:2", b"products:1"), raw.replace(b"products:2", b"products:9"), raw[:-8]):
        (tmp_path / FILE).write_bytes(changed)
        with pytest.raises(DprlError, match=r"damaged"):
            read_policy(tmp_path)
