"""WIS-LSTD(lambda) against its forward view, the published recursion, LSTD, and weighted importance sampling."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.evaluation import helpers

from dprl.bounds import Bounds
from dprl.data.readers import read_log
from dprl.data.trajectories import Trajectories
from dprl.engine.rows import rows_of
from dprl.errors import DprlError
from dprl.value_functions.features import make_features
from dprl_papers.baselines import lstd as module
from dprl_papers.baselines.lstd import lstd, wis_lstd, wis_moments

BOUNDS = Bounds(units=100, horizon=9, reward=(-2.0, 2.0), observation=((0.0, 1.0),), actions=1)
FEATURES = make_features("fourier:2", BOUNDS.observation)


def log_of(seed: int, episodes: int = 12, ends: str = "mixed") -> tuple[Trajectories, np.ndarray]:
    """Random episodes of 1 to 7 steps; they end terminal, truncated with a known state, or at an unknown one."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 8, episodes)
    offsets = np.r_[0, np.cumsum(lengths)]
    n, last = offsets[-1], offsets[1:] - 1
    x = rng.random((n, 1))
    following = rng.random((n, 1))
    inside = np.setdiff1d(np.arange(n), last)
    following[inside] = x[inside + 1]
    kind = rng.integers(0, 3, episodes) if ends == "mixed" else np.full(episodes, ["terminal", "cut"].index(ends))
    terminated, has_next = np.zeros(n, dtype=bool), np.ones(n, dtype=bool)
    terminated[last[kind == 0]] = True
    has_next[last[kind != 1]] = False
    log = Trajectories(
        observation=x,
        next_observation=following,
        action=np.zeros(n, dtype=np.int64),
        reward=rng.normal(size=n),
        behavior_prob=np.ones(n),
        target_prob={},
        terminated=terminated,
        has_next=has_next,
        episode_offsets=offsets.astype(np.int64),
        unit_offsets=np.arange(episodes + 1),
        valid=np.ones(episodes, dtype=bool),
        bounds=BOUNDS,
        unit="trajectory",
    )
    return log, rng.exponential(size=n)


def of_rows(log: Trajectories, kept: Any, **changes: Any) -> Trajectories:
    """The log with these rows alone."""
    names = ("observation", "next_observation", "action", "reward", "behavior_prob", "terminated", "has_next")
    return replace(log, **{name: getattr(log, name)[kept] for name in names}, **changes)


def assert_same(found: tuple[np.ndarray, ...], expected: tuple[np.ndarray, ...]) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-11)


def episodes_of(log: Trajectories, ratios: np.ndarray):
    """Usable transitions (phi, r, phi', rho, gamma's indicator) of each episode, one by one."""
    phi, following = FEATURES(log.observation), FEATURES(log.next_observation)
    for first, last in zip(log.episode_offsets[:-1], log.episode_offsets[1:], strict=True):
        yield [
            (phi[k], log.reward[k], 0.0 if log.terminated[k] else following[k], ratios[k], not log.terminated[k])
            for k in range(first, last)
            if log.terminated[k] or log.has_next[k]
        ]


def forward_view(log: Trajectories, ratios: np.ndarray, gamma: float, lam: float):
    """sum_k rho_k phi_k (weighted errors): from k, stop after i without or with bootstrapping."""
    A, b = np.zeros((3, 3)), np.zeros(3)
    for steps in episodes_of(log, ratios):
        for k, (phi, _, _, rho, _) in enumerate(steps):
            left, flat = 1.0, 0.0
            for i in range(k, len(steps)):
                _, reward, following, _, alive = steps[i]
                g = gamma * alive
                flat += reward
                last = i == len(steps) - 1
                plain, boot = left * (1.0 - g), left * g * (1.0 if last else 1.0 - lam)
                b += rho * phi * flat * (plain + boot)
                A += rho * np.outer(phi, phi * (plain + boot) - following * boot)
                if not last:
                    left *= g * lam * steps[i + 1][3]
    return A, b


