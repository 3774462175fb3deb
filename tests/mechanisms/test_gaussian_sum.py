"""The Gaussian sum: schedules of noise with their events and rows, and its three arithmetics side by side."""

from __future__ import annotations

import dataclasses
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dprl.accounting import events
from dprl.accounting.accountant import parts_of
from dprl.errors import DprlError
from dprl.evaluation.protected import to_levels
from dprl.mechanisms.arithmetic import grid_step
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SecureNoise, SeededNoise

# --- schedules --------------------------------------------------------------------------------------------------------

SCHEDULE = (2.0, 0.5, 2.0, 1.25)
COMMON = {"parts": ((6, 0.7),), "sampling_rate": 0.3}
SUM = GaussianSum(**COMMON, multipliers=SCHEDULE)


def test_the_event_is_every_step_with_its_own_noise():
    steps = events.compose([events.poisson_gaussian(0.3, z, 1) for z in SCHEDULE])
    assert parts_of(SUM.event()) == parts_of(steps)
    assert sum(count for _, count in SUM.noise_levels) == SUM.steps == 4
    # row by row what the event has, in its order
    assert [(r["noise_multiplier"], r["steps"]) for r in SUM.rows("a", "b")] == [(2.0, 2), (0.5, 1), (1.25, 1)]
    assert math.isclose(4 / SUM.noise_multiplier**2, sum(1 / z**2 for z in SCHEDULE))
    everybody = dataclasses.replace(SUM, sampling_rate=1.0)
    assert parts_of(everybody.event()) == ((1.0, pytest.approx(sum(1 / z**2 for z in SCHEDULE) ** -0.5), 1),)


@pytest.mark.parametrize("rate", [0.3, 1.0])
@pytest.mark.parametrize("steps", [1, 7])
def test_of_one_level_it_is_the_plain_sum(rate, steps):
    common = COMMON | {"sampling_rate": rate}
    constant = GaussianSum(**common, multipliers=(1.3,) * steps)
    plain = GaussianSum(**common, noise_multiplier=1.3, steps=steps)
    assert constant.event() == plain.event()
    assert constant.rows("a", "b") == plain.rows("a", "b")
    assert (constant.noise_std, constant.draws) == (plain.noise_std, plain.draws)
    noise = SecureNoise.fresh()
    for step in range(steps):
        assert np.array_equal(constant.draw(noise, step), plain.draw(noise, step))


def accepts(draws: np.ndarray, std: float) -> bool:
    squares = np.square(draws / std).ravel()
    return bool(1e-6 < stats.chi2.cdf(squares.sum(), squares.size) < 1.0 - 1e-6)


@pytest.mark.parametrize("source", ["secure", "seeded", "traced", "float"])
def test_each_step_draws_its_own_noise(source):
    wide = dataclasses.replace(SUM, parts=((4000, 0.7),))
    seeded, unit = SeededNoise.from_seed(11), grid_step(0.7)
    match source:
        case "secure":
            noise = SecureNoise.fresh()
            draws = [np.asarray(wide.draw(noise, step)) * unit for step in range(4)]
        case "float":
            draws = [np.asarray(wide.in_float().draw(seeded, np.uint32(step))) for step in range(4)]
        case _:
            draws = [np.asarray(wide.draw(seeded, step)) * unit for step in range(4)]
    if source == "traced":
        traced = jax.vmap(lambda step: wide.draw(seeded, step))(jnp.arange(4, dtype=jnp.uint32))
        assert np.array_equal(np.asarray(traced) * unit, draws)
    for z, draw in zip(SCHEDULE, draws, strict=True):
        assert [accepts(draw, factor * z * 0.7) for factor in (2 / 3, 1.0, 3 / 2)] == [False, True, False]
    # the same level twice is not the same noise
    assert np.mean(draws[0] == draws[2]) < 0.01


