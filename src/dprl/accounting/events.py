"""Privacy events: what a mechanism did, as values that an accountant composes and a certificate stores.

Most events are dp_accounting's own. This module makes the few events that dprl's mechanisms emit and converts them to
JSON and back. It refuses any other event, in both directions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from dprl.accounting.renyi_filter import RenyiFilterEvent, dpe
from dprl.accounting.schema import positive, whole
from dprl.errors import DprlError, require

DpEvent = dpe.DpEvent
Part = tuple[float, float, int]
"""Part of an event: sampling rate (1 for everybody), noise multiplier, number of steps."""


@dataclass(frozen=True)
class PureDpEvent(dpe.DpEvent):
    """Event of a release with a pure epsilon, such as a noisy maximum.

    Attributes:
        epsilon: what the release costs at every delta.
    """

    epsilon: float


@dataclass(frozen=True)
class ParallelDpEvent(dpe.DpEvent):
    """Event of releases from disjoint parts of the people, where each unit is in one part: docs/proofs/two-parts.md.

    At every epsilon it costs the largest delta of its parts, not their sum. It is never part of another event.

    Attributes:
        events: the event of each part, in order.
    """

    events: tuple[DpEvent, ...]


SAMPLER_TOTAL_VARIATION = 2.0**-49
"""Largest total variation distance of one secure draw from a rounded Gaussian (docs/proofs/rounded-gaussian.md)."""

_FOREIGN = "The privacy event is not one that dprl emits."
_TYPES: dict[str, tuple[type[DpEvent], tuple[str, ...]]] = {
    "Gaussian": (dpe.GaussianDpEvent, ("noise_multiplier",)),
    "PoissonSampled": (dpe.PoissonSampledDpEvent, ("sampling_probability", "event")),
    "SelfComposed": (dpe.SelfComposedDpEvent, ("count", "event")),
    "Composed": (dpe.ComposedDpEvent, ("events",)),
    "Pure": (PureDpEvent, ("epsilon",)),
    "Parallel": (ParallelDpEvent, ("events",)),
    "RenyiFilter": (RenyiFilterEvent, tuple(field.name for field in fields(RenyiFilterEvent))),
}
"""The types of events in a certificate, each with its fields."""
_WHOLE = ("count", "order", "steps")


def sampler_delta(epsilon: float, draws: int, total_variation: float = SAMPLER_TOTAL_VARIATION) -> float:
    """Return what the sampler's error adds to delta over ``draws`` draws, each within ``total_variation`` of exact."""
    return (1.0 + math.exp(min(epsilon, 700.0))) * draws * total_variation


def gaussian(noise_multiplier: float) -> DpEvent:
    """Return the event of one Gaussian release; the multiplier is the standard deviation over the L2 sensitivity."""
    require(positive(noise_multiplier), "The noise multiplier must be a positive finite number.")
    return dpe.GaussianDpEvent(float(noise_multiplier))


def poisson_gaussian(sampling_rate: float, noise_multiplier: float, steps: int) -> DpEvent:
    """Return the event of ``steps`` adaptive Gaussian releases, each over its own Poisson sample of the units."""
    require(0.0 < sampling_rate <= 1.0, "The sampling rate must be above 0 and at most 1.")
    require(steps >= 1, "The number of steps must be at least 1.")
    inner = gaussian(noise_multiplier)
    # A rate of one samples everybody: the plain Gaussian, for which the accountant is exact and quicker.
    one = inner if sampling_rate == 1.0 else dpe.PoissonSampledDpEvent(float(sampling_rate), inner)
    return dpe.SelfComposedDpEvent(one, int(steps))


def compose(events: Sequence[DpEvent]) -> DpEvent:
    """Return the event of all ``events`` together, on the same data."""
    return events[0] if len(events) == 1 else dpe.ComposedDpEvent(list(events))


def pure(epsilon: float) -> PureDpEvent:
    """Return the event of one release with a pure epsilon."""
    require(positive(epsilon), "The epsilon of a release must be a positive finite number.")
    return PureDpEvent(float(epsilon))


