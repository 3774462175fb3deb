"""Checks of fields that somebody else may have written: of a certificate, its rows, its blocks and its signature."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

from dprl.errors import require

Check = Callable[[Any], bool]
"""Function that tells whether a value may stand in a field."""

SLACK = 1e-9
"""Room for the last digits of floating-point functions on another machine."""
_MOST_STEPS = 10**12
_HEXADECIMAL = re.compile("[0-9a-f]*")


def whole(value: Any) -> bool:
    """Return whether ``value`` is a positive whole number: neither a truth value, nor a fraction, nor text."""
    return type(value) is int and 1 <= value <= _MOST_STEPS


def positive(value: Any) -> bool:
    """Return whether ``value`` is a positive finite number."""
    return not isinstance(value, bool) and isinstance(value, int | float) and 0.0 < value <= sys.float_info.max


def zero_or_positive(value: Any) -> bool:
    """Return whether ``value`` is a finite number that is not negative."""
    return (value == 0.0 and type(value) in (int, float)) or positive(value)


def share(value: Any) -> bool:
    """Return whether ``value`` is a share of a whole: above 0, and at most 1 up to ``SLACK``."""
    return positive(value) and value <= 1.0 + SLACK


def text(value: Any) -> bool:
    """Return whether ``value`` is text that can be printed."""
    return isinstance(value, str) and value.isprintable()


def hexadecimal(digits: int) -> Check:
    """Return a check for text of exactly ``digits`` hexadecimal digits, in lower case."""
    return lambda value: isinstance(value, str) and len(value) == digits and _HEXADECIMAL.fullmatch(value) is not None


def list_of(check: Check, most: int | None = None) -> Check:
    """Return a check for a list of at least one and at most ``most`` values that all pass ``check``."""
    return lambda value: isinstance(value, list) and 1 <= len(value) <= (most or len(value)) and all(map(check, value))


def mapping_of(fields: Mapping[str, Check]) -> Check:
    """Return a check for a mapping that has exactly these fields, whose values all pass their checks."""
    return lambda value: (
        isinstance(value, dict) and set(value) == set(fields) and all(fields[name](value[name]) for name in fields)
    )


def check_fields(what: str, fields: Mapping[str, Check], content: Mapping[str, Any]) -> None:
    """Refuse a mapping that lacks a field, has an unknown field, or has a field that fails its check.

    Args:
        what: name of the mapping, with which the message begins.
        fields: check of each field, by its name.
        content: the mapping.
    """
    for name in (*fields, *content):
        require(name in content, f"{what} lacks the field {name!r}.")
        require(name in fields, f"{what} has an unknown field {name!r}.")
        sound = fields[name](content[name])
        require(sound, f"{what} has a field {name!r} of the wrong type, or out of its range.")