def test_what_is_released_is_the_sum_with_the_step_s_noise():
    vectors = jnp.asarray(np.random.default_rng(1).normal(size=(40, 6)))
    noise, everybody = SecureNoise.fresh(), jnp.ones(40, dtype=bool)
    total = SUM.clipped_sum(vectors, everybody)
    assert np.array_equal(total, GaussianSum(**COMMON, noise_multiplier=1.0).clipped_sum(vectors, everybody))
    for step in range(4):
        released = SUM.release(total, jnp.asarray(SUM.draw(noise, step)))
        np.testing.assert_allclose(released, SUM.scaled(total) + SUM.scaled(jnp.asarray(SUM.draw(noise, step))))


@pytest.mark.parametrize(
    ("multipliers", "sentence"),
    [
        ((), "between 1 and"),
        (tuple(1.0 + k for k in range(17)), "at most 16"),
        ((1.0, 0.0), "positive finite"),
        ((1.0, math.nan), "positive finite"),
        ((1.0, math.inf), "positive finite"),
        ((1.0, 1e-3), "between 0.004 and 2000"),
        ((1.0, 1e5), "between 0.004 and 2000"),
    ],
)
def test_schedules_that_make_no_sense(multipliers, sentence):
    with pytest.raises(DprlError, match=sentence):
        GaussianSum(**COMMON, multipliers=multipliers)


def test_levels_of_a_profile():
    profile = np.geomspace(3.0, 0.4, 50)
    for levels in (2, 5, 16):
        found = np.array(to_levels(profile, levels))
        assert len(set(found)) <= levels
        assert np.mean(1 / found**2) == pytest.approx(1.0)
        # up to a common factor every value is within half a step of the grid
        error = np.log(found / profile)
        assert np.ptp(error) <= math.log(3.0 / 0.4) / (levels - 1) + 1e-9
        assert np.all(np.diff(found) <= 0.0)
    few = np.array([2.0, 1.0, 2.0])
    np.testing.assert_allclose(np.array(to_levels(few)) / few, to_levels(few)[1])
    with pytest.raises(DprlError, match="positive finite"):
        to_levels([1.0, -1.0])


# --- arithmetics ------------------------------------------------------------------------------------------------------

EXACT = GaussianSum(parts=((5, 0.7),), noise_multiplier=1.5, sampling_rate=0.5, steps=3)


def test_it_is_the_same_sum_but_for_rounding():
    vectors = jnp.asarray(np.random.default_rng(0).normal(size=(50, 5)) * np.geomspace(0.01, 3.0, 50)[:, None])
    vectors = vectors.astype(jnp.float32).at[7].set(jnp.inf).at[8, 2].set(jnp.nan)
    noise, fast = SeededNoise.from_seed(3), EXACT.in_float()
    for step in range(3):
        included = EXACT.participation_mask(noise, step, 50)
        assert np.array_equal(included, fast.participation_mask(noise, step, 50))
        exact = EXACT.release(EXACT.clipped_sum(vectors, included), EXACT.draw(noise, step))
        rough = fast.release(fast.clipped_sum(vectors, included), fast.draw(noise, step))
        np.testing.assert_allclose(rough, exact, atol=2e-6)
    everybody = jnp.ones(50, dtype=bool)
    np.testing.assert_allclose(
        fast.clipped_sum(vectors, everybody), EXACT.scaled(EXACT.clipped_sum(vectors, everybody)), atol=2e-6
    )


def test_the_factor_multiplies_what_is_released():
    fast, slow = EXACT.in_float(3.0), EXACT.in_float()
    total, draw = jnp.arange(5.0), jnp.ones(5)
    np.testing.assert_allclose(fast.release(total, draw), 3.0 * slow.release(total, draw))
    assert (fast.dimension, fast.sampling_rate, fast.steps) == (5, 0.5, 3)


@pytest.mark.parametrize("other", [EXACT.in_float(), EXACT.plain()])
def test_only_the_exact_sum_can_be_released(other):
    assert EXACT.certifies
    assert not other.certifies
    for claim in (other.event, lambda: other.describe("a", "b"), lambda: other.rows("a", "b")):
        with pytest.raises(DprlError, match="cannot be released"):
            claim()


