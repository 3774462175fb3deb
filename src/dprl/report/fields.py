"""Fields of an artifact that may be absent or of the wrong kind: what is there, or a harmless stand-in."""

from __future__ import annotations

from typing import Any

from dprl.report.formatting import as_number, plain


def text(value: Any, otherwise: str) -> str:
    """``value`` in words, ``otherwise`` where it is absent or empty."""
    return otherwise if value is None or value == "" else plain(value)


def section(value: Any) -> dict[str, Any]:
    """A nested mapping, empty where there is none."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """A list, empty where there is none."""
    return value if isinstance(value, list) else []


def endpoints(value: Any) -> tuple[float | None, float | None]:
    """The two numbers of an interval; None for an end that is missing."""
    return (as_number(value[0]), as_number(value[1])) if isinstance(value, list) and len(value) == 2 else (None, None)


def span(value: Any) -> str:
    """An interval of settings in words."""
    return f"{plain(value[0])} to {plain(value[1])}" if isinstance(value, list) and len(value) == 2 else plain(value)


def spoken(key: str) -> str:
    """A field's name as words."""
    return key.replace("_", " ")


def leaves(mapping: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """(label, text) of every leaf, in order of the keys."""
    rows = []
    for key, value in sorted(mapping.items()):
        if isinstance(value, dict) and value:
            rows += leaves(value, f"{prefix}{spoken(key)}, ")
        else:
            rows.append((f"{prefix}{spoken(key)}", plain(value)))
    return rows
