"""Whether the mechanisms of a certificate protect the reward functions that its relation names.

A privacy event says how many noises of which multiple of a sensitivity there were. What that sensitivity must be at
least follows from the relation and from public facts, and is computed here again: docs/proofs/functional-noise.md,
observed-reward.md, reward-gradient.md and output-perturbation.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dprl.accounting.reward_relation import (
    DEPTHS,
    RewardRelation,
    parse_relation,
    path_delta,
    path_sensitivity,
)
from dprl.errors import DprlError

PATHS, REWARDS, GRADIENTS = (
    "Gaussian process",
    "Gaussian noise on observed rewards",
    "Gaussian noise on reward gradients",
)
_SLACK = 1.0 - 1e-9  # the last digits of floating-point functions on another machine


def check_relation(path: Path, content: Mapping[str, Any]) -> RewardRelation:
    """The relation of a certificate whose privacy unit is the reward function."""
    found = parse_relation(content["neighbouring_relation"])
    if found is None:
        raise DprlError(f"The neighbouring relation of {path} does not say how far apart two reward functions are.")
    return found


def check_sensitivities(path: Path, content: Mapping[str, Any], relation: RewardRelation) -> float:
    """Refuse mechanisms whose stated sensitivity is less than the relation asks for; raises one sentence.

    Returns:
        What the finite precision of all of them adds to delta, at least, beyond the sampler of rounded Gaussians.
    """
    facts = content["assumed_public"].get("environment")
    if not isinstance(facts, dict) or not content["mechanisms"]:
        raise DprlError(f"{path} does not say in which environment, and by which mechanism, rewards were asked for.")
    delta = 0.0
    for mechanism in content["mechanisms"]:
        try:
            kind = mechanism["name"]
            if kind == PATHS:
                least = _least_of_paths(mechanism, facts, relation, content["assumed_public"]["hyper_parameters"])
                delta += _path_delta(mechanism, facts, content["epsilon"])
            else:
                if kind not in (REWARDS, GRADIENTS):
                    raise ValueError("unknown mechanism")
                least = relation.radius * (_number(mechanism, "clip_norm") if kind == GRADIENTS else 1.0)
            multiplier, stated = _number(mechanism, "noise_multiplier"), _number(mechanism, "sensitivity")
            sound = stated >= least * _SLACK and _number(mechanism, "std") >= multiplier * stated * _SLACK
        except (KeyError, TypeError, ValueError, ArithmeticError, DprlError) as error:
            raise DprlError(f"A mechanism of {path} does not protect the reward functions of its relation.") from error
        if not sound:
            raise DprlError(f"A mechanism of {path} states less noise than its relation asks for.")
    return delta


def _least_of_paths(
    mechanism: Mapping[str, Any], facts: Mapping[str, Any], relation: RewardRelation, options: Mapping[str, Any]
) -> float:
    sup, lipschitz, decay, spread = (_number(mechanism, name) for name in ("sup", "lipschitz", "decay", "spread"))
    paths, dimensions, answers = (_count(mechanism, name) for name in ("paths", "dimensions", "dimension"))
    actions, of_q = _count(facts, "actions"), options["variant"]["value"] == "output"
    if relation.lipschitz is None:
        raise ValueError("a path needs a Lipschitz constant")
    least_sup, least_lipschitz = relation.radius, relation.lipschitz
    if of_q:  # a path is added to the optimal Q: docs/proofs/output-perturbation.md
        discount = _number(options["discount"], "value")
        if discount >= 1.0:
            raise ValueError("returns without a bound")
        least_sup /= 1.0 - discount
        least_lipschitz += discount * _number(facts, "transition_rate") * least_sup
    if sup < least_sup * _SLACK or lipschitz < least_lipschitz * _SLACK:
        raise ValueError("the path is for other functions")
    if dimensions != len(facts["observation"]) or (dimensions > 1 and not relation.mixed):
        raise ValueError("no proof in so many dimensions")
    # one path for all actions hides nothing of a function that depends on the action
    if paths != actions and not (paths == 1 and relation.of_state and not of_q):
        raise ValueError("too few paths")
    if facts.get("on_grid") is not True and spread < 3.0 * answers * 2.0 ** -DEPTHS[1] * _SLACK:
        raise ValueError("first observations of cells are not charged for")
    return path_sensitivity(sup, lipschitz, decay, paths, dimensions, spread)


def _path_delta(mechanism: Mapping[str, Any], facts: Mapping[str, Any], epsilon: float) -> float:
    largest, stated = max(abs(float(end)) for end in facts["reward"]), _number(mechanism, "largest_reward")
    if stated < largest:
        raise ValueError("rewards beyond the bounds that precision was counted for")
    answers, dimensions = _count(mechanism, "dimension"), _count(mechanism, "dimensions")
    return path_delta(epsilon, answers, _number(mechanism, "std"), _number(mechanism, "decay"), dimensions, stated)


def _number(mapping: Mapping[str, Any], name: str) -> float:
    value = mapping[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0.0:
        raise ValueError(name)
    return float(value)


def _count(mapping: Mapping[str, Any], name: str) -> int:
    value = mapping[name]
    if type(value) is not int or value < 1:
        raise ValueError(name)
    return value
