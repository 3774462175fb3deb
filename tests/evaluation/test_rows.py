"""Columns of rows against their definitions, one trajectory and one row at a time."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dprl.data.readers import read_log
from dprl.engine.columns import COLUMNS, RowInputs, scale_of, weighted_returns_to_go
from dprl.engine.ratios import step_ratios
from dprl.engine.rows import Rows, rows_of
from dprl.errors import DprlError
from dprl.value_functions.features import make_features

from . import one_shot

LOG = one_shot.extreme(40, 0)
BOUNDS, RATIOS = LOG.bounds, step_ratios(one_shot.extreme_policy, LOG)
DISCOUNT = 0.9
VALUE = (-6.0, 12.0)  # of which no return is cut
SCALE = scale_of(VALUE)
TABULAR = make_features("tabular", BOUNDS.observation)
EPISODES = [slice(*LOG.episode_offsets[e : e + 2]) for e in range(LOG.episodes)]


def inputs(**changes: Any) -> RowInputs:
    return replace(RowInputs(LOG, RATIOS, TABULAR, DISCOUNT, VALUE), **changes)


def asked(column: str, features: Any = TABULAR) -> Rows:
    return rows_of(LOG, RATIOS, features, DISCOUNT, VALUE, columns=[column])


def by_hand(rewards: np.ndarray, ratios: np.ndarray, terminated: bool) -> np.ndarray:
    """Per-decision returns as sums of products, with the value of what was cut off at the end."""
    late = rewards[len(rewards) // 2 :]
    end = 0.0 if terminated else np.clip(late.mean() / (1 - DISCOUNT), -6.0, 12.0)
    out = []
    for t in range(len(rewards)):
        powers = DISCOUNT ** np.arange(len(rewards) - t)
        products = np.cumprod(ratios[t:])
        out.append(np.sum(powers * products * rewards[t:]) + products[-1] * DISCOUNT ** (len(rewards) - t) * end)
    return np.array(out)


def test_on_policy_returns_are_discounted_sums():
    ones = np.ones(len(LOG.reward))
    found = weighted_returns_to_go(inputs(ratios=ones)) * BOUNDS.cumulative_ratio
    centre, half = SCALE
    for rows in EPISODES:
        expected = by_hand(LOG.reward[rows], ones[rows], bool(LOG.terminated[rows][-1]))
        np.testing.assert_allclose(centre + half * found[rows], expected, atol=1e-9)


def test_off_policy_returns_are_unbiased_where_nothing_is_cut():
    """Averaged over the actions of a two-step problem, the weighted return is the target's value."""
    wide = replace(BOUNDS, max_importance_ratio=4.0, max_cumulative_ratio=16.0)
    behaviour, wanted = np.array([0.25, 0.75]), np.array([0.6, 0.4])
    reward = np.array([0.5, -0.3])
    total = 0.0
    for action in np.array(list(itertools.product(range(2), repeat=2))):
        columns = {
            "episode_id": np.zeros(2, int), "t": np.arange(2), "observation": np.zeros(2), "action": action,
            "reward": reward[action], "behavior_prob": behaviour[action], "terminated": np.array([False, True]),
        }  # fmt: skip
        log = read_log(columns, bounds=wide).load()
        ratios = step_ratios(lambda s: np.tile(wanted, (len(s), 1)), log)
        y = weighted_returns_to_go(RowInputs(log, ratios, TABULAR, DISCOUNT, VALUE))[0]
        total += behaviour[action].prod() * y
    value = (wanted @ reward) * (1 + DISCOUNT)
    centre, half = SCALE
    assert centre + half * total * wide.cumulative_ratio == pytest.approx(value)


def test_returns_are_bounded_whatever_the_rows_hold():
    found = weighted_returns_to_go(inputs(ratios=np.full(len(LOG.reward), 1.5), value=(0.0, 0.1)))
    assert np.abs(found).max() == 1.0


def test_undiscounted_returns_end_where_the_log_ends():
    found = weighted_returns_to_go(inputs(ratios=np.ones(len(LOG.reward)), discount=1.0)) * BOUNDS.cumulative_ratio
    centre, half = SCALE
    for rows in EPISODES:
        sums = np.cumsum(LOG.reward[rows][::-1])[::-1]
        np.testing.assert_allclose(centre + half * found[rows], sums, atol=1e-9)


def test_starts_and_visits_count_a_person_once():
    made = {name: COLUMNS[name].compute(inputs()) for name in ("start", "first")}
    owner = LOG.unit_of_episode()[LOG.episode_of()]
    np.testing.assert_allclose(np.bincount(owner, made["start"]), 1.0)
    siblings = np.diff(LOG.unit_offsets)[owner]
    for rows in EPISODES:
        seen: set[float] = set()
        for i in range(rows.start, rows.stop):
            state = float(LOG.observation[i, 0])
            assert made["first"][i] == (0.0 if state in seen else 1.0 / siblings[i])
            seen.add(state)


def test_unknown_columns_and_visits_without_a_table_are_refused():
    with pytest.raises(DprlError, match="no columns called 'secret'"):
        asked("secret")
    with pytest.raises(DprlError, match="use tabular features"):
        asked("first", make_features("columns", BOUNDS.observation))
