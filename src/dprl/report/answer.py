"""The page of an evaluation: values, intervals, what the errors are made of, the value function."""

from __future__ import annotations

import math
from typing import Any

from dprl.report import charts, guarantee
from dprl.report.bands import projections_view
from dprl.report.fields import WORDS, endpoints, items, numbers, section, text
from dprl.report.formatting import MISSING, as_number, decimals, error, number, percent, plain
from dprl.report.view import cleaned, view_of_guarantee

_OWN_NAMES = {"importance-sampling": ""} | {
    name: name.upper() for name in ("gpope", "dptd", "dp-sgda", "dp-gld", "dp-srm")
}
"""Algorithms whose name on the page is not the one by which they are asked for."""
_MOST_STRATA = 40

_SILENT = "says-nothing"  # the note of an interval that is the whole declared range


def evaluation_view(estimate: dict[str, Any], certificate: dict[str, Any]) -> dict[str, Any]:
    """Return everything that the template of an evaluation prints, as text, booleans and charts."""
    estimate, certificate = cleaned(estimate, certificate)
    view, words = view_of_guarantee(estimate, certificate), WORDS["evaluation"]["words"]
    targets = [t for t in items(estimate.get("targets")) if isinstance(t, dict)]
    # `value` and `interval` at the top are those of the first policy
    targets = targets or [{"value": estimate.get("value"), "interval": estimate.get("interval")}]
    confidence = f"{100.0 * (as_number(estimate.get('confidence')) or 0.95):.6g}%"
    policies = _policies(targets, _value_bounds(estimate))
    rows = [p["row"] for p in policies]
    request, learned = section(estimate.get("request")), learned_words(estimate)
    return view | {
        "confidence": confidence,
        "policies": policies,
        "cautions": [plain(line) for line in items(estimate.get("cautions"))],
        "headline": _headline(targets[0]),
        "contrasts": _contrasts(estimate),
        "subgroups": _subgroups(estimate, confidence),
        "choice": _choice(section(estimate.get("choice"))),
        "over_time": _over_time(targets),
        "projections": projections_view(section(estimate.get("projections"))),
        "learned": learned,
        "tree": charts.rule_tree(learned["cases"], "The learned rule") if learned and len(learned["cases"]) > 1 else "",
        "outcome": text(request.get("outcome"), ""),
        "of_transitions": _is_of_transitions(estimate),
        "probability": _probability(estimate),
        "horizon": section(estimate.get("bounds")).get("horizon"),
        "discount": as_number(estimate.get("discount")),
        "discount_words": plain(estimate.get("discount")),
        "log": text(request.get("log"), "the log"),
        "method": _method(estimate),
        "forest": charts.forest(rows, confidence),
        "forest_leaves_axis": charts.leaves_axis(rows),
        "propensities": _propensities(section(estimate.get("propensities"))),
        "actions": [text(name, "") for name in items(section(estimate.get("bounds")).get("action_names"))],
        "has_reference": any(row.reference is not None for row in rows),
        "has_weights": any(p["weight"] for p in policies),
        "wide": [_name(target) for target in targets if _reaches_far(target)],
        "has_clipped": any(p["clipped"] for p in policies),
        "curves": _curves(section(estimate.get("value_function")), section(estimate.get("bounds"))),
        "words": words | {"protected": words["protected"].format(units=view["units"])},
        "facts": guarantee.bounds(estimate, certificate, view["units"]),
        "protector": guarantee.protector(certificate),
        "public_policies": [guarantee.policy_words(p) for p in items(guarantee.assumed(certificate).get("policies"))],
    }


def _policies(targets: list[dict[str, Any]], bounds: tuple[float, float] | None) -> list[dict[str, Any]]:
    """Return one entry for each target; rows that need about as many decimals share the larger number of them."""
    places = [decimals(_total_error(t)) for t in targets]
    known = [p for p in places if p is not None]
    if known and max(known) - min(known) <= 1:
        places = [None if p is None else max(known) for p in places]
    return [_policy(target, at, bounds) for target, at in zip(targets, places, strict=True)]