def parallel(events: Sequence[DpEvent]) -> ParallelDpEvent:
    """Return the event of releases from disjoint parts of the people; ``events`` has one event for each part."""
    require(len(events) >= 2, "There are at least two parts of the people.")
    return ParallelDpEvent(tuple(events))


def events_by_part(event: DpEvent) -> tuple[DpEvent, ...]:
    """Return the event of each part of the people; only the event itself where the people are not divided."""
    return event.events if isinstance(event, ParallelDpEvent) else (event,)


def stated_parts(event: DpEvent) -> list[tuple[Any, ...]]:
    """Return the parts of an event, in order, as a certificate's mechanisms state them; raise for a foreign event."""
    match event:
        case ParallelDpEvent():
            require(not any(isinstance(one, ParallelDpEvent) for one in event.events), _FOREIGN)
            return [part for one in event.events for part in stated_parts(one)]
        case PureDpEvent():
            return [(event.epsilon,)]
        case RenyiFilterEvent():
            return event.parts
    return list(gaussians_of(event))


def gaussians_of(event: DpEvent, count: int = 1) -> list[Part]:
    """Return the Gaussians of ``count`` times an event, in order; raise for an event that is not made of Gaussians."""
    match event:
        case dpe.SelfComposedDpEvent():
            return gaussians_of(event.event, count * int(event.count))
        case dpe.ComposedDpEvent():
            return [part for inner in event.events for part in gaussians_of(inner, count)]
        case dpe.GaussianDpEvent():
            return [(1.0, float(event.noise_multiplier), count)]
        case dpe.PoissonSampledDpEvent(event=dpe.GaussianDpEvent() as inner):
            return [(float(event.sampling_probability), float(inner.noise_multiplier), count)]
    raise DprlError(f"The accountant does not take a privacy event of type {type(event).__name__}.")


def to_json(event: DpEvent) -> dict[str, Any]:
    """Return an event as plain data for a certificate; raise for an event that no mechanism of dprl emits."""
    for name, (kind, names) in _TYPES.items():
        if isinstance(event, kind):
            return {"type": name} | {field: _plain(field, getattr(event, field)) for field in names}
    raise DprlError(f"A privacy event of type {type(event).__name__} is not one that dprl emits.")


def from_json(data: Any) -> DpEvent:
    """Return the event that :func:`to_json` turned into ``data``; refuse anything unknown, extra or out of range.

    >>> from_json(to_json(poisson_gaussian(0.01, 1.5, 10))) == poisson_gaussian(0.01, 1.5, 10)
    True
    """
    name = data.get("type") if isinstance(data, dict) else None
    kind, names = _TYPES.get(name, (None, ())) if isinstance(name, str) else (None, ())
    if kind is None or set(data) != {"type", *names}:
        raise DprlError(_FOREIGN)
    event: Any = kind(**{field: _read(field, data[field]) for field in names})
    if isinstance(event, ParallelDpEvent):
        require(len(event.events) >= 2, _FOREIGN)
        return parallel(event.events)
    again = isinstance(event, dpe.SelfComposedDpEvent) and isinstance(event.event, dpe.ComposedDpEvent)
    require(not again, _FOREIGN)
    return event


def _plain(field: str, value: Any) -> Any:
    """Return the value of an event's field as plain data for JSON."""
    if isinstance(value, DpEvent):
        return to_json(value)
    if isinstance(value, list | tuple):
        return [_plain(field, one) for one in value]
    return int(value) if field in _WHOLE else float(value)


def _read(field: str, value: Any) -> Any:
    """Return an event's field from its JSON ``value``; refuse a value that the field cannot have."""
    if field == "event":
        return from_json(value)
    if field in ("events", "noise_multipliers", "before"):
        require(isinstance(value, list) and (value or field == "before"), _FOREIGN)
        return [from_json(one) for one in value] if field == "events" else tuple(_read("", one) for one in value)
    require(whole(value) if field in _WHOLE else positive(value), _FOREIGN)
    require(field != "sampling_probability" or value <= 1.0, _FOREIGN)
    return value if field in _WHOLE else float(value)