def published_recursion(log: Trajectories, ratios: np.ndarray, gamma: float, lam: float):
    """The backward view as Mahmood et al. have it, with the matrix V and the vector u of each episode."""
    A, b = np.zeros((3, 3)), np.zeros(3)
    for steps in episodes_of(log, ratios):
        z, u, V = np.zeros(3), np.zeros(3), np.zeros((3, 3))
        for phi, reward, following, rho, alive in steps:
            g = gamma * alive
            z = rho * (gamma * lam * z + phi)
            b += reward * z + (rho - 1.0) * u
            A += np.outer(z, phi - g * following) + (rho - 1.0) * V
            u = g * lam * (rho * u + reward * z)
            V = g * lam * (rho * V + np.outer(z, phi - following))
    return A, b


@pytest.mark.parametrize("view", [forward_view, published_recursion])
@pytest.mark.parametrize(("gamma", "lam"), [(0.9, 0.6), (1.0, 1.0), (0.5, 1.0), (1.0, 0.3), (0.9, 0.0), (0.0, 0.7)])
def test_moments_are_those_of_both_published_views(view, gamma, lam):
    for seed in range(10):
        log, ratios = log_of(seed)
        assert_same(wis_moments(log, ratios, FEATURES, gamma, lam), view(log, ratios, gamma, lam))


@pytest.mark.parametrize("value", [(-1.0, 1.0), (2.0, 10.0)])
def test_with_lambda_zero_it_is_lstd_with_equal_weights(value):
    """Also in public units, for LSTD commutes with a shift of the rewards."""
    log, ratios = log_of(4, episodes=60)
    rows = rows_of(log, ratios, FEATURES, 0.9, value, weighting="transition", dtype=np.float64)
    np.testing.assert_allclose(wis_lstd(log, ratios, FEATURES, 0.9, 0.0, value), lstd(rows), rtol=1e-9)


def test_a_truncated_end_bootstraps_and_an_unknown_one_is_left_out():
    """Cutting the last transition off an episode is the same as not knowing where it led."""
    log, ratios = log_of(6, ends="cut")
    last = log.episode_offsets[1:] - 1
    unknown = log.has_next.copy()
    unknown[last] = False
    got = wis_moments(replace(log, has_next=unknown), ratios, FEATURES, 0.9, 0.8)

    kept = np.setdiff1d(np.arange(len(log.reward)), last)
    shorter = of_rows(log, kept, episode_offsets=np.r_[0, np.cumsum(log.lengths() - 1)])
    assert_same(got, wis_moments(shorter, ratios[kept], FEATURES, 0.9, 0.8))
    full = wis_moments(log, ratios, FEATURES, 0.9, 0.8)
    assert not any(np.allclose(ours, theirs) for ours, theirs in zip(got, full, strict=True))


def test_an_unknown_state_in_the_middle_splits_the_episode():
    log, ratios = log_of(7, ends="terminal")
    lengths = log.lengths()
    middle = log.episode_offsets[:-1][lengths >= 3] + 1
    unknown = log.has_next.copy()
    unknown[middle] = False
    got = wis_moments(replace(log, has_next=unknown), ratios, FEATURES, 0.9, 0.8)

    kept = np.setdiff1d(np.arange(len(log.reward)), middle)
    pieces = np.concatenate([[1, n - 2] if n >= 3 else [n] for n in lengths])
    split = of_rows(
        log, kept, episode_offsets=np.r_[0, np.cumsum(pieces)], unit_offsets=np.arange(len(pieces) + 1),
        valid=np.ones(len(pieces), dtype=bool),
    )  # fmt: skip
    assert_same(got, wis_moments(split, ratios[kept], FEATURES, 0.9, 0.8))


