"""The benchmark of GPOPE in blocks with the noise of a release has the sums of the host, step by step."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks import gpope_blocks
from benchmarks.gpope_blocks import run_in_blocks, split

from dprl.data.readers import read_log
from dprl.engine import program
from dprl.engine.layouts import padded_units, unit_rows
from dprl.engine.rows import rows_of
from dprl.evaluation import gpope
from dprl.evaluation.gpope import GPOPE
from dprl.mechanisms.grid import grid_step
from dprl.mechanisms.noise import SecureNoise
from dprl.value_functions.features import make_features

from . import helpers

UNITS, STEPS = 12, 11
FREE = gpope.Projection(1e9, 1e9)
FEATURES = make_features("fourier:2", ((0.0, 2.0),))


def rows(seed: int):
    log = read_log(helpers.stepped_log(UNITS, seed), bounds=helpers.stepped_bounds(UNITS)).load()
    value = log.bounds.value_interval(0.9)
    return rows_of(log, np.ones(len(log.reward)), FEATURES, 0.9, value, dtype=np.float64)


def options(calibration: str, rate: float):
    config = GPOPE(
        discount=0.9, calibration=calibration, steps=STEPS, step_size=0.05, sampling_rate=rate, average="all"
    )
    return config, gpope.mechanism(config, FEATURES.size, 5, 1.5)


SOURCES = [SecureNoise(bytes([i]) * 32) for i in (1, 2, 3)]
CASES = [("verified", 1.0), ("verified", 0.4), ("as-published", 1.0 / UNITS)]


@pytest.mark.parametrize(("calibration", "rate"), CASES)
def test_blocks_release_what_the_host_releases(monkeypatch, calibration, rate):
    """Grid point by grid point, but for the last digits of a gradient that is compiled in another shape."""
    config, mechanism = options(calibration, rate)
    start, data = jnp.zeros(FEATURES.size), rows(0)
    host: list[np.ndarray] = []
    honest = gpope.update

    def spy(config, projection, divisor, state, noised, step):
        jax.debug.callback(lambda x: host.append(np.asarray(x)), noised, ordered=True)
        return honest(config, projection, divisor, state, noised, step)

    with monkeypatch.context() as patched:
        patched.setattr(gpope, "update", spy)
        program._advance.clear_cache()
        algorithm = gpope.program_of(config, mechanism, UNITS, FREE)
        for source in SOURCES:
            first = gpope.init(config, start)
            expected = program.run_steps_on_host(algorithm, 0, mechanism, source, unit_rows(data, UNITS), first)
            jax.effects_barrier()
    program._advance.clear_cache()
    seen: list[np.ndarray] = []
    # three trials of blocks of four, four and three steps
    monkeypatch.setattr(gpope_blocks, "split", lambda steps, size: split(steps, 1, 4))
    state, weights = run_in_blocks(
        config, mechanism, SOURCES, padded_units(data), start, units=UNITS, projection=FREE, batch=4,
        released=seen.append,
    )  # fmt: skip
    assert [x.shape for x in seen] == [(3, n, 2 * FEATURES.size) for n in (4, 4, 3)]
    found = np.concatenate(seen, axis=1).reshape(-1, 2 * FEATURES.size)
    points = np.abs(found - np.array(host)) / grid_step(mechanism.clip_norm)
    # another draw, or one unit more, would be off by some 2^32 points
    assert points.max() <= 2**10
    np.testing.assert_allclose(state.theta[2], expected.theta, atol=1e-6)
    assert weights.shape == (3, FEATURES.size)
