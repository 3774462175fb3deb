"""Contents of a figure from finished cells: series of points, errors, and verdicts on the figure's claims."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from dprl.report.formatting import number, plain
from dprl_papers.harness.runner import Cell, Runner, column
from dprl_papers.harness.spec import METRICS, FigureClaim, Measured, Paper, Programmed, split_method

SCHEMA = "dprl.reproduction-results/2"
METRIC_LABELS = {
    "mspbe": "MSPBE",
    "relative-mspbe": "relative MSPBE",
    "rmse": "RMSE",
    "rmse/range": "RMSE / range",
    "value/range": "error of the policy's value / range",
    "objective": "objective L(θ, ω)",
    "msbe": "mean squared TD error",
}
_SHOWN = ("title", "where", "statement", "note")
_DRAWN = ("kind", "x", "log_x", "log_y", "metric", "domains")


def results_of(runner: Runner, computed: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain data of every figure of a request; ``computed`` holds the programmed figures, by name."""
    request, paper = runner.request, runner.request.paper
    measured = {f.name: f for f in request.figures if isinstance(f, Measured)}
    figures = []
    for figure in request.figures:
        about = {"name": figure.name} | {name: getattr(figure, name) for name in _SHOWN}
        if isinstance(figure, Programmed):
            figures.append(about | {"kind": "programmed"} | computed[figure.name])
            continue
        module, _, function = figure.beside.partition(":")
        figures.append(
            about
            | {name: getattr(figure, name) for name in _DRAWN}
            | {
                "series": _series(runner, figure),
                "beside": getattr(import_module(module), function)(runner, figure) if module else None,
            }
        )
    return {
        "schema": SCHEMA,
        "paper": paper.number,
        "title": paper.title,
        "trials": request.trials,
        "quick": request.quick,
        "delta": paper.delta,
        "seed": paper.seed,
        "plugin": None if request.plugin is None else request.plugin.path.name,
        "left_out": [{"name": f.name, "title": f.title, "extra": f.extra} for f in request.left_out],
        "domains": {name: _domain(runner, name) for name in sorted({d for f in measured.values() for d in f.domains})},
        "figures": with_verdicts(figures, paper),
    }


def with_verdicts(figures: Sequence[dict[str, Any]], paper: Paper) -> list[dict[str, Any]]:
    """Return the figures with a verdict on each claim. A claim may compare with another of these figures."""
    series = {f["name"]: f["series"] for f in figures if "series" in f}
    asked = {f.name: f for f in paper.figures if isinstance(f, Measured) and f.name in series}
    found = []
    for figure in figures:
        claims = figure.get("claims", [])
        if one := asked.get(figure["name"]):
            claims = [_verdict(one, claim, series) for claim in one.claims]
        ours = [claim["ours"] or any(name in claim["words"] for name in paper.ours) for claim in claims]
        found.append(figure | {"claims": [c | {"ours": flag} for c, flag in zip(claims, ours, strict=True)]})
    return found


def _domain(runner: Runner, name: str) -> dict[str, Any]:
    domain, log = runner.domain(name), runner.request.log(name)
    return {
        "label": domain.label,
        "units": log.units,
        "discount": domain.discount,
        "features": domain.features,
        "value": list(domain.bounds(log.units).value_interval(domain.discount)),
        "on_policy": domain.on_policy,
        "truth_std": domain.truth.std / domain.range,
        "truth_error": domain.truth.standard_error / domain.range,
        "policy_value": None if domain.start is None else domain.policy_value,
        "policy_value_error": None if domain.start is None else domain.policy_value_error,
    }


def _series(runner: Runner, figure: Measured) -> list[dict[str, Any]]:
    request = runner.request
    found: dict[tuple[str, float], dict[str, Any]] = {}
    for name, epsilon, place, cell in request.points(figure):
        base, factor = split_method(name)
        method = request.methods[base]
        if method.guarantee == "none" and epsilon != 0.0:
            # a method without privacy has one curve for all budgets
            epsilon = figure.epsilon[0]
            if (name, epsilon) in found and any(p["x"] == place["x"] for p in found[name, epsilon]["points"]):
                continue
        one = found.setdefault(
            (name, epsilon),
            {
                "name": name,
                "label": method.label + ("" if factor == 1.0 else f", step × {plain(factor)}"),
                "epsilon": None if method.guarantee == "none" else epsilon or None,
                "status": method.guarantee,
                "trivial": method.trivial,
                "points": [],
            },
        )
        one["points"].append(place | _point(runner, cell, place["x"] if figure.kind == "curves" else None))
    return list(found.values())


def _point(runner: Runner, cell: Cell, epoch: float | None) -> dict[str, Any]:
    results = runner.results(cell)
    scales = {"relative-mspbe": 1.0 / abs(results["mean_reward"] or 1.0)}
    scales |= dict.fromkeys(("rmse/range", "value/range"), 1.0 / results["range"])
    errors = {}
    for name in METRICS:
        # a method without a value function has only the error of its value, which some domains do not give either
        values = column(results.get("mspbe" if "mspbe" in name else name.partition("/")[0], []), cell.at, epoch)
        errors[name] = statistics([None if v is None else v * scales.get(name, 1.0) for v in values])
    return errors | {"guarantee": results["guarantee"], "tuned": runner.tuned(cell)}


