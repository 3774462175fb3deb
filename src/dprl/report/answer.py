"""The answer in words and numbers: values, intervals, what the errors are made of, the value function."""

from __future__ import annotations

import math
from typing import Any

from dprl.report import charts
from dprl.report.fields import endpoints, items, section, text
from dprl.report.formatting import MISSING, as_number, decimals, error, number, percent, plain


def policies(targets: list[dict[str, Any]], bounds: tuple[float, float] | None) -> list[dict[str, Any]]:
    """One entry a target policy. Rows that need about as many decimals share the larger number of them."""
    places = [decimals(_total_error(t)) for t in targets]
    known = [p for p in places if p is not None]
    if known and max(known) - min(known) <= 1:
        places = [None if p is None else max(known) for p in places]
    rows = []
    for target, at in zip(targets, places, strict=True):
        value, (low, high) = as_number(target.get("value")), endpoints(target.get("interval"))
        privacy, sampling = _errors(target)
        most, weight = (as_number(target.get(key)) for key in ("sampling_standard_error_at_most", "mean_weight"))
        interval = MISSING if low is None and high is None else f"{_end(low, at, -1)} to {_end(high, at, 1)}"
        reference = as_number(target.get("reference"))
        name = _name(target)
        row = charts.Row(
            name=name,
            value=value,
            low=low,
            high=high,
            reference=reference,
            text=number(value, at) + ("" if interval == MISSING else f" ({interval})"),
        )
        rows.append(
            {
                "name": name,
                "row": row,
                "value": number(value, at),
                "interval": interval,
                "clipped": bounds is not None and any(_same(e, b) for e, b in zip((low, high), bounds, strict=True)),
                "privacy": error(privacy, at),
                "sampling": error(sampling, at),
                "at_most": error(most, at) if most is not None else "",
                "weight": "" if weight is None else number(weight, 2),
                "reference": "–" if reference is None else number(reference, at),
                **_shares(name, privacy, sampling),
            }
        )
    return rows


def headline(target: dict[str, Any]) -> dict[str, str]:
    at = decimals(_total_error(target), resolution=2.0)
    low, high = endpoints(target.get("interval"))
    known = low is not None or high is not None
    return {
        "name": _name(target),
        "value": number(as_number(target.get("value")), at),
        "interval": f"{_end(low, at, -1)} to {_end(high, at, 1)}" if known else "",
    }


def worth(estimate: dict[str, Any], request: dict[str, Any]) -> str:
    """What the number measures, for a reader who has never met the word return."""
    outcome = text(request.get("outcome"), "")
    if _of_a_transition(estimate):
        reward = outcome or "reward of a decision, in the units of the log"
        return f"the average {reward}, had this policy made that one decision in each state that the log holds"
    horizon = section(estimate.get("bounds")).get("horizon")
    discount = as_number(estimate.get("discount"))
    if horizon == 1:
        reward = outcome or "reward of a decision, in the units of the log"
        return f"the average {reward}, had this policy made every decision"
    meaning = f"the average {outcome or 'return of a trajectory'}, had this policy made every decision"
    total = f"{meaning}; a return is the sum of a trajectory's rewards, in the units of the log"
    if discount is None or discount == 1.0:
        return total
    return f"{total}, where each further decision counts {plain(discount)} times as much as the one before it"


def method(estimate: dict[str, Any]) -> str:
    """The estimator, after the algorithm where that has a name of its own."""
    names = {name: name.upper() for name in ("gpope", "dptd", "dp-sgda", "dp-gld", "dp-srm")} | {
        "importance-sampling": ""
    }
    algorithm = text(estimate.get("algorithm"), "")
    return "; ".join(t for t in (names.get(algorithm, algorithm), text(estimate.get("estimator"), "")) if t)


