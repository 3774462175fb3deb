"""One strict schema for each mechanism: what the rows of a certificate must hold, and what follows from them.

:mod:`dprl.accounting.verification` compares the rows with the privacy event; here every field is of its kind, within
the range for which the noise is proved, and what can be computed from the others is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from dprl.accounting.reward_relation import answer_step
from dprl.accounting.reward_verification import GRADIENTS, PATHS, REWARDS
from dprl.accounting.user_relation import MECHANISM
from dprl.errors import DprlError

LEAST_STD, LARGEST_STD = 2.0**24, 2.0**44
"""Standard deviations, in grid points, for which the sampler is proved: docs/proofs/rounded-gaussian.md."""
MOST_DIMENSION, MOST_NORMED = 2**22, 2**16
"""Coordinates of a sum, and of one whose norm is released beside it."""
_MOST_STEPS = 10**12
_SLACK = 1e-9  # the last digits of floating-point functions on another machine
_CALIBRATED = 1e-5  # to how much a multiplier is calibrated, with room

UNDER_FILTER = " and its norm, under a Renyi filter"
_SUMS = ("Gaussian vector", "Clipped Gaussian sum", "Poisson-sampled clipped Gaussian sum")
OF_SAMPLED_USERS = "Gaussian noise on sums over sampled users"


def whole(value: Any) -> bool:
    """Whether ``value`` is a positive whole number: neither a truth value, nor a fraction, nor text."""
    return type(value) is int and 1 <= value <= _MOST_STEPS


def positive(value: Any) -> bool:
    """Whether ``value`` is a positive finite number."""
    return not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value) and value > 0.0


def text(value: Any) -> bool:
    """Whether ``value`` is text that can be printed."""
    return isinstance(value, str) and value.isprintable()


def _number(value: Any) -> bool:
    return (value == 0.0 and type(value) in (int, float)) or positive(value)


def _share(value: Any) -> bool:
    return positive(value) and value <= 1.0 + _SLACK


def _levels(value: Any) -> bool:
    return isinstance(value, list) and 1 <= len(value) <= 64 and all(map(positive, value))


def _parts(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) > 0
        and all(
            isinstance(part, dict)
            and set(part) == {"dimension", "clip_norm"}
            and whole(part["dimension"])
            and positive(part["clip_norm"])
            for part in value
        )
    )


Kind = Callable[[Any], bool]
_EVERY: dict[str, Kind] = {
    "name": text,
    "purpose": text,
    "noise_multiplier": positive,
    "grid_step": positive,
    "steps": whole,
    "dimension": whole,
}
_SUM: dict[str, Kind] = _EVERY | {"clip_norm": positive, "sampling_rate": _share}
_FILTER: dict[str, Kind] = _SUM | {"levels": _levels, "norm_multiplier": positive, "order": whole, "budget": positive}
_MOVED: dict[str, Kind] = _EVERY | {"sensitivity": positive, "std": positive}
SCHEMAS: dict[str, dict[str, Kind]] = {
    **dict.fromkeys((*_SUMS, OF_SAMPLED_USERS), _SUM),
    **{name + UNDER_FILTER: _FILTER for name in _SUMS[1:]},
    MECHANISM: _MOVED
    | {"relation": text, "parts": _parts, "noise": text, "column_norm": positive, "epochs": whole, "batch": whole},
    REWARDS: _MOVED,
    GRADIENTS: _MOVED | {"clip_norm": positive},
    PATHS: _MOVED
    | {"sup": positive, "lipschitz": _number, "decay": positive, "paths": whole, "dimensions": whole}
    | {"spread": _number, "largest_reward": _number},
}
"""What a certificate's row holds, by the mechanism's name. ``share`` stands beside it where a plan divides."""
_SHARED = {**dict.fromkeys((*_SUMS, *(name + UNDER_FILTER for name in _SUMS[1:])), _share)}


def check_rows(path: Path, content: Mapping[str, Any]) -> None:
    """Refuse a verified certificate whose rows are not those of mechanisms that dprl has; raises one sentence."""
    for row in content["mechanisms"]:
        name = row.get("name") if isinstance(row, dict) else None
        schema = SCHEMAS.get(name) if isinstance(name, str) else None
        if schema is None:
            raise DprlError(f"A mechanism of {path} is none that this version of dprl knows.")
        schema = schema | ({"share": _SHARED[name]} if name in _SHARED else {})  # type: ignore[index]
        for field in (*schema, *row):
            if field not in row:
                raise DprlError(f"The mechanism {name!r} of {path} lacks the field {field!r}.")
            if field not in schema:
                raise DprlError(f"The mechanism {name!r} of {path} has an unknown field {field!r}.")
            if not schema[field](row[field]):
                raise DprlError(f"The field {field!r} of the mechanism {name!r} of {path} is out of its range.")
        if not _proved(row):
            raise DprlError(f"The mechanism {name!r} of {path} has a grid or noise for which there is no proof.")


def check_shares(path: Path, content: Mapping[str, Any]) -> None:
    """Refuse rows whose shares of the budget are not the whole of it; raises one sentence."""
    shares = [row["share"] for row in content["mechanisms"] if "share" in row]
    if shares and abs(math.fsum(shares) - 1.0) > 1e-6:
        raise DprlError(f"The shares of the mechanisms of {path} do not add up to the whole budget.")


def draws(content: Mapping[str, Any]) -> int:
    """Return how many numbers all mechanisms of a certificate draw: what the sampler's error is charged for."""
    return sum(row["dimension"] * row["steps"] for row in content["mechanisms"])