def _policy(target: dict[str, Any], places: int | None, bounds: tuple[float, float] | None) -> dict[str, Any]:
    name, interval = _name(target), _interval(target)
    value, reference, most, weight = (
        as_number(target.get(key)) for key in ("value", "reference", "sampling_standard_error_at_most", "mean_weight")
    )
    privacy, sampling = _errors(target)
    value_words, interval_words = number(value, places), _words_of(interval, places)
    known = f" ({interval_words})" if interval_words else ""
    return {
        "name": name,
        "row": charts.Row(name=name, value=value, interval=interval, reference=reference, text=value_words + known),
        "value": value_words,
        "interval": interval_words or MISSING,
        "clipped": None not in (interval, bounds) and any(map(_same, interval, bounds)),  # type: ignore[arg-type]
        "privacy": error(privacy, places),
        "sampling": error(sampling, places),
        "at_most": "" if most is None else error(most, places),
        "weight": "" if weight is None else number(weight, 2),
        "reference": "–" if reference is None else number(reference, places),
        **_shares(name, privacy, sampling),
    }


def _headline(target: dict[str, Any]) -> dict[str, Any]:
    """Return name, value and interval with the decimals of a sentence: fewer than those of a table; and whether the
    interval is the whole declared range.
    """
    places = decimals(_total_error(target), resolution=2.0)
    value, interval = number(as_number(target.get("value")), places), _words_of(_interval(target), places)
    return {
        "name": _name(target),
        "value": value,
        "interval": interval,
        "silent": _SILENT in items(target.get("notes")),
    }


def _choice(choice: dict[str, Any]) -> dict[str, str] | None:
    """Return from how many policies the one on the page was chosen, and by how many; None where it was not."""
    known = {"of": "of", "choose": "units_that_choose", "value": "units_that_value"}
    return {name: plain(choice.get(key)) for name, key in known.items()} if choice else None


def learned_words(estimate: dict[str, Any]) -> dict[str, Any] | None:
    """Return what is said of a learned rule, from ``estimate.json``; None where nothing was learned.

    Returns:
        ``lead``, whether it is better than what was done, and ``against_best``, whether than one action for everybody;
        its ``cases``; ``classes`` of rules that it was chosen from, and ``why`` another one was left out.
    """
    choice = section(estimate.get("choice"))
    rules = section(choice.get("rules"))
    if not rules:
        return None
    contrasts = {c["against"]: c for c in _contrasts(estimate)}
    logged, alone = contrasts.get("logged"), section(choice.get("less_best_action"))
    rule = text(choice.get("policy"), "(unnamed)")
    better = logged is not None and logged["better"] not in ("", "logged")
    if logged is None:
        lead = f"This release does not tell whether the learned rule is better than what was done: {rule}"
    elif better:
        lead = f"The learned rule, {rule}, is worth {logged['amount']} more than what was done"
    elif logged["better"]:
        lead = f"The learned rule is worse than what was done: {rule}, is worth {logged['amount']} less"
    else:
        lead = "This release does not show that the learned rule is better than what was done: it estimates that the "
        lead += f"rule, {rule}, is worth {logged['amount']} more"
    between = f" ({logged['between']})" if logged and logged["between"] else ""
    cases = [c for c in items(choice.get("cases")) if isinstance(c, list) and len(c) == 2]
    cases = [([text(test, "") for test in items(tests)], plain(action)) for tests, action in cases]
    single = len(cases) == 1
    return {
        "better": better,
        "lead": f"{lead}{between}.",
        "against_best": _against_best(alone, single, _total_error(next(iter(items(estimate.get("contrasts"))), {}))),
        "cases": cases,
        "classes": [(text(name, ""), plain(count)) for name, count in section(rules.get("levels")).items()],
        "why": _left_out(section(rules.get("left_out"))),
    }


def _against_best(found: dict[str, Any], single: bool, error: float | None) -> str:
    """Return the sentence on a rule and the best action for everybody; an empty one where no action was valued."""
    low, high = endpoints(found.get("simultaneous_interval"))
    if low is None or high is None:
        return ""
    places, value = decimals(error, resolution=2.0), as_number(found.get("value"))
    if single:
        if low >= 0.0:
            return "It is the same for everybody, and worth more than any other action for everybody."
        return (
            f"It is the same for everybody; another action for everybody is worth at most {number(-low, places)} more."
        )
    between = f" ({_words_of((low, high), places)})"
    if low > 0.0:
        return f"It is worth {number(value, places)} more than the best single action for everybody{between}."
    if high < 0.0:
        more = number(-(value or 0.0), places)
        return f"One action for everybody is worth {more} more than it ({_words_of((-high, -low), places)})."
    return (
        "It is not shown to be better than the best single action for everybody: it is estimated to be worth "
        f"{number(value, places)} more{between}."
    )


