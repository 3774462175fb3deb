"""Fields of an artifact that may be absent or of the wrong kind, and the words by which a page calls them.

A report is drawn after the budget has been spent, and a page with a gap is worth more than no page. So everything here
returns the field, or a harmless stand-in.
"""

from __future__ import annotations

import math
import tomllib
from importlib import resources
from typing import Any

from dprl.report.formatting import MISSING, as_number, error, number, plain, sampling_error

WORDS: dict[str, Any] = tomllib.loads(resources.files("dprl.report").joinpath("words.toml").read_text("utf-8"))
"""What a page calls units, relations, bounds, columns and events, by their names in the artifacts."""


def text(value: Any, otherwise: str = MISSING) -> str:
    """Return ``value`` in words, or ``otherwise`` where it is absent or empty."""
    return otherwise if value is None or value == "" else plain(value)


def numbers(value: Any) -> list[float | None]:
    """Return the numbers of a list, with None for each entry that is not a number."""
    return [as_number(entry) for entry in value] if isinstance(value, list) else []


def finite(value: Any) -> list[float] | None:
    """Return a list of finite numbers; None where one of them is something else."""
    found = numbers(value)
    sound = [v for v in found if v is not None and math.isfinite(v)]
    return sound if len(sound) == len(found) else None


class Fields(dict[str, Any]):
    """Fields of an artifact by their names."""

    def text(self, name: str, otherwise: str = MISSING) -> str:
        """Return a field in words, or ``otherwise`` where it is absent or empty."""
        return text(self.get(name), otherwise)

    def texts(self, name: str, otherwise: str = "") -> list[str]:
        """Return each entry of a list in words, or ``otherwise`` for an empty one."""
        return [text(entry, otherwise) for entry in self.entries(name)]

    def number(self, name: str) -> float | None:
        """Return a field as a number; None where it is not a number."""
        return as_number(self.get(name))

    def section(self, name: str) -> Fields:
        """Return a nested mapping, which is empty where there is none."""
        return Fields(value) if isinstance(value := self.get(name), dict) else Fields()

    def entries(self, name: str) -> list[Any]:
        """Return a list, which is empty where there is none."""
        return value if isinstance(value := self.get(name), list) else []

    def sections(self, name: str) -> list[Fields]:
        """Return the mappings in a list."""
        return [Fields(entry) for entry in self.entries(name) if isinstance(entry, dict)]

    def rows(self, name: str) -> list[list[float | None]]:
        """Return the numbers of each list of a list."""
        return [numbers(row) for row in self.entries(name)]

    def interval(self, name: str = "interval") -> tuple[float, float] | None:
        """Return an interval, in which an end that is missing is infinite; None where both are missing."""
        ends = numbers(self.get(name))
        if len(ends) != 2 or ends == [None, None]:
            return None
        low, high = ends
        return -math.inf if low is None else low, math.inf if high is None else high

    def points(self, *columns: str) -> list[list[float]]:
        """Return the points of a curve at which each of its columns holds a finite number."""
        found = zip(*(numbers(self.get(column)) for column in columns), strict=False)
        return [sound for point in found if (sound := finite(list(point))) is not None]

    def leaves(self, prefix: str = "") -> list[tuple[str, str]]:
        """Return the label and the text of every value that is not nested further, in order of the names."""
        rows = []
        for name, value in sorted(self.items()):
            label, nested = f"{prefix}{spoken(name)}", self.section(name)
            rows += nested.leaves(f"{label}, ") if nested else [(label, plain(value))]
        return rows


def span(value: Any) -> str:
    """Return an interval of settings in words."""
    ends = isinstance(value, list) and len(value) == 2 and not isinstance(value[0], str)
    return f"{plain(value[0])} to {plain(value[1])}" if ends else plain(value)


def spoken(name: str) -> str:
    """Return a field's name as words."""
    return name.replace("_", " ")


def _filled(facts: Fields, component: int) -> str:
    """Return, in words, what replaces a component of the observation where it is missing; empty if nothing does."""
    fill = facts.entries("fill")[component : component + 1]
    if not fill or fill[0] is None:
        return ""
    flagged = component in facts.entries("flag_missing")
    return f"where it is missing: {plain(fill[0])}" + (", and a component more says so" if flagged else "")


def listed_facts(
    facts: Fields, known: dict[str, list[str]], names: dict[str, str] | None = None
) -> list[tuple[str, str, str]]:
    """Return the label, value and meaning of public facts: the known ones, each component's interval, and the rest.

    Args:
        facts: the facts by their names in the artifact; the page tells ``name`` and ``units`` elsewhere.
        known: label and meaning of facts, in the order in which they are listed.
        names: names that other parts of the artifact give components of the observation, by number.
    """
    rows = [(label, span(facts[key]), gloss) for key, (label, gloss) in known.items() if key in facts]
    called = {plain(i): name for i, name in enumerate(facts.texts("observation_names"))} | (names or {})
    for i, pair in enumerate(facts.entries("observation")):
        label = f"Observation: {called[plain(i)]}" if called.get(plain(i)) else f"Observation, component {i}"
        rows.append((label, span(pair), _filled(facts, i)))
    rows += [(f"Action, component {i}", span(pair), "") for i, pair in enumerate(facts.entries("action"))]
    printed = {"name", "units", "observation", "observation_names", "fill", "flag_missing", "action", *known}
    return rows + [(*row, "") for row in Fields({key: facts[key] for key in facts if key not in printed}).leaves()]


