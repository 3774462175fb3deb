"""What the page of an evaluation says of several policies: differences, subgroups, projections, a learned rule."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

from dprl.report import charts
from dprl.report.fields import (
    WORDS,
    Fields,
    Quantity,
    action_name,
    numbers,
    value_and_interval,
    value_bounds,
    words_of,
)
from dprl.report.formatting import MISSING, decimals, number, percent, plain

_MOST_ROWS = 100  # a larger table of a learned policy is left out


def choice_view(choice: Fields) -> dict[str, str] | None:
    """Return from how many policies one was chosen, and how many units chose and valued it; None without a choice."""
    known = {"of": "of", "choose": "units_that_choose", "value": "units_that_value"}
    return {name: plain(choice.get(key)) for name, key in known.items()} if choice else None


def learned_words(estimate: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the page's words about a learned rule or policy, from ``estimate.json``; None if nothing was learned.

    Returns:
        ``what`` was learned, rule or policy, and ``how``. ``lead`` says whether it is better than what was done, which
        ``better`` repeats as a truth value, and ``against_best`` whether it is better than one action for everybody. A
        rule has ``cases`` and ``branches``, the ``classes`` of rules from which it was chosen, and ``why`` another
        class was left out. A policy has a ``basis`` and a ``table``.
    """
    estimate = Fields(estimate)
    choice, bounds = estimate.section("choice"), estimate.section("bounds")
    rules, learner, called = choice.section("rules"), choice.section("learner"), bounds.texts("action_names")
    if not rules and not learner:
        return None
    what, words = "policy" if learner else "rule", WORDS["learned"]
    logged = {c["against"]: c for c in contrasts_view(estimate)}.get("logged", {"better": None, "between": ""})
    case = {None: "untold", "": "unshown", "logged": "worse"}.get(logged["better"], "better")
    logged["between"] = f" ({logged['between']})" if logged["between"] else ""
    cases = [case for case in choice.entries("cases") if isinstance(case, list) and len(case) == 2]
    cases = [(Fields(tests=tests).texts("tests"), action_name(action, called)) for tests, action in cases]
    first = Quantity(next(iter(estimate.sections("contrasts")), {}))
    return {
        "what": what,
        "how": words["how"].get(learner.text("name"), words["how"]["other"]),
        "better": case == "better",
        "lead": words["lead"][case].format(**logged, what=what, rule=choice.text("policy", "(unnamed)")),
        "against_best": _against_best(estimate, len(cases) == 1, first.total_error),
        "cases": cases,
        "branches": _branches(cases),
        "classes": [(name, plain(count)) for name, count in rules.section("levels").items()],
        "why": _left_out((rules or learner).section("left_out")),
        "basis": f"{learner.text('basis', '')} of {learner.text('size')} functions" if learner else "",
        "table": _policy_table(choice.section("learned_policy"), called),
    }


def _branches(cases: list[tuple[list[str], str]], depth: int = 0) -> list[tuple[str, str, Any]]:
    """Return each comparison of a rule, with the action that it leads to, or with the comparisons that follow it."""
    out = []
    for test, group in itertools.groupby((c for c in cases if len(c[0]) > depth), lambda case: case[0][depth]):
        within = list(group)
        ends = [action for tests, action in within if len(tests) == depth + 1]
        out.append((test, ends[0] if ends else "", _branches(within, depth + 1)))
    return out


def _policy_table(found: Fields, called: list[str]) -> tuple[list[tuple[int, str]], list[list[str]]] | None:
    """Return columns and rows of a learned policy: the action of each state, or the weights of each feature."""
    names, whole = found.texts("components"), (numbers(found.get(key)) for key in ("table", "counts", "lowest"))
    chosen, counts, lowest = ([n for n in entries if n is not None] for entries in whole)
    states = math.prod(counts) if counts and min(counts) >= 1.0 else 0.0
    if len(names) == len(counts) == len(lowest) and len(chosen) == states and 0 < len(chosen) <= _MOST_ROWS:
        places = itertools.product(*(range(int(low), int(low + n)) for low, n in zip(lowest, counts, strict=True)))
        return list(enumerate([*names, "action"])), [
            [*map(str, at), action_name(int(a), called)] for at, a in zip(places, chosen, strict=False)
        ]
    features, columns = found.texts("features"), found.rows("weights")
    if not features or len(columns) > _MOST_ROWS or any(len(column) != len(features) for column in columns):
        return None
    rows = [[name, *(number(w, 4) for w in row)] for name, *row in zip(features, *columns, strict=True)]
    return list(enumerate(["feature", *(action_name(action, called) for action in range(len(columns)))])), rows


def _against_best(estimate: Fields, single: bool, error: float | None) -> str:
    """Return a sentence that compares a rule with the best action for everybody that was valued; empty if none was."""
    found = estimate.section("choice").section("less_best_action")
    if (interval := found.interval("simultaneous_interval")) is None:
        return ""
    (low, high), places, value = interval, decimals(error, resolution=2.0), found.number("value")
    case = "better" if low > 0.0 else "worse" if high < 0.0 else "unshown"
    if single:
        case = "single" if low >= 0.0 else "single_unshown"
    words, actions = WORDS["learned"]["against_best"], estimate.section("bounds").number("actions")
    valued = len(estimate.entries("targets")) - 2  # beside the rule and what was done
    left_out = words["left_out"] if actions is not None and valued < actions else ""
    return (words[case] + left_out).format(
        value=number(value, places), less=number(-(value or 0.0), places), most=number(-low, places),
        interval=words_of(interval, places), turned=words_of((-high, -low), places),
        valued=valued, actions=plain(actions),
    )  # fmt: skip