def test_a_plain_sum_neither_clips_nor_adds_noise():
    plain, everybody = EXACT.plain(), jnp.ones(3, dtype=bool)
    vectors = jnp.asarray(np.random.default_rng(0).normal(size=(3, 5))) * 100.0
    total = plain.clipped_sum(vectors, everybody.at[1].set(False))
    np.testing.assert_array_equal(total, vectors[0] + vectors[2])
    assert np.array_equal(plain.release(total, plain.draw(None, 0)), total)
    assert (plain.noise_std, plain.sensitivity, plain.dtype) == (0.0, math.inf, jnp.float64)
    assert (plain.dimension, plain.sampling_rate, plain.steps) == (5, 0.5, 3)


@pytest.mark.parametrize(
    "options",
    [
        {"factor": 2.0},
        {"arithmetic": "plain"},
        {"parts": ((5, math.inf),)},
        {"noise_multiplier": 0.0},
        {"multipliers": (1.0, 2.0)},
    ],
)
def test_sums_that_make_no_sense(options):
    with pytest.raises(DprlError):
        dataclasses.replace(EXACT, **options)


def test_equal_sums_share_what_is_compiled():
    traces = []

    @partial(jax.jit, static_argnums=0)
    def total(mechanism, vectors):
        traces.append(mechanism)
        return mechanism.clipped_sum(vectors, jnp.ones(len(vectors), dtype=bool))

    for _ in range(2):
        for mechanism in (EXACT, EXACT.in_float(), EXACT.plain()):
            total(dataclasses.replace(mechanism), jnp.ones((2, 5)))
    assert len(traces) == 3


RARE = GaussianSum(parts=((2, 1.0),), noise_multiplier=1.0, sampling_rate=0.002, steps=1)
UNITS, STEPS = 1000, 4000


def batches(rate: float = RARE.sampling_rate) -> tuple[np.ndarray, np.ndarray]:
    """Lists ``(STEPS, K)`` and counts ``(STEPS,)`` of many steps."""
    fast, noise = dataclasses.replace(RARE, sampling_rate=rate).in_float(), SeededNoise.from_seed(5)
    order, count = jax.vmap(lambda step: fast.members(noise, step, UNITS, 4))(jnp.arange(STEPS, dtype=jnp.uint32))
    return np.asarray(order), np.asarray(count)


def test_few_among_many_are_drawn_as_coins_would_draw_them():
    order, count = batches()
    assert order.shape[1] < 50  # a list of the heads, not of everybody
    for row, n in zip(order, count, strict=True):
        assert np.all(np.diff(row[:n]) > 0)
        assert np.all(row[n:] == UNITS)

    def fits(rate: float) -> bool:
        expected = stats.binom.pmf(np.arange(8), UNITS, rate)
        expected = STEPS * np.append(expected, 1.0 - expected.sum())
        found = np.bincount(np.minimum(count, 8), minlength=9)
        return stats.chisquare(found, expected).pvalue > 1e-6

    assert fits(RARE.sampling_rate)
    assert not fits(RARE.sampling_rate / 1.5)
    assert not fits(RARE.sampling_rate * 1.5)
    places = order[order < UNITS]
    assert stats.chisquare(np.bincount(places // 50, minlength=20)).pvalue > 1e-6
    # of one unit the next ones' coins tell nothing: neighbours meet as often as anybody
    together = np.sum(np.diff(order, axis=1)[order[:, 1:] < UNITS] == 1)
    expected = STEPS * (UNITS - 1) * RARE.sampling_rate**2
    assert abs(together - expected) < 5.0 * np.sqrt(expected)


def test_many_are_listed_from_their_coins():
    fast, noise = dataclasses.replace(RARE, sampling_rate=0.5).in_float(), SeededNoise.from_seed(1)
    order, count = fast.members(noise, 0, UNITS, 32)
    assert np.array_equal(order[:count], np.flatnonzero(fast.participation_mask(noise, 0, UNITS)))
    assert np.all(np.asarray(order[count:]) == UNITS)
    assert len(order) % 32 == 0
