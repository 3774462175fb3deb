"""Neighbouring reward functions: their words, and how far apart a kernel sees them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.accounting.reward_relation import (
    RewardRelation,
    answer_step,
    default_decay,
    kernel_norm,
    parse_relation,
    path_delta,
    path_sensitivity,
)
from dprl.errors import DprlError

POSITIVE = st.floats(1e-300, 1e300)


@settings(deadline=None, max_examples=50)
@given(POSITIVE, st.none() | POSITIVE, st.booleans(), st.booleans())
def test_words_say_the_relation_and_nothing_else_does(radius, lipschitz, of_state, mixed):
    relation = RewardRelation(radius, lipschitz, of_state, mixed and lipschitz is not None)
    words = relation.words()
    assert parse_relation(words) == relation
    assert repr(radius) in words
    assert lipschitz is None or repr(lipschitz) in words
    assert parse_relation(relation.earlier_words()) == relation
    says = "of the state in which the action is taken" in words
    assert says == (lipschitz is not None)  # what the proof of a path needs
    for other in (words + " ", words.upper(), words.replace("at most", "at  most"), words.replace("apart", "")):
        assert parse_relation(other) is None


@pytest.mark.parametrize(
    "text",
    [
        "reward functions at most 1 apart",  # not how a float is written
        "reward functions at most inf apart",
        "reward functions at most -1.0 apart",
        "reward functions at most 1.0.0 apart",
        "reward functions at most 1.0 apart, whose difference has Lipschitz constant at most 4.00 over the scaled "
        "observation",
        "reward functions at most 1.0 apart, whose difference has mixed derivatives of order k at most 2.0 (4.0/1.0)^k "
        "over the scaled observation",
        "reward functions at most 1.0 apart, whose difference has mixed derivatives of order k at most 1.0 (4.0/2.0)^k "
        "over the scaled observation",
        "add or remove one",
    ],
)
def test_other_words_are_no_relation(text):
    assert parse_relation(text) is None


@pytest.mark.parametrize("arguments", [(0.0,), (math.inf,), (math.nan,), (1.0, -1.0), (1.0, 0.0), (1.0, None, 0, 1)])
def test_a_relation_that_is_none_is_refused(arguments):
    with pytest.raises(DprlError):
        RewardRelation(*arguments)


def dense_norm(x: np.ndarray, f: np.ndarray, decay: float) -> float:
    return math.sqrt(f @ np.linalg.solve(np.exp(-decay * np.abs(x[:, None] - x)), f))


def test_the_norm_is_the_supremum_of_what_a_dense_kernel_says():
    rng = np.random.default_rng(0)
    for radius, slope, decay in ((1.0, 4.0, 1.0), (1.0, 4.0, 4.0), (0.5, 0.1, 1.0), (2.0, 60.0, 20.0)):
        bound = kernel_norm(radius, slope, decay)
        for _ in range(75):
            x = np.sort(rng.random(rng.integers(1, 40)))
            if np.diff(x).min(initial=1.0) < 1e-6:
                continue
            # as steep as allowed from a random point to the next, half of them upwards, never out of the radius
            f = np.cumsum(np.r_[rng.uniform(-radius, radius), slope * np.diff(x) * rng.choice([-1, 1], len(x) - 1)])
            f = radius - np.abs((f - radius) % (4.0 * radius) - 2.0 * radius)
            assert np.all(np.abs(f) <= radius)
            assert np.all(np.abs(np.diff(f)) <= slope * np.diff(x) + 1e-12)
            assert dense_norm(x, f, decay) <= bound * (1.0 + 1e-9)
        x = np.linspace(0.0, 1.0, 513)
        sawtooth_reward = np.where(np.arange(513) % 2 == 0, radius, radius - slope / 512)
        assert dense_norm(x, sawtooth_reward, decay) >= 0.99 * bound
    assert kernel_norm(1.0, 4.0, 4.0) == pytest.approx(math.sqrt(1.0 + 4.0))
    assert path_sensitivity(1.0, 4.0, 4.0, 3) == pytest.approx(math.sqrt(15.0))


def test_the_default_decay_makes_the_norm_smallest():
    for slope in (1.0, 4.0, 30.0):
        best = kernel_norm(1.0, slope, default_decay(1.0, slope))
        assert best == pytest.approx(math.sqrt(1.0 + slope))
        for decay in np.geomspace(0.1, 1e4, 60):
            assert kernel_norm(1.0, slope, float(decay)) >= best - 1e-12
    assert default_decay(1.0, 0.01) == 1.0
    assert default_decay(1.0, 1e9) == 2.0**16


@pytest.mark.parametrize("dimensions", [2, 3])
def test_several_dimensions_against_a_dense_kernel(dimensions):
    """Products of steep functions have bounded mixed derivatives; what is merely Lipschitz has no norm at all."""
    points, decay, slope = (33, 13)[dimensions - 2], 4.0, 4.0
    x = np.linspace(0.0, 1.0, points)
    inverse = np.linalg.inv(np.exp(-decay * np.abs(x[:, None] - x)))

    def norm(f: np.ndarray) -> float:
        g = f
        for _ in range(dimensions):
            g = np.tensordot(g, inverse, axes=(0, 0))
        return math.sqrt(np.sum(f * g))

    bound = kernel_norm(1.0, slope, decay, dimensions)
    assert bound == pytest.approx((1.0 + slope) ** (dimensions / 2))
    tooth = np.where(np.arange(points) % 2 == 0, 1.0, 1.0 - slope / (points - 1))
    found = norm(np.multiply.outer(tooth, tooth) if dimensions == 2 else np.einsum("i,j,k", tooth, tooth, tooth))
    assert 0.8 * bound <= found <= bound
    # alone the corner is as large as all of it
    assert norm(np.ones((points,) * dimensions)) <= bound


def test_a_kink_along_the_diagonal_grows_with_the_grid():
    def norm(points: int) -> float:
        x = np.linspace(0.0, 1.0, points)
        inverse = np.linalg.inv(np.exp(-2.0 * np.abs(x[:, None] - x)))
        kink = np.abs(x[:, None] - x)
        return float(np.sum(kink * (inverse @ kink @ inverse)))

    assert norm(129) / norm(65) > 1.8
    assert norm(65) / norm(33) > 1.7


def test_first_observations_of_cells_stay_within_the_spread():
    """Cells of width h, all next to each other and far apart; the first observation lies anywhere in its cell."""
    rng = np.random.default_rng(1)
    decay = slope = 4.0
    worst = 0.0
    for bits, count in ((6, 65), (8, 257), (8, 60)):
        h = 2.0**-bits
        cells = np.sort(rng.choice(2**bits + 1, count, replace=False)) * h
        found = [cells + rng.uniform(-h / 2, h / 2, count) for _ in range(3)]
        found.append(cells + h / 2 * np.where(np.arange(count) % 2 == 0, -1, 1))  # as far apart as can be
        bound = kernel_norm(1.0, slope, decay, spread=3 * count * h)
        for x in found:
            # a tooth an observation, of the slope that is allowed
            f = np.empty(count)
            f[0] = 1.0
            for i in range(1, count):
                change = slope * abs(x[i] - x[i - 1])
                f[i] = f[i - 1] - change if f[i - 1] - change >= -1.0 and i % 2 else min(f[i - 1] + change, 1.0)
            norm = dense_norm(cells, f, decay)
            assert norm <= bound
            worst = max(worst, norm / kernel_norm(1.0, slope, decay))
    assert worst > 1.1  # without the spread they would not


def test_what_has_no_proof_is_refused():
    with pytest.raises(DprlError, match="1 to 3 components"):
        kernel_norm(1.0, 1.0, 1.0, dimensions=4)
    with pytest.raises(DprlError, match="one dimension"):
        kernel_norm(1.0, 1.0, 1.0, dimensions=2, spread=0.1)
    for arguments in ((0.0, 1.0, 1.0), (1.0, math.inf, 1.0), (1.0, 1.0, 0.0), (1.0, -1.0, 1.0)):
        with pytest.raises(DprlError):
            kernel_norm(*arguments)
    with pytest.raises(DprlError, match="path"):
        path_sensitivity(1.0, 1.0, 1.0, 0)


def test_delta_of_finite_precision_is_small_and_moves_the_right_way():
    base = {"epsilon": 0.9, "answers": 5000, "std": 1.0, "decay": 4.0, "dimensions": 1, "largest_reward": 0.5}
    delta = path_delta(**base)
    # 2.6e-6: by hand, from the formula of the proof
    error, least = 2.0**-42 + 2.0**-53, math.sqrt(math.tanh(2.0**-18))
    crossing = 2 * error * (128 + 1 / (math.sqrt(2 * math.pi) * least))
    assert delta == pytest.approx((1 + math.exp(0.9)) * 5000 * (crossing + 45 * 2.0**-49), rel=1e-12)
    for name, value in (("epsilon", 1.0), ("answers", 5001), ("largest_reward", 1.0), ("dimensions", 2)):
        assert path_delta(**{**base, name: value}) > delta
    for name, value in (("decay", 5.0), ("std", 2.0)):
        assert path_delta(**{**base, name: value}) < delta
    assert path_delta(**{**base, "std": 8.0, "largest_reward": 4.0}) == pytest.approx(delta, rel=1e-12)


@pytest.mark.parametrize("std", [1.0, 0.078, 1.999, 1e-9, 3e7])
def test_the_step_of_answers_is_a_power_of_two_far_below_the_noise(std):
    step = answer_step(std)
    assert math.frexp(step)[0] == 0.5
    assert std / 256 < step <= std / 128
