"""What a unit puts into a sum is a function of its own rows alone, to the last bit.

Sensitivity rests on it: were somebody else's vector to change in its last digit when a person is added, that change
would be multiplied by the number of units.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from dprl.accounting.budget import Budget
from dprl.data.readers import read_log
from dprl.engine.columns import COLUMNS, RowInputs
from dprl.engine.layouts import unit_rows
from dprl.engine.plan import program_at
from dprl.engine.program import PublicFacts, _accumulate
from dprl.engine.ratios import cumulative_ratios, step_ratios
from dprl.engine.rows import rows_of
from dprl.evaluation import gpope
from dprl.evaluation.importance_sampling import ImportanceSampling
from dprl.evaluation.plan import make_plan
from dprl.mechanisms.grid import clip_to_grid, grid_step
from dprl.value_functions.features import make_features

from . import helpers

PEOPLE = 120


def without(columns: dict[str, np.ndarray], removed: set[int]) -> dict[str, np.ndarray]:
    keep = ~np.isin(columns["episode_id"], list(removed))
    return {name: values[keep] for name, values in columns.items()}


@pytest.fixture(scope="module")
def logs():
    """A log, and the same without a few people scattered over it, in rows of another order."""
    columns = helpers.stepped_log(PEOPLE, 5)
    rng = np.random.default_rng(0)
    # lengths differ, so that buckets and blocks do
    stop = rng.integers(1, 6, PEOPLE)
    columns = {k: v[columns["t"] < stop[columns["episode_id"]]] for k, v in columns.items()}
    removed = {0, 17, 18, 64, PEOPLE - 1}
    fewer = without(columns, removed)
    order = rng.permutation(len(fewer["t"]))
    fewer = {k: v[order] for k, v in fewer.items()}
    bounds = helpers.stepped_bounds(PEOPLE)
    remaining = np.array([i for i in range(PEOPLE) if i not in removed])
    return read_log(columns, bounds=bounds).load(), read_log(fewer, bounds=bounds).load(), remaining


@pytest.mark.parametrize("estimator", ["trajectory", "per-decision", "self-normalised"])
def test_importance_sampling_vectors(logs, estimator):
    full, fewer, remaining = logs
    policies = [helpers.stepped_policy, lambda s: np.tile([0.3, 0.7], (len(s), 1))]
    plan = make_plan(ImportanceSampling(estimator=estimator), full.bounds, Budget(1.0, 1e-6), policies)
    with_all = clip_to_grid(jnp.asarray(plan.query.unit_vectors(full, policies)), plan.query.clip_norm)
    without_some = clip_to_grid(jnp.asarray(plan.query.unit_vectors(fewer, policies)), plan.query.clip_norm)
    np.testing.assert_array_equal(np.asarray(with_all)[remaining], without_some)


def test_ratios_and_columns_of_rows(logs):
    full, fewer, remaining = logs
    feature_map = make_features("tabular", full.bounds.observation)
    names, made = ("returns", "start", "first", "raw_reward"), []
    for log in (full, fewer):
        ratios = step_ratios(helpers.stepped_policy, log)
        inputs = RowInputs(log, ratios, feature_map, 0.9, (0.0, 5.0))
        columns = {name: COLUMNS[name].compute(inputs) for name in names}
        made.append(columns | {"ratios": cumulative_ratios(ratios, log)})
    for episode, kept in enumerate(remaining):
        mine = slice(*full.episode_offsets[[kept, kept + 1]])
        theirs = slice(*fewer.episode_offsets[[episode, episode + 1]])
        for name, values in made[0].items():
            np.testing.assert_array_equal(values[mine], made[1][name][theirs])


def test_gpope_sums_of_very_few_units():
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
