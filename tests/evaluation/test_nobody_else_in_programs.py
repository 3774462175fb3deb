"""What a unit puts into any stage of any registered program is a function of its own rows alone, to the last bit.

As :mod:`test_nobody_else`, in blocks of the size of a release, with rows of other people missing and units at other
places in their blocks.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from dprl.accounting.budget import Budget
from dprl.engine.layouts import gather, unit_rows
from dprl.engine.options import ValuesConfig
from dprl.engine.program import run_steps_on_host
from dprl.engine.ratios import step_ratios
from dprl.engine.rows import rows_of
from dprl.evaluation.plan import program_for
from dprl.mechanisms.grid import clip_to_grid
from dprl.mechanisms.noise import SeededNoise
from dprl.registry import evaluating
from dprl.value_functions.features import make_features

from . import one_shot

PEOPLE = 400
TABLES = ("noisy-counts", "first-visit")
QUICK = (("gpope", "tabular", 1.0, False),)
CASES = [
    case if (case := (name, features, epsilon, on_policy)) in QUICK else pytest.param(*case, marks=pytest.mark.slow)
    for name, entry in evaluating().items()
    if not issubclass(entry.load_config(), ValuesConfig)
    for features in (
        ("tabular",)
        if name in TABLES
        else ("tabular", "fourier:3", *(("mlp:5",) if entry.load_config().neural else ()))
    )
    for epsilon in (1.0, *((30.0,) if name == "recommended" else ()))
    for on_policy in (False, True)
]


@pytest.fixture(scope="module")
def logs() -> tuple[Any, Any, np.ndarray]:
    columns = one_shot.extreme_log(PEOPLE, 3, components=2)
    removed = np.array([0, 1, 50, 51, 52, 199, 200, 390, 399])
    keep = ~np.isin(columns["person_id"], removed)
    remaining = np.setdiff1d(np.arange(PEOPLE), removed)
    fewer, bounds = {name: x[keep] for name, x in columns.items()}, one_shot.extreme_bounds(PEOPLE, 2)
    return one_shot.load(columns, bounds, "person_id"), one_shot.load(fewer, bounds, "person_id"), remaining


@pytest.mark.parametrize(("name", "features", "epsilon", "on_policy"), CASES)
def test_contributions(logs: Any, name: str, features: str, epsilon: float, on_policy: bool) -> None:
    full, fewer, remaining = logs
    bounds = full.bounds
    if on_policy:
        bounds = type(bounds)(**{**bounds.as_dict(), "max_importance_ratio": 1.0, "max_cumulative_ratio": 1.0})
    feature_map = make_features(features, bounds.observation)
    config = evaluating()[name].load_config()(discount=0.9)
    program = program_for(config, bounds, feature_map, Budget(epsilon, 1e-5))

    def units(log: Any) -> Any:
        ratios = np.ones(len(log.reward)) if on_policy else step_ratios(one_shot.extreme_policy, log)
        value = bounds.value_interval(0.9)
        most = 3 if config.neural else None
        rows = rows_of(log, ratios, feature_map, 0.9, value, columns=program.columns, most=most)
        return unit_rows(rows, PEOPLE)

    with_all, with_fewer = units(full), units(fewer)
    state: Any = program.init()
    for number, stage in enumerate(program.stages):
        clip = jax.jit(lambda state, block, n=number, c=stage.mechanism.clip_norm: clip_to_grid(
            program.contribution(n, state, block), c
        ))  # fmt: skip

        def points(
            data: Any, size: int, state: Any, clip: Any = clip, dimension: int = stage.mechanism.dimension
        ) -> Any:
            out = np.zeros((size, dimension), dtype=np.int64)
            for members, index in data.buckets:
                everybody = np.zeros(size, dtype=bool)
                everybody[members] = True
                chunks = [
                    (np.asarray(clip(state, gather(data.columns, i))), live) for i, live in data.chunks(everybody)
                ]
                found = [vectors[live] for vectors, live in chunks if live.any()]
                out[members] = np.concatenate(found)[: len(index)]
            return out

        for _ in range(2):
            here, there = points(with_all, full.units, state), points(with_fewer, fewer.units, state)
            assert here.any()
            np.testing.assert_array_equal(here[remaining], there)
            if stage.mechanism.steps > 1:
                noisy = SeededNoise.from_seed(number).gaussian(0, stage.mechanism.dimension, 1.0)
                state = program.update(number, state, 0.1 * PEOPLE * stage.mechanism.clip_norm * noisy, 0)
        noise = SeededNoise.from_seed(7).stream(stage.name)
        # any released state will do to go on from
        state = run_steps_on_host(program, number, stage.mechanism, noise, with_all, state)
        state = program.finish(number, state)
