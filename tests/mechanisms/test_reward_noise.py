"""Noise on observed rewards and on reward gradients: sensitivities in exact arithmetic, draws, refusals."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dprl.accounting import events
from dprl.errors import DprlError
from dprl.mechanisms.arithmetic import grid_step
from dprl.mechanisms.noise import SecureNoise, SeededNoise
from dprl.mechanisms.reward_noise import DrawnAnswers, GradientAnswers, MemoisedAnswers, RewardGradient, RewardNoise

SOURCES = [SeededNoise.from_seed(3), SecureNoise(b"r" * 32)]


def rewards(**changes):
    given = {"radius": 0.01, "steps": 60, "batch": 20, "reward_bounds": (-0.25, 0.5), "noise_multiplier": 7.0}
    return RewardNoise(**{**given, **changes})


def gradient(**changes):
    given = {
        "radius": 0.01, "clip_norm": 2.0, "dimension": 6, "steps": 3, "batch": 20, "reward_bounds": (-0.25, 0.5),
        "noise_multiplier": 7.0,
    }  # fmt: skip
    return RewardGradient(**{**given, **changes})


def silent(answers):
    """The same answers without noise."""
    return type(answers)(**{**vars(answers), "draws": np.zeros_like(answers.draws)})


@pytest.mark.parametrize("radius", [0.01, 1.0, 1 / 3, 7e-9, 2.0**20])
def test_two_rewards_within_the_radius_are_within_the_sensitivity_on_the_grid(radius):
    """All of it in exact arithmetic: floors of neighbours, at their furthest and near multiples of the grid."""
    noise = rewards(radius=radius, reward_bounds=(-50.0 * radius, 50.0 * radius))
    answers, step = silent(noise.bind(SOURCES[0])), grid_step(radius)
    assert isinstance(answers, DrawnAnswers)
    rng = np.random.default_rng(0)
    one = rng.uniform(-49.0, 49.0, 20) * radius
    one[::2] = np.round(one[::2] / step) * step  # on the grid: any smaller reward falls a point lower
    other = one + rng.choice([-1.0, 1.0], 20) * radius * np.where(rng.random(20) < 0.8, 1.0, rng.random(20))
    near = [abs(Fraction(a) - Fraction(b)) <= Fraction(radius) for a, b in zip(one, other, strict=True)]
    a, b = (np.asarray(answers.add_noise(x, None, None, 0)) for x in (one, other))
    steps = [abs(Fraction(x) - Fraction(y)) / Fraction(step) for x, y in zip(a, b, strict=True)]
    allowed = math.ceil(Fraction(radius) / Fraction(step))
    assert sum(near) >= 5
    assert all(s <= allowed for s, ok in zip(steps, near, strict=True) if ok)
    assert max(s for s, ok in zip(steps, near, strict=True) if ok) >= allowed - 1
    assert Fraction(noise.sensitivity) == allowed * Fraction(step)
    assert noise.sensitivity >= radius
    assert np.all(np.abs(a - one) < step)


@pytest.mark.parametrize("source", SOURCES)
def test_every_reward_has_a_draw_of_its_own(source):
    noise = rewards()
    answers = noise.bind(source)
    assert answers.draws.shape == (3, 20)
    drawn = np.concatenate([np.asarray(answers.add_noise(np.zeros(20), None, None, j)) for j in range(3)])
    assert len(np.unique(drawn)) == 60
    assert 0.6 < np.std(drawn) / noise.std < 1.5
    assert np.std(drawn / 60) / noise.std < 0.6
    assert noise.event() == events.poisson_gaussian(1.0, 7.0, 60)
    assert noise.delta(0.9) == events.sampler_delta(0.9, 60)
    assert noise.describe("rewards")["steps"] * noise.describe("rewards")["dimension"] == 60


def test_rewards_out_of_bounds_are_moved_and_no_numbers_are_the_lower_bound():
    answers = silent(rewards(batch=4).bind(SOURCES[0]))
    found = np.asarray(answers.add_noise(np.array([math.inf, -math.inf, math.nan, 9.0]), None, None, 0))
    np.testing.assert_allclose(found, [0.5, -0.25, -0.25, 0.5], atol=1e-11)


def test_a_pair_of_state_and_action_is_paid_for_once():
    mechanism = rewards(steps=2, batch=3, rounds=3)
    memo = mechanism.bind(SOURCES[0])
    assert isinstance(memo, MemoisedAnswers)
    first = memo.add_noise(np.array([0.1, 0.1, 0.1]), [[1], [1], [2]], [0, 0, 0], 0)
    assert first[0] == first[1] != first[2]
    np.testing.assert_array_equal(
        memo.add_noise(np.array([0.1, 0.1, 0.1]), [[2], [1], [1]], [0, 0, 0], 1), first[[2, 0, 0]]
    )
    with pytest.raises(DprlError, match="charged"):
        memo.add_noise(np.array([0.1, 0.1, 0.1]), [[2], [1], [1]], [0, 0, 1], 2)


def test_no_more_rewards_are_noisy_than_are_charged_for():
    """Rounds are drawn as a whole: without a memo a broken one would give more answers than there are steps."""
    with pytest.raises(DprlError, match="whole rounds"):
        rewards(steps=5, batch=3)
    assert rewards(steps=6, batch=3).bind(SOURCES[0]).draws.size == 6


def test_all_rewards_of_a_batch_may_differ():
    """C, not C over the batch: features that agree, rewards that all move."""
    mechanism = gradient()
    answers = silent(mechanism.bind(SOURCES[0]))
    assert isinstance(answers, GradientAnswers)
    phi = np.tile(np.array([3.0, 4.0, 0, 0, 0, 0]), (20, 1))
    one = np.random.default_rng(0).uniform(-0.2, 0.4, 20)
    moved = np.asarray(answers.noisy_mean(one + 0.01, phi, 0)) - np.asarray(answers.noisy_mean(one, phi, 0))
    np.testing.assert_allclose(moved, 0.01 * 2.0 * np.array([0.6, 0.8, 0, 0, 0, 0]), atol=1e-10)
    norm = math.sqrt(sum(Fraction(float(x)) ** 2 for x in moved))
    assert 0.999 * mechanism.sensitivity <= norm <= mechanism.sensitivity
    assert mechanism.sensitivity == pytest.approx(0.02, rel=1e-5)


def test_the_sensitivity_covers_what_rounding_adds():
    """As wide bounds as are allowed for a radius: sums in float64, then the grid, against exact fractions."""
    mechanism = gradient(radius=2.0**-20, reward_bounds=(-40.0, 44.0), dimension=40, clip_norm=1.0)
    answers = silent(mechanism.bind(SOURCES[0]))
    rng = np.random.default_rng(1)
    for _ in range(4):
        phi = rng.normal(size=(20, 40))
        one = rng.choice([-40.0, 43.9], 20) + rng.random(20)
        one = np.minimum(one, 43.99)
        other = one + 2.0**-20 * rng.choice([-1, 1])
        a, b = (np.asarray(answers.noisy_mean(x, phi, 0)) for x in (one, other))
        exact = np.asarray(answers.clip(phi)).mean(0) * abs(other - one).max()
        norm = math.sqrt(sum((Fraction(x) - Fraction(y)) ** 2 for x, y in zip(a, b, strict=True)))
        assert norm <= np.linalg.norm(exact) + 2.0**-21 * mechanism.sensitivity
        lengths = [sum(Fraction(x) ** 2 for x in row) for row in np.asarray(answers.clip(phi)).tolist()]
        assert max(lengths) <= 1


@pytest.mark.parametrize("source", SOURCES)
def test_every_gradient_has_a_draw_of_its_own(source):
    mechanism = gradient()
    answers = mechanism.bind(source)
    drawn = np.concatenate(
        [np.asarray(answers.noisy_mean(np.full(20, answers.centre), np.ones((20, 6)), j)) for j in range(3)]
    )
    assert len(np.unique(drawn)) == 18
    assert 0.5 < np.std(drawn) / mechanism.std < 1.7
    assert mechanism.event() == events.poisson_gaussian(1.0, 7.0, 3)
    assert mechanism.delta(0.9) == events.sampler_delta(0.9, 18)
    features = np.array([[np.nan, 1, 0, 0, 0, 0], [np.inf, 0, 0, 0, 0, 0], [0.1, 0, 0, 0, 0, 0]])
    np.testing.assert_array_equal(np.asarray(answers.clip(features)), [[0] * 6, [0] * 6, [0.1, 0, 0, 0, 0, 0]])


@pytest.mark.parametrize(
    ("make", "changes", "message"),
    [
        (rewards, {"steps": 0}, "at least 1"),
        (rewards, {"noise_multiplier": 1e-3}, "multiplier"),
        (rewards, {"radius": 1e-30}, "too wide"),
        (rewards, {"radius": -1.0}, "between"),
        (rewards, {"reward_bounds": (1.0, 1.0)}, "bounds"),
        (gradient, {"radius": 1e-9}, "too wide"),
        (gradient, {"dimension": 2**17}, "coordinates"),
        (gradient, {"clip_norm": 0.0}, "clip norm"),
        (gradient, {"batch": 0}, "at least 1"),
        (gradient, {"noise_multiplier": math.inf}, "multiplier"),
    ],
)
def test_what_has_no_proof_is_refused(make, changes, message):
    with pytest.raises(DprlError, match=message):
        make(**changes)


@pytest.mark.parametrize("source", SOURCES, ids=["seeded", "secure"])
@pytest.mark.parametrize("batch", [1, 3])
def test_what_binds_all_steps_draws_those_of_one_after_the_other(source, batch):
    """Also where a round has one reward, and so one number."""
    mechanism = rewards(steps=4 * batch, batch=batch)
    bound, stream = mechanism.bind(source.stream("reward")), source.stream("reward")
    std = mechanism.std / float(bound.step)
    assert bound.draws.shape == (4, batch)
    for step in range(4):
        np.testing.assert_array_equal(bound.draws[step], stream.gaussian(np.uint32(step), batch, std))
