"""What the page of an evaluation says of several policies: differences, subgroups, projections, a learned rule."""

from __future__ import annotations

import itertools
import math
from typing import Any

from dprl.report import charts
from dprl.report.fields import (
    WORDS,
    Quantity,
    action_name,
    endpoints,
    items,
    numbers,
    points,
    section,
    text,
    value_and_interval,
    value_bounds,
    words_of,
)
from dprl.report.formatting import MISSING, as_number, decimals, number, percent, plain

_MOST_ROWS = 100  # of a table of states


def choice_view(choice: dict[str, Any]) -> dict[str, str] | None:
    """Return from how many policies the one on the page was chosen, and by how many; None where it was not."""
    known = {"of": "of", "choose": "units_that_choose", "value": "units_that_value"}
    return {name: plain(choice.get(key)) for name, key in known.items()} if choice else None


def learned_words(estimate: dict[str, Any]) -> dict[str, Any] | None:
    """Return what is said of a learned rule or policy, from ``estimate.json``; None where nothing was learned.

    Returns:
        ``what`` it is, and ``how`` a policy was learned; ``lead``, whether it is better than what was done, and
        ``against_best``, whether than one action for everybody; ``cases`` of a rule, and its ``branches``; ``classes``
        of rules that it was chosen from, and ``why`` another one was left out; ``basis`` and ``table`` of a policy.
    """
    choice = section(estimate.get("choice"))
    rules, learner = section(choice.get("rules")), section(choice.get("learner"))
    if not rules and not learner:
        return None
    what, words = "policy" if learner else "rule", WORDS["learned"]
    logged = {c["against"]: c for c in contrasts_view(estimate)}.get("logged", {"better": None, "between": ""})
    case = {None: "untold", "": "unshown", "logged": "worse"}.get(logged["better"], "better")
    between = f" ({logged['between']})" if logged["between"] else ""
    rule = text(choice.get("policy"), "(unnamed)")
    cases = [c for c in items(choice.get("cases")) if isinstance(c, list) and len(c) == 2]
    called = items(section(estimate.get("bounds")).get("action_names"))
    cases = [([text(test, "") for test in items(tests)], action_name(action, called)) for tests, action in cases]
    first = Quantity(section(next(iter(items(estimate.get("contrasts"))), None)))
    return {
        "what": what,
        "how": words["how"].get(text(learner.get("name"), ""), words["how"]["other"]),
        "better": case == "better",
        "lead": words["lead"][case].format(**{**logged, "what": what, "rule": rule, "between": between}),
        "against_best": _against_best(section(choice.get("less_best_action")), len(cases) == 1, first.total_error),
        "cases": cases,
        "branches": _branches(cases),
        "classes": [(text(name, ""), plain(count)) for name, count in section(rules.get("levels")).items()],
        "why": _left_out(section((rules or learner).get("left_out"))),
        "basis": f"{text(learner.get('basis'), '')} of {plain(learner.get('size'))} functions" if learner else "",
        "table": _policy_table(section(choice.get("learned_policy")), section(estimate.get("bounds"))),
    }


def _branches(cases: list[tuple[list[str], str]], depth: int = 0) -> list[tuple[str, str, Any]]:
    """Return each comparison of a rule, with the action that it leads to, or with the comparisons that follow it."""
    out = []
    for test, group in itertools.groupby((c for c in cases if len(c[0]) > depth), lambda case: case[0][depth]):
        within = list(group)
        ends = [action for tests, action in within if len(tests) == depth + 1]
        out.append((test, ends[0] if ends else "", _branches(within, depth + 1)))
    return out


