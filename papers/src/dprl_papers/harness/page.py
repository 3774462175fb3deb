"""A reproduction's results as one self-contained HTML page: what the paper says beside what came out."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from dprl.report.formatting import decimals, number, plain, power_of_ten
from dprl.report.render import load_template
from dprl_papers.harness import curves, plots
from dprl_papers.harness.figures import METRIC_LABELS
from dprl_papers.harness.spec import WITHOUT_METHODS, Paper, split_method

X_LABELS = {
    "units": "number of trajectories m",
    "step": "factor of the step size",
    "epsilon": "epsilon",
    "epoch": "epoch",
    "domain": "",
}
_TIMES = "\N{NO-BREAK SPACE}×\N{NO-BREAK SPACE}"


def render(results: Mapping[str, Any], paper: Paper) -> str:
    """The page for ``results`` (:func:`dprl_papers.harness.figures.results_of`)."""
    known: dict[str, int] = {}
    figures = []
    for figure in results["figures"]:
        known |= plots.colours(list(dict.fromkeys(split_method(s["name"])[0] for s in figure["series"])), known)
        figures.append(_figure(figure, results, known))
    claims = [{"figure": f["name"], **c} for f in results["figures"] for c in f["claims"]]
    verdicts = {v: sum(c["verdict"] == v for c in claims) for v in ("holds", "holds in part", "does not hold")}
    return load_template("dprl_papers.harness", "reproduction.html.j2").render(
        results=results,
        paper=paper,
        figures=figures,
        claims=claims,
        verdicts=verdicts,
        domains=_domains(results),
        tuned=_tuned(results, paper),
        delta=power_of_ten(results["delta"]),
    )


def _figure(figure: Mapping[str, Any], results: Mapping[str, Any], colours: Mapping[str, int]) -> dict[str, Any]:
    out = dict(figure) | {"charts": [], "tables": [], "table1": None}
    if figure["kind"] == "table1":
        return out | {"table1": figure["computed"]}
    if figure["kind"] in WITHOUT_METHODS:
        return out | {"charts": _computed_chart(figure), "computed_tables": figure["computed"]["tables"]}
    alone = figure["metric"].startswith(("rmse", "value"))
    metrics = [figure["metric"]] if alone else [figure["metric"], "rmse"]
    if figure["kind"] == "bounds":
        metrics = ["mspbe"]
    along = figure["kind"] == "curves"
    if along:
        metrics = curves.shown(figure)
    labels = _labels(figure)
    for metric in metrics:
        lines = []
        seen: dict[str, int] = {}
        for series in figure["series"]:
            base = split_method(series["name"])[0]
            seen[base] = seen.get(base, -1) + 1
            label = labels[series["name"], series["epsilon"]]
            line = plots.line_of(series, metric, colours[base], label, seen[base] % 4)
            lines.append(_from_zero(line) if metric == "objective" else line)
        for i, curve in enumerate((figure["computed"] or {}).get("curves", [])):
            drawn = zip(figure["computed"]["trajectories"], curve["mspbe"], strict=True)
            points = [plots.Point(float(m), e) for m, e in drawn if e is not None]
            lines.append(plots.Line(curve["label"], tuple(points), (i + 4) % plots.COLOURS, "bound", i % 4))
        if figure["x"] == "domain":
            # places are not comparable but as fractions of their ranges
            shown = metric if metric.startswith("value") else "rmse/range"
            svg = plots.dots(_places(figure, lines, shown), x_label=METRIC_LABELS[shown])
        else:
            svg = plots.chart(
                lines,
                x_label=X_LABELS[figure["x"]],
                y_label="|L(θ, ω)|" if metric == "objective" else METRIC_LABELS[metric],
                log_x=figure["log_x"] and not along,
                log_y=figure["log_y"] or metric == "mspbe",
                most=_most(figure, metric),
                band=along,
            )
        out["charts"].append({"svg": svg, "metric": METRIC_LABELS[metric]})
    first = "mspbe" if figure["metric"].startswith("rmse") else figure["metric"]
    tables = metrics if along else [first] if first.startswith("value") else dict.fromkeys([first, "rmse"])
    out["tables"] = [_table(figure, metric, labels, results) for metric in tables] if figure["series"] else []
    return out


def _computed_chart(figure: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The charts of a computed figure: those it lists, or the one of its lines."""
    out = []
    for found in figure["computed"].get("charts", [figure["computed"]]):
        lines = [
            plots.Line(
                one["label"],
                tuple(plots.Point(*p) for p in one["points"]),
                one.get("colour", i) % plots.COLOURS,
                one.get("look", "private"),
                one.get("dash", 0),
            )
            for i, one in enumerate(found["lines"])
        ]
        if lines:
            svg = plots.chart(
                lines,
                x_label=found["x"],
                y_label=found["y"],
                log_x=found.get("log_x", True),
                log_y=found.get("log_y", True),
                band=found.get("band", False),
            )
            out.append({"svg": svg, "metric": found["y"], "title": found.get("title", "")})
    return out


