"""Logs as other projects hand them out, in exactly their layout: the Open Bandit Dataset, obp and SCOPE-RL.

Layouts after st-tech/zr-obp (``obd/README.md``, ``obp/dataset/real.py``) and hakuhodo-technologies/scope-rl
(``scope_rl/dataset/synthetic.py``).
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dprl.bounds import Bounds
from dprl.data.partition import partition
from dprl.data.readers import read_log
from dprl.data.template import bounds_template

ITEMS, IMPRESSIONS = 3, 40
HASHES = ("81ce123cbb5bd8ce818f60fb3586bba5", "cef3390ed299c09874189c387777674a", "03a5648a76832f83c859d46bc06cb64a")


@pytest.fixture(scope="module")
def impressions(tmp_path_factory) -> Path:
    """A file of one behaviour policy and campaign: an index without a name, text in hashes, affinities by item."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("random") / "all.csv"
    header = ["", "timestamp", "item_id", "position", "click", "propensity_score",
              *(f"user_feature_{i}" for i in range(4)), *(f"user-item_affinity_{i}" for i in range(ITEMS))]  # fmt: skip
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        for i in range(IMPRESSIONS):
            user = [HASHES[rng.integers(len(HASHES))] for _ in range(4)]
            writer.writerow([
                i, f"2019-11-24 00:00:{i:02d}.{rng.integers(10**6):06d}+00:00", rng.integers(ITEMS), rng.integers(1, 4),
                rng.integers(2), 1 / ITEMS, *user, *rng.integers(0, 5, ITEMS).astype(float),
            ])  # fmt: skip
    return path


def columns(path: Path) -> dict[str, tuple[str, ...]]:
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    return dict(zip(header, zip(*rows, strict=True), strict=True))


BANDIT: dict[str, Any] = {
    "units": IMPRESSIONS, "horizon": 1, "reward": [0, 1], "observation": [[0, 10]] * ITEMS, "actions": ITEMS,
    "max_importance_ratio": ITEMS,
}  # fmt: skip


def test_a_file_of_the_open_bandit_dataset_as_it_is(impressions):
    log, written = read_log(str(impressions), bounds=BANDIT).load(), columns(impressions)
    assert (log.units, log.unit) == (IMPRESSIONS, "trajectory")
    assert log.valid.all()
    np.testing.assert_array_equal(log.action, np.array(written["item_id"], int))
    np.testing.assert_array_equal(log.reward, np.array(written["click"], float))
    np.testing.assert_array_equal(log.behavior_prob, np.array(written["propensity_score"], float))
    np.testing.assert_array_equal(
        log.observation.T, [np.array(written[f"user-item_affinity_{i}"], float) for i in range(ITEMS)]
    )


def test_its_template_names_every_part(impressions):
    text = bounds_template(impressions)
    assert "MISSING" not in text
    assert "# [prepare]" not in text
    assert "# action           item_id\n" in text


def test_its_users_are_told_by_declared_hashes(impressions):
    section = {
        "person": False, "observation": ["user_feature_0", "user-item_affinity_1"], "action": "item_id",
        "reward": "click", "behavior_prob": "propensity_score", "codes": {"user_feature_0": list(HASHES)},
    }  # fmt: skip
    bounds = BANDIT | {"observation": [[0, 1]] * 3 + [[0, 10]], "prepare": section}
    log, written = read_log(impressions, bounds=bounds).load(), columns(impressions)
    assert log.valid.all()
    np.testing.assert_array_equal(log.action, np.array(written["item_id"], int))
    found = log.observation[:, :3].argmax(axis=1)
    assert [HASHES[i] for i in found] == list(written["user_feature_0"])
    np.testing.assert_array_equal(log.observation[:, :3].sum(axis=1), 1.0)


def test_it_is_put_in_parts_by_a_column_of_people(impressions, tmp_path):
    rows = impressions.read_text().splitlines()
    people = tmp_path / "people.csv"
    people.write_text(
        "\n".join([f"person_id{rows[0]}", *(f"u{i % 7}{row[row.index(',') :]}" for i, row in enumerate(rows[1:]))])
    )
    partition(people, "person_id", 2, tmp_path / "parts")
    log = read_log(tmp_path / "parts", bounds=BANDIT | {"units": 7}).load()
    assert log.units == 7
    assert log.valid.all()


