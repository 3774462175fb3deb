from __future__ import annotations

import numpy as np
import pytest

from dprl.errors import DprlError
from dprl_papers.harness.dqn import initial_weights, learn_dqn, q_values

DISCOUNT, LENGTH = 0.8, 3


class Corridor:
    """Action 1 goes on, action 0 stays; the last step pays 1 and ends."""

    def begin(self):
        self.place = 0
        return np.eye(LENGTH, dtype=np.float32)[0]

    def step(self, action):
        self.place += action
        over = self.place == LENGTH
        return np.eye(LENGTH, dtype=np.float32)[0 if over else self.place], float(over), over


@pytest.mark.slow
def test_a_network_finds_the_best_values():
    weights = learn_dqn(
        [Corridor() for _ in range(4)],
        2,
        0,
        steps=12_000,
        discount=DISCOUNT,
        hidden=16,
        step_size=3e-3,
        batch=32,
        memory=4_000,
        warm_up=200,
        target_every=100,
        exploration=0.3,
        explore_steps=2_000,
    )
    best = DISCOUNT ** np.arange(LENGTH - 1, -1, -1.0)
    expected = np.stack([DISCOUNT * best, best], axis=1)
    np.testing.assert_allclose(q_values(weights, np.eye(LENGTH, dtype=np.float32)), expected, atol=0.03)


def test_a_network_that_diverges_is_refused():
    with pytest.raises(DprlError, match="diverged"):
        learn_dqn([Corridor()], 2, 0, steps=600, hidden=4, step_size=1e30, warm_up=100)


def test_values_are_those_of_the_layers():
    weights = {name: part + 0.1 for name, part in initial_weights(5, 7, 3, 0).items()}
    states = np.random.default_rng(1).normal(size=(11, 5))
    hidden = np.maximum(states @ weights["w1"] + weights["b1"], 0)
    hidden = np.maximum(hidden @ weights["w2"] + weights["b2"], 0)
    np.testing.assert_allclose(q_values(weights, states), hidden @ weights["w3"] + weights["b3"], rtol=1e-12)