def made_of(what: str, kind: str, size: Any, numbers: str) -> str:
    """Return in words what a function is made of, and how many ``numbers`` were learned, where that is known."""
    name, _, rest = kind.partition(":")
    words = WORDS["made_of"][what].get(name, WORDS["made_of"]["other"])
    words = words.format(count=rest.partition(":")[0], kind=kind).replace(" 1 hidden units", " 1 hidden unit")
    return f"{words} ({plain(size)} {numbers})." if isinstance(size, int) else f"{words}."


def action_name(action: Any, called: list[str]) -> str:
    """Return the name of an action: the one that the bounds declare, or else its number."""
    return called[action] if isinstance(action, int) and 0 <= action < len(called) else f"action {plain(action)}"


# --- values -----------------------------------------------------------------------------------------------------------


def value_bounds(estimate: Fields) -> tuple[float, float] | None:
    """Return the smallest and largest value that the public bounds allow: where an interval may have been cut."""
    if probability_of(estimate):
        return 0.0, 1.0
    bounds = estimate.section("bounds")
    reward = _pair(bounds.get("reward"))
    if is_of_transitions(estimate):
        return reward
    if declared := _pair(bounds.get("return_range", bounds.get("value"))):  # its name before 0.2.0
        return declared
    horizon, discount = bounds.number("horizon"), estimate.number("discount")
    if reward is None or horizon is None or discount is None or not 0.0 <= discount <= 1.0:
        return None
    longest = horizon if discount == 1.0 else (1.0 - discount**horizon) / (1.0 - discount)
    low, high = reward
    return low * (longest if low < 0.0 else 1.0), high * (longest if high > 0.0 else 1.0)


def _pair(value: Any) -> tuple[float, float] | None:
    found = finite(value) or []
    return (found[0], found[1]) if len(found) == 2 else None


def is_of_transitions(estimate: Fields) -> bool:
    """Return whether values are mean rewards of a transition."""
    return estimate.text("quantity") == "mean reward of a transition"


def probability_of(estimate: Fields) -> str:
    """Return what a value is the probability of, in words; empty where it is none."""
    quantity = estimate.text("quantity")
    return quantity if quantity.startswith("probability") else ""


class Quantity(Fields):
    """Value of a policy, or difference of two policies, as an artifact has it."""

    @property
    def name(self) -> str:
        """Name of the policy, or names of both policies of a difference."""
        first, second = self.names
        return f"{first} less {second}" if self.is_difference else first

    @property
    def names(self) -> tuple[str, str]:
        """Name of the policy, and name of the policy that it is compared with."""
        return self.text("name" if "name" in self else "policy", "(unnamed)"), self.text("against", "(unnamed)")

    @property
    def is_difference(self) -> bool:
        """Whether the quantity is a difference of two policies."""
        return "against" in self

    @property
    def value(self) -> float | None:
        """The value itself."""
        return self.number("value")

    @property
    def errors(self) -> tuple[float | None, float | None]:
        """Standard errors of privacy noise and sampling, with None for one that is missing or negative."""
        values = (self.number(f"{kind}_standard_error") for kind in ("privacy", "sampling"))
        privacy, sampling = (value if value is not None and value >= 0.0 else None for value in values)
        return privacy, sampling

    @property
    def total_error(self) -> float | None:
        """Standard error of noise and sampling together; if unknown, a quarter of the interval's length."""
        known = [e for e in self.errors if e is not None]
        if known and 0.0 < math.hypot(*known) < math.inf:
            return math.hypot(*known)
        low, high = self.interval() or (-math.inf, math.inf)
        return (high - low) / 4.0

    @property
    def reaches_far(self) -> bool:
        """Whether the interval is more than 1.5 times as wide as two standard errors to both sides."""
        (privacy, sampling), ends = self.errors, _pair(self.get("interval"))
        if privacy is None or sampling is None or ends is None:
            return False
        return ends[1] - ends[0] > 6.0 * math.hypot(privacy, sampling) > 0.0

    def in_words(self, places: int | None, interval: tuple[float, float] | None) -> dict[str, str]:
        """Return the value, the ``interval`` that is shown of it, and both errors, as a table prints them."""
        (privacy, sampling), most = self.errors, self.number("sampling_standard_error_at_most")
        return {
            "value": number(self.value, places),
            "interval": words_of(interval, places),
            "privacy": error(privacy, places),
            "sampling": sampling_error(sampling, places, most),
        }

    def away_from_zero(self, places: int | None, interval: tuple[float, float] | None) -> tuple[int, str, str]:
        """Return the side of zero on which the ``interval`` lies, 0 if it holds zero, and value and interval in words.

        If the interval lies below zero, both have their signs turned: they say how much better the other policy is.
        """
        low, high = interval or (-math.inf, math.inf)
        side = (low > 0.0) - (high < 0.0)
        value = self.value
        if side < 0:
            interval, value = (-high, -low), None if value is None else -value
        return side, number(value, places), words_of(interval, places)


def words_of(interval: tuple[float, float] | None, places: int | None) -> str:
    """Return an interval in words; an empty text for None."""
    return "" if interval is None else f"{number(interval[0], places)} to {number(interval[1], places)}"


def value_and_interval(words: dict[str, str]) -> str:
    """Return a value and, where there is one, its interval, both of which are in words already."""
    return f"{words['value']} ({words['interval']})" if words["interval"] else words["value"]
