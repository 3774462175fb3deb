"""Public facts about missing data: values that replace missing values, and hazards of being censored. A leaf."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dprl.config import within
from dprl.errors import DprlError, require

ESTIMATE = "estimate"
"""Stands in place of a hazard that is to be estimated, within the declared strata."""


def check_fill(fill: Any, flagged: Any, observation: Sequence[tuple[float, float]]) -> None:
    """Refuse values outside of the declared bounds, and flags of components that are not filled.

    Args:
        fill: a number or None for each observation component; None where no component is filled.
        flagged: numbers of the components whose missing values are flagged; None for no component.
        observation: bounds of each component.
    """
    if fill is None and flagged is None:
        return
    size = len(observation)
    if not isinstance(fill, tuple) or len(fill) != size:
        raise DprlError(f"bounds: fill must have one value, or none, for each of the {size} observation components.")
    for i, (value, (low, high)) in enumerate(zip(fill, observation, strict=True)):
        sound = value is None or within(value, f"[{low}, {high}]")
        require(sound, f"bounds: fill of observation component {i} must be a number from {low:g} to {high:g}.")
    if flagged is not None:
        known = isinstance(flagged, tuple) and all(within(i, f"0..{size - 1}") and fill[i] is not None for i in flagged)
        require(known, "bounds: flag_missing must list components that have a fill.")
        require(len(set(flagged)) == len(flagged), "bounds: flag_missing lists a component twice.")


def check_hazard(hazard: Any, max_importance_ratio: float, in_strata: bool) -> None:
    """Refuse a value that is no hazard of being censored, and bounds that would cut the weights of people who stay.

    Args:
        hazard: a number; :data:`ESTIMATE`; or None.
        max_importance_ratio: largest importance ratio of the bounds.
        in_strata: whether the bounds declare strata.
    """
    if hazard is None:
        return
    if hazard == ESTIMATE:
        where = 'bounds: censoring_hazard = "estimate" needs strata, within which it is estimated beside propensities.'
        require(in_strata, where)
        return
    require(within(hazard, "[0, 1)"), 'bounds: censoring_hazard must be at least 0 and below 1, or "estimate".')
    require(
        max_importance_ratio * (1.0 - hazard) >= 1.0 - 1e-9,
        f"bounds: max_importance_ratio must be at least {1.0 / (1.0 - hazard):.6g}, one over the chance of staying "
        "in a step: it bounds the ratio of target to behaviour probability over that chance.",
    )


def by_number(bounds: Mapping[str, Any]) -> dict[str, Any]:
    """Return parsed bounds in which ``fill`` and ``flag_missing`` refer to components by number, not by name.

    A component's name is its entry in ``observation_names``, or its number from 0. All other values stay unchanged; the
    checks judge them.

    Raises:
        DprlError: a name is that of no component, or the fill of a named component is no number.
    """
    out = dict(bounds)
    observation, names = bounds.get("observation"), bounds.get("observation_names")
    size = len(observation) if isinstance(observation, Sequence) else 0
    named = list(names) if isinstance(names, Sequence) and not isinstance(names, str) else []

    def place(what: str, name: object) -> int:
        if name in named:
            return named.index(name)
        if str(name) in {str(i) for i in range(size)} and not isinstance(name, bool):
            return int(str(name))
        known = ", ".join(map(str, named)) if named else f"0 to {size - 1}"
        raise DprlError(f"bounds: {what} names no observation component {name!r}; there are {known}.")

    fill, flagged = out.get("fill"), out.get("flag_missing")
    if isinstance(fill, Mapping):
        filled: list[Any] = [None] * size
        for name, value in fill.items():
            if value is None or (isinstance(value, float) and math.isnan(value)):
                raise DprlError(f"bounds: fill of {name!r} must be a number.")
            filled[place("fill", name)] = value
        out["fill"] = filled
    if isinstance(flagged, list | tuple):
        out["flag_missing"] = [place("flag_missing", name) for name in flagged]
    return out