def _most(figure: Mapping[str, Any], metric: str) -> float:
    """Top of a chart's axis: ten times the worst trivial answer, where something is far worse than that.

    Of an objective, which trivial answers do not have: ten times the median at the first epoch.
    """
    if metric == "objective":
        first = [abs(s["points"][0][metric]["mean"] or 0.0) for s in figure["series"]]
        return 10.0 * statistics.median(x for x in first if x) if any(first) else math.inf
    means = lambda trivial: [  # noqa: E731
        p[metric]["mean"] or 0.0 for s in figure["series"] if s["trivial"] or not trivial for p in s["points"]
    ]
    worst = max(means(True), default=0.0)
    measured = figure["kind"] in ("errors", "curves")
    return 10.0 * worst if measured and 0.0 < 30.0 * worst < max(means(False)) else math.inf


def _from_zero(line: plots.Line) -> plots.Line:
    return dataclasses.replace(line, points=tuple(dataclasses.replace(p, y=abs(p.y)) for p in line.points))


def _labels(figure: Mapping[str, Any]) -> dict[tuple[str, Any], str]:
    """What each series is called; its epsilon too, where a figure has several."""
    several = len({s["epsilon"] for s in figure["series"] if s["epsilon"] is not None}) > 1
    return {
        (s["name"], s["epsilon"]): s["label"] + (f", ε = {plain(s['epsilon'])}" if several and s["epsilon"] else "")
        for s in figure["series"]
    }


def _places(
    figure: Mapping[str, Any], lines: Sequence[plots.Line], metric: str
) -> list[tuple[str, list[tuple[plots.Line, plots.Point]]]]:
    rows = []
    points = figure["series"][0]["points"]
    several = len({p["units"] for p in points}) > 1
    names = _place_names(figure) if several else [f"{p['domain']}, ε = {plain(p['epsilon'])}" for p in points]
    for i, name in enumerate(names):
        marks = []
        for line, series in zip(lines, figure["series"], strict=True):
            for p in series["points"]:
                error = p[metric]
                if p["x"] == i and error["mean"] is not None:
                    marks.append((line, plots.Point(0.0, error["mean"], error["sd"])))
        rows.append((name, marks))
    return rows


def _place_names(figure: Mapping[str, Any]) -> list[str]:
    points = figure["series"][0]["points"]
    return [f"{p['domain']}, m = {plain(p['units'])}, ε = {plain(p['epsilon'])}" for p in points]


def _table(figure: Mapping[str, Any], metric: str, labels: Any, results: Mapping[str, Any]) -> dict[str, Any]:
    """Mean and standard error of each series at each x; with RMSE also over the width of the value range."""
    best = _best(figure, metric)
    rows = []
    for i, series in enumerate(figure["series"]):
        cells = []
        for p in series["points"]:
            relative = p["rmse/range"]["mean"] if metric == "rmse" else None
            cells.append(
                {
                    "text": _cell(p[metric]),
                    "below": "" if relative is None else _percent(relative),
                    "best": best.get(p["x"]) == i,
                    "failed": p[metric]["not_finite"],
                }
            )
        rows.append(
            {
                "label": labels[series["name"], series["epsilon"]],
                "guarantee": guarantee_text(series),
                "status": series["status"],
                "trivial": series["trivial"],
                "cells": cells,
            }
        )
    if figure["x"] == "domain":
        heads = _place_names(figure)
    else:
        heads = [_head(figure["x"], p["x"]) for p in figure["series"][0]["points"]]
    return {"metric": METRIC_LABELS[metric], "heads": heads, "rows": rows, "turned": figure["x"] == "domain"}


def _head(x: str, value: float) -> str:
    named = {"units": f"m = {plain(int(value))}", "epsilon": f"ε = {plain(value)}", "epoch": f"epoch {plain(value)}"}
    return named.get(x, f"× {plain(value)}")


