"""Learning from simulators and Gymnasium as a release; test_train_policy.py has what all releases of a policy share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dprl
from dprl.accounting.verification import verify
from dprl.environments.bandit import LinearBandit

from .test_train_policy import BUDGET, RELATION, train


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "options"),
    [
        ("linear-bandit", {"noise": "independent", "release": "uniform", "relation": "replace-one"}),
        ("pendulum", {"release": "average", "users": 40, "steps": 2}),
        (LinearBandit(arms=2, size=3), {"interactions": 2, "natural": True, "noise": "banded:2"}),
    ],
)
def test_simulators(tmp_path, environment, options):
    release = train(environment, **options)
    release.save(tmp_path / "p")
    found = verify(tmp_path / "p")
    assert found.private
    assert found.content["neighbouring_relation"] == ("replace one" if "relation" in options else RELATION)
    if not isinstance(environment, str):  # who stands behind it is not known here
        assert (release.training["returns"], release.training["curve"]) == (None, None)
        release = train(environment, simulated=True, **options)
        release.save(tmp_path / "s")
    training = release.training
    assert set(training["returns"]) == {"learned", "learned, likeliest actions", "before learning"}
    assert training["curve"]["users"][-1] == training["users"]
    folder = tmp_path / ("p" if isinstance(environment, str) else "s")
    page = (folder / "report.html").read_text()
    assert "public simulator" in page
    assert ("mean action" in page) == (environment == "pendulum")
    again: Any = dprl.load_policy(str(folder))
    states = np.zeros((3, len(training["environment"]["observation"])))
    np.testing.assert_array_equal(again.greedy(states), release.policy.greedy(states))
    assert again.sample(states, 1).shape == again.greedy(states).shape


@pytest.mark.slow
def test_cart_pole_is_learned():
    """2,000 people at epsilon 1."""
    release = dprl.train("cartpole", BUDGET, algorithm=dprl.DPPG(users=2000))
    assert release.training["status"] == "verified"
    assert release.training["returns"]["learned, likeliest actions"] >= 475.0


@pytest.mark.slow
def test_gymnasium(tmp_path):
    pytest.importorskip("gymnasium")
    bounds = {
        "units": 60, "horizon": 40, "reward": (0.0, 1.0), "actions": 2,
        "observation": ((-2.4, 2.4), (-3.0, 3.0), (-0.21, 0.21), (-3.0, 3.0)),
    }  # fmt: skip
    release = train("gymnasium:CartPole-v1", bounds=bounds)
    release.save(tmp_path / "p")
    assert verify(tmp_path / "p").private
    first, second = (train("gymnasium:CartPole-v1", bounds=bounds, seed=2) for _ in range(2))
    np.testing.assert_array_equal(first.policy.theta, second.policy.theta)
    with pytest.raises(dprl.DprlError, match="has 2 discrete actions"):
        train("gymnasium:CartPole-v1", bounds=bounds | {"actions": 3})
    with pytest.raises(dprl.DprlError, match="lists 1 components"):
        train("gymnasium:CartPole-v1", bounds=bounds | {"observation": [[0, 1]]})