def _policy_table(
    found: dict[str, Any], bounds: dict[str, Any]
) -> tuple[list[tuple[int, str]], list[list[str]]] | None:
    """Return columns and rows of a learned policy: the action of each state, or the weights of each feature."""
    names, called = [text(name, "") for name in items(found.get("components"))], items(bounds.get("action_names"))
    whole = [[n for n in numbers(found.get(key)) if n is not None] for key in ("table", "counts", "lowest")]
    chosen, counts, lowest = whole
    states = math.prod(counts) if counts and min(counts) >= 1.0 else 0.0
    if len(names) == len(counts) == len(lowest) and len(chosen) == states and 0 < len(chosen) <= _MOST_ROWS:
        places = itertools.product(*(range(int(low), int(low + n)) for low, n in zip(lowest, counts, strict=True)))
        return list(enumerate([*names, "action"])), [
            [*map(str, at), action_name(int(a), called)] for at, a in zip(places, chosen, strict=False)
        ]
    features, weights = [text(name, "") for name in items(found.get("features"))], items(found.get("weights"))
    columns = [numbers(row) for row in weights]
    if not features or len(columns) > _MOST_ROWS or any(len(column) != len(features) for column in columns):
        return None
    rows = [[name, *(number(w, 4) for w in row)] for name, *row in zip(features, *columns, strict=True)]
    return list(enumerate(["feature", *(action_name(action, called) for action in range(len(columns)))])), rows


def _against_best(found: dict[str, Any], single: bool, error: float | None) -> str:
    """Return the sentence on a rule and the best action for everybody; an empty one where no action was valued."""
    low, high = endpoints(found.get("simultaneous_interval"))
    if low is None or high is None:
        return ""
    places, value = decimals(error, resolution=2.0), as_number(found.get("value"))
    case = "better" if low > 0.0 else "worse" if high < 0.0 else "unshown"
    if single:
        case = "single" if low >= 0.0 else "single_unshown"
    return WORDS["learned"]["against_best"][case].format(
        value=number(value, places), less=number(-(value or 0.0), places), most=number(-low, places),
        interval=words_of((low, high), places), turned=words_of((-high, -low), places),
    )  # fmt: skip


def _left_out(found: dict[str, Any]) -> str:
    """Return why larger rules, or a larger basis, were not looked for; an empty sentence where they were."""
    words, strength, handicap = WORDS["learned"]["left_out"], *numbers([found.get("strength"), found.get("handicap")])
    if strength is not None:
        return words["basis"].format(basis=text(found.get("basis"), ""), strength=number(strength, 1))
    if handicap is None:
        return ""
    level = text(found.get("level"), "several comparisons")
    return words["rules"].format(level=level, handicap=percent(handicap / 2.0))


