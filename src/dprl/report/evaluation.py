"""The page of an evaluation (values, intervals, the parts of errors, the value function), and its values as a table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from dprl.report import charts, guarantee
from dprl.report.comparisons import choice_view, contrasts_view, learned_words, projections_view, subgroups_view
from dprl.report.fields import (
    WORDS,
    Fields,
    Quantity,
    finite,
    is_of_transitions,
    made_of,
    numbers,
    probability_of,
    value_and_interval,
    value_bounds,
)
from dprl.report.formatting import MISSING, decimals, error, number, percent

_OWN_NAMES = {"importance-sampling": ""} | {
    name: name.upper() for name in ("gpope", "dptd", "dp-sgda", "dp-gld", "dp-srm")
}
"""Algorithm -> its name on the page, where that differs from the name by which it is asked for."""
_MOST_STRATA = 40
_ENDS = ("low", "high", "low_together", "high_together")
_NUMBERS = (
    "value", *_ENDS, "privacy_standard_error", "sampling_standard_error", "mean_weight", "mean_weight_error",
)  # fmt: skip
_SILENT = "says-nothing"  # the note of an interval that is the whole declared range


def evaluation_view(estimate: Fields, certificate: Fields, units: str) -> dict[str, Any]:
    """Return what the template of an evaluation prints besides the guarantee, as text, booleans and charts."""
    words, bounds, limits = WORDS["evaluation"]["words"], estimate.section("bounds"), value_bounds(estimate)
    # `value` and `interval` at the top are those of the first policy
    first = Fields(value=estimate.get("value"), interval=estimate.get("interval"))
    targets = [Quantity(found) for found in estimate.sections("targets") or [first]]
    policies = _policies(targets, limits)
    return {
        "confidence": f"{100.0 * (estimate.number('confidence') or 0.95):.6g}%",
        "policies": policies,
        "headline": _headline(targets[0]),
        "contrasts": contrasts_view(estimate),
        "subgroups": subgroups_view(estimate),
        "choice": choice_view(estimate.section("choice")),
        "zero": _holding_zero(targets, limits),
        "over_time": _over_time(targets),
        "projections": projections_view(estimate.section("projections")),
        "learned": learned_words(estimate),
        "outcome": estimate.section("request").text("outcome", ""),
        "of_transitions": is_of_transitions(estimate),
        "probability": probability_of(estimate),
        "horizon": bounds.get("horizon"),
        "method": _method(estimate),
        "forest_of": charts.forest([p["row"] for p in policies]),
        "propensities": _propensities(estimate.section("propensities"), bounds, units),
        "who": guarantee.declared_about_log(estimate),
        "behavior": guarantee.behavior(certificate),
        "has_weights": any(p["weight"] for p in policies),
        "wide": [target.name for target in targets if target.reaches_far],
        "has_clipped": any(p["clipped"] for p in policies),
        "curves_of": _curves(estimate.section("value_function"), bounds),
        "words": words | {"protected": words["protected"].format(units=units)},
        "facts_of_data": guarantee.bounds(estimate, certificate, units),
        "protector": guarantee.protector(certificate),
        "public_policies": guarantee.policies(certificate),
    }


def _policies(targets: list[Quantity], bounds: tuple[float, float] | None) -> list[dict[str, Any]]:
    """Return one entry for each target policy. Rows that need about as many decimals share the larger number."""
    places = [decimals(t.total_error) for t in targets]
    known = [p for p in places if p is not None]
    if known and max(known) - min(known) <= 1:
        places = [None if p is None else max(known) for p in places]
    return [_policy(target, at, bounds) for target, at in zip(targets, places, strict=True)]


def _policy(target: Quantity, places: int | None, bounds: tuple[float, float] | None) -> dict[str, Any]:
    name, interval = target.name, target.interval()
    reference, weight = target.number("reference"), target.number("mean_weight")
    clipped = None not in (interval, bounds) and any(map(_same, interval, bounds))  # type: ignore[arg-type]
    words = target.in_words(places, interval)
    return words | {
        "name": name,
        "row": charts.Row(
            name=name, value=target.value, interval=interval, reference=reference, text=value_and_interval(words)
        ),
        "interval": (words["interval"] or MISSING) + "†" * clipped,
        "clipped": clipped,
        "weight": "" if weight is None else number(weight, 2),
        "reference": "–" if reference is None else number(reference, places),
        **_shares(name, *target.errors),
    }


def _headline(target: Quantity) -> dict[str, Any]:
    """Return the name, value and interval of a policy for a sentence, with fewer decimals than in a table.

    ``silent`` says whether the interval is the whole declared range.
    """
    words = target.in_words(decimals(target.total_error, resolution=2.0), target.interval())
    return words | {"name": target.name, "silent": _SILENT in target.entries("notes")}


def _holding_zero(targets: list[Quantity], bounds: tuple[float, float] | None) -> list[str]:
    """Return the names of policies whose interval holds zero, where values may have either sign."""
    if bounds is not None and not bounds[0] < 0.0 < bounds[1]:
        return []
    return [target.name for target in targets if (ends := target.interval()) and ends[0] < 0.0 < ends[1]]


def _over_time(targets: list[Quantity]) -> list[tuple[str, Any]]:
    """Return a chart of each event-free probability over time, with the interval at each time."""
    out = []
    for target in targets:
        sound = [finite(point) or [] for point in target.entries("curve")]
        if len(sound) > 1 and all(len(point) == 4 for point in sound):
            time, value, low, high = zip((0.0, 1.0, 1.0, 1.0), *sound, strict=True)
            drawn = charts.curve(time, value, "time", (0.0, 1.0), (low, high), "event-free probability")
            out.append((target.name, drawn))
    return out


def _method(estimate: Fields) -> str:
    """Return the estimator in words, after the algorithm's name unless that is left out on the page."""
    algorithm = estimate.text("algorithm", "")
    return "; ".join(filter(None, (_OWN_NAMES.get(algorithm, algorithm), estimate.text("estimator", ""))))


