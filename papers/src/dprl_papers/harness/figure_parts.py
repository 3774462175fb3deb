"""Parts of figures: lines, tables and verdicts as plain data for the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dprl.report.formatting import number, plain

RETURN, PEOPLE = "normalised return", "people n whose mean the reward is (radius 0.5/n)"


def make_claim(words: str, holds: bool, text: str, ours: bool = False) -> dict[str, Any]:
    verdict = "holds" if holds else "does not hold"
    return {"words": words, "ours": ours, "metric": "", "verdict": verdict, "text": text}


def make_line(
    label: str, xs: Sequence[float], values: np.ndarray, look: str = "private", dash: int = 0
) -> dict[str, Any]:
    """Means and standard deviations of ``values`` ``(len(xs), seeds)``."""
    drawn = [[float(x), float(v.mean()), float(v.std())] for x, v in zip(xs, values, strict=True)]
    return {"label": label, "points": drawn, "look": look or "private", "dash": dash}


def line_over(label: str, values: Mapping[Any, np.ndarray], look: str = "private", dash: int = 0) -> dict[str, Any]:
    drawn = [[float(x), float(v.mean()), float(v.std())] for x, v in values.items()]
    return {"label": label, "points": drawn, "look": look, "dash": dash}


def thinned(line: dict[str, Any], most: int = 20) -> dict[str, Any]:
    every = -(-len(line["points"]) // most)
    kept = [p for i, p in enumerate(line["points"]) if (len(line["points"]) - 1 - i) % every == 0]
    return line | {"points": kept}


def one_chart(lines: list[dict[str, Any]], x: str = PEOPLE, y: str = RETURN, log_y: bool = False) -> dict[str, Any]:
    return {"lines": lines, "x": x, "y": y, "log_x": True, "log_y": log_y}


def mean_text(values: np.ndarray, places: int = 2) -> str:
    values = np.asarray(values, np.float64)
    error = float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0
    return f"{number(float(values.mean()), places)} ± {number(error, places)}"


def table_over(
    found: Mapping[str, Mapping[Any, np.ndarray]], key: Mapping[str, Any], head: str = "n", what: str = RETURN
) -> dict[str, Any]:
    places = list(next(iter(found.values())))
    doubled = ", twice as many at n = 30" if not key["quick"] and 30 in places and head == "n" else ""
    return {
        "caption": f"{what[:1].upper()}{what[1:]} (mean ± standard error over {key['trials']} seeds{doubled}).",
        "heads": ["", *(f"{head} = {plain(x)}" for x in places)],
        "rows": [[name, *(mean_text(values[x], 3) for x in places)] for name, values in found.items()],
    }


def or_dash(value: float | None) -> str:
    return "–" if value is None else number(value, 1)
