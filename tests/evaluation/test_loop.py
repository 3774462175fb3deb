"""The engine's slices: a block of long vectors is never whole in memory, and the sums are the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from dprl.engine import loop as engine
from dprl.engine.layouts import padded_units, unit_rows
from dprl.engine.program import Stage
from dprl.engine.rows import rows_of
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SeededNoise
from dprl.value_functions.features import make_features

from . import one_shot

PEOPLE, DIMENSION = 200, 37


@dataclass(frozen=True)
class Counts:
    """Vectors that are exact in any code: whole numbers of rewards times powers of two."""

    rate: float

    columns = ()

    @property
    def stages(self) -> tuple[Stage, ...]:
        mechanism = GaussianSum(parts=((DIMENSION, 64.0),), noise_multiplier=1.0, sampling_rate=self.rate, steps=2)
        return (Stage("counts", mechanism),)

    def contribution(self, stage: int, state: Any, block: Any) -> jax.Array:
        del stage, state
        return jnp.sum(block.reward, axis=1)[:, None] * 2.0 ** -(jnp.arange(DIMENSION, dtype=jnp.float32) % 8)


@pytest.fixture(scope="module")
def layouts():
    log = one_shot.stepped(PEOPLE)
    features = make_features("columns", log.bounds.observation)
    rows = rows_of(log, np.ones(len(log.reward)), features, 1.0, (-1.0, 1.0))
    return unit_rows(rows, PEOPLE), padded_units(rows)


def widest(jaxpr: Any) -> int:
    """Most coordinates of units' vectors in one array, anywhere in a traced function."""
    most = 0
    for eqn in jaxpr.eqns:
        for var in eqn.outvars:
            shape = getattr(var.aval, "shape", ())
            most = max(most, int(np.prod(shape)) if shape[-1:] == (DIMENSION,) else 0)
        for inner in jaxprs_in_params(eqn.params):
            most = max(most, widest(inner))
    return most


@pytest.mark.parametrize("rate", [1.0, 0.6])
def test_slices_change_memory_and_nothing_else(layouts, monkeypatch, rate):
    units, padded = layouts
    program: Any = Counts(rate)
    mechanism, noise = program.stages[0].mechanism, SeededNoise.from_seed(3)
    included = np.asarray(mechanism.participation_mask(noise, 0, PEOPLE))
    chunks = list(units.chunks(included, rate))
    totals, sizes = [], []
    for summands in (2**22, 2**9):  # of which 13 vectors fit
        monkeypatch.setattr(engine, "SUMMANDS", summands)

        def on_host(index: Any, live: Any) -> Any:
            accumulate: Any = getattr(engine._accumulate, "__wrapped__")  # noqa: B009
            return accumulate(program, 0, mechanism, None, units.columns, index, live)

        def compiled(data: Any) -> Any:
            return engine._batch_total(program, 0, mechanism, noise, data, None, np.uint32(0), 32)

        sizes.append(
            [widest(jax.make_jaxpr(on_host)(*chunks[0]).jaxpr), widest(jax.make_jaxpr(compiled)(padded).jaxpr)]
        )
        totals.append(np.sum([np.asarray(jax.jit(on_host)(*chunk)) for chunk in chunks], axis=0))
        totals.append(np.asarray(jax.jit(compiled)(padded)))
    assert min(sizes[0]) >= 32 * DIMENSION
    assert max(sizes[1]) <= 2**9
    # one count after another
    rewards = np.asarray(padded.reward, dtype=np.float64).sum(axis=1)[included].sum()
    expected = rewards * 2.0 ** -(np.arange(DIMENSION) % 8)
    for total in totals:
        assert total.dtype == np.int64
        np.testing.assert_array_equal(mechanism.scaled(total), expected)
