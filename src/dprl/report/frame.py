"""Released values as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

_NUMBERS = ("value", "low", "high", "privacy_standard_error", "sampling_standard_error")


def frame_of(estimate: Mapping[str, Any]) -> pa.Table:
    """Return the values and differences in ``estimate.json``: of everybody, then of each subgroup."""
    rows = [*_rows(estimate, None)]
    for group in estimate.get("subgroups", ()):
        rows += _rows(group, f"{group['axis']}: {group['name']}")
    kinds = {name: pa.string() for name in ("policy", "against", "subgroup")} | dict.fromkeys(_NUMBERS, pa.float64())
    return pa.Table.from_pylist(rows, pa.schema(kinds))


def _rows(found: Mapping[str, Any], subgroup: str | None) -> Iterator[dict[str, Any]]:
    for row in (*found["targets"], *found.get("contrasts", ())):
        low, high = row["interval"]
        own = {"policy": row.get("name", row.get("policy")), "subgroup": subgroup, "low": low, "high": high}
        yield {**row, **own}
