"""The mechanism on a whole function: what it claims, what it answers, and what it refuses."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dprl.accounting import events
from dprl.accounting.reward_relation import path_delta, path_sensitivity
from dprl.errors import DprlError
from dprl.mechanisms.function_noise import FunctionNoise
from dprl.mechanisms.noise import SecureNoise, SeededNoise
from dprl.mechanisms.ornstein_uhlenbeck import unit_path
from dprl.mechanisms.reward_noise import NOWHERE, MemoisedAnswers


def mechanism(**changes):
    given = {
        "sup": 0.01, "lipschitz": 0.04, "decay": 4.0, "paths": 2, "answers": 5000, "reward_bounds": (0.0, 0.5),
        "noise_multiplier": 3.5,
    }  # fmt: skip
    return FunctionNoise(**{**given, **changes})


def test_all_paths_are_paid_for_and_the_noise_is_that_of_the_event():
    one, two = mechanism(paths=1), mechanism()
    assert two.sensitivity == pytest.approx(math.sqrt(2.0) * 0.01 * math.sqrt(5.0))
    assert two.std == pytest.approx(3.5 * two.sensitivity)
    assert two.std == pytest.approx(math.sqrt(2.0) * one.std)
    assert two.event() == events.gaussian(3.5)
    path = two.bind(SeededNoise.from_seed(0)).parameters
    assert float(path.std) == two.std
    assert float(path.step) == two.grid_step
    said = two.describe("rewards")
    recomputed = path_sensitivity(*(said[n] for n in ("sup", "lipschitz", "decay", "paths", "dimensions", "spread")))
    assert said["sensitivity"] == recomputed
    assert (said["noise_multiplier"], said["steps"], said["dimension"]) == (3.5, 1, 5000)
    assert two.delta(0.9) == path_delta(0.9, 5000, two.std, 4.0, 1, 0.5)
    off = mechanism(on_grid=False)
    assert off.spread == 3 * 5000 * 2.0**-20
    assert off.sensitivity > two.sensitivity


@pytest.mark.parametrize(
    "source", [SeededNoise.from_seed(4), pytest.param(SecureNoise(b"f" * 32), marks=pytest.mark.slow)]
)
def test_an_answer_is_the_reward_and_the_path_rounded_afterwards(source):
    two = mechanism()
    answers = two.bind(source)
    rng = np.random.default_rng(0)
    positions, actions = rng.integers(0, 2**20 + 1, (40, 1)), rng.integers(0, 2, 40)
    rewards = rng.random(40)
    found = np.asarray(answers.add_noise(rewards, positions, actions, 0))
    p = answers.parameters
    raw = rewards + two.std * np.asarray(
        jax.jit(unit_path)(answers.noise, p, jnp.asarray(positions), jnp.asarray(actions))
    )
    np.testing.assert_array_equal(found, np.round(raw / two.grid_step) * two.grid_step)
    # noise that is the same for every reward, to half a step: a reward is not rounded before
    moved = np.asarray(answers.add_noise(rewards + 0.3 * two.grid_step, positions, actions, 7))
    assert 0 < np.sum(moved != found) < 40
    other = np.asarray(answers.add_noise(rewards, positions, 1 - actions, 0))
    assert np.all(other != found)
    assert np.all(np.asarray(mechanism(paths=1).bind(source).add_noise(rewards, positions, 1 - actions, 0)) != other)


def test_one_path_is_the_same_for_every_action():
    answers = mechanism(paths=1).bind(SeededNoise.from_seed(4))
    positions, actions = np.arange(0, 4000, 100)[:, None], np.arange(40) % 2
    one, other = (np.asarray(answers.add_noise(np.zeros(40), positions, a, 0)) for a in (actions, 1 - actions))
    np.testing.assert_array_equal(one, other)


def test_what_is_no_number_and_what_is_out_of_bounds():
    two = mechanism()
    answers = two.bind(SeededNoise.from_seed(4))
    positions, actions = np.full((5, 1), 77), np.zeros(5, dtype=int)
    found = np.asarray(answers.add_noise(np.array([0.0, np.nan, np.inf, 1e9, -1e9]), positions, actions, 0))
    assert found[1] == found[2] == found[0]
    # clipped where no honest answer lies, and only after the noise is in
    np.testing.assert_allclose(found[3:], [0.5 + 12 * two.std, -12 * two.std], atol=two.grid_step)


def test_a_cell_keeps_the_answer_to_its_first_observation():
    inner = mechanism(paths=1, on_grid=False).bind(SeededNoise.from_seed(9))
    memo = MemoisedAnswers(inner, 3, shared=True)
    first = memo.add_noise(np.array([0.1, 0.4, 0.2]), np.array([[5], [5], [9]]), np.array([0, 1, 1]), 0)
    assert first[0] == first[1]
    np.testing.assert_array_equal(first, memo.add_noise(np.array([0.3, 0.0, 0.5]), [[5], [5], [9]], [1, 1, 0], 1))
    assert first[0] == float(inner.add_noise([0.1], np.array([[5]]), np.array([0]), 0)[0])
    # a path an action: the other action is another question
    apart = MemoisedAnswers(mechanism(on_grid=False).bind(SeededNoise.from_seed(9)), 3)
    answers = apart.add_noise(np.array([0.1, 0.1]), [[5], [5]], [0, 1], 0)
    assert answers[0] != answers[1]
    with pytest.raises(DprlError, match="charged"):
        apart.add_noise(np.array([0.1, 0.1]), [[6], [7]], [0, 1], 1)


class Recording:
    """Answers that remember what they were asked: what enters the mechanism."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, int]] = []

    def add_noise(self, rewards, positions, actions, round_):
        self.asked += zip(np.asarray(rewards).tolist(), np.asarray(positions)[:, 0].tolist(), strict=True)
        return np.asarray(rewards) + 1.0


