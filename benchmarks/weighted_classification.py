"""Weighted classification beside regression for each action, both private, on the trial of ``learn_from_log``.

``python -m benchmarks.weighted_classification``: a softmax of scores that are linear in a basis learns to take actions
that were followed by outcomes above the middle of the range, and to avoid the others (outcome-weighted learning with
residual weights; Zhou, Mayer-Hamblett, Khan and Kosorok 2017). It takes noisy steps along people's clipped gradients.
It is compared with fitted Q iteration, which for one decision is a regression for each action, and with advantages and
rules. The mean share of the way from uniform arms to the best arm is printed. The classification's basis, steps and
clip norm were chosen among 20 combinations on seeds 0 to 39.
"""

from __future__ import annotations

import itertools
import sys
from typing import Any

import numpy as np

import dprl
from benchmarks.harness import pin, table
from benchmarks.learn_from_log import ARMS, DELTA, EPSILONS, RANGE, trial
from dprl.accounting import events
from dprl.accounting.calibration import noise_multiplier_for
from dprl.evaluation.learned_policy import plan_of_learned
from dprl.mechanisms.noise import SeededNoise
from dprl.policies.greedy import Basis, GreedyPolicy
from dprl.protocols import NO_JOURNAL

JUDGING = range(100, 120)
BASIS, STEPS, LENGTH, CLIP, MOMENTUM = "products:2", 5, 1.0, 0.5, 0.5
LEARNERS = {"regression for each action": "fitted-q", "advantages": "advantage"}


def classified(log: Any, budget: dprl.Budget, rng: np.random.Generator) -> GreedyPolicy:
    """Return the policy that weighted classification learns from all people of ``log``."""
    basis = Basis(log.bounds.state, BASIS)
    phi = basis(log.observation) / np.sqrt(basis.size)
    weight, taken = log.reward / RANGE, np.eye(ARMS)[log.action]
    theta, along = np.zeros((2, ARMS, basis.size))
    noise = CLIP * np.sqrt(STEPS) * noise_multiplier_for(events.gaussian, budget)
    for _ in range(STEPS):
        scores = np.exp(phi @ theta.T)
        towards = weight[:, None] * (taken - scores / scores.sum(axis=1, keepdims=True))
        gradients = towards[:, :, None] * phi[:, None, :]
        norms = np.linalg.norm(gradients, axis=(1, 2), keepdims=True)
        total = (gradients * np.minimum(1.0, CLIP / np.maximum(norms, 1e-12))).sum(axis=0)
        along = MOMENTUM * along + (1.0 - MOMENTUM) * (total + rng.normal(0.0, noise, total.shape))
        theta = theta + LENGTH * along / np.linalg.norm(along)
    return GreedyPolicy(basis, theta, np.zeros((ARMS, basis.size, basis.size)), log.bounds.state_names)


def ways(better: bool, epsilon: float) -> dict[str, list[float]]:
    """Return each learner's shares of the way from uniform arms to the best arm, on the same people."""
    found, budget, out = trial(better), dprl.Budget(epsilon, DELTA), dict[str, list[float]]()
    uniform, best = float(found.means.mean()), float(found.means.mean(axis=0).max())
    options = dprl.ImportanceSampling(discount=1.0)
    plans = {
        f"{name}, {basis}": plan_of_learned(options, found.bounds, budget, learner=learner, basis=basis).first
        for name, learner in LEARNERS.items()
        for basis in ("products:1", "products:2")
    } | {"rules": plan_of_learned(options, found.bounds, budget, learner="rules").first}
    for seed in JUDGING:
        rng = np.random.default_rng([seed, better])
        log = dprl.read_log(found.draw(rng), bounds=found.bounds).load(None)
        noise: Any = SeededNoise.from_seed(int(rng.integers(2**62)))
        first: Any = plans["rules"]
        some = log.of_units(first.split.in_first(noise, log.units), found.bounds)
        policies: dict[str, Any] = {f"weighted classification, {BASIS}": classified(some, budget, rng)}
        for name, plan in plans.items():
            released = plan.released(some, None, noise, NO_JOURNAL)  # type: ignore[union-attr]
            policies[name] = next(iter(released.policies.values()))
        for name, policy in policies.items():
            out.setdefault(name, []).append((found.value(policy) - uniform) / (best - uniform))
    return out


if __name__ == "__main__":
    pin(1)
    JUDGING = JUDGING[: int(sys.argv[1])] if len(sys.argv) > 1 else JUDGING
    cases = list(itertools.product((False, True), EPSILONS))
    shares = [ways(*case) for case in cases]
    names = [f"{'a rule' if better else 'no rule'} is better, epsilon {epsilon:g}" for better, epsilon in cases]
    print(table(["learner", *names], [
        [name, *(f"{np.mean(of[name]):.0%} +- {np.std(of[name]) / len(of[name]) ** 0.5:.0%}" for of in shares)]
        for name in shares[0]
    ]))  # fmt: skip