def test_the_feedback_that_obp_makes_of_it():
    rng = np.random.default_rng(1)
    # pandas.get_dummies gives truths, sorted by time; positions are counted from 0
    context = rng.integers(0, 2, (IMPRESSIONS, 4)).astype(bool)
    feedback = {
        "n_rounds": IMPRESSIONS, "n_actions": ITEMS, "action": rng.integers(0, ITEMS, IMPRESSIONS),
        "position": rng.integers(0, 3, IMPRESSIONS), "reward": rng.integers(0, 2, IMPRESSIONS),
        "pscore": np.full(IMPRESSIONS, 1 / ITEMS), "context": context, "action_context": np.eye(ITEMS),
        "expected_reward": rng.random((IMPRESSIONS, ITEMS)), "pi_b": np.full((IMPRESSIONS, ITEMS, 1), 1 / ITEMS),
    }  # fmt: skip
    log = read_log(feedback, bounds=BANDIT | {"observation": [[0, 1]] * 4}).load()
    assert (log.units, log.episodes) == (IMPRESSIONS, IMPRESSIONS)
    assert log.valid.all()
    assert log.terminated.all()
    np.testing.assert_array_equal(log.observation, context.astype(float))
    np.testing.assert_array_equal(log.action, feedback["action"])
    np.testing.assert_array_equal(log.reward, feedback["reward"])


def logged_dataset(action: np.ndarray, pscore: np.ndarray, kind: str) -> dict[str, Any]:
    """A ``LoggedDataset`` of ``SyntheticDataset.obtain_episodes``: flat arrays of episodes of one length."""
    rng, episodes, length = np.random.default_rng(2), 5, 4
    n = episodes * length
    last = (np.arange(n) % length == length - 1).astype(float)
    return {
        "size": n, "n_trajectories": episodes, "step_per_trajectory": length, "action_type": kind,
        "n_actions": 2 if kind == "discrete" else None, "action_dim": None if kind == "discrete" else action.shape[1],
        "action_meaning": {0: "no", 1: "yes"}, "action_keys": None, "state_dim": 2, "state_keys": ["a", "b"],
        "state": rng.uniform(0, 1, (n, 2)), "action": action, "reward": rng.uniform(0, 1, n), "done": last,
        "terminal": last, "info": {"click": np.zeros(n)}, "pscore": pscore, "behavior_policy": "eps", "dataset_id": 0,
    }  # fmt: skip


STEPS: dict[str, Any] = {
    "units": 5, "horizon": 4, "reward": [0, 1], "observation": [[0, 1]] * 2, "max_importance_ratio": 2,
}  # fmt: skip


def test_a_logged_dataset_of_scope_rl():
    rng = np.random.default_rng(3)
    logged = logged_dataset(rng.integers(0, 2, 20), np.full(20, 0.5), "discrete")
    log = read_log(logged, bounds=STEPS | {"actions": 2}).load()
    assert log.valid.all()
    np.testing.assert_array_equal(log.lengths(), [4] * 5)
    np.testing.assert_array_equal(log.observation, logged["state"])
    np.testing.assert_array_equal(log.terminated, logged["done"].astype(bool))


@pytest.mark.parametrize("size", [1, 2])
def test_densities_of_scope_rl_are_multiplied_over_components(size):
    rng = np.random.default_rng(4)
    action, density = rng.uniform(0, 1, (20, size)), rng.uniform(0.5, 2, (20, size))
    logged = logged_dataset(action, density, "continuous")
    bounds = Bounds.from_mapping(STEPS | {"action": [[0, 1]] * size})
    log = read_log(logged, bounds=bounds).load()
    assert log.valid.all()
    np.testing.assert_array_equal(log.action, action)
    np.testing.assert_allclose(log.behavior_prob, density[:, 0] * (density[:, 1] if size == 2 else 1), rtol=1e-15)
    assert logged["pscore"] is density