def others(count: int) -> str:
    """How many policies stand beside the first, in a sentence."""
    if count < 1:
        return ""
    if count == 1:
        return "One other policy was evaluated in the same release and is shown below."
    words = ("Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")
    many = words[count - 2] if count < 10 else plain(count)
    return f"{many} other policies were evaluated in the same release and are shown below."


def curves(value_function: Any, bounds: Any = None) -> dict[str, Any] | None:
    """The value function along each component that is shown, and what it is made of."""
    slices = []
    for piece in items(section(value_function).get("slices")):
        piece = section(piece)
        grid = [as_number(v) for v in items(piece.get("grid"))]
        values = [as_number(v) for v in items(piece.get("values"))]
        pairs = [
            (a, b)
            for a, b in zip(grid, values, strict=False)
            if a is not None and b is not None and math.isfinite(a) and math.isfinite(b)
        ]
        if pairs:
            name = text(piece.get("name"), f"component {plain(piece.get('component', len(slices)))}")
            slices.append((name, *zip(*pairs, strict=True)))
    if not slices:
        return None
    values = [v for _, _, values in slices for v in values]
    domain = charts.curve_domain(values)
    wide = len(slices) == 1
    features = section(section(value_function).get("features"))
    components = len(items(section(bounds).get("observation"))) or len(slices)
    return {
        "target": text(section(value_function).get("target"), "the policy"),
        "made_of": _made_of(features),
        "shown": "" if len(slices) == components else f"Shown: the first {len(slices)} of {components} measurements.",
        "flat": max(values) == min(values),
        "charts": [(name, charts.curve(grid, values, name, domain, wide)) for name, grid, values in slices],
    }


def value_bounds(estimate: dict[str, Any]) -> tuple[float, float] | None:
    """Smallest and largest value that the public bounds allow: where an interval ends because it was cut there."""
    bounds = section(estimate.get("bounds"))
    if _of_a_transition(estimate):
        low, high = endpoints(bounds.get("reward"))
        return None if low is None or high is None else (low, high)
    low, high = endpoints(bounds.get("value"))
    if low is not None and high is not None:
        return low, high
    low, high = endpoints(bounds.get("reward"))
    horizon, discount = as_number(bounds.get("horizon")), as_number(estimate.get("discount"))
    if low is None or high is None or horizon is None or discount is None or not 0.0 <= discount <= 1.0:
        return None
    longest = horizon if discount == 1.0 else (1.0 - discount**horizon) / (1.0 - discount)
    return low * (longest if low < 0.0 else 1.0), high * (longest if high > 0.0 else 1.0)


def _of_a_transition(estimate: dict[str, Any]) -> bool:
    return text(estimate.get("quantity"), "") == "mean reward of a transition"


def _made_of(features: dict[str, Any]) -> str:
    """Features or network in words, and how many numbers were learned."""
    name, size = plain(features.get("name", MISSING)), plain(features.get("size")) if "size" in features else None
    kind, _, hidden = name.partition(":")
    if kind == "mlp":
        units = f"{hidden} hidden unit{'' if hidden == '1' else 's'}"
        return f"A neural network with one layer of {units}" + (f" ({size} weights)." if size else ".")
    return f"Features: {name}" + (f" ({size} coefficients)." if size else ".")


def _shares(name: str, privacy: float | None, sampling: float | None) -> dict[str, Any]:
    """The cut of the variance into privacy noise and sampling error, as a bar and as a sentence."""
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
    def known(key: str) -> float | None:
        value = as_number(target.get(key))
        return value if value is not None and value >= 0.0 else None

    return known("privacy_standard_error"), known("sampling_standard_error")


def _end(value: float | None, places: int | None, side: int) -> str:
    return number(side * math.inf if value is None else value, places)


def _same(end: float | None, bound: float) -> bool:
    return end is not None and math.isclose(end, bound, rel_tol=1e-9, abs_tol=1e-12)


def _name(target: dict[str, Any]) -> str:
    return text(target.get("name"), "(unnamed)")
