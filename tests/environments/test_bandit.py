"""Bandits: a person's rows are one user, places are in the order of the file, and what is no number is no answer."""

from __future__ import annotations

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dprl.bounds import Bounds
from dprl.environments.bandit import Bandit, LinearBandit
from dprl.errors import DprlError

BOUNDS = {"units": 4, "observation": [[0, 10], [-1, 1]], "reward": [0, 1], "actions": 2}
PEOPLE = ["x", "y", "x", "", "z", "y", "w", "v", "y"]
"""Nobody has the fourth row; v comes when all four places are taken."""


def rows() -> tuple[np.ndarray, np.ndarray]:
    count = len(PEOPLE)
    observations = np.column_stack([np.arange(count), np.full(count, 0.5)])
    return observations, np.column_stack([np.arange(count) / 10.0, 0.9 - np.arange(count) / 10.0])


def write(path, people=PEOPLE) -> None:
    observations, rewards = rows()
    columns = {f"observation_{i}": observations[:, i] for i in range(2)} | {
        f"reward_{a}": rewards[:, a] for a in range(2)
    }
    if people is not None:
        columns["person_id"] = people
    if path.suffix == ".csv":
        lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
        path.write_text("\n".join(lines) + "\n")
    else:
        columns["person_id"] = [p or None for p in people or []]
        pq.write_table(pa.table({name: cells for name, cells in columns.items() if len(cells)}), path)


def second(observations: np.ndarray, places: np.ndarray, turns: np.ndarray) -> np.ndarray:
    assert len(observations) == len(places) == len(turns)
    return np.ones(len(observations), np.int32)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("horizon", [1, 2])
def test_a_persons_rows_are_one_user(tmp_path, suffix, horizon):
    write(tmp_path / f"b{suffix}")
    bandit = Bandit.of_file(tmp_path / f"b{suffix}", BOUNDS | {"horizon": horizon})
    assert (bandit.units, bandit.people, bandit.facts.horizon) == (4, "named", horizon)
    whole = bandit.batch(0, 4, second)
    # first visits of x, y, z, w in this order; y's third visit is beyond the horizon
    np.testing.assert_array_equal(whole.observations[:, 0, 0], [0, 1, 4, 6])
    np.testing.assert_allclose(whole.rewards[:, 0], [0.9, 0.8, 0.5, 0.3], rtol=1e-6)
    assert list(whole.length) == ([1, 1, 1, 1] if horizon == 1 else [2, 2, 1, 1])
    if horizon == 2:
        np.testing.assert_array_equal(whole.observations[:, 1, 0], [2, 5, 0, 0])
        np.testing.assert_allclose(whole.rewards[:, 1], [0.7, 0.4, 0.0, 0.0], rtol=1e-6)
    # batches are pieces of the same, filled up with empty places; everybody has one, however many are declared
    last = bandit.batch(3, 3, second)
    assert list(last.length) == [1, 1, 0]
    assert bandit.count() == 5
    np.testing.assert_array_equal(last.observations[0], whole.observations[3])


def test_without_names_every_row_is_a_user():
    bandit = Bandit.of_arrays(*rows(), BOUNDS | {"units": 20})
    assert bandit.people == "unnamed"
    found = bandit.batch(0, 20, second)
    assert list(found.length) == [1] * 9 + [0] * 11
    np.testing.assert_array_equal(found.observations[:9, 0, 0], np.arange(9))


def test_nobody_has_a_row_without_a_name():
    people = ["x", None, 3, float("nan"), "", 3, "y", 2.5, "x"]
    found = Bandit.of_arrays(*rows(), BOUNDS, people).batch(0, 4, second)
    np.testing.assert_array_equal(found.observations[:, 0, 0], [0, 2, 6, 7])


def test_one_person_moves_nobody_else(tmp_path):
    """What y did may be anything; every other place is as it was."""
    observations, rewards = rows()
    whole = Bandit.of_arrays(observations, rewards, BOUNDS | {"horizon": 2}, PEOPLE)
    mine = np.array([p == "y" for p in PEOPLE])
    broken = observations.copy(), rewards.copy()
    broken[0][mine], broken[1][mine] = np.nan, 1e300
    other = Bandit.of_arrays(*broken, BOUNDS | {"horizon": 2}, PEOPLE)
    a, b = whole.batch(0, 5, second), other.batch(0, 5, second)
    assert (a.length[1], b.length[1]) == (2, 0)
    for one, two in zip(a, b, strict=True):
        np.testing.assert_array_equal(np.delete(one, 1, axis=0), np.delete(two, 1, axis=0))