def test_what_enters_a_path_is_a_function_of_the_position():
    """Whatever rewards depend on; and nothing enters for a state that is not known, where a made-up reward is steep."""
    recording = Recording()
    memo = MemoisedAnswers(recording, 3)
    where = [[4], [NOWHERE], [9]]
    np.testing.assert_array_equal(memo.add_noise(np.array([0.1, 7.0, 0.2]), where, [0, 0, 0], 0), [1.1, 0.0, 1.2])
    np.testing.assert_array_equal(
        memo.add_noise(np.array([0.3, 0.4, 0.5]), [[9], [4], [5]], [0, 0, 0], 1), [1.2, 1.1, 1.5]
    )
    np.testing.assert_array_equal(memo.add_noise(np.full(3, 9.0), [[NOWHERE]] * 3, [0, 0, 0], 2), np.zeros(3))
    assert set(recording.asked) == {(0.1, 4), (0.2, 9), (0.5, 5)}
    assert len(recording.asked) == 6  # as many as were asked for, of one shape; in the last round none


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dimensions": 2}, "mixed"),
        ({"dimensions": 2, "mixed_derivatives": True, "on_grid": False}, "grid"),
        ({"dimensions": 4, "mixed_derivatives": True}, "1 to 3"),
        ({"decay": 0.5}, "decay"),
        ({"decay": 2.0**17}, "decay"),
        ({"noise_multiplier": 1e4}, "multiplier"),
        ({"noise_multiplier": math.nan}, "multiplier"),
        ({"answers": 0}, "answers"),
        ({"reward_bounds": (0.5, 0.0)}, "bounds"),
        ({"reward_bounds": (0.0, math.inf)}, "bounds"),
        ({"sup": 0.0}, "positive"),
        ({"sup": 1e200}, "1e100"),
    ],
)
def test_what_has_no_proof_is_refused(changes, message):
    with pytest.raises(DprlError, match=message):
        mechanism(**changes)