def _left_out(found: dict[str, Any]) -> str:
    """Return why larger rules were not looked for; an empty sentence where they were."""
    handicap = as_number(found.get("handicap"))
    if handicap is None:
        return ""
    return (
        f"Rules of {text(found.get('level'), 'several comparisons')} were not looked for: with so few people and so "
        f"small an epsilon, chance and noise, for which {percent(handicap / 2.0)} of the value range would be allowed, "
        "would decide which of them looks best."
    )


def _contrasts(estimate: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the differences that were asked for: of several, with intervals that hold together."""
    found = [c for c in items(estimate.get("contrasts")) if isinstance(c, dict)]
    least, most = _value_bounds(estimate) or (-math.inf, math.inf)
    out = []
    for contrast in found:
        places, coarse = (decimals(_total_error(contrast), resolution) for resolution in (10.0, 2.0))
        interval = _interval(contrast)
        if len(found) > 1:
            interval = _interval({"interval": contrast.get("simultaneous_interval")})
        value, privacy, sampling = as_number(contrast.get("value")), *_errors(contrast)
        low, high = interval or (-math.inf, math.inf)
        names = [text(contrast.get(name), "(unnamed)") for name in ("policy", "against")]
        better, worse = names if low > 0.0 else names[::-1]
        turned = interval if interval is None or high >= 0.0 else (-high, -low)  # so that the better one comes first
        amount = -value if value is not None and high < 0.0 else value
        out.append({
            "policy": names[0], "against": names[1], "better": better if low > 0.0 or high < 0.0 else "",
            "worse": worse, "silent": low <= least - most < most - least <= high,
            "amount": number(amount, coarse), "between": _words_of(turned, coarse),
            "value": number(value, places), "interval": _words_of(interval, places),
            "privacy": error(privacy, places), "sampling": error(sampling, places),
            "confounding": _confounding(as_number(contrast.get("confounding"))),
        })  # fmt: skip
    return out


def _confounding(strength: float | None) -> str:
    """Return how strong a confounder must be to carry an interval to zero, where it is away from zero and known."""
    return "" if strength is None or strength <= 1.0 else number(strength, 2)


def _subgroups(estimate: dict[str, Any], confidence: str) -> list[dict[str, Any]]:
    """Return the axes of subgroups: of each a chart, a sentence for each group, and the rows of a table.

    All intervals are those that hold together. Chart and sentences are of the first comparison, or of the first policy.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for group in map(section, items(estimate.get("subgroups"))):
        found.setdefault(text(group.get("axis"), "groups"), []).append(group)
    bounds, out = _value_bounds(estimate), []
    for axis, groups in found.items():
        entries = [_subgroup(group, bounds) for group in groups]
        firsts = [entry["rows"][0] for entry in entries if entry["rows"]]
        of_what = firsts[0]["name"] if firsts else ""
        rows = [row["row"] for row in firsts]
        title = f"{of_what} in subgroups, with the {confidence} interval of all together"
        out.append({
            "axis": axis,
            "groups": entries,
            "of_what": of_what,
            "forest": charts.forest(rows, confidence, title) if rows else "",
            "leaves_axis": bool(rows) and charts.leaves_axis(rows),
        })  # fmt: skip
    return out


def _subgroup(group: dict[str, Any], bounds: tuple[float, float] | None) -> dict[str, Any]:
    name, people = text(group.get("name"), "(unnamed)"), as_number(group.get("people"))
    noise = as_number(group.get("people_standard_error"))
    places = decimals(noise, resolution=2.0)
    found = [(c, True) for c in items(group.get("contrasts")) if isinstance(c, dict)]
    found += [(t, False) for t in items(group.get("targets")) if isinstance(t, dict)]
    rows = [_row_of_group(name, entry, compares, bounds) for entry, compares in found]
    about = "" if people is None else f"about {number(max(people, 0.0), places)}"
    return {"name": name, "people": about, "rows": rows, "sentence": rows[0]["sentence"] if rows else ""}


def _row_of_group(
    group: str, found: dict[str, Any], compares: bool, bounds: tuple[float, float] | None
) -> dict[str, Any]:
    """Return a value in a subgroup, or a difference, with the interval that holds together with all others."""
    places, value = decimals(_total_error(found), resolution=5.0), as_number(found.get("value"))
    interval = _interval({"interval": found.get("simultaneous_interval")})
    low, high = interval or (-math.inf, math.inf)
    least, most = bounds or (-math.inf, math.inf)
    if compares:
        least, most = least - most, most - least
    first, second = (text(found.get(key), "(unnamed)") for key in ("policy", "against"))
    name = f"{first} less {second}" if compares else _name(found)
    value_words, interval_words = number(value, places), _words_of(interval, places)
    between = interval_words.replace(" to ", " and ")
    if low <= least < most <= high:
        sentence = "the budget does not suffice for a group of this size."
        value_words = MISSING
    elif not compares:
        sentence = f"{name} is worth {value_words}, between {between}."
    elif low <= 0.0 <= high:
        sentence = f"this release does not tell whether {first} or {second} is worth more (between {between})."
    else:
        more, ends = ("more", interval) if low > 0.0 else ("less", (-high, -low))
        between = _words_of(ends, places).replace(" to ", " and ")
        amount = number(None if value is None else abs(value), places)
        sentence = f"{first} is worth {amount} {more} than {second}, between {between} {more}."
    privacy, sampling = _errors(found)
    return {
        "name": name, "value": value_words, "interval": interval_words, "sentence": sentence,
        "privacy": error(privacy, places), "sampling": error(sampling, places),
        "row": charts.Row(
            name=group, value=None if value_words == MISSING else value, interval=interval, reference=None,
            text=value_words + (f" ({interval_words})" if interval_words else ""),
        ),
    }  # fmt: skip


def _over_time(targets: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """Return a chart of each event-free probability over time, with the interval at each time."""
    out = []
    for target in targets:
        points = [numbers(point) for point in items(target.get("curve"))]
        sound = [[x for x in point if x is not None and math.isfinite(x)] for point in points]
        if len(sound) > 1 and all(len(point) == 4 for point in sound):
            time, value, low, high = zip((0.0, 1.0, 1.0, 1.0), *sound, strict=True)
            name, of = _name(target), "event-free probability"
            out.append((name, charts.curve(time, value, "time", (0.0, 1.0), len(targets) == 1, (low, high), of)))
    return out


def _method(estimate: dict[str, Any]) -> str:
    """Return the estimator, after the algorithm where that has a name of its own."""
    algorithm = text(estimate.get("algorithm"), "")
    return "; ".join(t for t in (_OWN_NAMES.get(algorithm, algorithm), text(estimate.get("estimator"), "")) if t)


def _curves(function: dict[str, Any], bounds: dict[str, Any]) -> dict[str, Any] | None:
    """Return the value function along each component that is shown, and what it is made of."""
    slices: list[tuple[str, list[float], list[float]]] = []
    for piece in map(section, items(function.get("slices"))):
        grid, values = numbers(piece.get("grid")), numbers(piece.get("values"))
        pairs = [
            (a, b)
            for a, b in zip(grid, values, strict=False)
            if a is not None and b is not None and math.isfinite(a) and math.isfinite(b)
        ]
        if pairs:
            slices.append((name_of_slice(piece, len(slices)), [a for a, _ in pairs], [b for _, b in pairs]))
    if not slices:
        return None
    values = [v for *_, values in slices for v in values]
    domain = charts.curve_domain(values)
    return {
        "target": text(function.get("target"), "the policy"),
        "made_of": _made_of(section(function.get("features"))),
        "components": len(items(bounds.get("observation"))) or len(slices),
        "flat": max(values) == min(values),
        "charts": [(name, charts.curve(grid, v, name, domain, len(slices) == 1)) for name, grid, v in slices],
    }


def name_of_slice(piece: dict[str, Any], place: int) -> str:
    """Return the name of the component along which a slice goes; ``place`` stands in for its number."""
    return text(piece.get("name"), f"component {plain(piece.get('component', place))}")


def _value_bounds(estimate: dict[str, Any]) -> tuple[float, float] | None:
    """Return the smallest and largest value that the public bounds allow: where an interval may have been cut."""
    if _probability(estimate):
        return 0.0, 1.0
    bounds = section(estimate.get("bounds"))
    low, high = endpoints(bounds.get("reward"))
    if not _is_of_transitions(estimate):
        least, most = endpoints(bounds.get("return_range", bounds.get("value")))  # its name before 0.2.0
        if least is not None and most is not None:
            return least, most
        horizon, discount = as_number(bounds.get("horizon")), as_number(estimate.get("discount"))
        if low is None or high is None or horizon is None or discount is None or not 0.0 <= discount <= 1.0:
            return None
        longest = horizon if discount == 1.0 else (1.0 - discount**horizon) / (1.0 - discount)
        low, high = low * (longest if low < 0.0 else 1.0), high * (longest if high > 0.0 else 1.0)
    return None if low is None or high is None else (low, high)


def _is_of_transitions(estimate: dict[str, Any]) -> bool:
    return text(estimate.get("quantity"), "") == "mean reward of a transition"


def _propensities(found: dict[str, Any]) -> dict[str, Any] | None:
    """Return the estimated behaviour probabilities, a row for each stratum; None where the log has them."""
    strata = [text(name, "(unnamed)") for name in items(found.get("strata"))]
    tables = [[numbers(row) for row in items(found.get(key))] for key in ("propensities", "noisy_counts")]
    if not strata or any(len(table) != len(strata) for table in tables):
        return None
    rows = [
        (name, number(sum(n for n in counts if n is not None), 0), ["–" if p is None else number(p, 2) for p in shares])
        for name, shares, counts in zip(strata, *tables, strict=True)
    ]
    noise = as_number(found.get("standard_deviation_of_noise"))
    shown = rows[:_MOST_STRATA]
    return {"rows": shown, "strata": len(rows), "actions": max(len(r[2]) for r in rows), "noise": error(noise, None)}


def _probability(estimate: dict[str, Any]) -> str:
    """Return what a value is the probability of, in words; empty where it is none."""
    quantity = text(estimate.get("quantity"), "")
    return quantity if quantity.startswith("probability") else ""


def _made_of(features: dict[str, Any]) -> str:
    """Return features or network in words, and how many numbers were learned."""
    name, size = plain(features.get("name", MISSING)), plain(features.get("size")) if "size" in features else None
    kind, _, hidden = name.partition(":")
    if kind == "mlp":
        units = f"{hidden} hidden unit{'' if hidden == '1' else 's'}"
        return f"A neural network with one layer of {units}" + (f" ({size} weights)." if size else ".")
    return f"Features: {name}" + (f" ({size} coefficients)." if size else ".")


def _shares(name: str, privacy: float | None, sampling: float | None) -> dict[str, Any]:
    """Return the shares of privacy noise and sampling error in the variance, as a bar and as a sentence."""
    if privacy is None or sampling is None or not 0.0 < privacy**2 + sampling**2 < math.inf:
        return {"bar": None, "share": MISSING, "sentence": "The artifacts do not say how the error splits."}
    total = math.hypot(privacy, sampling)
    share = privacy**2 / total**2
    places = decimals(total)
    added = total - sampling
    if sampling == 0.0:
        sentence = f"Privacy noise is the whole of the standard error of {number(total, places)}."
    else:
        unit = 10.0 ** -(places or 0)
        amount = number(added, places) if added >= unit / 2.0 or added == 0.0 else f"less than {number(unit, places)}"
        sentence = f"Privacy noise added {amount} to a standard error of {number(sampling, places)}."
    title = f"{name}: {percent(share)} of the variance is privacy noise, {percent(1.0 - share)} is sampling error"
    return {"bar": charts.share_bar(privacy**2, sampling**2, title), "share": percent(share), "sentence": sentence}


def _total_error(target: dict[str, Any]) -> float | None:
    known = [e for e in _errors(target) if e is not None]
    if known and 0.0 < math.hypot(*known) < math.inf:
        return math.hypot(*known)
    low, high = endpoints(target.get("interval"))
    return (high - low) / 4.0 if low is not None and high is not None else None


def _errors(target: dict[str, Any]) -> tuple[float | None, float | None]:
    """Return the standard errors of privacy noise and sampling, with None for one that is missing or negative."""
    values = (as_number(target.get(key)) for key in ("privacy_standard_error", "sampling_standard_error"))
    privacy, sampling = (value if value is not None and value >= 0.0 else None for value in values)
    return privacy, sampling


def _reaches_far(target: dict[str, Any]) -> bool:
    """Return whether an interval is half as wide again as two standard errors to both sides."""
    known, (low, high) = [e for e in _errors(target) if e is not None], endpoints(target.get("interval"))
    return len(known) == 2 and None not in (low, high) and high - low > 6.0 * math.hypot(*known) > 0.0  # type: ignore[operator]


def _interval(target: dict[str, Any]) -> tuple[float, float] | None:
    """Return the interval, in which an end that is missing is infinite; None where both are missing."""
    low, high = endpoints(target.get("interval"))
    if low is None and high is None:
        return None
    return -math.inf if low is None else low, math.inf if high is None else high


def _words_of(interval: tuple[float, float] | None, places: int | None) -> str:
    return "" if interval is None else f"{number(interval[0], places)} to {number(interval[1], places)}"


def _same(end: float, bound: float) -> bool:
    return math.isclose(end, bound, rel_tol=1e-9, abs_tol=1e-12)


def _name(target: dict[str, Any]) -> str:
    return text(target.get("name"), "(unnamed)")
