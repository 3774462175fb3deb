"""Pong: what needs no console, and the logs of consoles where ale-py is installed."""

from __future__ import annotations

import itertools
import sys

import numpy as np
import pytest

from dprl.cli.logs import simulate
from dprl.environments import atari
from dprl.environments.atari import Pong, atari_bounds, atari_log
from dprl.errors import DprlError
from dprl.policies import UniformPolicy

UNIFORM = UniformPolicy(atari.ACTIONS)


def test_without_the_extra_one_sentence_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(DprlError, match=r"ale-py is not installed; install it with: pip install 'dprl\[atari\]'"):
        simulate("pong", tmp_path / "log.parquet", episodes=1)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DprlError, match="no observation '84x84'"):
        atari_log(UNIFORM, 0, 1, observation="84x84")  # type: ignore[arg-type]
    with pytest.raises(DprlError, match="at least 1"):
        atari_log(UNIFORM, 0, 0)


def check_columns(log, episodes, horizon):
    """Trajectories in order, each transition's end the next one's beginning, the horizon's cut and the game's end."""
    assert len(np.unique(log["episode_id"])) == episodes == log["episode_id"].max() + 1
    firsts = np.flatnonzero(log["t"] == 0)
    for a, b in itertools.pairwise([*firsts, len(log["t"])]):
        np.testing.assert_array_equal(log["t"][a:b], np.arange(b - a))
        np.testing.assert_array_equal(log["episode_id"][a:b], log["episode_id"][a])
        np.testing.assert_array_equal(log["next_observation"][a : b - 1], log["observation"][a + 1 : b])
        assert not (log["terminated"] | log["truncated"])[a : b - 1].any()
        assert log["terminated"][b - 1] != log["truncated"][b - 1]
        assert log["truncated"][b - 1] <= (b - a == horizon)


@pytest.mark.slow
def test_pieces_of_games():
    pytest.importorskip("ale_py")
    log, again, other = (atari_log(UNIFORM, seed, 30, horizon=100) for seed in (1, 1, 2))
    for name, values in log.items():
        np.testing.assert_array_equal(values, again[name])
    assert len(log["t"]) != len(other["t"]) or not np.array_equal(log["observation"], other["observation"])
    check_columns(log, 30, 100)
    assert log["observation"].shape == (len(log["t"]), 128)
    assert log["observation"].max() <= 255
    # a uniform policy loses nearly every point; pieces of a game follow each other
    assert set(np.unique(log["reward"])) <= {-1.0, 0.0, 1.0}
    assert log["reward"].sum() < -30
    np.testing.assert_array_equal(log["behavior_prob"], 1 / 3)
    assert np.all(np.bincount(log["action"]) > 0.25 * len(log["t"]))
    cut = np.flatnonzero(log["truncated"])[:-1]
    same_console = log["t"][cut + 1] == 0
    assert same_console.all()
    follow = (log["next_observation"][cut] == log["observation"][cut + 1]).all(axis=1)
    assert follow.sum() >= len(cut) - 2  # one console begins anew


@pytest.mark.slow
def test_whole_games_end_at_21():
    pytest.importorskip("ale_py")
    log = atari_log(UNIFORM, 0, 3, horizon=27_000)
    check_columns(log, 3, 27_000)
    assert log["terminated"].sum() == 3
    for i in range(3):
        points = log["reward"][log["episode_id"] == i]
        assert max(np.sum(points == 1), np.sum(points == -1)) == 21


@pytest.mark.slow
def test_actions_screens_and_saved_states():
    pytest.importorskip("ale_py")
    pong = Pong(0)
    heights = []
    for action in (1, 2):  # up, down; byte 51 counts from the top
        for _ in range(40):
            pong.step(action)
        heights.append(int(pong.observe()[51]))
    assert heights[0] < 60
    assert heights[1] > 180
    screen = pong.observe("80x80").reshape(80, 80)
    whole = pong.console.getScreenGrayscale()
    assert screen.shape == (80, 80)
    np.testing.assert_array_equal(screen, whole[34:194][::2, ::2])
    assert (screen != np.bincount(screen.ravel()).argmax()).any(axis=0)[70:].any()  # the own bat is on the right
    saved, memory = pong.save(), pong.observe().copy()
    for _ in range(30):
        pong.step(1)
    assert not np.array_equal(pong.observe(), memory)
    pong.restore(saved)
    np.testing.assert_array_equal(pong.observe(), memory)
    log = atari_log(UNIFORM, 0, 1, observation="80x80", horizon=20)
    assert log["observation"].shape == (20, 6400)
    assert len(atari_bounds(1, observation="80x80").observation) == 6400
