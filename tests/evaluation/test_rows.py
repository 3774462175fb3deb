"""Columns of rows against their definitions, one trajectory and one row at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dprl.data.readers import read_log
from dprl.engine.columns import COLUMNS, RowInputs, returns_to_go, scale_of
from dprl.engine.ratios import step_ratios
from dprl.engine.rows import Rows, rows_of
from dprl.errors import DprlError
from dprl.protocols import Bounds
from dprl.value_functions.features import make_features

BOUNDS = Bounds(
    units=30,
    horizon=6,
    reward=(-1.0, 2.0),
    observation=((0.0, 3.0),),
    actions=2,
    max_importance_ratio=1.5,
    max_cumulative_ratio=3.0,
    return_range=(-6.0, 12.0),
)
DISCOUNT = 0.9
VALUE = (-6.0, 12.0)
SCALE = scale_of(VALUE)
TABULAR = make_features("tabular", BOUNDS.observation)


def columns(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows: dict[str, list] = {n: [] for n in ("person_id", "episode_id", "t", "observation", "action", "reward", "end")}
    for episode in range(40):
        length = int(rng.integers(1, 7))
        for t in range(length):
            row = (episode // 2 if episode < 20 else episode, episode, t, rng.integers(0, 4), rng.integers(0, 2))
            for name, value in zip(rows, (*row, rng.uniform(-1, 2), t == length - 1 and episode % 3 > 0), strict=True):
                rows[name].append(value)
    out = {name: np.array(values) for name, values in rows.items()}
    return {**out, "terminated": out.pop("end").astype(bool), "behavior_prob": np.full(len(out["t"]), 0.5)}


def target(states: np.ndarray) -> np.ndarray:
    return np.tile([0.3, 0.7], (len(states), 1))


LOG = read_log(columns(), bounds=BOUNDS, person="person_id").load()
RATIOS = step_ratios(target, LOG)
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
    found = returns_to_go(inputs(ratios=ones)) * BOUNDS.cumulative_ratio
    centre, half = SCALE
    for rows in EPISODES:
        expected = by_hand(LOG.reward[rows], ones[rows], bool(LOG.terminated[rows][-1]))
        np.testing.assert_allclose(centre + half * found[rows], expected, atol=1e-9)


def test_off_policy_returns_are_unbiased_where_nothing_is_cut():
    """Averaged over the actions of a two-step problem, the weighted return is the target's value."""
    wide = Bounds(**{**BOUNDS.as_dict(), "max_importance_ratio": 4.0, "max_cumulative_ratio": 16.0})
    behaviour, wanted = np.array([0.25, 0.75]), np.array([0.6, 0.4])
    reward = np.array([0.5, -0.3])
    total = 0.0
    for first in range(2):
        for second in range(2):
            log = read_log(
                {
                    "episode_id": np.zeros(2, int), "t": np.arange(2), "observation": np.zeros(2),
                    "action": np.array([first, second]), "reward": reward[[first, second]],
                    "behavior_prob": behaviour[[first, second]], "terminated": np.array([False, True]),
                },
                bounds=wide,
            ).load()  # fmt: skip
            ratios = step_ratios(lambda s: np.tile(wanted, (len(s), 1)), log)
            y = returns_to_go(RowInputs(log, ratios, TABULAR, DISCOUNT, VALUE))[0]
            total += behaviour[first] * behaviour[second] * y
    value = (wanted @ reward) * (1 + DISCOUNT)
    centre, half = SCALE
    assert centre + half * total * wide.cumulative_ratio == pytest.approx(value)


def test_returns_are_bounded_whatever_the_rows_hold():
    found = returns_to_go(inputs(ratios=np.full(len(LOG.reward), 1.5), value=(0.0, 0.1)))
    assert np.abs(found).max() == 1.0


def test_undiscounted_returns_end_where_the_log_ends():
    found = returns_to_go(inputs(ratios=np.ones(len(LOG.reward)), discount=1.0)) * BOUNDS.cumulative_ratio
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
