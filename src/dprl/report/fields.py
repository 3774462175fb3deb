"""Fields of an artifact that may be absent or of the wrong kind, and the words by which a page calls them.

A report is drawn after the budget has been spent, and a page with a gap is worth more than no page. So every function
here returns what is there, or a harmless stand-in.
"""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any

from dprl.report.formatting import MISSING, as_number, plain

WORDS: dict[str, Any] = tomllib.loads(resources.files("dprl.report").joinpath("words.toml").read_text("utf-8"))
"""What a page calls units, relations, bounds, columns and events, by their names in the artifacts."""


def text(value: Any, otherwise: str = MISSING) -> str:
    """Return ``value`` in words, or ``otherwise`` where it is absent or empty."""
    return otherwise if value is None or value == "" else plain(value)


def section(value: Any) -> dict[str, Any]:
    """Return a nested mapping, which is empty where there is none."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """Return a list, which is empty where there is none."""
    return value if isinstance(value, list) else []


def numbers(value: Any) -> list[float | None]:
    """Return the numbers of a list, with None for each entry that is not a number."""
    return [as_number(v) for v in items(value)]


def endpoints(value: Any) -> tuple[float | None, float | None]:
    """Return the two numbers of an interval, with None for an end that is missing."""
    return (as_number(value[0]), as_number(value[1])) if isinstance(value, list) and len(value) == 2 else (None, None)


def span(value: Any) -> str:
    """Return an interval of settings in words."""
    ends = isinstance(value, list) and len(value) == 2 and not isinstance(value[0], str)
    return f"{plain(value[0])} to {plain(value[1])}" if ends else plain(value)


def spoken(key: str) -> str:
    """Return a field's name as words."""
    return key.replace("_", " ")


def leaves(mapping: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Return the label and the text of every leaf, in order of the keys."""
    rows = []
    for key, value in sorted(mapping.items()):
        if isinstance(value, dict) and value:
            rows += leaves(value, f"{prefix}{spoken(key)}, ")
        else:
            rows.append((f"{prefix}{spoken(key)}", plain(value)))
    return rows


def _filled(facts: dict[str, Any], component: int) -> str:
    """Return what becomes of a component of the observation where it is missing, in words."""
    fill = items(facts.get("fill"))[component : component + 1]
    if not fill or fill[0] is None:
        return ""
    flagged = component in items(facts.get("flag_missing"))
    return f"where it is missing: {plain(fill[0])}" + (", and a component more says so" if flagged else "")


def listed_facts(
    facts: dict[str, Any], known: dict[str, list[str]], names: dict[str, str], told: set[str]
) -> list[tuple[str, str, str]]:
    """Return the label, value and meaning of public facts: the known ones, each component's interval, and the rest.

    Args:
        facts: the facts by their names in the artifact.
        known: label and meaning of facts, in the order in which they are listed.
        names: what each component of the observation is called, by its number, as far as it has a name.
        told: names of facts that the page tells elsewhere.
    """
    rows = [(label, span(facts[key]), gloss) for key, (label, gloss) in known.items() if key in facts]
    for key in ("observation", "action"):
        for i, pair in enumerate(items(facts.get(key))):
            name = names.get(plain(i)) if key == "observation" else None
            label = f"{key.capitalize()}: {name}" if name else f"{key.capitalize()}, component {i}"
            rows.append((label, span(pair), _filled(facts, i) if key == "observation" else ""))
    told = told | {"observation", "observation_names", "fill", "flag_missing", "action", *known}
    return rows + [(*row, "") for row in leaves({key: value for key, value in facts.items() if key not in told})]
