"""Base of every configuration: frozen public facts, each with its provenance. A leaf."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import numbers
import re
import types
import typing
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar, get_args

from dprl.errors import DprlError, Mistakes, require

LIBRARY_DEFAULT = "library default (public)"
STATED_IN_CODE = "set in code (stated public)"
# what a user may say of a value's origin: a kind, and in words which protocol, simulation or charge
_STATEMENT = re.compile(r"(public|simulated|charged): *\S.*")
_LONGEST_STATEMENT = 200


class Provenance(str):
    """Provenance that this library writes itself; a provenance of any other type is a user's statement."""

    __slots__ = ()


DERIVED = Provenance("derived from public bounds and the budget")

RENAMED = {
    "box": "parameter_bound",
    "caution": "variance_margin",
    "limit": "cap_step_size",
    "rows": "max_rows_per_unit",
    "square_scale": "second_moment_weight",
    "start_share": "start_budget_fraction",
    "value_share": "value_budget_fraction",
}
"""Present names of options by their names before 0.2.0, which flags and run files may still use."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Base of the configurations. A subclass adds keyword-only fields; they are also its command-line options.

    The ``ranges`` of a subclass say which numbers its options may be, in the form that :func:`check_ranges` reads. A
    subclass with a ``__post_init__`` of its own must call this one.

    ``provenance`` says where a hyper-parameter came from: ``public: WORDS``, ``simulated: WORDS`` or
    ``charged: WORDS``. An option that it does not name has the library's default, or was set by somebody who thereby
    states that the value is public. A value fitted on the private log has no provenance that could be stated, and must
    not be used.

    Raises:
        DprlError: an option has a wrong type or is out of its range, or a provenance is of a name that is no option or
            has none of these forms.
    """

    provenance: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    ranges: ClassVar[Mapping[str, str]] = {}
    """Range of each numeric option that this class adds."""

    def __post_init__(self) -> None:
        whose = getattr(self, "algorithm", "") or type(self).__name__
        for name, hint in _plain_options(type(self)).items():
            try:
                object.__setattr__(self, name, coerce(hint, getattr(self, name)))
            except DprlError as error:
                raise DprlError(f"{whose}: {name} {error}.") from None
        for kind in reversed(type(self).__mro__):
            check_ranges(self, vars(kind).get("ranges", {}), whose)
        object.__setattr__(self, "provenance", _checked_provenance(type(self), self.provenance, type(self).__name__))

    @classmethod
    def options(cls) -> tuple[str, ...]:
        """Return the names of the options that a user may set, in order."""
        return tuple(f.name for f in fields(cls) if f.name != "provenance")

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], source: str) -> Self:
        """Return a configuration from flags, TOML or a specification, with ``source`` (such as ``flag``) as provenance.

        Raises:
            DprlError: options are wrong; the error names all of them.
        """
        require("provenance" not in mapping, f"{source}: {cls.__name__} has no option 'provenance'.")
        return merge(cls, [(mapping, source)])

    def hyper_parameters(self) -> dict[str, dict[str, Any]]:
        """Return each option's value and where it came from, for the certificate."""
        defaults = {f.name: f.default for f in fields(self)}
        return {
            name: {
                "value": getattr(self, name),
                "provenance": self.provenance.get(
                    name, LIBRARY_DEFAULT if getattr(self, name) == defaults[name] else STATED_IN_CODE
                ),
            }
            for name in self.options()
        }

    def replace(self, provenance: str | None = None, **changes: Any) -> Self:
        """Return a copy with ``changes``, whose provenance is ``provenance``; without it they count as set in code."""
        marks = {name: text for name, text in self.provenance.items() if name not in changes}
        if provenance is not None:
            marks.update(dict.fromkeys(changes, provenance))
        return dataclasses.replace(self, **changes, provenance=marks)


_ROUNDING = 2.0**-51
_INTERVAL = re.compile(r"([\[(])(\S+), (\S+)([\])])")


def check_ranges(owner: object, ranges: Mapping[str, str], whose: str) -> None:
    """Refuse an attribute outside of its range; None is in every range.

    Args:
        owner: object whose attributes are checked.
        ranges: for each attribute an interval of numbers, such as ``(0, 1]``, or of whole numbers, such as ``1..100``.
        whose: name of the owner, with which a refusal begins.
    """
    for name, interval in ranges.items():
        if (given := getattr(owner, name)) is not None and not within(given, interval):
            raise DprlError(f"{whose}: {name} must be {range_in_words(interval)}.")