def _curves(function: Fields, bounds: Fields) -> dict[str, Any] | None:
    """Return charts of the value function along its components, and what it is made of; None if no slice is known."""
    known = [(piece, piece.points("grid", "values")) for piece in function.sections("slices")]
    slices = [(piece, zip(*points, strict=True)) for piece, points in known if points]
    slices = [(name_of_slice(piece, i), *columns) for i, (piece, columns) in enumerate(slices)]
    if not slices:
        return None
    values, features = [v for *_, values in slices for v in values], function.section("features")
    kind, learned = features.text("name"), "weights"
    if not kind.startswith("mlp:"):
        kind, learned = f"Features: {kind}", "coefficients"
    domain = charts.curve_domain(values)
    return {
        "target": function.text("target", "the policy"),
        "made_of": made_of("value_function", kind, features.get("size"), learned),
        "components": len(bounds.entries("observation")) or len(slices),
        "flat": max(values) == min(values),
        "charts": [(name, charts.curve(grid, v, name, domain)) for name, grid, v in slices],
    }


def name_of_slice(piece: Fields, place: int) -> str:
    """Return the name of the component along which a slice goes; ``place`` is used if the slice names no number."""
    return piece.text("name", f"component {piece.text('component', str(place))}")


def _propensities(found: Fields, bounds: Fields, units: str) -> dict[str, Any] | None:
    """Return the estimated behaviour probabilities, a row for each stratum or term; None where the log has them."""
    if "regression" in found:
        return _regression(found, bounds)
    strata = found.texts("strata", "(unnamed)")
    probabilities, counts = found.rows("propensities"), found.rows("noisy_counts")
    lost = numbers(found.get("noisy_counts_of_lost"))
    if len(lost) == len(strata) == len(counts):
        counts = [[*row, gone] for row, gone in zip(counts, lost, strict=True)]
    if not strata or not len(probabilities) == len(counts) == len(strata):
        return None
    actions = max(map(len, probabilities))
    rows = [
        [name, number(sum(n for n in people if n is not None), 0)]
        + ["–" if p is None else number(p, 2) for p in (*shares, *[None] * (actions - len(shares)))]
        for name, shares, people in zip(strata, probabilities, counts, strict=True)
    ]
    people = f"{units.capitalize() if bounds.get('horizon') == 1 else 'Decisions'}, with noise"
    return {
        "columns": list(enumerate(["Stratum", people, *_actions(bounds, actions)])),
        "rows": rows[:_MOST_STRATA],
        "strata": len(rows),
        "noise": error(found.number("standard_deviation_of_noise"), None),
        "lost": bool(lost),
    }


