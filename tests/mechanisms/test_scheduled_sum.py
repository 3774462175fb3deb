"""The sum with a noise multiplier for each step: its event, its rows and its draws."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dprl.accounting import events
from dprl.accounting.accountant import parts_of
from dprl.errors import DprlError
from dprl.mechanisms.clipped_sum import ClippedGaussianSum
from dprl.mechanisms.float_sum import FloatSum
from dprl.mechanisms.grid import grid_step
from dprl.mechanisms.noise import SecureNoise, SeededNoise
from dprl.mechanisms.scheduled_sum import ScheduledGaussianSum, to_levels

SCHEDULE = (2.0, 0.5, 2.0, 1.25)
COMMON = {"clip_norm": 0.7, "dimension": 6, "sampling_rate": 0.3}
SUM = ScheduledGaussianSum(**COMMON, multipliers=SCHEDULE)


def test_the_event_is_every_step_with_its_own_noise():
    steps = events.compose([events.poisson_gaussian(0.3, z, 1) for z in SCHEDULE])
    assert parts_of(SUM.event()) == parts_of(steps)
    assert sum(count for _, count in SUM.levels) == SUM.steps == 4
    # row by row what the event has, in its order
    assert [(r["noise_multiplier"], r["steps"]) for r in SUM.rows("a", "b")] == [(2.0, 2), (0.5, 1), (1.25, 1)]
    assert math.isclose(4 / SUM.noise_multiplier**2, sum(1 / z**2 for z in SCHEDULE))
    everybody = dataclasses.replace(SUM, sampling_rate=1.0)
    assert parts_of(everybody.event()) == ((1.0, pytest.approx(sum(1 / z**2 for z in SCHEDULE) ** -0.5), 1),)


@pytest.mark.parametrize("rate", [0.3, 1.0])
@pytest.mark.parametrize("steps", [1, 7])
def test_of_one_level_it_is_the_plain_sum(rate, steps):
    common = COMMON | {"sampling_rate": rate}
    constant = ScheduledGaussianSum(**common, multipliers=(1.3,) * steps)
    plain = ClippedGaussianSum(**common, noise_multiplier=1.3, steps=steps)
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
    wide = dataclasses.replace(SUM, dimension=4000)
    seeded, unit = SeededNoise.from_seed(11), grid_step(0.7)
    match source:
        case "secure":
            noise = SecureNoise.fresh()
            draws = [np.asarray(wide.draw(noise, step)) * unit for step in range(4)]
        case "float":
            draws = [np.asarray(FloatSum(wide).draw(seeded, np.uint32(step))) for step in range(4)]
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
    assert np.array_equal(total, ClippedGaussianSum(**COMMON, noise_multiplier=1.0).clipped_sum(vectors, everybody))
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
        ScheduledGaussianSum(**COMMON, multipliers=multipliers)


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
