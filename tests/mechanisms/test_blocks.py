"""Noise drawn in blocks: the host's draws, step by step, and nothing outside of the block."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dprl.mechanisms.blocks import BLOCK_BYTES, draw_block, split
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SecureNoise

SOURCES = [SecureNoise(bytes([i]) * 32) for i in (1, 2)]
MECHANISM = GaussianSum(parts=((5, 1.0),), noise_multiplier=2.0, sampling_rate=0.3, steps=9)
FIRST, STEPS, WIDTH, UNITS = 3, 4, 16, 30


def of_each_trial(block, call):
    """``call(noise, step)`` for all steps of the block: ``(trials, steps, ...)``, as compiled code sees it."""
    steps = jnp.arange(FIRST, FIRST + STEPS, dtype=jnp.uint32)
    return np.asarray(
        jax.jit(jax.vmap(lambda noise: jax.lax.map(lambda s: call(noise, s), steps), in_axes=(block.axes(),)))(block)
    )


def test_a_scan_sees_the_draws_of_the_host():
    block = draw_block(MECHANISM, SOURCES, FIRST, STEPS, WIDTH, UNITS)
    draws = of_each_trial(block, lambda noise, step: MECHANISM.draw(noise, step))
    coins = of_each_trial(block, lambda noise, step: MECHANISM.coins(noise, step, UNITS))
    for trial, source in enumerate(SOURCES):
        for i in range(STEPS):
            np.testing.assert_array_equal(draws[trial, i], MECHANISM.draw(source, FIRST + i))
            np.testing.assert_array_equal(coins[trial, i], MECHANISM.coins(source, FIRST + i, UNITS))
    indexed = draw_block(MECHANISM, SOURCES, FIRST, STEPS, WIDTH, UNITS, index=True)
    chosen = of_each_trial(indexed, lambda noise, step: noise.below(step, UNITS))
    assert chosen.tolist() == [[source.below(FIRST + i, UNITS) for i in range(STEPS)] for source in SOURCES]


@pytest.mark.parametrize("step", [0, FIRST - 1, FIRST + STEPS, 2**32 - 1])
def test_a_step_outside_of_the_block_gets_nobody_elses_noise(step):
    block = draw_block(MECHANISM, SOURCES[:1], FIRST, STEPS, WIDTH, UNITS)
    one = jax.vmap(lambda noise: (noise.gaussian(jnp.uint32(step), 5, block.std), noise.coins(step, UNITS, 0.3)),
                   in_axes=(block.axes(),))  # fmt: skip
    draws, coins = one(block)
    assert (np.asarray(draws) == np.iinfo(np.int64).min).all()
    assert not np.asarray(coins).any()


def test_a_block_is_for_one_mechanism():
    block = draw_block(MECHANISM, SOURCES[:1], FIRST, STEPS, WIDTH, UNITS)
    for call in (
        lambda: block.gaussian(FIRST, 5, 2.0 * block.std),
        lambda: block.gaussian(FIRST, WIDTH + 1, block.std),
        lambda: block.coins(FIRST, UNITS, 0.2),
        lambda: block.coins(FIRST, UNITS + 1, 0.3),
        lambda: block.below(FIRST, UNITS),
    ):
        with pytest.raises(ValueError, match="the block was drawn"):
            call()


@given(st.integers(1, 10_000), st.integers(1, 10**8))
def test_blocks_cover_all_steps_once_in_bounded_memory(steps, size):
    blocks = list(split(steps, size))
    assert [s for first, length in blocks for s in range(first, first + length)] == list(range(steps))
    assert len({length for _, length in blocks}) <= 2
    assert all(length == 1 or length * size <= BLOCK_BYTES for _, length in blocks)