def _regression(found: Fields, bounds: Fields) -> dict[str, Any] | None:
    """Return the coefficients of the propensity regression and their noise, a row for each term."""
    terms = found.texts("regression", "(unnamed)")
    known, noise = found.rows("coefficients"), found.rows("standard_deviation_of_noise")
    if not terms or len(known) != len(noise) or any(len(row) != len(terms) for row in known + noise):
        return None

    def cell(x: float | None, deviation: float | None) -> str:
        return "–" if x is None or deviation is None else f"{number(x, 2)} ± {number(deviation, 2)}"

    first, *others = _actions(bounds, len(known)) or [""]
    columns = [map(cell, *pair) for pair in zip(known, noise, strict=True)]
    rows = [*zip(terms, *columns[1:], strict=True)]
    return {"columns": list(enumerate(["Term", *others])), "rows": rows, "against": first}


def _actions(bounds: Fields, count: int) -> list[str]:
    """Return the names of ``count`` actions: from the bounds if these have one for each, or else by number."""
    called = bounds.texts("action_names")
    return called if len(called) == count else [f"Action {a}" for a in range(count)]


def _shares(name: str, privacy: float | None, sampling: float | None) -> dict[str, Any]:
    """Return the shares of privacy noise and sampling error in the variance, as a bar and as a sentence."""
    if privacy is None or sampling is None or not 0.0 < privacy**2 + sampling**2 < math.inf:
        return {"bar": "–", "share": MISSING, "sentence": "The artifacts do not say how the error splits."}
    if sampling == 0.0:
        return {"bar": "–", "share": MISSING, "sentence": "Privacy noise hides the sampling error."}
    total = math.hypot(privacy, sampling)
    share = privacy**2 / total**2
    places = decimals(total)
    added = total - sampling
    unit = 10.0 ** -(places or 0)
    amount = number(added, places) if added >= unit / 2.0 or added == 0.0 else f"less than {number(unit, places)}"
    sentence = f"Privacy noise added {amount} to a standard error of {number(sampling, places)}."
    title = f"{name}: {percent(share)} of the variance is privacy noise, {percent(1.0 - share)} is sampling error"
    return {"bar": charts.share_bar(share, title), "share": percent(share), "sentence": sentence}


def _same(end: float, bound: float) -> bool:
    return math.isclose(end, bound, rel_tol=1e-9, abs_tol=1e-12)


def frame_of(estimate: Mapping[str, Any]) -> pa.Table:
    """Return the values and differences in ``estimate.json`` as a table: of everybody, then of each subgroup."""
    rows = [*_rows(estimate, None)]
    for group in estimate.get("subgroups", ()):
        rows += _rows(group, f"{group['axis']}: {group['name']}")
    kinds = {name: pa.string() for name in ("policy", "against", "subgroup")} | dict.fromkeys(_NUMBERS, pa.float64())
    return pa.Table.from_pylist(rows, pa.schema(kinds))


def _rows(found: Mapping[str, Any], subgroup: str | None) -> Iterator[dict[str, Any]]:
    for row in (*found["targets"], *found.get("contrasts", ())):
        own: dict[str, Any] = {**row, "policy": row.get("name", row.get("policy")), "subgroup": subgroup}
        ends = (*row["interval"], *row.get("simultaneous_interval", (None, None)))
        yield own | dict(zip(_ENDS, ends, strict=True))