def test_an_invalid_episode_contributes_zero():
    log, ratios = log_of(8)
    valid = np.arange(log.episodes) % 3 != 0
    got = wis_moments(replace(log, valid=valid), ratios, FEATURES, 0.9, 0.8)
    expected = wis_moments(log, np.where(valid[log.episode_of()], ratios, 0.0), FEATURES, 0.9, 0.8)
    assert not np.allclose(expected[0], wis_moments(log, ratios, FEATURES, 0.9, 0.8)[0])
    # with a first ratio of zero the later ones of an episode have no trace, but what comes before zero has weight
    assert_same(got, expected)


def test_undiscounted_at_lambda_one_the_value_of_a_start_is_weighted_importance_sampling():
    """theta of a start state that is never seen again is sum(rho_{0:T} G) / sum(rho_{0:T})."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 6, 30)
    offsets = np.r_[0, np.cumsum(lengths)]
    n = offsets[-1]
    x, terminated = np.ones((n, 1)), np.zeros(n, dtype=bool)
    x[offsets[:-1]] = 0.0
    terminated[offsets[1:] - 1] = True
    reward, ratios = rng.normal(size=n), rng.exponential(size=n)
    log = Trajectories(
        x, np.ones((n, 1)), np.zeros(n, dtype=np.int64), reward, np.ones(n), {}, terminated, ~terminated, offsets,
        np.arange(31), np.ones(30, dtype=bool), BOUNDS, "trajectory",
    )  # fmt: skip
    product, total = np.multiply.reduceat(ratios, offsets[:-1]), np.add.reduceat(reward, offsets[:-1])
    tabular = make_features("tabular", ((0.0, 1.0),))
    theta = wis_lstd(log, ratios, tabular, 1.0, 1.0)
    np.testing.assert_allclose(tabular(np.zeros((1, 1))) @ theta, product @ total / product.sum(), rtol=1e-9)


def test_the_answer_does_not_depend_on_the_size_of_the_chunks(monkeypatch):
    log, ratios = log_of(9, episodes=40)
    whole = wis_moments(log, ratios, FEATURES, 0.9, 0.8)
    for size in (1, 5, 30):
        monkeypatch.setattr(module, "_CHUNK", size)
        assert_same(wis_moments(log, ratios, FEATURES, 0.9, 0.8), whole)


def test_on_the_chain_every_lambda_finds_the_true_values():
    """Without the 1/length weights the fixed point is the value function itself."""
    log = read_log(helpers.chain_log(3000, 0), bounds=helpers.chain_bounds(3000)).load()
    tabular = make_features("tabular", ((0.0, 38.0),))
    states = np.arange(39.0)[:, None]
    P = 0.5 * np.eye(39) + 0.5 * np.eye(39, k=1)
    truth = np.linalg.solve(np.eye(39) - helpers.DISCOUNT * P, np.eye(39)[38] * 0.5)
    for trace_decay in (0.0, 0.9, 1.0):
        theta = wis_lstd(log, np.ones(len(log.reward)), tabular, helpers.DISCOUNT, trace_decay, (0.0, 1.0))
        values = 0.5 + 0.5 * (tabular(states) @ theta)
        assert np.abs(values - truth).max() < 0.03


def test_an_empty_log_gives_zero():
    log, _ = log_of(0)
    nothing = np.zeros(1, dtype=np.int64)
    empty = of_rows(log, slice(0), valid=log.valid[:0], episode_offsets=nothing, unit_offsets=nothing)
    np.testing.assert_array_equal(wis_lstd(empty, np.zeros(0), FEATURES, 0.9, 0.5), np.zeros(3))


def test_what_cannot_be_computed_is_refused():
    log, ratios = log_of(1)
    with pytest.raises(DprlError, match="between 0 and 1"):
        wis_lstd(log, ratios, FEATURES, 0.9, 1.5)
    with pytest.raises(DprlError, match="double precision"):
        wis_lstd(log, np.full(len(ratios), 1e200), FEATURES, 0.9, 1.0)
