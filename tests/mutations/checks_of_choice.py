"""The checks of a choice among policies or rules: odds of the winner, and what a unit may move."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import dprl
from dprl.accounting.rows import KINDS
from dprl.evaluation.importance_vectors import further_columns, unit_parts
from dprl.evaluation.learned_policy import plan_of_learned
from dprl.evaluation.least_noise import UnknownPolicy
from dprl.evaluation.plan import plan_of_best
from dprl.mechanisms.noise import SecureNoise
from dprl.mechanisms.noisy_maximum import NoisyMaximum
from dprl.policies.loading import AlwaysPolicy, LoggedPolicy
from dprl.protocols import NO_JOURNAL
from dprl.release.private_rows import RowsInMemory, release_rows

from ..evaluation.helpers import bandit_bounds, columns_of
from .lab import check, require


@check
def odds_of_a_released_choice() -> None:
    """Of two policies that are one person apart the one behind wins now and then."""
    log = {"observation": [0.0], "action": [1], "reward": [1.0], "behavior_prob": [0.5]}
    bounds = bandit_bounds(20)
    arms = {f"always_{a}": AlwaysPolicy(a, 2) for a in range(2)}
    choice: Any = plan_of_best(dprl.ImportanceSampling(), bounds, dprl.Budget(1.0, 1e-3), arms).first
    rows = dprl.read_log(log, bounds=bounds).load(None)
    keys = (SecureNoise(t.to_bytes(32, "little")) for t in range(200))
    behind = sum(choice.released(rows, None, key, NO_JOURNAL).name == "always_0" for key in keys)
    require(behind > 0, "the policy behind by one person never wins")


@check
def row_of_a_choice() -> None:
    row = NoisyMaximum(candidates=2, spread=1000, epsilon=1.0).describe("choice")
    require(KINDS[row["name"]](**row).proved(), "the row states a smaller epsilon than its rate and spread cost")


def _coins(people: int, seed: int) -> dict[str, np.ndarray]:
    """A log of people whose rewards are coins, whatever is done."""
    rng = np.random.default_rng(seed)
    observation, action = rng.random(people), rng.integers(0, 2, people)
    return columns_of(action, observation=observation, reward=rng.integers(0, 2, people).astype(float))


def _learned(seed: int) -> dprl.Release:
    """A rule of people whose rewards are coins, whatever is done: none is worth more than a half.

    With a second step that nobody takes, fixed actions are not valued, and plans are made at once.
    """
    people = 200
    log = _coins(people, seed)
    bounds = bandit_bounds(people, horizon=2, return_range=(0.0, 1.0))
    return dprl.learn(log, dprl.Budget(8.0, 1e-3), bounds=bounds, learner="rules", choosing_share=0.5, seed=seed)


@check
def class_of_a_learned_rule() -> None:
    """Where nothing is better, the smallest class often has the chosen rule."""
    found = [_learned(seed) for seed in range(40)]
    single = sum(str(release.chosen).endswith("for everybody") for release in found)
    require(single >= 2, "larger classes of rules win by their number")


def _at_random(seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """A policy that does in each of 64 cells of the states what a coin says."""
    actions = np.random.default_rng(seed).integers(0, 2, 64)
    return lambda states: np.eye(2)[actions[np.minimum(states[:, 0] * 64.0, 63.0).astype(int)]]


@check
def coverage_of_a_lucky_rule() -> None:
    """Of fifty policies that are all worth a half some look better by luck; who chose one does not value it.

    So of 100 intervals of 95% confidence at least 93 hold. Of those who chose it, some two in three do.
    """
    people, found = 500, list[bool]()
    bounds = bandit_bounds(people)
    own = {f"own {seed}": _at_random(seed) for seed in range(50)}
    plan = plan_of_learned(dprl.ImportanceSampling(), bounds, dprl.Budget(10.0, 1e-4), candidates=own, share=0.5)
    for seed in range(100):
        log = dprl.read_log(_coins(people, seed), bounds=bounds).load()
        value = release_rows(plan, RowsInMemory(plan, log, []), SecureNoise(seed.to_bytes(32, "little"))).estimates[0]
        found.append(value.interval[0] <= 0.5 <= value.interval[1])
    require(np.mean(found) >= 0.93, "a lucky rule is valued by its luck")


@check
def norm_of_an_unknown_rule() -> None:
    """The vector of a unit whose rule, action and return are all at an end."""
    policies = [UnknownPolicy(), LoggedPolicy(steady=True), AlwaysPolicy(0, 2), AlwaysPolicy(1, 2)]
    bounds = bandit_bounds(100)
    query = dprl.ImportanceSampling().value_query(bounds, policies, ((0, 1), (0, 2), (0, 3)))
    pair = np.array([[1.0, 0.5, 1.0, 0.0]]), np.zeros((1, 4))
    parts = [part @ query.strategy.T for part in unit_parts(query, *pair)]
    vector = np.concatenate([*parts, further_columns(query, *pair, np.ones(1))], axis=1)
    require(np.linalg.norm(vector) <= query.clip_norm * (1.0 + 1e-9), "a unit's vector is cut")
