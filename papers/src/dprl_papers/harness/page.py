"""Page of a reproduction: its results as one self-contained HTML page, beside what the paper says."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from dprl.report.formatting import decimals, number, plain, power_of_ten
from dprl.report.pages import load_template
from dprl_papers.harness import charts
from dprl_papers.harness.charts import Line
from dprl_papers.harness.programmed import make_table
from dprl_papers.harness.results import METRIC_LABELS, place_name
from dprl_papers.harness.spec import Paper, split_method

X_LABELS = {"units": "number of trajectories m", "step": "factor of the step size"}
_TIMES = "\N{NO-BREAK SPACE}×\N{NO-BREAK SPACE}"


def render(results: Mapping[str, Any], paper: Paper) -> str:
    """Return the page for ``results`` (:func:`dprl_papers.harness.results.results_of`)."""
    known: dict[str, int] = {}
    figures = [
        dict(f) | (_programmed(f) if f["kind"] == "programmed" else _measured(f, known)) for f in results["figures"]
    ]
    claims = [{"figure": f["name"], **c} for f in results["figures"] for c in f["claims"]]
    return load_template("dprl_papers.harness", "reproduction.html.j2").render(
        results=results,
        paper=paper,
        figures=figures,
        claims=claims,
        verdicts={v: sum(c["verdict"] == v for c in claims) for v in ("holds", "holds in part", "does not hold")},
        tuned=[table for table in paper.tuned if table.method in known and table.domain in results["domains"]],
        delta=power_of_ten(results["delta"]),
        capital=capital,
        plain=plain,
        percent=_percent,
        with_error=with_error,
    )


def capital(text: str) -> str:
    """Return a sentence with a capital first letter, unless it begins with a symbol, such as σ or f/60."""
    return text[:1].upper() + text[1:] if text[1:2].isalpha() else text


def _programmed(figure: Mapping[str, Any]) -> dict[str, Any]:
    """Draw the charts of a programmed figure."""
    drawn = []
    for one in figure["charts"]:
        lines = [
            Line(x["label"], tuple(map(tuple, x["points"])), i, x.get("look", "private"), x.get("dash", 0))
            for i, x in enumerate(one["lines"])
        ]
        axes = {name: one[name] for name in ("log_x", "log_y", "band")}
        drawn.append({"title": one["title"], "svg": charts.chart(lines, x_label=one["x"], y_label=one["y"], **axes)})
    return {"charts": drawn}


def _measured(figure: Mapping[str, Any], known: dict[str, int]) -> dict[str, Any]:
    """Draw the charts and tables of a measured figure.

    ``known`` holds the colour of each method on this page, and is extended here.
    """
    names = dict.fromkeys(split_method(s["name"])[0] for s in figure["series"])
    for name in (n for n in names if n not in known):
        used = [known[n] for n in names if n in known]
        known[name] = min(range(charts.COLOURS), key=lambda c: (used.count(c), list(known.values()).count(c), c))
    drawn, beside = _metrics(figure)[0], figure["beside"] or {}
    return {
        "charts": [{"svg": _chart(figure, name, known, beside.get("lines", [])), "title": ""} for name in drawn],
        "tables": tables_of(figure),
    }


def tables_of(figure: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tables of a figure."""
    if figure["kind"] == "programmed":
        return figure["tables"]
    return [*(_table(figure, name) for name in _metrics(figure)[1]), *(figure["beside"] or {}).get("tables", [])]


