"""Learning algorithms: attacked, recorded and replayed on neighbouring reward functions, and complete."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dprl.audits.attacks import reward_functions as attacks
from dprl.audits.attacks.reward_functions import kernel_product, sawtooth_reward
from dprl.audits.conformance.reward_functions import Walk, learned_from
from dprl.audits.lower_bound import run_attack
from dprl.audits.record_replay import record_replay
from dprl.audits.record_rewards import compare_questions, kernel_norm2
from dprl.registry import LEARNING

SUITE = LEARNING["functional-q"].load_conformance()
ATTACKS = SUITE.algorithm.attacks
CONFIDENCE = 1.0 - 0.01 / (2 * len(ATTACKS))
# what the attack on an optimal Q sees of the claim: a shift has no slope
SHARES = {"output": 0.5}


@pytest.mark.parametrize(
    "attack",
    [pytest.param(a, marks=[pytest.mark.slow] if i else [], id=str(a.options)) for i, a in enumerate(ATTACKS)],
)
def test_every_variant_is_attacked(attack):
    """It stays below its claim, and near it."""
    canary = LEARNING["functional-q"].load_canary(attack)
    assert (canary.epsilon, canary.delta) == (0.9, 1e-4)
    result = run_attack(canary, trials=13_000, seed=1, confidence=CONFIDENCE)
    assert not result.violated
    assert result.gaussian is not None
    share = SHARES.get(str(attack.options["variant"]), 0.75)
    assert result.gaussian.epsilon_lower > share * 0.9
    mechanism = canary.plan.mechanism
    assert result.gaussian.mu_lower <= math.sqrt(getattr(mechanism, "steps", 1)) / mechanism.noise_multiplier


def test_scores_are_the_likelihood_ratio_of_the_sawtooth():
    """Mean plus and minus mu^2 / 2, variance mu^2, with mu the norm of the sawtooth over the noise."""
    canary = LEARNING["functional-q"].load_canary(ATTACKS[0])
    mechanism, points = canary.plan.mechanism, np.linspace(0.0, 1.0, attacks.SAWTOOTH_TEETH + 1)
    f = sawtooth_reward(mechanism.sup, mechanism.lipschitz, points)
    distance = np.abs(points[:, None] - points)
    dense = f @ np.linalg.solve(np.exp(-mechanism.decay * distance), f)
    assert kernel_product(mechanism.decay, points, f, f) == pytest.approx(dense, rel=1e-9)
    assert np.abs(f).max() <= mechanism.sup
    assert (np.abs(f[:, None] - f) <= mechanism.lipschitz * distance + 1e-15).all()
    grid = {(int(p * 2**20),): v for p, v in zip(points, f, strict=True)}
    assert kernel_norm2(grid, mechanism.decay, 1) == pytest.approx(dense, rel=1e-9)
    square = {(int(p * 2**10), q): 1.0 for p in (0.0, 0.5, 1.0) for q in (0, 100)}
    one = np.ones(3) @ np.linalg.solve(np.exp(-4.0 * np.abs(np.subtract.outer([0, 0.5, 1], [0, 0.5, 1]))), np.ones(3))
    two = 2.0 / (1.0 + math.exp(-4.0 * 100 / 1024))
    assert kernel_norm2(square, 4.0, 2) == pytest.approx(one * two, rel=1e-9)
    mu2 = mechanism.paths * dense / mechanism.std**2
    present, absent = (canary.scores(3, 8_000, there) for there in (True, False))
    for scores, mean in ((present, mu2 / 2.0), (absent, -mu2 / 2.0)):
        assert abs(scores.mean() - mean) < 4.0 * math.sqrt(mu2 / 8_000)
        assert scores.var() == pytest.approx(mu2, rel=0.08)
    assert canary.scores(3, 20, True) == pytest.approx(present[:20], rel=1e-9)
    # 97% of all that a neighbour can differ by
    assert mu2 > 0.965 / mechanism.noise_multiplier**2


# --- record and replay: what stays within the relation is compared in test_released_neighbours.py -------------------


def compared(setting: str, times: float, way: str = "state") -> Any:
    """Through the front door, with rewards that differ by ``times`` as much as a neighbour's may."""
    relation = SUITE.plan(setting).relation
    other = Walk(ends=0.2, way=way, amount=times * relation.radius, slope=times * (relation.lipschitz or 0.0))
    return record_replay(*(learned_from(walk, SUITE.budget, SUITE.config(setting)) for walk in (Walk(ends=0.2), other)))


@pytest.mark.slow
@pytest.mark.parametrize("setting", SUITE.algorithm.settings)
def test_what_is_no_neighbour_is_noticed(setting):
    assert compared(setting, 1.0).problems == ()
    found = compared(setting, 4.0)
    assert found.problems == ("the rewards that were asked for differ by more than the sensitivity",)
    assert found.largest > 1.0
    assert found.releases == (1 if setting == "output" else 5)


@pytest.mark.slow
def test_a_shared_path_is_for_functions_of_the_state_alone():
    """A difference between the actions would come out without any noise."""
    assert compared("functional", 1.0, "action").problems == ()
    found = compared("functional, one path", 1.0, "action")
    # seen where both actions were taken at one point: at the ends of the interval
    assert any("at one point" in problem for problem in found.problems) or found.largest > 1.0


def test_nothing_that_is_asked_is_nothing_that_differs():
    assert compare_questions((), (), SUITE.plan("functional").mechanism) == ([], 0.0)
