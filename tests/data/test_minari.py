"""Minari datasets: made with Minari's own collector where it is installed, refused in a sentence where it is not."""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dprl.bounds import Bounds
from dprl.data.readers import read_log
from dprl.errors import DprlError

from ..sample_log import assert_same

HORIZON = 12
BOUNDS = Bounds(
    units=6,
    horizon=HORIZON,
    reward=(0.0, 1.0),
    observation=((-4.8, 4.8), (-5.0, 5.0), (-0.42, 0.42), (-5.0, 5.0)),
    actions=2,
    max_importance_ratio=2.0,
)


def test_without_minari_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(DprlError, match=r"pip install 'dprl\[minari\]'"):
        read_log("minari:any/data-v0", bounds=BOUNDS)


def episode(length: int, **odd: Any) -> SimpleNamespace:
    """One with as many transitions, of which something is as it must not be."""
    numbers = np.random.default_rng(length)
    found = {
        "observations": numbers.uniform(-1.0, 1.0, (length + 1, 2)),
        "actions": numbers.integers(0, 2, length),
        "rewards": numbers.uniform(0.0, 1.0, length),
        "terminations": np.arange(length) == length - 1,
        "truncations": np.zeros(length, bool),
    }
    return SimpleNamespace(**{**found, **odd})


class Held:
    """A dataset in memory, as the protocol of sources has it."""

    observation_space = type("Box", (), {"shape": (2,)})()
    action_space = type("Discrete", (), {"start": 0})()

    def __init__(self, *episodes: Any) -> None:
        self._episodes = episodes

    def iterate_episodes(self) -> Any:
        yield from self._episodes


def loaded(dataset: Held) -> Any:
    bounds = replace(BOUNDS, observation=((-1.0, 1.0),) * 2)
    return read_log(dataset, bounds=bounds, behavior_policy="uniform").load()


ODD: dict[str, dict[str, Any]] = {
    "text for a reward": {"rewards": [0.0, "HIV+", 1.0]},
    "components too many": {"observations": np.zeros((4, 4))},
    "a state too few": {"observations": np.zeros((3, 2))},
    "a mapping for states": {"observations": {"x": 1}},
    "an action too few": {"actions": np.zeros(2)},
    "no flags": {"terminations": None},
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_an_odd_episode_is_missing_and_changes_no_other(odd):
    """It ended the release, in a message with the numbers of rows; or its cells moved into the next person's rows."""
    odd_one = Held(episode(5), episode(3, **odd), episode(4))
    assert_same(loaded(odd_one), loaded(Held(episode(5), episode(4))))


@pytest.mark.parametrize("error", [TypeError, IndexError, OSError])
def test_a_dataset_that_cannot_be_read_is_said_to_be_damaged(error):
    class Damaged(Held):
        def iterate_episodes(self) -> Any:
            yield episode(3)
            raise error("of patient 7")

    with pytest.raises(DprlError, match="is damaged") as refused:
        loaded(Damaged())
    assert refused.value.__context__ is None


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    """Six episodes of CartPole and four of a corridor of whole-numbered states, under a uniform policy."""
    minari = pytest.importorskip("minari")
    gymnasium = pytest.importorskip("gymnasium")
    spaces = gymnasium.spaces

    class Corridor(gymnasium.Env):
        observation_space, action_space = spaces.Discrete(5), spaces.Discrete(2, start=1)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.state = 0
            return np.int64(0), {}

        def step(self, action):
            self.state += int(action) - 1
            return np.int64(self.state), float(action), self.state == 4, False, {}

    class Forms(Corridor):
        observation_space = spaces.Dict({"x": spaces.Discrete(5)})

        def reset(self, **_):
            return {"x": np.int64(0)}, {}

        def step(self, action):
            return {"x": np.int64(0)}, 0.0, True, False, {}

    made = {
        "test/cartpole-v0": gymnasium.make("CartPole-v1", max_episode_steps=HORIZON),
        "test/corridor-v0": gymnasium.wrappers.TimeLimit(Corridor(), HORIZON),
        "test/forms-v0": gymnasium.wrappers.TimeLimit(Forms(), HORIZON),
    }
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setenv("MINARI_DATASETS_PATH", str(tmp_path_factory.mktemp("minari")))
        warnings.simplefilter("ignore")
        for name, env in made.items():
            collector = minari.DataCollector(env)
            collector.action_space.seed(0)
            for seed in range(6 if "cartpole" in name else 4):
                collector.reset(seed=seed)
                over = False
                while not over:
                    *_, terminated, truncated, _ = collector.step(collector.action_space.sample())
                    over = terminated or truncated
            collector.create_dataset(name, algorithm_name="uniform", eval_env=None)
        yield lambda name: list(minari.load_dataset(name).iterate_episodes())


def test_box_observations(collected):
    log = read_log("minari:test/cartpole-v0", bounds=BOUNDS, behavior_policy="uniform").load()
    episodes = collected("test/cartpole-v0")
    assert log.episodes == len(episodes) == 6
    assert log.valid.all()
    assert log.has_next.all()
    np.testing.assert_array_equal(log.lengths(), [len(e.rewards) for e in episodes])
    low, high = np.array(BOUNDS.observation).T
    whole = [np.clip(e.observations.astype(np.float64), low, high) for e in episodes]
    np.testing.assert_array_equal(log.observation, np.concatenate([x[:-1] for x in whole]))
    np.testing.assert_array_equal(log.next_observation, np.concatenate([x[1:] for x in whole]))
    np.testing.assert_array_equal(log.action, np.concatenate([e.actions for e in episodes]))
    np.testing.assert_array_equal(log.terminated, np.concatenate([e.terminations for e in episodes]))


def test_whole_numbered_observations_and_actions_that_start_at_one(collected):
    bounds = Bounds(
        units=4, horizon=HORIZON, reward=(0.0, 2.0), observation=((0.0, 4.0),), actions=2, max_importance_ratio=2.0
    )
    log = read_log("minari:test/corridor-v0", bounds=bounds, behavior_policy="uniform").load()
    assert log.valid.all()
    assert set(log.action) == {0, 1}
    np.testing.assert_array_equal(log.reward, log.action + 1.0)
    np.testing.assert_array_equal(log.next_observation[:, 0], log.observation[:, 0] + log.action)
    assert log.terminated.any()


def test_what_a_dataset_does_not_have(collected):
    with pytest.raises(DprlError, match="'behavior_prob'"):
        read_log("minari:test/cartpole-v0", bounds=BOUNDS)
    with pytest.raises(DprlError, match="4 numbers a row, the bounds describe 1 components"):
        read_log(
            "minari:test/cartpole-v0", bounds={**BOUNDS.as_dict(), "observation": [[0, 1]]}, behavior_policy="uniform"
        )
    with pytest.raises(DprlError, match="no Minari dataset 'test/absent-v0'"):
        read_log("minari:test/absent-v0", bounds=BOUNDS, behavior_policy="uniform")
    with pytest.raises(DprlError, match="space Dict"):
        read_log("minari:test/forms-v0", bounds=BOUNDS, behavior_policy="uniform")
    with pytest.raises(DprlError, match="no such column 'person_id'"):
        read_log("minari:test/cartpole-v0", bounds=BOUNDS, behavior_policy="uniform", person="person_id")
