"""The standard that a row must meet, and the reasons why a row misses it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

HITS, MISSES, OVERALL = 460 / 500, 25 / 500, 0.945
"""Least share of intervals that hold in a row, largest share of misses on one side, and least share of intervals that
hold over all rows."""
WIDEST, USABLE_WIDTH, FLAGGED = 1.5, 0.5, 460 / 500
"""Largest width relative to the known one, largest width relative to the declared range in a row that is marked usable,
and least share of logs whose release gives the note that ``flag`` names."""
PLANNED = 0.25
"""A row is marked usable if ``dprl plan`` expects a half-width of at most this share of the declared range."""


def failures(record: Mapping[str, Any]) -> list[str]:
    """Return what a row's record misses of the standard; empty where it misses nothing."""
    return [f"{p['policy']}: {why}" for p in record.get("policies", ()) for why in _failures(record, p)]


def _failures(record: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    logs, flag = record["logs"], record["row"]["flag"]
    if "band" in found:
        if found["misses"] > (1.0 - HITS) * logs:
            yield f"{found['misses']} bands miss"
        return
    if flag is not None and found["notes"].get(flag, 0) < FLAGGED * logs:
        yield f"{flag} was said of {found['notes'].get(flag, 0)} logs only"
    if not record["row"]["counted"]:
        return
    if found["hits"] < HITS * logs:
        yield f"{found['hits']} hits"
    for side in ("below", "above"):
        if found[side] > MISSES * logs:
            yield f"{found[side]} misses {side}"
    if found["width_over_known"] > WIDEST:
        yield f"{found['width_over_known']:.2f} times the width of an interval that knows"
    if usable(record, found) and found["width_over_range"] >= USABLE_WIDTH:
        yield f"{found['width_over_range']:.0%} of the declared range"


def usable(record: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Return whether a policy's row is marked usable. Its plan decides, but only if the declared facts are true."""
    return bool(found["usable"]) and record["row"]["flag"] is None


def overall(records: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """Return how many intervals hold, and how many there are, over all rows that count."""
    counted = [
        (p["hits"], r["logs"])
        for r in records if r["row"]["counted"] for p in r.get("policies", ()) if "band" not in p
    ]  # fmt: skip
    return sum(hits for hits, _ in counted), sum(logs for _, logs in counted)
