"""Linear projections of values on covariates, as text and charts."""

from __future__ import annotations

import math
from typing import Any

from dprl.report import charts
from dprl.report.fields import endpoints, items, numbers, section, text
from dprl.report.formatting import as_number, decimals, number


def projections_view(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return for each policy and difference its name, a sentence, its coefficients and a chart along each covariate.

    Differences come first: who benefits is what is asked. All charts of one policy or difference share an axis.
    """
    entries = [section(entry) for entry in items(found.get("found"))]
    return [_entry(entry) for entry in sorted(entries, key=lambda entry: "against" not in entry)]


def _entry(entry: dict[str, Any]) -> dict[str, Any]:
    name = text(entry.get("policy"), "(unnamed)")
    name += f" less {text(entry.get('against'), '(unnamed)')}" if "against" in entry else ""
    rows = [row for row in map(_coefficient, map(section, items(entry.get("coefficients")))) if row]
    told = [row for row in rows if row["sign"]]
    if entry.get("band") is not True:
        sentence = (
            "No band is given: noise hides how covariates are spread, and this budget buys the mean of everybody "
            "alone; or weights do not add up to one."
        )
    elif not told:
        sentence = (
            "The budget buys a constant only. The interval of every coefficient holds zero, and this release does not "
            "tell that the worth differs between people."
        )
    else:
        sentence = " ".join(
            f"It {one['sign']} by {one['size']} ({one['between']}) from the low to the high end of {one['name']}."
            for one in told
        )
    return {"name": name, "sentence": sentence, "rows": rows, "charts": _charts(entry)}


def _coefficient(found: dict[str, Any]) -> dict[str, str] | None:
    value, (low, high) = as_number(found.get("value")), endpoints(found.get("interval"))
    if value is None or low is None or high is None:
        return None
    places = decimals((high - low) / 4.0, resolution=2.0)
    rises, falls = low > 0.0, high < 0.0
    ends = (-high, -low) if falls else (low, high)
    return {
        "name": text(found.get("name"), "(unnamed)"),
        "value": number(value, places),
        "interval": f"{number(low, places)} to {number(high, places)}",
        "size": number(abs(value), places),
        "between": f"{number(ends[0], places)} to {number(ends[1], places)}",
        "sign": "rises" if rises else "falls" if falls else "",
    }


def _charts(entry: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return each covariate of which nothing is missing, and a curve with its band along it."""
    slices: list[tuple[str, list[list[float]]]] = []
    for piece in map(section, items(entry.get("slices"))):
        columns = [[v for v in numbers(piece.get(key)) if v is not None] for key in ("grid", "values", "low", "high")]
        finite = all(math.isfinite(v) for column in columns for v in column)
        if len({len(column) for column in columns}) == 1 and len(columns[0]) > 1 and finite:
            slices.append((text(piece.get("name"), "covariate"), columns))
    domain = charts.curve_domain([v for _, (_, *columns) in slices for column in columns for v in column])
    return [(name, charts.curve(grid, values, name, domain, (low, high))) for name, (grid, values, low, high) in slices]
