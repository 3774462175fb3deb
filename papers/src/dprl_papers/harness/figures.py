"""From finished cells to what a figure shows: series of points, errors, and what the numbers say of a claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dprl.report.formatting import number, plain
from dprl_papers.harness import curves
from dprl_papers.harness.runner import Runner, statistics
from dprl_papers.harness.spec import Claim, Figure, split_method

SCHEMA = "dprl.reproduction-results/1"
METRIC_LABELS = {
    "mspbe": "MSPBE",
    "relative-mspbe": "relative MSPBE",
    "rmse": "RMSE",
    "rmse/range": "RMSE / range",
    "value/range": "error of the policy's value / range",
    "objective": "objective L(θ, ω)",
    "msbe": "mean squared TD error",
}


def results_of(runner: Runner, computed: Mapping[str, Any]) -> dict[str, Any]:
    """Plain data of every figure of a request; ``computed`` are the figures that are not measured, by name."""
    request = runner.request
    series = {figure.name: _series(runner, figure) for figure in request.figures}
    figures = []
    for figure in request.figures:
        claims = [_verdict(request.paper, figure, claim, series) for claim in figure.claims]
        claims += (computed.get(figure.name) or {}).get("claims", []) if figure.kind == "learning" else []
        figures.append(
            {
                "name": figure.name,
                "title": figure.title,
                "where": figure.where,
                "statement": figure.statement,
                "note": figure.note,
                "kind": figure.kind,
                "x": figure.x,
                "log_x": figure.log_x,
                "log_y": figure.log_y,
                "metric": figure.metric,
                "domains": list(figure.domains),
                "series": series[figure.name],
                "claims": claims,
                "computed": computed.get(figure.name),
            }
        )
    paper = request.paper
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
        "domains": _domains(runner),
        "figures": figures,
    }


def _domains(runner: Runner) -> dict[str, Any]:
    out = {}
    for name in sorted({d for figure in runner.request.figures for d in figure.domains}):
        domain, log = runner.domain(name), runner.request.log(name)
        low, high = domain.bounds(log.units).value_interval(domain.discount)
        out[name] = {
            "label": domain.label,
            "units": log.units,
            "discount": domain.discount,
            "features": domain.features,
            "value": [low, high],
            "on_policy": domain.on_policy,
            "truth_std": domain.truth.std / domain.range,
            "truth_error": domain.truth.standard_error / domain.range,
            "policy_value": None if domain.start is None else domain.policy_value,
            "policy_value_error": None if domain.start is None else domain.policy_value_error,
        }
    return out


def _series(runner: Runner, figure: Figure) -> list[dict[str, Any]]:
    request = runner.request
    found: dict[tuple[str, float], dict[str, Any]] = {}
    for name, epsilon, place, cell in request.points(figure):
        base, factor = split_method(name)
        method = request.methods[base]
        if method.guarantee == "none" and epsilon != 0.0:
            # one curve, whatever the budget
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
        epoch = place["x"] if figure.kind == "curves" else None
        one["points"].append(place | _point(runner, cell, epoch))
    return list(found.values())


def _point(runner: Runner, cell: Any, epoch: float | None = None) -> dict[str, Any]:
    results = runner.results(cell)
    scale = {"mspbe": 1.0, "relative-mspbe": 1.0 / abs(results["mean_reward"] or 1.0), "rmse": 1.0}
    scale |= {"objective": 1.0, "msbe": 1.0}
    scale["rmse/range"] = scale["value/range"] = 1.0 / results["range"]
    errors = {}
    for name, factor in scale.items():
        # a method without a value function has only the error of its value, and some domains do not know that
        values = results.get("mspbe" if "mspbe" in name else name.partition("/")[0], [])
        errors[name] = statistics([None if v is None else v * factor for v in curves.column(values, cell.at, epoch)])
    return errors | {"guarantee": results["guarantee"], "tuned": runner.key(cell, (0, 1))["tuned"]}


# --- claims ---------------------------------------------------------------------------------------------------------


def _verdict(paper: Any, figure: Figure, claim: Claim, series: Mapping[str, Any]) -> dict[str, Any]:
    """What the numbers say of a claim: ``holds``, ``holds in part``, ``does not hold`` or ``not measured``."""
    about = {"words": claim.words, "ours": claim.ours, "metric": claim.metric}
    own = _curve(series[figure.name], claim.method, claim.epsilon)
    there = claim.figure or figure.name
    if own is None or there not in series:
        return about | {
            "verdict": "not measured",
            "text": f"figure {there}, or a method or step size of it, is not part of this run.",
        }
    at = [p["x"] for p in own if not claim.at or p["x"] in claim.at or _place(figure, p, claim.at)]
    mine = _means(own, claim.metric)
    if claim.kind == "ratio":
        other = _curve(series[there], claim.other, claim.other_epsilon or claim.epsilon)
        theirs = {} if other is None else _means(other, claim.metric)
        numbers = {x: theirs[x] / mine[x] for x in at if mine.get(x) and theirs.get(x) is not None}
        what = f"{METRIC_LABELS[claim.metric]} of {_label(series[there], claim.other)} over that of "
        what += _label(series[figure.name], claim.method)
        if claim.other_epsilon is not None:
            what += f", at ε = {plain(claim.other_epsilon)} and {plain(claim.epsilon or figure.epsilon[0])}"
    elif claim.kind == "below":
        numbers = {x: mine[x] for x in at if mine[x] is not None}
        what = f"{METRIC_LABELS[claim.metric]} of {_label(series[figure.name], claim.method)}"
    else:
        errors = [mine[x] for x in at if mine[x] is not None]
        numbers = {"": max(errors) / min(errors)} if len(errors) > 1 and min(errors) > 0.0 else {}
        what = f"largest over smallest {METRIC_LABELS[claim.metric]} of {_label(series[figure.name], claim.method)}"
    if not numbers:
        return about | {"verdict": "not measured", "text": "no such point is part of this run."}
    met = {x: _meets(value, claim) for x, value in numbers.items()}
    count = sum(met.values())
    verdict = "holds" if count == len(met) else "does not hold" if count == 0 else "holds in part"
    return about | {"verdict": verdict, "text": f"{what}: {_spoken(figure, own, numbers, met, claim)}"}


def _means(points: Sequence[Mapping[str, Any]], metric: str) -> dict[Any, Any]:
    """Mean errors by x. An objective counts by its distance from zero, where its saddle points are."""
    means = {p["x"]: p[metric]["mean"] for p in points}
    return {x: abs(m) if m is not None and metric == "objective" else m for x, m in means.items()}


def _meets(value: float, claim: Claim) -> bool:
    low = claim.at_least is None or value >= claim.at_least
    return low and (claim.at_most is None or value <= claim.at_most)


def _place(figure: Figure, point: Mapping[str, Any], at: Sequence[float]) -> bool:
    # where x is a domain, `at` names numbers of units
    return figure.x == "domain" and point["units"] in at


def _spoken(figure: Figure, points: Any, numbers: Mapping[Any, float], met: Mapping[Any, bool], claim: Claim) -> str:
    asked = []
    if claim.at_least is not None:
        asked.append(f"at least {plain(claim.at_least)}")
    if claim.at_most is not None:
        asked.append(f"at most {plain(claim.at_most)}")
    wanted = f" ({' and '.join(asked)} is asked for)"
    values = list(numbers.values())
    if len(values) == 1:
        ((x, value),) = numbers.items()
        where = "" if x == "" else f" {_at(figure, points, x)}"
        return f"{number(value)}{where}{wanted}."
    text = f"{number(min(values))} to {number(max(values))}{wanted}"
    failing = [x for x, ok in met.items() if not ok]
    if failing and len(failing) < len(values):
        named = ", ".join(f"{number(numbers[x])} {_at(figure, points, x)}" for x in failing[:4])
        more = "" if len(failing) <= 4 else f" and {len(failing) - 4} more"
        text += f"; met at {len(values) - len(failing)} of {len(values)}, not where it is {named}{more}"
    return text + "."


def _at(figure: Figure, points: Sequence[Mapping[str, Any]], x: Any) -> str:
    point = next(p for p in points if p["x"] == x)
    if figure.x == "domain":
        return f"on {point['domain']} at m = {plain(point['units'])}, ε = {plain(point['epsilon'])}"
    named = {"units": f"m = {plain(int(x))}", "epsilon": f"ε = {plain(x)}", "epoch": f"epoch {plain(x)}"}
    return f"at {named.get(figure.x, f'× {plain(x)}')}"


def _curve(series: Any, name: str, epsilon: float | None) -> list[dict[str, Any]] | None:
    curves = [s for s in series if s["name"] == name]
    if epsilon is not None:
        curves = [s for s in curves if s["epsilon"] in (None, epsilon)]
    return curves[0]["points"] if curves else None


def _label(series: Any, name: str) -> str:
    return next((s["label"] for s in series if s["name"] == name), name)
