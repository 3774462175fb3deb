"""Public bounds from TOML, and the preparation of a table that the same file may declare."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dprl.bounds import Bounds
from dprl.data.preparation import SECTION, Preparation
from dprl.data.prepare_section import read_preparation
from dprl.errors import DprlError, explained

_LOGS = (".csv", ".parquet", ".pq")
_ENCODING = "utf-8-sig"  # editors on Windows begin a file with a byte order mark
PLACEHOLDER = '"?"'
"""Mark in a template where a public fact is to be filled in; see :func:`~dprl.data.template.bounds_template`."""


def read_bounds(source: Bounds | Mapping[str, Any] | str | Path | None, **defaults: Any) -> Bounds:
    """Return bounds from a TOML file or a mapping, or the given bounds; refuse missing bounds, and never infer them.

    A section ``[prepare]`` must fit the bounds, and it names the components of the observation where the bounds do not.
    The returned bounds do not contain the section: to read a table that needs it, give the file or mapping itself as
    ``bounds``.

    Args:
        defaults: values of the names that a file or mapping may leave out.
    """
    return source if isinstance(source, Bounds) else read_bounds_and_preparation(source, **defaults)[0]


def read_bounds_and_preparation(source: Any, **defaults: Any) -> tuple[Bounds, Preparation | None]:
    """Return bounds, and the declared preparation of a table where the same file or mapping has one.

    Args:
        source, defaults: as :func:`read_bounds` takes them.
    """
    if isinstance(source, Bounds):
        return source, None
    content = _content(source)
    asked = [name for name, value in _leaves(content) if PLACEHOLDER.strip('"') in _values(value)]
    if asked:
        of = "bounds still have" if isinstance(source, Mapping) else f"bounds file {Path(source).name!r} still has"
        raise DprlError(f"The {of} {PLACEHOLDER} at {', '.join(asked)}: say what is public.")
    section = content.pop(SECTION, None)
    preparation = None if section is None else read_preparation(section)
    if preparation is not None and "observation_names" not in content:
        names, observation = preparation.components(), content.get("observation")
        if isinstance(observation, Sequence) and len(observation) == len(names):  # else it is refused below
            content["observation_names"] = names
    try:
        bounds = Bounds.from_mapping(defaults | content)
    except DprlError as error:
        raise DprlError(str(error) if isinstance(source, Mapping) else _placed(str(error), Path(source))) from error
    if preparation is None:
        return bounds, None
    preparation.check_bounds(bounds)
    return replace(bounds, action_names=bounds.action_names or preparation.action_names(bounds)), preparation


def _content(source: Any) -> dict[str, Any]:
    """Return the content of a mapping or a TOML file."""
    if source is None or (not isinstance(source, Mapping) and str(source) == "infer"):
        raise DprlError("Public bounds are missing: give --bounds bounds.toml; they are never inferred from the rows.")
    if isinstance(source, Mapping):
        return dict(source)
    if not isinstance(source, str | Path):
        raise DprlError("Public bounds are a TOML file, a table or a dprl.Bounds.")
    return read_toml(Path(source), "bounds file")


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """Return the content of a TOML file, with or without a byte order mark; ``what`` names the file in a refusal."""
    if path.suffix.lower() in _LOGS:
        # a message about a log that is read as TOML would depend on its rows
        raise DprlError(f"{path.name!r} is a log, not a {what}: name a TOML file.")
    with explained(f"Cannot read the {what} {path.name!r}"):
        content = path.read_bytes()
    try:
        return tomllib.loads(content.decode(_ENCODING))
    except UnicodeDecodeError as error:
        raise DprlError(f"The {what} {path.name!r} is not text in UTF-8; it must be TOML.") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a plain ValueError
        where = f": {error}" if isinstance(error, tomllib.TOMLDecodeError) else ""
        where += "; a name with a space or a sign in it stands in quotes" if "after a key" in where else ""
        raise DprlError(f"The {what} {path.name!r} is not valid TOML{where}.") from error


def _placed(sentence: str, path: Path) -> str:
    """Return a sentence about wrong bounds with their file, and the line of the first name in the sentence."""
    lines = [line.partition("=")[0].strip() for line in path.read_text(encoding=_ENCODING).splitlines()]
    named = next((word for word in re.findall(r"\w+", sentence) if word in lines), None)
    line = f", line {lines.index(named) + 1}" if named else ""
    return f"{sentence.removesuffix('.')} ({path.name}{line})."


def refuse_fill(bounds: Bounds) -> None:
    """Refuse bounds that declare facts about missing values where nothing reads these facts."""
    for name in ("fill", "censoring_hazard"):
        if getattr(bounds, name) is not None:
            raise DprlError(f"bounds: {name} is for logs that are evaluated: leave it out where a policy is learned.")


def _leaves(content: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value in nested tables, with its name after the names of its tables."""
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _values(value: Any) -> list[Any]:
    """Return all values in nested lists."""
    return [x for part in value for x in _values(part)] if isinstance(value, list) else [value]
