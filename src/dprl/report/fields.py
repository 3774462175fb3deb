"""Fields of an artifact that may be absent or of the wrong kind, and the words by which a page calls them.

A report is drawn after the budget has been spent, and a page with a gap is worth more than no page. So every function
here returns what is there, or a harmless stand-in.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any

from dprl.report.formatting import MISSING, as_number, error, number, plain, sampling_error

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


def points(piece: dict[str, Any], *columns: str) -> list[list[float]]:
    """Return the points of a curve at which each of its columns holds a finite number."""
    found = zip(*(numbers(piece.get(column)) for column in columns), strict=False)
    return [sound for point in found if (sound := finite(list(point))) is not None]


def finite(value: Any) -> list[float] | None:
    """Return a list of finite numbers; None where one of them is something else."""
    found = [v for v in numbers(value) if v is not None and math.isfinite(v)]
    return found if len(found) == len(items(value)) else None


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


def made_of(what: str, kind: str, size: Any, numbers: str) -> str:
    """Return in words what a function is made of, and how many ``numbers`` were learned, where that is known."""
    name, _, rest = kind.partition(":")
    words = WORDS["made_of"][what].get(name, WORDS["made_of"]["other"])
    words = words.format(count=rest.partition(":")[0], kind=kind).replace(" 1 hidden units", " 1 hidden unit")
    return f"{words} ({plain(size)} {numbers})." if isinstance(size, int) else f"{words}."


def action_name(action: Any, called: list[Any]) -> str:
    """Return an action by the name that the bounds declare, or by its number."""
    known = isinstance(action, int) and 0 <= action < len(called)
    return text(called[action], "") if known else f"action {plain(action)}"


# --- values -----------------------------------------------------------------------------------------------------------


def value_bounds(estimate: dict[str, Any]) -> tuple[float, float] | None:
    """Return the smallest and largest value that the public bounds allow: where an interval may have been cut."""
    if probability_of(estimate):
        return 0.0, 1.0
    bounds = section(estimate.get("bounds"))
    low, high = endpoints(bounds.get("reward"))
    if not is_of_transitions(estimate):
        least, most = endpoints(bounds.get("return_range", bounds.get("value")))  # its name before 0.2.0
        if least is not None and most is not None:
            return least, most
        horizon, discount = as_number(bounds.get("horizon")), as_number(estimate.get("discount"))
        if low is None or high is None or horizon is None or discount is None or not 0.0 <= discount <= 1.0:
            return None
        longest = horizon if discount == 1.0 else (1.0 - discount**horizon) / (1.0 - discount)
        low, high = low * (longest if low < 0.0 else 1.0), high * (longest if high > 0.0 else 1.0)
    return None if low is None or high is None else (low, high)


def is_of_transitions(estimate: dict[str, Any]) -> bool:
    """Return whether values are mean rewards of a transition."""
    return text(estimate.get("quantity"), "") == "mean reward of a transition"


def probability_of(estimate: dict[str, Any]) -> str:
    """Return what a value is the probability of, in words; empty where it is none."""
    quantity = text(estimate.get("quantity"), "")
    return quantity if quantity.startswith("probability") else ""


@dataclass(frozen=True)
class Quantity:
    """A value of a policy, or a difference of two, as an artifact has it."""

    found: dict[str, Any]

    @property
    def name(self) -> str:
        """What the policy is called, or both of a difference."""
        first, second = self.names
        return f"{first} less {second}" if self.is_difference else first

    @property
    def names(self) -> tuple[str, str]:
        """What the policy is called, and the one that it is held against."""
        first = self.found.get("name", self.found.get("policy"))
        return text(first, "(unnamed)"), text(self.found.get("against"), "(unnamed)")

    @property
    def is_difference(self) -> bool:
        """Whether it is a difference of two policies."""
        return "against" in self.found

    @property
    def value(self) -> float | None:
        """The value itself."""
        return as_number(self.found.get("value"))

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval, in which an end that is missing is infinite; None where both are missing."""
        return self._ends("interval")

    @property
    def simultaneous_interval(self) -> tuple[float, float] | None:
        """The interval that holds together with all others, as :attr:`interval`."""
        return self._ends("simultaneous_interval")

    def _ends(self, key: str) -> tuple[float, float] | None:
        low, high = endpoints(self.found.get(key))
        if low is None and high is None:
            return None
        return -math.inf if low is None else low, math.inf if high is None else high

    @property
    def errors(self) -> tuple[float | None, float | None]:
        """Standard errors of privacy noise and sampling, with None for one that is missing or negative."""
        values = (as_number(self.found.get(f"{kind}_standard_error")) for kind in ("privacy", "sampling"))
        privacy, sampling = (value if value is not None and value >= 0.0 else None for value in values)
        return privacy, sampling

    @property
    def total_error(self) -> float | None:
        """Standard error of noise and sampling together, by the interval where that is not told."""
        known = [e for e in self.errors if e is not None]
        if known and 0.0 < math.hypot(*known) < math.inf:
            return math.hypot(*known)
        low, high = endpoints(self.found.get("interval"))
        return (high - low) / 4.0 if low is not None and high is not None else None

    @property
    def reaches_far(self) -> bool:
        """Whether the interval is half as wide again as two standard errors to both sides."""
        (privacy, sampling), (low, high) = self.errors, endpoints(self.found.get("interval"))
        if privacy is None or sampling is None or low is None or high is None:
            return False
        return high - low > 6.0 * math.hypot(privacy, sampling) > 0.0

    def in_words(self, places: int | None, interval: tuple[float, float] | None) -> dict[str, str]:
        """Return the value, the ``interval`` that is shown of it, and both errors, as a table prints them."""
        (privacy, sampling), most = self.errors, as_number(self.found.get("sampling_standard_error_at_most"))
        return {
            "value": number(self.value, places),
            "interval": words_of(interval, places),
            "privacy": error(privacy, places),
            "sampling": sampling_error(sampling, places, most),
        }


def words_of(interval: tuple[float, float] | None, places: int | None) -> str:
    """Return an interval in words; nothing for none."""
    return "" if interval is None else f"{number(interval[0], places)} to {number(interval[1], places)}"


def value_and_interval(words: dict[str, str]) -> str:
    """Return a value and, where there is one, its interval, both of which are in words already."""
    return f"{words['value']} ({words['interval']})" if words["interval"] else words["value"]