def contrasts_view(estimate: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the differences that were asked for: of several, with intervals that hold together."""
    found = [Quantity(c) for c in items(estimate.get("contrasts")) if isinstance(c, dict)]
    least, most = value_bounds(estimate) or (-math.inf, math.inf)
    out = []
    for contrast in found:
        places, coarse = (decimals(contrast.total_error, resolution) for resolution in (10.0, 2.0))
        strength = as_number(contrast.found.get("confounding"))
        interval = contrast.interval if len(found) == 1 else contrast.simultaneous_interval
        low, high = interval or (-math.inf, math.inf)
        better, worse = contrast.names if low > 0.0 else contrast.names[::-1]
        turned = interval if high >= 0.0 else (-high, -low)  # so that the better one comes first
        amount = -contrast.value if contrast.value is not None and high < 0.0 else contrast.value
        out.append({
            "name": contrast.name, "policy": contrast.names[0], "against": contrast.names[1],
            "better": better if low > 0.0 or high < 0.0 else "",
            "worse": worse, "silent": low <= least - most < most - least <= high,
            "amount": number(amount, coarse), "between": words_of(turned, coarse),
            # how strong a confounder must be to carry an interval to zero, where it is away from zero
            "confounding": "" if strength is None or strength <= 1.0 else number(strength, 2),
            **contrast.in_words(places, interval),
        })  # fmt: skip
    return out


def subgroups_view(estimate: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the axes of subgroups: of each a chart, a sentence for each group, and the rows of a table.

    All intervals are those that hold together. Chart and sentences are of the first comparison, or of the first policy.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for group in map(section, items(estimate.get("subgroups"))):
        found.setdefault(text(group.get("axis"), "groups"), []).append(group)
    bounds, out = value_bounds(estimate), []
    for axis, groups in found.items():
        entries = [_subgroup(group, bounds) for group in groups]
        firsts = [entry["rows"][0] for entry in entries if entry["rows"]]
        out.append({
            "axis": axis,
            "groups": entries,
            "rows": [row for entry in entries for row in entry["rows"]],
            "of_what": firsts[0]["name"] if firsts else "",
            "forest": charts.forest([row["row"] for row in firsts]),
        })  # fmt: skip
    return out


def _subgroup(group: dict[str, Any], bounds: tuple[float, float] | None) -> dict[str, Any]:
    name, people = text(group.get("name"), "(unnamed)"), as_number(group.get("people"))
    noise = as_number(group.get("people_standard_error"))
    places = decimals(noise, resolution=2.0)
    found = [Quantity(q) for q in (*items(group.get("contrasts")), *items(group.get("targets"))) if isinstance(q, dict)]
    rows = [_row_of_group(name, quantity, bounds) for quantity in found]
    about = "" if people is None else f"\nabout {number(max(people, 0.0), places)}"
    rows = [{**row, "group": name if i else name + about} for i, row in enumerate(rows)]
    return {"name": name, "rows": rows}


def _row_of_group(group: str, found: Quantity, bounds: tuple[float, float] | None) -> dict[str, Any]:
    """Return a value in a subgroup, or a difference, with the interval that holds together with all others."""
    places, value, interval = decimals(found.total_error, resolution=5.0), found.value, found.simultaneous_interval
    low, high = interval or (-math.inf, math.inf)
    least, most = bounds or (-math.inf, math.inf)
    if found.is_difference:
        least, most = least - most, most - least
    words, silent = found.in_words(places, interval), low <= least < most <= high
    if silent:
        value, words["value"] = None, MISSING
    ends = (-high, -low) if found.is_difference and high < 0.0 else interval
    return words | {
        "name": found.name, "names": found.names, "silent": silent, "compares": found.is_difference,
        "sign": "more" if low > 0.0 else "less" if high < 0.0 else "",
        "amount": number(None if value is None else abs(value), places),
        "between": words_of(ends, places).replace(" to ", " and "),
        "row": charts.Row(name=group, value=value, interval=interval, text=value_and_interval(words)),
    }  # fmt: skip


def projections_view(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return of the linear projection of each policy and difference its name, coefficients and charts.

    Differences come first: who benefits is what is asked. All charts of one policy or difference share an axis.
    """
    entries = sorted(map(section, items(found.get("found"))), key=lambda entry: "against" not in entry)
    return [
        {
            "name": Quantity(entry).name,
            "has_band": entry.get("band") is True,
            "rows": [row for row in map(_coefficient, map(section, items(entry.get("coefficients")))) if row],
            "charts": _bands(entry),
        }
        for entry in entries
    ]


def _coefficient(found: dict[str, Any]) -> dict[str, str] | None:
    value, (low, high) = as_number(found.get("value")), endpoints(found.get("interval"))
    if value is None or low is None or high is None:
        return None
    places = decimals((high - low) / 4.0, resolution=2.0)
    return {
        "name": text(found.get("name"), "(unnamed)"),
        "value": number(value, places),
        "interval": words_of((low, high), places),
        "size": number(abs(value), places),
        "between": words_of((-high, -low) if high < 0.0 else (low, high), places),
        "sign": "rises" if low > 0.0 else "falls" if high < 0.0 else "",
    }


def _bands(entry: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return each covariate of which something is known, and a curve with its band along it."""
    slices = [
        (text(piece.get("name"), "covariate"), list(zip(*known, strict=True)))
        for piece in map(section, items(entry.get("slices")))
        if len(known := points(piece, "grid", "values", "low", "high")) > 1
    ]
    domain = charts.curve_domain([v for _, (_, *columns) in slices for column in columns for v in column])
    return [(name, charts.curve(grid, values, name, domain, (low, high))) for name, (grid, values, low, high) in slices]
