"""Public bounds from TOML."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dprl.data.preparation import SECTION, Preparation
from dprl.data.prepare_section import read_preparation
from dprl.errors import DprlError, explained
from dprl.protocols import Bounds

_LOGS = (".csv", ".parquet", ".pq")
ASKED = '"?"'
"""What a template says where a public fact is to be filled in; see :func:`~dprl.data.template.bounds_template`."""


def read_bounds(source: Bounds | Mapping[str, Any] | str | Path | None, **defaults: Any) -> Bounds:
    """Return bounds from a TOML file, a mapping, or as they are; refused when missing, never inferred from the rows.

    A section ``[prepare]`` must fit the bounds, and names the components of the observation where they do not.

    Args:
        defaults: of what a file or mapping may leave out.
    """
    return source if isinstance(source, Bounds) else read_public(source, **defaults)[0]


def read_public(source: Any, **defaults: Any) -> tuple[Bounds, Preparation | None]:
    """Return bounds, and how the table becomes a log where the same file or mapping says it.

    Args:
        source, defaults: as :func:`read_bounds` takes them.
    """
    if isinstance(source, Bounds):
        return source, None
    content = _content(source)
    asked = [name for name, value in _leaves(content) if ASKED.strip('"') in _values(value)]
    if asked:
        of = "bounds still have" if isinstance(source, Mapping) else f"bounds file {Path(source).name!r} still has"
        raise DprlError(f"The {of} {ASKED} at {', '.join(asked)}: say what is public.")
    section = content.pop(SECTION, None)
    try:
        bounds = Bounds.from_mapping(defaults | content)
    except DprlError as error:
        raise DprlError(str(error) if isinstance(source, Mapping) else _placed(str(error), Path(source))) from error
    if section is None:
        return bounds, None
    preparation = read_preparation(section)
    preparation.check_bounds(bounds)
    names = bounds.observation_names or tuple(preparation.components())
    actions = bounds.action_names or preparation.action_names(bounds)
    return replace(bounds, observation_names=names, action_names=actions), preparation


def _content(source: Any) -> dict[str, Any]:
    """Return a mapping, or what is in a TOML file."""
    if source is None or (not isinstance(source, Mapping) and str(source) == "infer"):
        raise DprlError("Public bounds are missing: give --bounds bounds.toml; they are never inferred from the rows.")
    if isinstance(source, Mapping):
        return dict(source)
    if not isinstance(source, str | Path):
        raise DprlError("Public bounds are a TOML file, a table or a dprl.Bounds.")
    path = Path(source)
    if path.suffix.lower() in _LOGS:
        # what is wrong with a log as TOML would depend on its rows
        raise DprlError(f"{path.name!r} is a log, not a bounds file: name a TOML file.")
    with explained(f"Cannot read the bounds file {path.name!r}"):
        content = path.read_bytes()
    try:
        return tomllib.loads(content.decode())
    except UnicodeDecodeError as error:
        raise DprlError(f"The bounds file {path.name!r} is not text; it must be TOML.") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a plain ValueError
        where = f": {error}" if isinstance(error, tomllib.TOMLDecodeError) else ""
        where += "; a name with a space or a sign in it stands in quotes" if "after a key" in where else ""
        raise DprlError(f"The bounds file {path.name!r} is not valid TOML{where}.") from error


def _placed(sentence: str, path: Path) -> str:
    """Return what is wrong with bounds, with their file, and the line of what the sentence names first."""
    lines = [line.partition("=")[0].strip() for line in path.read_text(encoding="utf-8").splitlines()]
    named = next((word for word in re.findall(r"\w+", sentence) if word in lines), None)
    line = f", line {lines.index(named) + 1}" if named else ""
    return f"{sentence.removesuffix('.')} ({path.name}{line})."


def refuse_fill(bounds: Bounds) -> None:
    """Refuse public facts about what is missing where nothing reads them."""
    for name in ("fill", "censoring_hazard"):
        if getattr(bounds, name) is not None:
            raise DprlError(f"bounds: {name} is for logs that are evaluated: leave it out where a policy is learned.")


def _leaves(content: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what is in nested tables, with the names of the tables before its own."""
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _values(value: Any) -> list[Any]:
    """Return all values in nested lists."""
    return [x for part in value for x in _values(part)] if isinstance(value, list) else [value]
