"""Privacy events: what a mechanism did, as values that an accountant composes and a certificate stores.

The events are dp_accounting's own; this module makes the few that our mechanisms emit and turns them to JSON and
back. Whatever is not one of those few is refused, in both directions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from dp_accounting import dp_event as dpe

from dprl.accounting.renyi_filter import RenyiFilterEvent
from dprl.errors import DprlError

DpEvent = dpe.DpEvent

SAMPLER_TOTAL_VARIATION = 2.0**-49
"""Distance of one secure draw of noise from the exact rounded Gaussian (docs/proofs/rounded-gaussian.md)."""

_FILTER = tuple(field.name for field in fields(RenyiFilterEvent))


def sampler_delta(epsilon: float, draws: int, total_variation: float = SAMPLER_TOTAL_VARIATION) -> float:
    """What ``draws`` draws that are only so close to exact add to delta."""
    return (1.0 + math.exp(min(epsilon, 700.0))) * draws * total_variation


def gaussian(noise_multiplier: float) -> DpEvent:
    """One Gaussian release; ``noise_multiplier`` is the standard deviation over the L2 sensitivity."""
    _positive("noise multiplier", noise_multiplier)
    return dpe.GaussianDpEvent(float(noise_multiplier))


def poisson_gaussian(sampling_rate: float, noise_multiplier: float, steps: int) -> DpEvent:
    """``steps`` adaptive Gaussian releases, each over its own Poisson sample of the units."""
    if not (0.0 < sampling_rate <= 1.0):
        raise DprlError("The sampling rate must be above 0 and at most 1.")
    if steps < 1:
        raise DprlError("The number of steps must be at least 1.")
    inner = gaussian(noise_multiplier)
    # A rate of one samples everybody: the plain Gaussian, for which the accountant is exact and quicker.
    one = inner if sampling_rate == 1.0 else dpe.PoissonSampledDpEvent(float(sampling_rate), inner)
    return dpe.SelfComposedDpEvent(one, int(steps))


def compose(events: Sequence[DpEvent]) -> DpEvent:
    """All of ``events`` on the same data."""
    return events[0] if len(events) == 1 else dpe.ComposedDpEvent(list(events))


def to_json(event: DpEvent) -> dict[str, Any]:
    """Plain data for a certificate; raises for an event that no mechanism of ours emits."""
    match event:
        case dpe.GaussianDpEvent():
            return {"type": "Gaussian", "noise_multiplier": float(event.noise_multiplier)}
        case dpe.PoissonSampledDpEvent():
            return {
                "type": "PoissonSampled",
                "sampling_probability": float(event.sampling_probability),
                "event": to_json(event.event),
            }
        case dpe.SelfComposedDpEvent():
            return {"type": "SelfComposed", "count": int(event.count), "event": to_json(event.event)}
        case dpe.ComposedDpEvent():
            return {"type": "Composed", "events": [to_json(e) for e in event.events]}
        case RenyiFilterEvent():
            numbers = {name: getattr(event, name) for name in _FILTER}
            return {"type": "RenyiFilter"} | {n: list(x) if isinstance(x, tuple) else x for n, x in numbers.items()}
    raise DprlError(f"A privacy event of type {type(event).__name__} is not one that dprl emits.")


def from_json(data: Any) -> DpEvent:
    """Inverse of :func:`to_json`; anything unknown, extra or out of range is refused.

    >>> from_json(to_json(poisson_gaussian(0.01, 1.5, 10))) == poisson_gaussian(0.01, 1.5, 10)
    True
    """
    kind = data.get("type") if isinstance(data, dict) else None
    try:
        if kind == "Gaussian" and set(data) == {"type", "noise_multiplier"}:
            return gaussian(float(data["noise_multiplier"]))
        if kind == "PoissonSampled" and set(data) == {"type", "sampling_probability", "event"}:
            rate = float(data["sampling_probability"])
            if 0.0 < rate <= 1.0:
                return dpe.PoissonSampledDpEvent(rate, from_json(data["event"]))
        if kind == "SelfComposed" and set(data) == {"type", "count", "event"} and int(data["count"]) >= 1:
            return dpe.SelfComposedDpEvent(from_json(data["event"]), int(data["count"]))
        if kind == "Composed" and set(data) == {"type", "events"} and data["events"]:
            return dpe.ComposedDpEvent([from_json(e) for e in data["events"]])
        if kind == "RenyiFilter" and set(data) == {"type", *_FILTER}:
            numbers: dict[str, Any] = {name: tuple(map(_float, data[name])) for name in ("noise_multipliers", "before")}
            numbers |= {name: _float(data[name]) for name in ("budget", "sampling_probability", "norm_multiplier")}
            return RenyiFilterEvent(order=data["order"], steps=data["steps"], **numbers)
    except (TypeError, ValueError) as error:
        raise DprlError("The privacy event is not one that dprl emits.") from error
    raise DprlError("The privacy event is not one that dprl emits.")


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("not a number")
    return float(value)


def _positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0.0):
        raise DprlError(f"The {name} must be a positive finite number.")
