from __future__ import annotations

import tomllib

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from dprl.bounds import Bounds
from dprl.environments.chain import Chain
from dprl.environments.hiv import HIV
from dprl.environments.mountain_car import MountainCar
from dprl.environments.rollout import (
    _draw,
    bounds_toml,
    check_output,
    environment_bounds,
    largest_ratio,
    rollout,
    write_log,
    write_text,
)
from dprl.errors import DprlError
from dprl.policies import SoftmaxPolicy, TabularPolicy, UniformPolicy

KEY = jax.random.key(11)
COLUMNS = {
    "episode_id": np.int64,
    "t": np.int64,
    "observation": np.float32,
    "next_observation": np.float32,
    "action": np.int64,
    "reward": np.float64,
    "behavior_prob": np.float64,
    "terminated": np.bool_,
    "truncated": np.bool_,
}
# Few environments, policies and sizes: each new combination is compiled anew.
CHAIN, CAR, CAR_POLICY = Chain(actions=3, horizon=60), MountainCar(horizon=130), UniformPolicy(3)
TABLE = np.random.default_rng(4).dirichlet(np.ones(3), size=39)
TABLE[1:8:2] = [0.0, 0.5, 0.5], [0.05, 0.0, 0.95], [0.3, 0.7, 0.0], [0.0, 0.0, 1.0]
TABULAR = TabularPolicy(TABLE)


def on_the_host(states):
    """A policy that JAX cannot trace."""
    return TABLE[np.asarray(states)[:, 0].astype(int)]


@pytest.mark.parametrize(
    ("environment", "policy"),
    [
        (CHAIN, TABULAR),
        (CHAIN, on_the_host),
        (CAR, CAR_POLICY),
        pytest.param(HIV(horizon=10), SoftmaxPolicy(np.zeros((7, 4))), marks=pytest.mark.slow),
    ],
)
def test_columns_are_a_log(environment, policy):
    columns = rollout(environment, policy, KEY, 50)
    assert {name: values.dtype.type for name, values in columns.items()} == COLUMNS
    rows = len(columns["t"])
    low, high = np.array(environment.observation_bounds, dtype=np.float32).T
    for name in ("observation", "next_observation"):
        assert columns[name].shape == (rows, len(low))
        assert np.all((columns[name] >= low) & (columns[name] <= high))
    assert np.all(
        (columns["reward"] >= environment.reward_bounds[0]) & (columns["reward"] <= environment.reward_bounds[1])
    )
    np.testing.assert_array_equal(np.unique(columns["episode_id"]), np.arange(50))
    for episode in range(50):
        own = columns["episode_id"] == episode
        length = own.sum()
        over, cut = columns["terminated"][own], columns["truncated"][own]
        np.testing.assert_array_equal(columns["t"][own], np.arange(length))
        np.testing.assert_array_equal(columns["observation"][own][1:], columns["next_observation"][own][:-1])
        assert not over[:-1].any()
        assert not cut[:-1].any()
        assert over[-1] != cut[-1]
        assert cut[-1] == (length == environment.horizon and not over[-1])


def test_the_host_and_the_compiler_simulate_the_same():
    compiled = rollout(CHAIN, TABULAR, KEY, 50)
    host = rollout(CHAIN, on_the_host, KEY, 50)
    for name in COLUMNS:
        np.testing.assert_array_equal(compiled[name], host[name])


def test_the_batch_changes_nothing_and_the_key_everything():
    parts = rollout(CHAIN, TABULAR, KEY, 120, batch=50)
    whole = rollout(CHAIN, TABULAR, KEY, 50)
    other = rollout(CHAIN, TABULAR, jax.random.key(12), 50)
    first = parts["episode_id"] < 50
    for name in COLUMNS:
        np.testing.assert_array_equal(whole[name], parts[name][first])
    np.testing.assert_array_equal(np.unique(parts["episode_id"]), np.arange(120))
    assert not np.array_equal(whole["observation"][:60], other["observation"][:60])


