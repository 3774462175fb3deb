"""What is read of a value, or of a difference, on the page of an evaluation: its name, errors and interval."""

from __future__ import annotations

import math
from typing import Any

from dprl.report.fields import endpoints, section, text
from dprl.report.formatting import as_number, number


def value_bounds(estimate: dict[str, Any]) -> tuple[float, float] | None:
    """Return the smallest and largest value that the public bounds allow: where an interval may have been cut."""
    if probability_of(estimate):
        return 0.0, 1.0
    bounds = section(estimate.get("bounds"))
    low, high = endpoints(bounds.get("reward"))
    if not is_of_transitions(estimate):
        least, most = endpoints(bounds.get("return_range", bounds.get("value")))  # its name before 0.2.0
        if least is not None and most is not None:
            return least, most
        horizon, discount = as_number(bounds.get("horizon")), as_number(estimate.get("discount"))
        if low is None or high is None or horizon is None or discount is None or not 0.0 <= discount <= 1.0:
            return None
        longest = horizon if discount == 1.0 else (1.0 - discount**horizon) / (1.0 - discount)
        low, high = low * (longest if low < 0.0 else 1.0), high * (longest if high > 0.0 else 1.0)
    return None if low is None or high is None else (low, high)


def is_of_transitions(estimate: dict[str, Any]) -> bool:
    """Return whether values are mean rewards of a transition."""
    return text(estimate.get("quantity"), "") == "mean reward of a transition"


def probability_of(estimate: dict[str, Any]) -> str:
    """Return what a value is the probability of, in words; empty where it is none."""
    quantity = text(estimate.get("quantity"), "")
    return quantity if quantity.startswith("probability") else ""


def total_error(target: dict[str, Any]) -> float | None:
    """Return the standard error of noise and sampling together, by the interval where that is not told."""
    known = [e for e in errors_of(target) if e is not None]
    if known and 0.0 < math.hypot(*known) < math.inf:
        return math.hypot(*known)
    low, high = endpoints(target.get("interval"))
    return (high - low) / 4.0 if low is not None and high is not None else None


def errors_of(target: dict[str, Any]) -> tuple[float | None, float | None]:
    """Return the standard errors of privacy noise and sampling, with None for one that is missing or negative."""
    values = (as_number(target.get(key)) for key in ("privacy_standard_error", "sampling_standard_error"))
    privacy, sampling = (value if value is not None and value >= 0.0 else None for value in values)
    return privacy, sampling


def reaches_far(target: dict[str, Any]) -> bool:
    """Return whether an interval is half as wide again as two standard errors to both sides."""
    known, (low, high) = [e for e in errors_of(target) if e is not None], endpoints(target.get("interval"))
    return len(known) == 2 and None not in (low, high) and high - low > 6.0 * math.hypot(*known) > 0.0  # type: ignore[operator]


def interval_of(target: dict[str, Any]) -> tuple[float, float] | None:
    """Return the interval, in which an end that is missing is infinite; None where both are missing."""
    low, high = endpoints(target.get("interval"))
    if low is None and high is None:
        return None
    return -math.inf if low is None else low, math.inf if high is None else high


def words_of(interval: tuple[float, float] | None, places: int | None) -> str:
    """Return an interval in words; nothing for none."""
    return "" if interval is None else f"{number(interval[0], places)} to {number(interval[1], places)}"


def name_of(target: dict[str, Any]) -> str:
    """Return what the policy is called."""
    return text(target.get("name"), "(unnamed)")
