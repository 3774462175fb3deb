"""What a unit puts into a sum is a function of its own rows alone, to the last bit.

Sensitivity rests on it: were somebody else's vector to change in its last digit when a person is added, that change
would be multiplied by the number of units. Programs are tried in blocks of the size of a release, with rows of other
people missing and units at other places in their blocks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dprl
from dprl.accounting.budget import Budget
from dprl.data.readers import read_log
from dprl.engine.columns import COLUMNS, RowInputs
from dprl.engine.layouts import gather, unit_rows
from dprl.engine.loop import _accumulate, run_steps_on_host
from dprl.engine.plan import program_at
from dprl.engine.program import PublicFacts, ValuesConfig
from dprl.engine.ratios import cumulative_ratios, step_ratios
from dprl.engine.rows import rows_of
from dprl.evaluation import gpope
from dprl.evaluation.plan import make_plan, program_for
from dprl.mechanisms.arithmetic import clip_to_grid, grid_step
from dprl.mechanisms.noise import SeededNoise
from dprl.registry import evaluation_entries
from dprl.value_functions.features import make_features

from . import helpers, one_shot

PEOPLE = 400
TABLES = ("noisy-counts", "first-visit")
QUICK = (("gpope", "tabular", 1.0, False),)
CASES = [
    case if (case := (name, features, epsilon, on_policy)) in QUICK else pytest.param(*case, marks=pytest.mark.slow)
    for name, entry in evaluation_entries().items()
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
    """A log, and the same without a few people scattered over it, in rows of another order; and who remains."""
    columns = one_shot.extreme_log(PEOPLE, 3, components=2)
    removed = np.array([0, 1, 50, 51, 52, 199, 200, 390, 399])
    keep = np.flatnonzero(~np.isin(columns["person_id"], removed))
    np.random.default_rng(0).shuffle(keep)
    remaining = np.setdiff1d(np.arange(PEOPLE), removed)
    fewer, bounds = {name: x[keep] for name, x in columns.items()}, one_shot.extreme_bounds(PEOPLE, 2)
    return one_shot.load(columns, bounds, "person_id"), one_shot.load(fewer, bounds, "person_id"), remaining


@pytest.mark.parametrize("estimator", ["trajectory", "per-decision", "self-normalised"])
def test_importance_sampling_vectors(logs: Any, estimator: Any) -> None:
    full, fewer, remaining = logs
    policies = [one_shot.extreme_policy, lambda s: np.tile([0.3, 0.7], (len(s), 1))]
    query = make_plan(dprl.ImportanceSampling(estimator=estimator), full.bounds, Budget(1.0, 1e-6), policies).query
    with_all, without_some = (
        np.asarray(clip_to_grid(jnp.asarray(query.unit_vectors(log, policies)), query.clip_norm))
        for log in (full, fewer)
    )
    np.testing.assert_array_equal(with_all[remaining], without_some)


def test_ratios_and_columns_of_rows(logs: Any) -> None:
    full, fewer, remaining = logs
    features, made = make_features("tabular", full.bounds.observation), []
    for log in (full, fewer):
        ratios = step_ratios(one_shot.extreme_policy, log)
        inputs = RowInputs(log, ratios, features, 0.9, (0.0, 5.0))
        columns = {name: COLUMNS[name].compute(inputs) for name in ("returns", "start", "first", "raw_reward")}
        made.append(columns | {"ratios": cumulative_ratios(ratios, log)})
    kept = np.isin(full.unit_of_episode()[full.episode_of()], remaining)
    for name, values in made[0].items():
        np.testing.assert_array_equal(values[kept], made[1][name])


@pytest.mark.parametrize(("name", "features", "epsilon", "on_policy"), CASES)
def test_contributions(logs: Any, name: str, features: str, epsilon: float, on_policy: bool) -> None:
    full, fewer, remaining = logs
    bounds = full.bounds
    if on_policy:
        bounds = replace(bounds, max_importance_ratio=1.0, max_cumulative_ratio=1.0)
    feature_map = make_features(features, bounds.observation)
    config = evaluation_entries()[name].load_config()(discount=0.9)
    program = program_for(config, bounds, feature_map, Budget(epsilon, 1e-5))

    def units(log: Any) -> Any:
        ratios = np.ones(len(log.reward)) if on_policy else step_ratios(one_shot.extreme_policy, log)
        value = bounds.value_interval(0.9)
        most = 3 if config.neural else None
        rows = rows_of(log, ratios, feature_map, 0.9, value, columns=program.columns, most=most)
        return unit_rows(rows, PEOPLE)

    def points(data: Any, clip: Any, state: Any) -> Any:
        """The vectors of all units on the grid, computed in blocks."""
        chunks = data.chunks(np.ones(data.units, dtype=bool))
        found = [np.asarray(clip(state, gather(data.columns, index)))[live] for index, live in chunks]
        return np.concatenate(found)[np.argsort(np.concatenate([members for members, _ in data.buckets]))]

    with_all, with_fewer = units(full), units(fewer)
    state: Any = program.init()
    for number, stage in enumerate(program.stages):
        clip = jax.jit(lambda state, block, n=number, c=stage.mechanism.clip_norm: clip_to_grid(
            program.contribution(n, state, block), c
        ))  # fmt: skip

        for _ in range(2):
            here, there = (points(data, clip, state) for data in (with_all, with_fewer))
            assert here.any()
            np.testing.assert_array_equal(here[remaining], there)
            if stage.mechanism.steps > 1:
                noisy = SeededNoise.from_seed(number).gaussian(0, stage.mechanism.dimension, 1.0)
                state = program.update(number, state, 0.1 * PEOPLE * stage.mechanism.clip_norm * noisy, 0)
        noise = SeededNoise.from_seed(7).stream(stage.name)
        # any released state will do to go on from
        state = run_steps_on_host(program, number, stage.mechanism, noise, with_all, state)
        state = program.finish(number, state)


def test_gpope_sums_of_very_few_units() -> None:
    """The exact sum moves by no more than the clip norm when a second, third, ... person is added."""
    rng = np.random.default_rng(3)
    columns = {
        "episode_id": np.arange(6), "t": np.zeros(6), "observation": rng.random(6), "action": rng.integers(0, 2, 6),
        "reward": rng.random(6), "behavior_prob": np.full(6, 0.5), "terminated": np.ones(6),
    }  # fmt: skip
    bounds = helpers.bandit_bounds(6)
    feature_map = make_features("fourier:99", bounds.observation)
    config = gpope.GPOPE(steps=1, step_size=0.1, clip_norm=0.01)
    algorithm = program_at(config, PublicFacts(bounds, feature_map, 0.9, mu=1.0), 1.0)
    mechanism = algorithm.stages[0].mechanism
    state = algorithm.start_at(jnp.asarray(rng.normal(size=feature_map.size), dtype=jnp.float32))
    state = state._replace(w=jnp.asarray(rng.normal(size=feature_map.size), dtype=jnp.float32))

    def total(people: int) -> list[int]:
        log = read_log({k: v[:people] for k, v in columns.items()}, bounds=bounds).load()
        rows = rows_of(log, step_ratios(helpers.bandit_policy, log), feature_map, 0.9, (0.0, 1.0))
        data = unit_rows(rows, 6)
        chunks = data.chunks(np.ones(people, dtype=bool))
        sums = [np.asarray(_accumulate(algorithm, 0, mechanism, state, data.columns, i, live)) for i, live in chunks]
        return [int(x) for x in np.sum(sums, axis=0)]

    limit = (mechanism.sensitivity / grid_step(mechanism.clip_norm)) ** 2
    for people in range(1, 6):
        moved = sum((a - b) ** 2 for a, b in zip(total(people), total(people + 1), strict=True))
        assert 0 < moved <= limit
