"""The checks of functional Q-learning: what is asked of the mechanisms, what is paid, and what is handed out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

import dprl
from dprl.accounting.budget import Budget
from dprl.accounting.verification import verify
from dprl.audits.attacks.reward_functions import canary_of_plan
from dprl.audits.conformance.reward_functions import Walk
from dprl.audits.lower_bound import run_attack
from dprl.learning.functional_q import FunctionalQ
from dprl.learning.learning_plan import make_learning_plan
from dprl.mechanisms.noise import SecureNoise
from dprl.release.train import train

from .lab import Lab, check, refused, require

BUDGET = Budget(0.9, 1e-4)
SHORT: dict[str, Any] = {"samples": 100, "round": 20, "batch": 8, "network": "mlp:4", "reward_radius": 0.01}
KEY = bytes(range(32))


@check
def four_actions_are_told_apart_no_better_than_claimed() -> None:
    """The canary: all of them change at once."""
    facts = replace(Walk().facts, actions=4)
    plan = make_learning_plan(FunctionalQ(variant="functional", reward_radius=0.01), facts, BUDGET)
    found = run_attack(canary_of_plan(plan), trials=4_000, seed=1, confidence=0.999)
    require(not found.violated, "the audit's lower bound is above the claim")


class Quoting:
    """An environment that quotes a reward in what it raises."""

    facts = replace(Walk().facts, on_grid=False)

    def reset(self, seed: int) -> np.ndarray:
        return np.full(1, 0.5)

    def step(self, action: int) -> Any:
        raise BaseException("0.123456789")


@check
def nothing_that_an_environment_raises_is_said() -> None:
    try:
        train(Quoting(), BUDGET, algorithm=FunctionalQ(variant="observed-reward", **SHORT))
    except BaseException as error:
        require(False, f"an exception after the charge: {type(error).__name__}")


@check
def rewards_of_the_next_state_are_refused() -> None:
    """Where nobody declares of what rewards are functions, a path has no proof."""
    facts = replace(Walk().facts, reward_of=None)
    with refused("a path is planned for rewards that may depend on the next state"):
        make_learning_plan(FunctionalQ(variant="functional", **SHORT), facts, BUDGET)


def _released(lab: Lab, **options: Any) -> Any:
    """A private release of known noise, in a folder."""
    with patch.object(SecureNoise, "fresh", lambda: SecureNoise(KEY)):
        release = train(Walk(), BUDGET, algorithm=FunctionalQ(**{**SHORT, **options}))
    folder = lab.folder() / "q"
    return release, release.save(folder), folder


@check
def no_key_is_handed_out(lab: Lab) -> None:
    """Not the run key, nor one that was made of it: whoever has it can subtract the noise."""
    _, paths, _ = _released(lab)
    keys = [KEY, SecureNoise(KEY).stream("reward")._key]
    for path in paths.values():
        content = path.read_bytes()
        require(not any(k in content or k.hex().encode() in content for k in keys), f"a key lies in {path.name}")


@check
def the_certificate_says_what_a_path_protects(lab: Lab) -> None:
    """One path for all actions protects functions of the state alone, and must say so."""
    try:
        _, _, folder = _released(lab, variant="functional", shared_path=True)
        content = verify(folder).content
    except dprl.DprlError as error:
        require(False, f"the certificate is refused: {error}")
    else:
        require(
            "of the state in which the action is taken" in content["neighbouring_relation"], "a condition is missing"
        )
