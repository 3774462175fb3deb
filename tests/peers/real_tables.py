"""Tables of polars and datasets of Minari as logs, as they are."""

from __future__ import annotations

import gymnasium
import minari
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import dprl

ROWS = 200
BOUNDS = dprl.Bounds(
    units=ROWS, horizon=1, reward=(0.0, 1.0), observation=((0.0, 1.0),) * 2, actions=2, max_importance_ratio=2.0
)


@pytest.fixture(scope="module")
def columns():
    rng = np.random.default_rng(0)
    return {
        "person_id": [f"person {i:03d}" for i in range(ROWS)],
        "observation_0": rng.uniform(0, 1, ROWS),
        "observation_1": rng.uniform(0, 1, ROWS),
        "action": rng.integers(0, 2, ROWS),
        "reward": rng.uniform(0, 1, ROWS),
        "behavior_prob": np.full(ROWS, 0.5),
    }


class Stream:
    """What gives an Arrow stream and nothing else."""

    def __init__(self, frame):
        self.frame = frame

    def __arrow_c_stream__(self, requested_schema=None):
        return self.frame.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("make", [pl.DataFrame, pl.LazyFrame, lambda c: Stream(pl.DataFrame(c)), pa.table])
def test_every_table_is_the_same_log(columns, make):
    log = dprl.read_log(make(columns), bounds=BOUNDS).load()
    assert log.units == ROWS
    assert log.valid.all()
    for name in ("action", "reward"):
        np.testing.assert_array_equal(getattr(log, name), columns[name])
    np.testing.assert_array_equal(log.observation[:, 1], columns["observation_1"])


def test_a_lazy_file_is_read_when_the_log_is_loaded(columns, tmp_path):
    path = tmp_path / "log.parquet"
    pl.DataFrame(columns).write_parquet(path)
    log = dprl.read_log(pl.scan_parquet(path), bounds=BOUNDS)
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + bytes(len(whole) - 300) + whole[-296:])  # its rows are gone, its schema is not
    with pytest.raises(dprl.DprlError, match="cannot be read to its end"):
        log.load()
    path.write_bytes(whole)
    np.testing.assert_array_equal(log.load().reward, columns["reward"])


class Corridor(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(0.0, 4.0, (1,)), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = np.zeros(1, np.float32)
        return self.place, {}

    def step(self, action):
        self.place = self.place + np.float32(action)
        return self.place, float(action), bool(self.place[0] >= 3.0), False, {}


def test_a_dataset_of_minari_is_a_log(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    env = minari.DataCollector(Corridor())
    for episode in range(4):
        env.reset(seed=episode)
        for _ in range(3):
            env.step(1)
    dataset = env.create_dataset("dprl/corridor-v0")
    bounds = dprl.Bounds(
        units=4, horizon=3, reward=(0.0, 1.0), observation=((0.0, 4.0),), actions=2, max_importance_ratio=2.0
    )
    log = dprl.read_log(dataset, bounds=bounds, behavior_policy="uniform").load()
    assert (log.units, log.episodes) == (4, 4)
    np.testing.assert_array_equal(log.observation[:, 0], [0.0, 1.0, 2.0] * 4)
    np.testing.assert_array_equal(log.reward, np.ones(12))