def test_cells_are_clamped_and_what_is_no_number_is_no_answer():
    seen = np.array([[50.0, -9.0], [1.0, np.nan], [2.0, 0.0], [3.0, 0.0]])
    paid = np.array([[5.0, -5.0], [0.5, 0.5], [np.inf, 0.5], [0.25, 0.5]])
    found = Bandit.of_arrays(seen, paid, BOUNDS).batch(0, 4, second)
    np.testing.assert_array_equal(found.observations[0, 0], [10.0, -1.0])
    assert found.rewards[0, 0] == 0.0
    assert list(found.length) == [1, 0, 0, 1]


def test_the_rows_are_read_when_the_first_batch_is_asked_for(tmp_path):
    path = tmp_path / "b.csv"
    write(path)
    bandit = Bandit.of_file(path, BOUNDS)
    path.unlink()
    with pytest.raises(DprlError, match=r"'b.csv' is damaged"):
        bandit.batch(0, 1, second)


@pytest.mark.parametrize(
    ("header", "bounds", "words"),
    [
        ("observation_0,reward_0,reward_1", {}, "needs columns observation_0 to observation_1"),
        ("observation_0,observation_1,reward_0", {}, "needs columns reward_0 to reward_1"),
        ("observation_0,observation_1,reward_0,reward_1,reward_2", {}, "no other rewards"),
        ("observation_0,observation_0,observation_1,reward_0,reward_1", {}, "more than one column 'observation_0'"),
        ("777123,777123", {}, "needs columns observation_0 to observation_1"),  # which may be a row: it is not quoted
        ("a", {"actions": None, "action": [[0, 1]]}, "discrete actions"),
        ("a", {"units": None}, "units is missing"),
    ],
)
def test_what_is_refused(tmp_path, header, bounds, words):
    (tmp_path / "b.csv").write_text(header + "\n")
    stated = {name: value for name, value in (BOUNDS | bounds).items() if value is not None}
    with pytest.raises(DprlError, match=words):
        Bandit.of_file(tmp_path / "b.csv", stated)


def test_more_that_is_refused(tmp_path):
    with pytest.raises(DprlError, match="no log file"):
        Bandit.of_file(tmp_path / "absent.csv", BOUNDS)
    with pytest.raises(DprlError, match="Public bounds are missing"):
        Bandit.of_file(tmp_path / "absent.csv", None)
    pq.write_table(pa.table({"observation_0": ["a"], "observation_1": [1.0], "reward_0": [1], "reward_1": [1]}),
                   tmp_path / "b.parquet")  # fmt: skip
    with pytest.raises(DprlError, match="'observation_0' has type string"):
        Bandit.of_file(tmp_path / "b.parquet", BOUNDS)
    with pytest.raises(DprlError, match=r"observations \(rows, 2\)"):
        Bandit.of_arrays(np.zeros((3, 1)), np.zeros((3, 2)), BOUNDS)
    with pytest.raises(DprlError, match="one person for each row"):
        Bandit.of_arrays(np.zeros((3, 2)), np.zeros((3, 2)), BOUNDS, ["a"])
    known = Bounds(units=4, horizon=1, reward=(0.0, 1.0), observation=((0.0, 1.0),), actions=2, max_importance_ratio=1)
    assert Bandit.of_arrays(np.zeros((3, 1)), np.zeros((3, 2)), known).facts.horizon == 1


def test_the_simulator_pays_what_it_says():
    bandit = LinearBandit(arms=3, size=2, noise=0.05)
    keys = jax.random.split(jax.random.key(0), 4000)
    states = jax.jit(jax.vmap(bandit.reset))(keys)
    step = jax.jit(jax.vmap(bandit.step))
    mean = np.clip(bandit.mean_rewards(states), 0.0, 1.0)
    for arm in range(3):
        _, paid, over = step(keys, states, np.full(4000, arm))
        assert over.all()
        assert float(np.mean(np.asarray(paid) - mean[:, arm])) == pytest.approx(0.0, abs=0.005)
    low, high = np.array(bandit.observation_bounds).T
    assert ((low <= states) & (states <= high)).all()
    assert len({tuple(np.argmax(mean, axis=1) == a) for a in range(3)}) == 3


def test_values_in_place_of_missing_ones_are_refused():
    with pytest.raises(DprlError, match=r"^bounds: fill is for logs that are evaluated"):
        Bandit.of_arrays(*rows(), BOUNDS | {"fill": {0: 0.0}})


def test_a_cell_of_an_array_that_is_no_number_is_its_persons_alone():
    """It was quoted in what NumPy raised."""
    bounds = {"units": 3, "reward": [0.0, 1.0], "observation": [[0.0, 9.0]], "actions": 2}
    paid = [[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]]
    expected = Bandit.of_arrays([[1.0], [np.nan], [3.0]], paid, bounds).entering()
    for odd in (["HIV+"], [2.0, 3.0], [None], {}):
        found = Bandit.of_arrays([[1.0], odd, [3.0]], paid, bounds).entering()
        assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