def _metrics(figure: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the metrics that a measured figure draws, and the metrics that it shows in tables."""
    metric, beside = figure["metric"], figure["beside"]
    if figure["kind"] == "curves":
        return (along := _along(figure)), along
    if metric.startswith("value"):
        return [metric], [metric]
    drawn = [metric] if metric.startswith("rmse") or beside else [metric, "rmse"]
    return drawn, ["mspbe" if metric.startswith("rmse") else metric, "rmse"]


def _along(figure: Mapping[str, Any]) -> list[str]:
    """Return the metrics of curves that are measured, the figure's own first; ``msbe`` only where there is no MSPBE."""
    points = [p for s in figure["series"] for p in s["points"]]
    names = dict.fromkeys((figure["metric"], "objective", "mspbe", "rmse", "msbe"))
    known = [name for name in names if any(p[name]["mean"] is not None for p in points)]
    return [name for name in known if name != "msbe" or "mspbe" not in known or figure["metric"] == "msbe"]


def _chart(
    figure: Mapping[str, Any], metric: str, colours: Mapping[str, int], beside: Sequence[Mapping[str, Any]]
) -> Any:
    by_place = figure["x"] == "domain"
    if by_place and not metric.startswith("value"):
        metric = "rmse/range"  # errors of different places are comparable only as fractions of their value ranges
    lines, seen = [], dict.fromkeys(colours, -1)
    for series in figure["series"]:
        base = split_method(series["name"])[0]
        seen[base] += 1
        look = "trivial" if series["trivial"] else "none" if series["status"] == "none" else "private"
        errors = [(float(p["x"]), p[metric]) for p in series["points"] if _is_measured(p[metric])]
        points = tuple((x, *_mean_and_sd(e, metric == "objective")) for x, e in errors)
        lines.append(Line(_label(figure, series), points, colours[base], look, seen[base]))
    if by_place:
        places = figure["series"][0]["points"]
        rows = [
            [Line(a.label, (p,), a.colour, a.look, a.dash) for a in lines for p in a.points if p[0] == q["x"]]
            for q in places
        ]
        return charts.dots(
            [(_place(q), row) for q, row in zip(places, rows, strict=True)], x_label=METRIC_LABELS[metric]
        )
    lines += [Line(b["label"], tuple((x, y, 0.0) for x, y in b["points"]), 0, "bound", i) for i, b in enumerate(beside)]
    along = figure["kind"] == "curves"
    return charts.chart(
        lines,
        x_label=str(X_LABELS.get(figure["x"], figure["x"])),
        y_label="|L(θ, ω)|" if metric == "objective" else METRIC_LABELS[metric],
        log_x=figure["log_x"] and not along,
        log_y=figure["log_y"] or metric == "mspbe",
        most=math.inf if beside else _most(figure, metric),
        band=along,
    )


def _is_measured(error: Mapping[str, Any]) -> bool:
    """Return whether this error was measured; an error that is finite in no trial is drawn as not finite."""
    return error["mean"] is not None or error["not_finite"] > 0


def _mean_and_sd(error: Mapping[str, Any], distance: bool) -> tuple[float, float]:
    mean = math.nan if error["mean"] is None else error["mean"]
    return abs(mean) if distance else mean, error["sd"] or 0.0


def _most(figure: Mapping[str, Any], metric: str) -> float:
    """Return the top of a chart's axis.

    It is ten times the worst trivial answer, where some error is far worse, else infinity.

    Trivial answers have no objective, so its axis ends at ten times the median at the first epoch.
    """
    if metric == "objective":
        first = [abs(s["points"][0][metric]["mean"] or 0.0) for s in figure["series"]]
        return 10.0 * statistics.median(x for x in first if x) if any(first) else math.inf
    means = {s["name"]: max(p[metric]["mean"] or 0.0 for p in s["points"]) for s in figure["series"]}
    worst = max((means[s["name"]] for s in figure["series"] if s["trivial"]), default=0.0)
    return 10.0 * worst if 0.0 < 30.0 * worst < max(means.values()) else math.inf


def _label(figure: Mapping[str, Any], series: Mapping[str, Any]) -> str:
    """Return the name of a series, with its epsilon where the figure has several."""
    several = len({s["epsilon"] for s in figure["series"] if s["epsilon"] is not None}) > 1
    return series["label"] + (f", ε = {plain(series['epsilon'])}" if several and series["epsilon"] else "")


def _place(point: Mapping[str, Any]) -> str:
    return f"{point['domain']}, m = {plain(point['units'])}, ε = {plain(point['epsilon'])}"


def _table(figure: Mapping[str, Any], metric: str) -> dict[str, Any]:
    """Return a table of mean and standard error of each series at each x; RMSE also relative to the value range."""
    best = _best(figure, metric)
    rows: list[list[Any]] = []
    for i, series in enumerate(figure["series"]):
        faint = " trivial" if series["trivial"] else ""
        row = [_label(figure, series), {"text": guarantee_text(series), "class": "guarantee" + faint}]
        for p in series["points"]:
            relative = p["rmse/range"]["mean"] if metric == "rmse" else None
            failed = p[metric]["not_finite"]
            below = [_percent(relative)] if relative is not None else []
            below += [f"{failed} not finite"] if failed else []
            bold = " best" if best.get(p["x"]) == i else ""
            row.append({"text": _cell(p[metric]), "class": "number" + bold + faint, "below": below})
        rows.append(row)
    points = figure["series"][0]["points"]
    by_place = figure["x"] == "domain"
    heads = ["Method", "Guarantee", *(_place(p) if by_place else place_name(figure["x"], p["x"]) for p in points)]
    if by_place:  # places become rows, as there are more places than methods
        heads, *rows = [list(column) for column in zip(heads, *rows, strict=True)]
    return make_table("", heads, rows) | {"summary": f"{METRIC_LABELS[metric]}: mean ± standard error"}


def _best(figure: Mapping[str, Any], metric: str) -> dict[float, int]:
    """Return the index of the private series with the smallest error, at each x."""
    if metric == "objective":  # it is best at zero, but a dual variable of zero makes it zero too
        return {}
    means: dict[float, dict[int, float]] = {}
    for i, series in enumerate(figure["series"]):
        for p in series["points"] if series["status"] != "none" else ():
            if p[metric]["mean"] is not None:
                means.setdefault(p["x"], {})[i] = p[metric]["mean"]
    return {x: min(at, key=lambda i: at[i]) for x, at in means.items()}


def guarantee_text(series: Mapping[str, Any]) -> str:
    """Return the guarantee of a series in words."""
    if series["status"] == "none":
        return "sees no data" if series["trivial"] else "no privacy"
    promises = [p["guarantee"] for p in series["points"]]
    claimed, true = ([g[name] for g in promises if g[name] is not None] for name in ("claimed", "true"))
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
    r"""Return a mean and its standard error as text, with one power of ten for both.

    >>> with_error(0.0712, 0.0056), with_error(6.54e-8, 1.9e-9), with_error(0.25, 0.0)
    ('0.0712 ± 0.0056', '(6.54 ± 0.19)\xa0×\xa010⁻⁸', '0.250')
    """
    if mean is None or error is None:
        return "not finite"
    if mean == 0.0:
        return "0"
    if error < 1e-6 * abs(mean):  # equal in every trial, except for rounding
        return number(mean)
    exponent = math.floor(math.log10(abs(mean)))
    if -4 < exponent < 7:
        places = min(max(decimals(error) or 0, 0), 6)
        return f"{number(mean, places)} ± {number(error, places)}"
    scale = 10.0**exponent
    places = min(max(decimals(error / scale) or 0, 0), 3)
    return f"({number(mean / scale, places)} ± {number(error / scale, places)}){_TIMES}{power_of_ten(scale)}"


def _cell(error: Mapping[str, Any]) -> str:
    """Return the text of a table's cell; a dash where the error was not measured."""
    if not _is_measured(error):
        return "–"
    return with_error(error["mean"], error["se"]).replace(" ± ", "\N{NO-BREAK SPACE}± ")


def _percent(share: float) -> str:
    return f"{number(100.0 * share, 1)}% of range" if share < 10.0 else f"{number(share)} × range"