def range_in_words(interval: str) -> str:
    """Return an interval in the words of a refusal.

    >>> [range_in_words(interval) for interval in ("[0, 1]", "(0, 1]", "[1, inf)", "(0, inf)", "1..9")]
    ['between 0 and 1', 'above 0 and at most 1', 'at least 1', 'a positive finite number', 'a whole number from 1 to 9']
    """
    if ".." in interval:
        return "a whole number from {} to {}".format(*interval.split(".."))
    left, low, high, right = _INTERVAL.fullmatch(interval).groups()  # type: ignore[union-attr]  # written in code
    if high == "inf":
        return f"at least {low}" if left == "[" else "a positive finite number"
    if left + right == "[]":
        return f"between {low} and {high}"
    return f"{'at least' if left == '[' else 'above'} {low} and {'at most' if right == ']' else 'below'} {high}"


def within(number: Any, interval: str) -> bool:
    """Tell whether ``number`` is in an interval, written as :func:`check_ranges` reads it; a truth value is no number.

    >>> within(0.5, "(0, 1]"), within(0, "(0, 1]"), within(3, "1..9"), within(3.0, "1..9"), within(True, "[0, 1]")
    (True, False, True, False, False)
    """
    if isinstance(number, bool) or not isinstance(number, int | float):
        return False
    if ".." in interval:
        low, high = map(int, interval.split(".."))
        return isinstance(number, int) and low <= number <= high
    left, low, high, right = _INTERVAL.fullmatch(interval).groups()  # type: ignore[union-attr]
    # numbers that rounding may have moved off an open end are left out, too
    above = number >= float(low) if left == "[" else number > float(low) * (1.0 + _ROUNDING)
    return above and (number <= float(high) if right == "]" else number < float(high) * (1.0 - _ROUNDING))


T = TypeVar("T", bound=Config)


V = TypeVar("V")


def filled(option: V | None) -> V:
    """Return an option that must be filled in by now, as the options of a plan are."""
    assert option is not None
    return option


def merge(kind: type[T], sources: Sequence[tuple[Mapping[str, Any], str]]) -> T:
    """Merge several sources, weakest first, into one configuration; each option keeps the source that set it.

    A source's ``provenance`` table applies to the values that this source sets. For an option that the source does not
    set, the table applies whoever sets it.

    Raises:
        DprlError: options are wrong; the error names all of them, from every source.
    """
    mistakes, types = Mistakes(), typing.get_type_hints(kind)
    hints = {name: types[name] for name in kind.options()}
    values: dict[str, Any] = {}
    marks: dict[str, str] = {}
    about_others: dict[str, str] = {}
    for mapping, source in sources:
        given = _renamed(kind, {name: value for name, value in mapping.items() if name != "provenance"})
        about = mapping.get("provenance", {})
        about = _renamed(kind, about) if isinstance(about, Mapping) else about
        stated = mistakes.attempt(_checked_provenance, kind, about, source) or {}
        values.update(read_fields(hints, given, source, kind.__name__, mistakes))
        marks.update(dict.fromkeys(given, Provenance(f"{source} (stated public)")))
        marks.update({name: text for name, text in stated.items() if name in given})
        about_others.update({name: text for name, text in stated.items() if name not in given})
    wrong = marks.keys() - values.keys()
    marks = {name: text for name, text in marks.items() if name in values} | about_others
    made = mistakes.attempt(_made, kind, values, marks, wrong)
    mistakes.check()
    return made


def documented(kind: type) -> dict[str, str]:
    """Return for each attribute what the docstrings of a class and of its bases say about it.

    >>> documented(Config)
    {}
    """
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        section = inspect.cleandoc(base.__doc__ or "").partition("\nAttributes:\n")[2].partition("\n\n")[0]
        for names, text in re.findall(r"^    (\w[\w, ]*): (.*(?:\n {8,}.*)*)", section, flags=re.MULTILINE):
            plain = " ".join(re.sub(r":\w+:`~?([^`]*)`|``|\\", r"\1", text).split())
            found.update(dict.fromkeys(names.split(", "), plain))
    return found


def from_text(hint: Any, text: str) -> Any:
    """Return the value of a flag: ``text`` as the first type in ``hint`` that it fits; unchanged where it fits none."""
    kinds = _kinds(hint)
    for kind in kinds:
        if kind is bool and text in ("true", "false"):
            return text == "true"
        if kind in (int, float) and str not in kinds:
            with suppress(ValueError):
                return kind(text)
    return text


def coerce(hint: Any, value: Any) -> Any:
    """Return ``value`` as a type that ``hint`` allows: number, text, truth value, choice, list, path or table.

    Raises:
        DprlError: the value fits none of them. The message is only the end of a sentence, such as
            ``must be a whole number``.
    """
    kinds = _kinds(hint)
    if value is None and type(None) in kinds:
        return None
    for kind in kinds:
        chosen = typing.get_origin(kind) is typing.Literal and value in get_args(kind)
        if chosen or (kind in (bool, dict) and isinstance(value, kind)):
            return value
        if kind in (int, float) and isinstance(value, numbers.Real) and not isinstance(value, bool):
            with suppress(OverflowError):  # a whole number may be too large for a float
                if kind is float or float(value).is_integer():
                    return kind(value)  # type: ignore[arg-type]
        elif kind in (str, Path) and isinstance(value, str):
            return kind(value)
        elif kind == list[str] and value and isinstance(value, str | list):
            several = [value] if isinstance(value, str) else value
            if all(isinstance(one, str) for one in several):
                return several
        elif typing.get_origin(kind) is tuple:
            with suppress(DprlError):
                return tuple(coerce(get_args(kind)[0], one) for one in (value if isinstance(value, list) else [value]))
    raise DprlError(f"must be {words_of(hint)}")


