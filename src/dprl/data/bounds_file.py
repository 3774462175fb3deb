"""Public bounds from TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dprl.errors import DprlError
from dprl.protocols import Bounds

_LOGS = (".csv", ".parquet", ".pq")
ASKED = '"?"'
"""What a template says where a public fact is to be filled in; see :func:`~dprl.data.template.bounds_template`."""


def read_bounds(source: Bounds | Mapping[str, Any] | str | Path | None, **defaults: Any) -> Bounds:
    """Return bounds from a TOML file, a mapping, or as they are; refused when missing, never inferred from the rows.

    Args:
        defaults: of what a file or mapping may leave out.
    """
    if isinstance(source, Bounds):
        return source
    if source is None or (not isinstance(source, Mapping) and str(source) == "infer"):
        raise DprlError("Public bounds are missing: give --bounds bounds.toml; they are never inferred from the rows.")
    if isinstance(source, Mapping):
        return Bounds.from_mapping(defaults | dict(source))
    if not isinstance(source, str | Path):
        raise DprlError("Public bounds are a TOML file, a table or a dprl.Bounds.")
    path = Path(source)
    if path.suffix.lower() in _LOGS:
        # what is wrong with a log as TOML would depend on its rows
        raise DprlError(f"{path.name!r} is a log, not a bounds file: name a TOML file.")
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise DprlError(f"Cannot read the bounds file {path.name!r}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise DprlError(f"The bounds file {path.name!r} is not text; it must be TOML.") from error
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a plain ValueError
        where = f": {error}" if isinstance(error, tomllib.TOMLDecodeError) else ""
        raise DprlError(f"The bounds file {path.name!r} is not valid TOML{where}.") from error
    asked = [name for name, value in content.items() if ASKED.strip('"') in _values(value)]
    if asked:
        raise DprlError(f"The bounds file {path.name!r} still has {ASKED} at {', '.join(asked)}: say what is public.")
    return Bounds.from_mapping(defaults | content)


def refuse_fill(bounds: Bounds) -> None:
    """Refuse public facts about what is missing where nothing reads them."""
    for name in ("fill", "censoring_hazard"):
        if getattr(bounds, name) is not None:
            raise DprlError(f"bounds: {name} is for logs that are evaluated: leave it out where a policy is learned.")


def _values(value: Any) -> list[Any]:
    """Return all values in nested lists."""
    return [x for part in value for x in _values(part)] if isinstance(value, list) else [value]