def _best(figure: Mapping[str, Any], metric: str) -> dict[float, int]:
    """The series with the smallest error among the private ones, at each x."""
    best: dict[float, tuple[float, int]] = {}
    if metric == "objective":  # it is best at zero, and at zero for a dual variable of zero too
        return {}
    for i, series in enumerate(figure["series"]):
        if series["status"] == "none":
            continue
        for p in series["points"]:
            mean = p[metric]["mean"]
            if mean is not None and mean < best.get(p["x"], (math.inf, 0))[0]:
                best[p["x"]] = (mean, i)
    return {x: i for x, (_, i) in best.items()}


def guarantee_text(series: Mapping[str, Any]) -> str:
    """What the rows of a series guarantee, in words."""
    if series["trivial"] and series["status"] == "none":
        return "sees no data"
    if series["status"] == "none":
        return "no privacy"
    promises = [p["guarantee"] for p in series["points"]]
    claimed = sorted({g["claimed"] for g in promises if g["claimed"] is not None})
    true = [g["true"] for g in promises if g["true"] is not None]
    words = "; ".join(dict.fromkeys(g["words"] for g in promises if g["words"]))
    if series["status"] == "verified":
        text = f"verified, ε = {_span(true)}" if true else "verified"
    elif series["status"] == "unreviewed":
        text = f"unreviewed: claims ε = {_span(claimed)}" if claimed else "unreviewed"
    else:
        text = f"claims ε = {_span(claimed)}; has {_span(true)}" if true else f"claims ε = {_span(claimed)}"
    return text + (f" ({words})" if words else "")


def _span(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    if high - low <= 1e-3 * high:
        return plain(float(f"{high:.3g}"))
    return f"{plain(float(f'{low:.3g}'))} to {plain(float(f'{high:.3g}'))}"


def with_error(mean: float | None, error: float | None) -> str:
    r"""A mean and its standard error, with one power of ten for both.

    >>> with_error(0.0712, 0.0056), with_error(6.54e-8, 1.9e-9), with_error(0.25, 0.0)
    ('0.0712 ± 0.0056', '(6.54 ± 0.19)\xa0×\xa010⁻⁸', '0.250')
    """
    if mean is None or error is None:
        return "not finite"
    if mean == 0.0:
        return "0"
    if error < 1e-6 * abs(mean):  # the same in every trial, but for rounding
        return number(mean)
    exponent = math.floor(math.log10(abs(mean)))
    if -4 < exponent < 7:
        places = max(decimals(error) or 0, 0)
        return f"{number(mean, min(places, 6))} ± {number(error, min(places, 6))}"
    scale = 10.0**exponent
    places = min(max(decimals(error / scale) or 0, 0), 3)
    power = power_of_ten(scale)
    return f"({number(mean / scale, places)} ± {number(error / scale, places)}){_TIMES}{power}"


def _cell(error: Mapping[str, Any]) -> str:
    """A table's cell; a dash where there is no such error."""
    if error["mean"] is None and not error["not_finite"]:
        return "–"
    return with_error(error["mean"], error["se"]).replace(" ± ", "\N{NO-BREAK SPACE}± ")


def _percent(share: float) -> str:
    return f"{number(100.0 * share, 1)}% of range" if share < 10.0 else f"{number(share)} × range"


def _domains(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    out = []
    for name, d in results["domains"].items():
        low, high = d["value"]
        out.append(
            {
                "name": name,
                "label": d["label"],
                "policy": "on-policy" if d["on_policy"] else "off-policy",
                "units": plain(d["units"]),
                "discount": plain(d["discount"]),
                "features": d["features"],
                "range": f"{plain(low)} to {plain(high)}",
                "best_constant": _percent(d["truth_std"]),
                "truth_error": "exact" if d["truth_error"] == 0.0 else f"± {_percent(d['truth_error'])}",
                "policy_value": _policy_value(d["policy_value"], d["policy_value_error"]),
            }
        )
    return out


def _policy_value(value: float | None, error: float | None) -> str:
    return "–" if value is None or error is None else with_error(value, error)


def _tuned(results: Mapping[str, Any], paper: Paper) -> list[dict[str, Any]]:
    used = {split_method(s["name"])[0] for f in results["figures"] for s in f["series"]}
    return [
        {
            "method": table.method,
            "what": table.what,
            "domain": table.domain,
            "epsilon": plain(table.epsilon),
            "values": ", ".join(f"{plain(b)} at {plain(m)}" for m, b in zip(table.units, table.best, strict=True)),
            "provenance": table.provenance,
        }
        for table in paper.tuned
        if table.method in used and table.domain in results["domains"]
    ]