def statistics(values: Sequence[float | None]) -> dict[str, float | int | None]:
    """Return mean, standard deviation and standard error of the finite values, and the number of other values."""
    good = np.array([v for v in values if v is not None and math.isfinite(v)], dtype=np.float64)
    if not len(good):
        return {"mean": None, "sd": None, "se": None, "not_finite": len(values)}
    sd = float(good.std(ddof=1)) if len(good) > 1 else 0.0
    return {
        "mean": float(good.mean()),
        "sd": sd,
        "se": sd / math.sqrt(len(good)),
        "not_finite": len(values) - len(good),
    }


# --- claims -----------------------------------------------------------------------------------------------------------


def _verdict(figure: Measured, claim: FigureClaim, series: Mapping[str, Any]) -> dict[str, Any]:
    """Return the verdict on a claim: ``holds``, ``holds in part``, ``does not hold`` or ``not measured``."""
    about = {"words": claim.words, "ours": claim.ours, "metric": claim.metric}
    own = _curve(series[figure.name], claim.method, claim.epsilon)
    there = claim.figure or figure.name
    if own is None or there not in series:
        text = f"figure {there}, or a method or step size of it, is not part of this run."
        return about | {"verdict": "not measured", "text": text}
    # where x is a domain, `at` holds numbers of units
    place = "units" if figure.x == "domain" else "x"
    at = [p["x"] for p in own["points"] if not claim.at or p[place] in claim.at]
    mine, metric = _means(own, claim.metric), METRIC_LABELS[claim.metric]
    known = {x: mine[x] for x in at if mine[x] is not None}
    if claim.kind == "ratio":
        other = _curve(series[there], claim.other, claim.other_epsilon or claim.epsilon)
        theirs = {} if other is None else _means(other, claim.metric)
        numbers = {x: theirs[x] / m for x, m in known.items() if m and theirs.get(x) is not None}
        what = f"{metric} of {claim.other if other is None else other['label']}"
        what += f"{f' in figure {there}' if claim.figure else ''} over that of {own['label']}"
        if claim.other_epsilon is not None:
            what += f", at ε = {plain(claim.other_epsilon)} and {plain(claim.epsilon or figure.epsilon[0])}"
    elif claim.kind == "below":
        numbers, what = known, f"{metric} of {own['label']}"
    else:
        errors = list(known.values())
        numbers = {"": max(errors) / min(errors)} if len(errors) > 1 and min(errors) > 0.0 else {}
        what = f"largest over smallest {metric} of {own['label']}"
    if not numbers:
        return about | {"verdict": "not measured", "text": "no such point is part of this run."}
    low, high = claim.at_least, claim.at_most
    failing = [x for x, v in numbers.items() if (low is not None and v < low) or (high is not None and v > high)]
    verdict = "holds" if not failing else "does not hold" if len(failing) == len(numbers) else "holds in part"
    return about | {"verdict": verdict, "text": f"{what}: {_spoken(figure, own, numbers, failing, claim)}"}


def _curve(series: Sequence[dict[str, Any]], name: str, epsilon: float | None) -> dict[str, Any] | None:
    fitting = (s for s in series if s["name"] == name and (epsilon is None or s["epsilon"] in (None, epsilon)))
    return next(fitting, None)


def _means(series: Mapping[str, Any], metric: str) -> dict[Any, Any]:
    """Return mean errors by x. An objective counts by its distance from zero, its value at saddle points."""
    means = {p["x"]: p[metric]["mean"] for p in series["points"]}
    return {x: abs(m) if m is not None and metric == "objective" else m for x, m in means.items()}


def _spoken(
    figure: Measured, own: Mapping[str, Any], numbers: Mapping[Any, float], failing: Sequence[Any], claim: FigureClaim
) -> str:
    limits = (("at least", claim.at_least), ("at most", claim.at_most))
    asked = " and ".join(f"{words} {plain(limit)}" for words, limit in limits if limit is not None)
    points = {p["x"]: p for p in own["points"]}
    values = list(numbers.values())
    if len(values) == 1:
        ((x, value),) = numbers.items()
        return f"{number(value)}{'' if x == '' else ' ' + _at(figure, points[x])} ({asked} is asked for)."
    text = f"{number(min(values))} to {number(max(values))} ({asked} is asked for)"
    if 0 < len(failing) < len(values):
        named = ", ".join(f"{number(numbers[x])} {_at(figure, points[x])}" for x in failing[:4])
        more = "" if len(failing) <= 4 else f" and {len(failing) - 4} more"
        text += f"; met at {len(values) - len(failing)} of {len(values)}, not where it is {named}{more}"
    return text + "."


def _at(figure: Measured, point: Mapping[str, Any]) -> str:
    if figure.x == "domain":
        return f"on {point['domain']} at m = {plain(point['units'])}, ε = {plain(point['epsilon'])}"
    return "at " + place_name(figure.x, point["x"])


def place_name(x: str, value: float) -> str:
    """Return a value of x with its symbol.

    >>> place_name("units", 1000.0), place_name("step", 0.5)
    ('m = 1,000', '× 0.5')
    """
    if x == "units":
        return f"m = {plain(int(value))}"
    return {"epsilon": "ε = ", "epoch": "epoch "}.get(x, "× ") + plain(value)