def _left_out(found: Fields) -> str:
    """Return why larger rules, or a larger basis, were not looked for; an empty sentence where they were."""
    words, strength, handicap = WORDS["learned"]["left_out"], found.number("strength"), found.number("handicap")
    if strength is not None:
        return words["basis"].format(basis=found.text("basis", ""), strength=number(strength, 1))
    if handicap is None:
        return ""
    return words["rules"].format(level=found.text("level", "several comparisons"), handicap=percent(handicap / 2.0))


def contrasts_view(estimate: Fields) -> list[dict[str, Any]]:
    """Return the differences that were asked for. If there are several, their intervals are simultaneous ones."""
    found = [Quantity(contrast) for contrast in estimate.sections("contrasts")]
    least, most = value_bounds(estimate) or (-math.inf, math.inf)
    out = []
    for contrast in found:
        places, coarse = (decimals(contrast.total_error, resolution) for resolution in (10.0, 2.0))
        strength = contrast.number("confounding")
        interval = contrast.interval("interval" if len(found) == 1 else "simultaneous_interval")
        low, high = interval or (-math.inf, math.inf)
        side, amount, between = contrast.away_from_zero(coarse, interval)
        better, worse = contrast.names if side > 0 else contrast.names[::-1]
        out.append({
            "name": contrast.name, "policy": contrast.names[0], "against": contrast.names[1],
            "better": better if side else "", "worse": worse, "amount": amount, "between": between,
            "silent": low <= least - most < most - least <= high,
            # how strong a confounder must be to move the interval to zero, if the one shown does not hold zero
            "confounding": number(strength, 2) if side and strength is not None and strength > 1.0 else "",
            **contrast.in_words(places, interval),
        })  # fmt: skip
    return out


def subgroups_view(estimate: Fields) -> list[dict[str, Any]]:
    """Return the axes of subgroups, each with a chart, a sentence for each group, and the rows of a table.

    All intervals are simultaneous ones. Chart and sentences show the first comparison or, without one, the first
    policy.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for group in estimate.sections("subgroups"):
        found.setdefault(group.text("axis", "groups"), []).append(_subgroup(group, value_bounds(estimate)))
    out = []
    for axis, entries in found.items():
        firsts = [entry["rows"][0] for entry in entries if entry["rows"]]
        out.append({
            "axis": axis,
            "groups": entries,
            "rows": [row for entry in entries for row in entry["rows"]],
            "of_what": firsts[0]["name"] if firsts else "",
            "forest": charts.forest([row["row"] for row in firsts]),
        })  # fmt: skip
    return out


def _subgroup(group: Fields, bounds: tuple[float, float] | None) -> dict[str, Any]:
    name, people = group.text("name", "(unnamed)"), group.number("people")
    places = decimals(group.number("people_standard_error"), resolution=2.0)
    found = [*group.sections("contrasts"), *group.sections("targets")]
    rows = [_row_of_group(name, Quantity(quantity), bounds) for quantity in found]
    about = "" if people is None else f"\nabout {number(max(people, 0.0), places)}"
    rows = [{**row, "group": name if i else name + about} for i, row in enumerate(rows)]
    return {"name": name, "rows": rows}


def _row_of_group(group: str, found: Quantity, bounds: tuple[float, float] | None) -> dict[str, Any]:
    """Return a value or a difference in a subgroup, with its simultaneous interval."""
    places, value = decimals(found.total_error, resolution=5.0), found.value
    interval = found.interval("simultaneous_interval")
    low, high = interval or (-math.inf, math.inf)
    least, most = bounds or (-math.inf, math.inf)
    if found.is_difference:
        least, most = least - most, most - least
    words, silent = found.in_words(places, interval), low <= least < most <= high
    if silent:
        value, words["value"] = None, MISSING
    side, amount, between = found.away_from_zero(places, interval)
    return words | {
        "name": found.name, "names": found.names, "silent": silent, "compares": found.is_difference,
        "sign": ("", "more", "less")[side], "amount": amount,
        "between": (between if found.is_difference else words["interval"]).replace(" to ", " and "),
        "row": charts.Row(name=group, value=value, interval=interval, text=value_and_interval(words)),
    }  # fmt: skip


def projections_view(found: Fields) -> list[dict[str, Any]]:
    """Return the name, the coefficients and the charts of the linear projection of each policy and difference.

    Differences come first, for they say who benefits. All charts of one policy or difference share an axis.
    """
    entries = sorted(map(Quantity, found.sections("found")), key=lambda entry: not entry.is_difference)
    return [
        {
            "name": entry.name,
            "has_band": entry.get("band") is True,
            "rows": [row for row in map(_coefficient, map(Quantity, entry.sections("coefficients"))) if row],
            "charts": _bands(entry),
        }
        for entry in entries
    ]


def _coefficient(found: Quantity) -> dict[str, str] | None:
    interval, places = found.interval(), decimals(found.total_error, resolution=2.0)
    if found.value is None or interval is None:
        return None
    side, size, between = found.away_from_zero(places, interval)
    sign = ("", "rises", "falls")[side]
    return found.in_words(places, interval) | {"name": found.name, "size": size, "between": between, "sign": sign}


def _bands(entry: Fields) -> list[tuple[str, Any]]:
    """Return the name of each covariate with known points, and a chart of the curve and its band along it."""
    slices = [
        (piece.text("name", "covariate"), list(zip(*known, strict=True)))
        for piece in entry.sections("slices")
        if len(known := piece.points("grid", "values", "low", "high")) > 1
    ]
    domain = charts.curve_domain([v for _, (_, *columns) in slices for column in columns for v in column])
    return [(name, charts.curve(grid, values, name, domain, (low, high))) for name, (grid, values, low, high) in slices]
