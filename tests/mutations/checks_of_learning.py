"""The checks of functional Q-learning: what is asked of the mechanisms, what is paid, and what is handed out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

import dprl
from dprl.accounting.budget import Budget
from dprl.accounting.reward_relation import path_delta
from dprl.accounting.verification import verify
from dprl.algorithms.learning.attacks import Shifted, canary_of_plan
from dprl.algorithms.learning.conformance import CONFORMANCE, SmallWalk
from dprl.algorithms.learning.functional_q import FunctionalQ
from dprl.algorithms.learning.learning_plan import answers_of, make_learning_plan
from dprl.audits.lower_bound import audit
from dprl.audits.record_rewards import compare_rewards
from dprl.mechanisms.noise import SecureNoise, SeededNoise
from dprl.releases.train import train

from .lab import Lab, require

BUDGET = Budget(0.9, 1e-4)
SHORT: dict[str, Any] = {"samples": 100, "round": 20, "batch": 8, "network": "mlp:4", "reward_radius": 0.01}
KEY = bytes(range(32))


def neighbouring_rewards(setting: str) -> None:
    """Record and replay over reward functions as far apart as neighbours may be."""
    suite = CONFORMANCE
    plan = suite.plan(setting)
    radius, lipschitz = plan.config.reward_radius or 0.0, plan.config.reward_lipschitz
    width = 1.0 / 8.0

    def by(states: Any, actions: Any) -> Any:
        if lipschitz is None:
            return jnp.full(len(states), radius)
        return radius - lipschitz * jnp.abs((states[:, 0] % width) - width / 2.0)

    found = compare_rewards(
        lambda environment, noise, wrap: suite.run(setting, environment, noise, wrap, on_host=True),
        suite.environment,
        Shifted(suite.environment, by),
        SeededNoise.from_seed(3),
        plan.mechanism,
    )
    require(not found.problems, f"{setting}: {found.problems[0] if found.problems else ''}")


def neighbours_under_a_path(lab: Lab) -> None:
    del lab
    neighbouring_rewards("functional")


def neighbours_under_noised_rewards(lab: Lab) -> None:
    del lab
    neighbouring_rewards("observed reward")


def neighbours_under_noised_gradients(lab: Lab) -> None:
    del lab
    neighbouring_rewards("gradient")


def neighbours_of_a_planned_q(lab: Lab) -> None:
    del lab
    neighbouring_rewards("output")


def four_actions_are_told_apart_no_better_than_claimed(lab: Lab) -> None:
    """The canary: all of them change at once."""
    del lab
    walk = SmallWalk(actions=4)
    plan = make_learning_plan(FunctionalQ(variant="functional", reward_radius=0.01), walk.facts, BUDGET)
    found = audit(canary_of_plan(plan, walk), trials=4_000, seed=1, confidence=0.999)
    require(not found.violated, "the audit's lower bound is above the claim")


def a_cell_has_one_answer(lab: Lab) -> None:
    """Two observations too near for the grid: the second gets what the first got, whatever its reward."""
    del lab
    facts = replace(SmallWalk().facts, on_grid=False)
    plan = make_learning_plan(FunctionalQ(variant="functional", **SHORT), facts, BUDGET)
    answers = answers_of(plan, SeededNoise.from_seed(1))
    place, action = np.array([[7], [7]]), np.array([1, 1])
    first = np.asarray(answers.noised(np.array([0.1, 0.4]), place, action, 0))
    later = np.asarray(answers.noised(np.array([0.3, 0.2]), place, action, 1))
    require(len({*first.tolist(), *later.tolist()}) == 1, "a cell answered twice: a difference comes out without noise")


def precision_is_paid_for(lab: Lab) -> None:
    del lab
    plan = make_learning_plan(FunctionalQ(variant="functional", people=50), SmallWalk().facts, BUDGET)
    std = getattr(plan.mechanism, "std", 0.0)
    least = path_delta(0.9, plan.config.samples, std, float(plan.config.decay or 0.0), 1, 0.5)
    require(plan.delta_sampler >= least > 0.0, "the precision of a path is not in delta")
    require(plan.delta_of_event + plan.delta_sampler <= 1e-4 * (1.0 + 1e-12), "delta is spent twice")


def _released(lab: Lab, **options: Any) -> Any:
    """A private release of known noise, in a folder."""
    original = vars(SecureNoise)["fresh"]
    SecureNoise.fresh = classmethod(lambda cls: cls(KEY))  # type: ignore[method-assign]
    try:
        release = train(SmallWalk(), BUDGET, algorithm=FunctionalQ(**{**SHORT, **options}))
    finally:
        SecureNoise.fresh = original  # type: ignore[method-assign]
    folder = lab.folder() / "q"
    return release, release.save(folder), folder


def no_key_is_handed_out(lab: Lab) -> None:
    """Not the run key, nor one that was made of it: whoever has it can subtract the noise."""
    _, paths, _ = _released(lab)
    keys = [KEY, SecureNoise(KEY).stream("reward")._key]
    for path in paths.values():
        content = path.read_bytes()
        require(not any(k in content or k.hex().encode() in content for k in keys), f"a key lies in {path.name}")


def the_certificate_says_what_a_path_protects(lab: Lab) -> None:
    """One path for all actions protects functions of the state alone, and must say so."""
    try:
        _, _, folder = _released(lab, variant="functional", shared_path=True)
        verify(folder)
    except dprl.DprlError as error:
        require(False, f"the certificate is refused: {error}")


CHECKS: dict[str, Callable[[Lab], None]] = {
    check.__name__.replace("_", " "): check
    for check in (
        neighbours_under_a_path,
        neighbours_under_noised_rewards,
        neighbours_under_noised_gradients,
        neighbours_of_a_planned_q,
        four_actions_are_told_apart_no_better_than_claimed,
        a_cell_has_one_answer,
        precision_is_paid_for,
        no_key_is_handed_out,
        the_certificate_says_what_a_path_protects,
    )
}
