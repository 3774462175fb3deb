"""Whether the mechanisms of a certificate protect the user that its relation names.

A privacy event says of which multiple of what one user can move the noise is. What a user can move at least follows
from the relation, the clip norms and the strategy of the noise, and is computed here again:
docs/proofs/one-pass-users.md and correlated-noise.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dprl.accounting.user_relation import CLIPS, MECHANISM, WORDS, column_norm_of
from dprl.errors import DprlError

_SLACK = 1.0 - 1e-9  # the last digits of floating-point functions on another machine
_GRID = 2.0**-32  # a step of the grid over the clip norm, at most


def counted(mechanism: Mapping[str, Any]) -> Any:
    """How often the event of a certificate counts a mechanism: of sums over users, how many a user takes part in."""
    return mechanism.get("epochs" if mechanism.get("name") == MECHANISM else "steps")


def of_users(content: Mapping[str, Any]) -> bool:
    """Whether a mechanism says that it is for users who take part once: :func:`check_users` then looks."""
    return any(mechanism.get("name") == MECHANISM for mechanism in content["mechanisms"])


def check_users(path: Path, content: Mapping[str, Any]) -> None:
    """Refuse mechanisms with less noise than zeroing out or replacing one user asks for; raises one sentence."""
    relations = [relation for relation, words in WORDS.items() if words == content["neighbouring_relation"]]
    if len(relations) != 1:
        raise DprlError(f"The neighbouring relation of {path} does not say which users are neighbours.")
    for mechanism in content["mechanisms"]:
        try:
            sound = _sound(mechanism, relations[0])
        except (KeyError, TypeError, ValueError, ArithmeticError, DprlError) as error:
            raise DprlError(f"A mechanism of {path} does not protect the users of its relation.") from error
        if not sound:
            raise DprlError(f"A mechanism of {path} states less noise than its relation asks for.")


def _sound(mechanism: Mapping[str, Any], relation: str) -> bool:
    if mechanism["name"] != MECHANISM or mechanism["relation"] != relation:
        raise ValueError("not a sum over users, or one for another relation")
    steps, epochs, dimension, _ = (_count(mechanism, name) for name in ("steps", "epochs", "dimension", "batch"))
    if steps % epochs or (epochs > 1 and mechanism["noise"] != "independent"):
        raise ValueError("no proof for users who come back")
    if sum(_count(part, "dimension") for part in mechanism["parts"]) != dimension:
        raise ValueError("parts of another dimension")
    clip_norm = math.hypot(*(_number(part, "clip_norm") for part in mechanism["parts"]))
    multiplier, stated, norm = (_number(mechanism, name) for name in ("noise_multiplier", "sensitivity", "column_norm"))
    if _number(mechanism, "grid_step") > clip_norm * _GRID:
        raise ValueError("too coarse a grid")
    return (
        stated >= CLIPS[relation] * clip_norm * _SLACK
        and norm >= column_norm_of(mechanism["noise"], steps, dimension, multiplier) * _SLACK
        and _number(mechanism, "std") >= multiplier * stated * norm * _SLACK
    )


def _number(mapping: Mapping[str, Any], name: str) -> float:
    value = mapping[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0.0:
        raise ValueError(name)
    return float(value)


def _count(mapping: Mapping[str, Any], name: str) -> int:
    value = mapping[name]
    if type(value) is not int or value < 1:
        raise ValueError(name)
    return value