def test_actions_come_with_the_probability_that_they_have():
    """For each state: the logged probability is the policy's, and a chi-square of the actions' counts is moderate."""
    columns = rollout(CHAIN, TABULAR, KEY, 2000, batch=50)
    state = columns["observation"][:, 0].astype(int)
    np.testing.assert_array_equal(columns["behavior_prob"], TABLE[state, columns["action"]])
    assert np.all(columns["behavior_prob"] > 0)
    statistic = freedom = 0.0
    for s in range(8):
        counts = np.bincount(columns["action"][state == s], minlength=3)
        expected = counts.sum() * TABLE[s]
        possible = TABLE[s] > 0
        assert counts[~possible].sum() == 0
        statistic += np.sum((counts - expected)[possible] ** 2 / expected[possible])
        freedom += possible.sum() - 1
    assert abs(statistic - freedom) < 4 * np.sqrt(2 * freedom)
    # Ratios to any target average to one: what importance sampling rests on.
    ratio = 1.0 / 3.0 / columns["behavior_prob"][np.isin(state, (0, 2))]
    assert ratio.mean() == pytest.approx(1.0, abs=5 * ratio.std() / np.sqrt(len(ratio)))


def test_an_action_of_probability_zero_is_never_drawn():
    """Not even at the ends of the unit interval, nor where the probabilities sum to less than 1 by rounding."""
    probabilities = np.array([[0.0, 1.0, 0.0], [0.1, 0.9, 0.0], [0.0, 0.3 - 1e-9, 0.7], [1.0, 0.0, 0.0]])
    for u in (0.0, 0.5, np.nextafter(1.0, 0.0), 1.0):
        action = np.asarray(_draw(jnp.asarray(probabilities), jnp.full(4, u)))
        assert np.all(probabilities[np.arange(4), action] > 0)


def test_a_policy_that_is_none_is_refused():
    with pytest.raises(DprlError, match="returned shape"):
        rollout(Chain(actions=2), UniformPolicy(3), KEY, 5)
    with pytest.raises(DprlError, match="at least 1"):
        rollout(Chain(), UniformPolicy(1), KEY, 0)


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_files_hold_the_columns(tmp_path, suffix):
    columns = rollout(CAR, CAR_POLICY, KEY, 50)
    path = tmp_path / f"log{suffix}"
    path.write_text("an older file")
    write_log(columns, path)
    table = pq.read_table(path) if suffix == ".parquet" else pyarrow.csv.read_csv(path)
    assert [f.name for f in tmp_path.iterdir()] == [path.name]
    names = ["episode_id", "t", "observation_0", "observation_1", "next_observation_0", "next_observation_1"]
    assert table.column_names == [*names, "action", "reward", "behavior_prob", "terminated", "truncated"]
    for i in range(2):
        np.testing.assert_allclose(table[f"observation_{i}"].to_numpy(), columns["observation"][:, i], rtol=1e-6)
    for name in ("episode_id", "t", "action", "reward", "behavior_prob", "terminated", "truncated"):
        np.testing.assert_allclose(table[name].to_numpy().astype(float), columns[name].astype(float))
    if suffix == ".parquet":
        types = [str(kind) for kind in table.schema.types]
        assert types == ["int64", "int64", *["float"] * 4, "int64", "double", "double", "bool", "bool"]


def test_outputs_that_cannot_be_written_are_refused(tmp_path, monkeypatch):
    for name, message in (("log.txt", "must end in"), ("none/log.csv", "no folder"), ("d.csv", "Cannot write")):
        (tmp_path / "d.csv").mkdir(exist_ok=True)
        with pytest.raises(DprlError, match=message):
            check_output(tmp_path / name)
    (tmp_path / "d.csv").rmdir()
    columns = {"t": np.arange(3)}

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(DprlError, match="No space left"):
        write_log(columns, tmp_path / "log.parquet")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DprlError, match="cannot be written"):
        write_text("x", tmp_path / "none" / "b.toml")


def test_bounds_go_through_toml():
    for environment in (Chain(), MountainCar(), HIV(start="healthy")):
        bounds = environment_bounds(environment, 500, 2.5)
        text = bounds_toml(bounds, {"units": "a note"})
        assert Bounds.from_mapping(tomllib.loads(text)) == bounds
        assert "units = 500  # a note" in text
    assert environment_bounds(Chain(), 5).value_interval(0.99) == (0.0, 1.0)


def test_the_largest_ratio_is_over_the_least_probability():
    bounds = environment_bounds(Chain(actions=4), 5)
    assert largest_ratio(UniformPolicy(4), bounds) == 4.0
    assert largest_ratio(TabularPolicy(np.array([[0.0, 0.1, 0.2, 0.7]])), bounds) == pytest.approx(10.0)
    assert largest_ratio(TabularPolicy(np.array([[0.0, 0.0, 0.0, 1.0]])), bounds) == 1.0
