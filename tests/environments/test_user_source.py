"""Where users come from, by name; and users of Gymnasium, who are asked on the host."""

from __future__ import annotations

import numpy as np
import pytest

from dprl.environments.bandit import Bandit
from dprl.environments.cart_pole import CartPole
from dprl.environments.learning_source import SIMULATORS_OF_PEOPLE, GymnasiumPeople, open_people
from dprl.errors import DprlError

CART_POLE = {
    "units": 1, "horizon": 12, "reward": (0.0, 1.0), "actions": 2,
    "observation": ((-2.4, 2.4), (-3.0, 3.0), (-0.01, 0.01), (-3.0, 3.0)),
}  # fmt: skip


@pytest.mark.parametrize("name", SIMULATORS_OF_PEOPLE)
def test_simulators_by_name(name):
    facts, simulator = open_people(name)
    assert facts.name == name
    assert facts.observation == simulator.observation_bounds
    assert (facts.horizon, facts.reward_bounds) == (simulator.horizon, simulator.reward_bounds)
    assert facts.discount >= 0.98  # returns are cut by the discount of learning alone
    assert (facts.action is None) == (name != "pendulum")
    assert facts.actions == (0 if facts.action is not None else simulator.actions)


def test_other_spellings_and_files(tmp_path):
    assert open_people("cartpole")[1] == CartPole(horizon=500, discount=0.99)
    (tmp_path / "b.csv").write_text("observation_0,reward_0,reward_1\n0,1,0\n")
    bounds = {"units": 3, "observation": [[0, 1]], "reward": [0, 1], "actions": 2}
    facts, bandit = open_people(f"bandit:{tmp_path / 'b.csv'}", bounds)
    assert isinstance(bandit, Bandit)
    assert (facts.name, bandit.units, facts.discount) == ("bandit:b.csv", 3, 0.0)  # where the file lies is nobody's


@pytest.mark.parametrize(
    ("name", "bounds", "words"),
    [
        ("walk", None, "Unknown environment 'walk': use acrobot, cart-pole, .* bandit:FILE or gymnasium:ID"),
        ("bandit:", None, "Unknown environment 'bandit:'"),
        ("acrobot", CART_POLE, "leave --bounds out"),
        ("gymnasium:CartPole-v1", None, "bounds are missing"),
    ],
)
def test_what_is_refused(name, bounds, words):
    with pytest.raises(DprlError, match=words):
        open_people(name, bounds)


def test_users_of_gymnasium():
    pytest.importorskip("gymnasium")
    facts, users = open_people("gymnasium:CartPole-v1", CART_POLE, seed=4)
    assert isinstance(users, GymnasiumPeople)
    asked = []

    def act(observations: np.ndarray, places: np.ndarray, turns: np.ndarray) -> np.ndarray:
        assert len(observations) == len(places) == len(turns)
        asked.append(len(observations))
        return np.ones(len(observations), np.int32)

    found = users.batch(0, 5, act)
    assert asked[0] == 5  # side by side
    assert len(asked) == found.length.max()
    # pushed to one side the pole falls within ten steps; nobody is cut
    assert ((found.length >= 7) & (found.length <= 11)).all()
    assert found.terminated.all()
    assert (np.abs(found.observations) <= np.array(facts.observation)[:, 1].astype(np.float32)).all()
    assert (found.rewards.sum(axis=1) == found.length).all()
    # an episode depends on its place alone
    other = open_people("gymnasium:CartPole-v1", CART_POLE, seed=4)[1].batch(3, 2, act)
    for one, two in zip(found, other, strict=True):
        np.testing.assert_array_equal(one[3:5], two)
    short = CART_POLE | {"horizon": 4}
    cut = open_people("gymnasium:CartPole-v1", short)[1].batch(0, 2, act)
    assert list(cut.length) == [4, 4]
    assert not cut.terminated.any()
    users.close()