def words_of(hint: Any) -> str:
    """Return the values that ``hint`` allows, in words.

    >>> words_of(int | None)
    'a whole number'
    """
    named = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Path: "text",
             list[str]: "text, or a list of texts", dict: "a table"}  # fmt: skip
    words: list[str] = []
    for kind in _kinds(hint):
        if typing.get_origin(kind) is typing.Literal:
            words += map(str, get_args(kind))
        elif kind is not type(None):
            words.append(named.get(kind, "a list of numbers"))
    return " or ".join(words)


def _kinds(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


@functools.cache
def _plain_options(kind: type[Config]) -> dict[str, Any]:
    """Return the types of the options that hold only a number, a truth value or one of several texts."""
    hints = {name: hint for name, hint in typing.get_type_hints(kind).items() if name in kind.options()}
    plain = lambda one: one in (int, float, bool, type(None)) or typing.get_origin(one) is typing.Literal  # noqa: E731
    return {name: hint for name, hint in hints.items() if all(map(plain, _kinds(hint)))}


def _renamed(kind: type[Config], mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same options under their present names; an option given under both keeps both, to be refused."""
    now = {old: RENAMED[old] for old in mapping if old not in kind.options() and RENAMED.get(old) in kind.options()}
    return {now[name] if name in now and now[name] not in mapping else name: x for name, x in mapping.items()}


def read_fields(
    hints: Mapping[str, Any],
    given: Mapping[str, Any],
    source: str,
    whose: str,
    mistakes: Mistakes,
    called: str = "{name} of {whose}",
) -> dict[str, Any]:
    """Return the values that fit the types of their fields; note the others as mistakes.

    Args:
        hints: type of each field.
        given: value of each field that was given.
        source: where the values were given; a sentence begins with it.
        whose: name of the owner of the fields, for sentences.
        mistakes: collector of the mistakes.
        called: how a sentence names a field.
    """
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in hints:
            mistakes.add(f"{source}: {whose} has no option {name!r}; it has {', '.join(hints)}.")
            continue
        try:
            values[name] = coerce(hints[name], value)
        except DprlError as error:
            mistakes.add(f"{source}: {called.format(name=name, whose=whose)} {error}.")
    return values


def _made(kind: type[T], values: dict[str, Any], marks: Mapping[str, str], without: set[str]) -> T | None:
    """Return the configuration, or raise every mistake of its values.

    The checks of ``kind`` stop at the first mistake. To find others, the option that causes the mistake is left out,
    and the checks run again.

    Args:
        kind: class of the configuration.
        values: options that fit their types.
        marks: provenance of each option.
        without: options that were given but left out, because they do not fit their types. A sentence that names such
            an option may follow from its absence, and is not noted.
    """
    mistakes, left = Mistakes(), dict(values)
    while (sentence := _mistake(kind, left)) is not None:
        if not without & set(re.findall(r"\w+", sentence)):
            mistakes.add(sentence)
        culprit = next((name for name in left if _mistake(kind, left, name) != sentence), None)
        if culprit is None:
            break
        without.add(culprit)
        del left[culprit]
    mistakes.check()
    return kind(**values, provenance=marks) if sentence is None and len(left) == len(values) else None


def _mistake(kind: type[Config], values: Mapping[str, Any], without: str | None = None) -> str | None:
    """Return what is wrong with ``values`` when the option ``without`` is left out; None where nothing is."""
    try:
        kind(**{name: value for name, value in values.items() if name != without})
    except DprlError as error:
        return str(error)
    return None


def _checked_provenance(kind: type[Config], stated: Any, source: str) -> dict[str, str]:
    if not isinstance(stated, Mapping):
        raise DprlError(f"{source}: provenance must be a table of options, such as step_size = 'simulated: chain'.")
    for name, text in stated.items():
        if name not in kind.options():
            raise DprlError(
                f"{source}: provenance of {name!r}, but {kind.__name__} has no such option; "
                f"it has {', '.join(kind.options())}."
            )
        if isinstance(text, Provenance):
            continue
        short = isinstance(text, str) and len(text) <= _LONGEST_STATEMENT
        if not (short and text.isprintable() and _STATEMENT.fullmatch(text)):
            raise DprlError(
                f"{source}: the provenance of {name} must be 'public: ...', 'simulated: ...' or 'charged: ...', saying "
                f"in at most {_LONGEST_STATEMENT} characters where the value is known from; one that was tuned on the "
                "log must not be used."
            )
    return dict(stated)