def _proved(row: Mapping[str, Any]) -> bool:
    """Whether the grid is that of the sensitivity, and the noise on it one that the sampler draws."""
    name, grid = row["name"], float(row["grid_step"])
    if name == PATHS:
        return grid == answer_step(float(row["std"]))
    if row["dimension"] > MOST_DIMENSION or math.frexp(grid)[0] != 0.5:
        return False
    if "std" in row:
        return _drawn(row["std"], grid)
    clip = float(row["clip_norm"])
    multipliers = [row["noise_multiplier"], *row.get("levels", ())]
    if "norm_multiplier" in row:
        multipliers.append(row["norm_multiplier"])
        if not 2 <= row["dimension"] <= MOST_NORMED + 1:
            return False
    return 2.0**32 <= clip / grid < 2.0**33 and all(_drawn(float(z) * clip, grid) for z in multipliers)


def _drawn(std: float, grid: float) -> bool:
    points = std / grid
    return LEAST_STD * (1.0 - _SLACK) <= points <= LARGEST_STD * (1.0 + _SLACK)


def check_filter(path: Path, content: Mapping[str, Any], event: Any) -> None:
    """Compute again what the row of a Renyi filter says beyond its event; raises one sentence.

    Its ``noise_multiplier`` is that of the constant noise which the budget just lets run to the last step. The shares
    are those of the Renyi divergence, of the releases before the steps and of the steps.
    """
    from dprl.accounting.renyi_filter import gaussian_cost

    *before, row = content["mechanisms"]
    whole_budget = sum(Fraction(gaussian_cost(event.order, z)) for z in event.before) + Fraction(event.budget)
    parts = [Fraction(gaussian_cost(event.order, z)) for z in event.before] + [Fraction(event.budget)]
    for stated, part in zip((*before, row), parts, strict=True):
        if not math.isclose(stated["share"], float(part / whole_budget), rel_tol=1e-6):
            raise DprlError(f"The shares of the mechanisms of {path} are not what its Renyi filter spends.")
    z, norm = row["noise_multiplier"], row["norm_multiplier"]
    if not _runs(event, z, norm, 1.0 + _CALIBRATED) or _runs(event, z, norm, 1.0 - _CALIBRATED):
        raise DprlError(
            f"The noise multiplier of {path} is not the least that its filter's budget lets run to the end."
        )


def _runs(event: Any, noise_multiplier: float, norm_multiplier: float, scale: float) -> bool:
    """Whether constant noise of that much runs to the last step."""
    from dprl.accounting.renyi_filter import WHOLE, cost, effective_multiplier

    both = effective_multiplier(noise_multiplier * scale, norm_multiplier * scale)
    one = Fraction(cost(event.order, event.sampling_probability, both))
    return one <= event.budget and event.steps * math.ceil(one * WHOLE / Fraction(event.budget)) <= WHOLE
