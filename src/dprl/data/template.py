"""A bounds file to fill in, made only from the names and types of a log's columns: no row is read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import resources
from typing import Any

import pyarrow as pa
from jinja2 import Environment, StrictUndefined

from dprl.data import schema as schemas
from dprl.data.bounds_file import PLACEHOLDER
from dprl.data.sources import open_source
from dprl.errors import DprlError


def bounds_template(source: Any, person: str | None = None) -> str:
    """Return a commented bounds file for a log, with ``"?"`` wherever a public fact is to be filled in.

    Args:
        source: a log, as :func:`dprl.read_log` takes it.
        person: column that identifies the person.

    Returns:
        Text in TOML. :func:`~dprl.data.bounds_file.read_bounds` names the facts that are still to be filled in.

    Raises:
        DprlError: the log cannot be opened, or has no column ``person``.
    """
    opened = open_source(source)
    names, kinds = opened.names, opened.kinds
    found = {part: schemas.columns_of(part, kinds) for part in schemas.ALIASES}
    if person is not None:
        if person not in kinds:
            raise DprlError(f"The log has no column {person!r} to tell people apart.")
        found["person_id"] = (person,)
    steps = bool(found["t"] and found["episode_id"])
    needed = ("observation", "action", "reward")
    raw = any(not found[part] or any(_is_text(kinds[column]) for column in found[part]) for part in needed)
    of_action = kinds.get(found["action"][0]) if found["action"] else None
    continuous = schemas.is_list(of_action) or (of_action is not None and pa.types.is_floating(of_action))
    used = {column for columns in found.values() for column in columns}
    stems, labels = _steps_in(names)
    known = [column for column in found["person_id"] if column.isprintable()]
    texts = [column for column in names if _is_text(kinds[column]) and column not in known and column.isprintable()]
    return _template().render(
        name=opened.name,
        found=found,
        missing=[part for part in (*needed, *(("terminated",) if steps else ())) if not found[part]],
        aliases=schemas.ALIASES,
        unused=[column for column in names if column not in used],
        steps=steps,
        raw=raw,
        observation=_components("observation", found, kinds),
        action=_components("action", found, kinds) if continuous or len(found["action"]) > 1 else None,
        person=known[0] if known else PLACEHOLDER.strip('"'),
        stems=stems,
        labels=labels,
        texts=texts or ["COLUMN"],
    )


def _template() -> Any:
    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    # ``shown`` writes a name on one line, for a comment; ``toml`` writes text, or a list of texts, as TOML does
    environment.filters["shown"] = lambda column: column if column and column.isprintable() else repr(column)
    environment.filters["toml"] = partial(json.dumps, ensure_ascii=False)
    return environment.from_string(resources.files("dprl.data").joinpath("bounds.toml.j2").read_text("utf-8"))


def _components(part: str, found: Mapping[str, tuple[str, ...]], kinds: Mapping[str, Any]) -> tuple[Sequence[str], str]:
    """Return the names of a vector's components, and words for further components that there may be."""
    columns = found[part] or (part,)
    kind = kinds.get(columns[0])
    if len(columns) == 1 and schemas.is_list(kind):
        size = kind.list_size if pa.types.is_fixed_size_list(kind) else 0
        return [f"{columns[0]}[{i}]" for i in range(max(size, 1))], "" if size else "number of the list"
    return columns, "" if found[part] else "component: [0, 1] for each value of a category"


def _steps_in(names: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return names with ``{step}`` for columns that end in a number, and those numbers as possible labels of steps."""
    families: dict[str, list[str]] = {}
    for name in names:
        if numbered := re.fullmatch(r"(.*[^0-9])([0-9]{1,3})", name):
            families.setdefault(numbered[1], []).append(numbered[2])
    families = {stem: labels for stem, labels in families.items() if len(labels) > 1 and stem.isprintable()}
    labels = max(families.values(), key=len, default=["1", "2", "3"])
    return [f"{stem}{{step}}" for stem in families or ["NAME"]], labels


def _is_text(kind: pa.DataType | None) -> bool:
    """Tell whether a column is known to hold text; a column of CSV, which has no type, may hold numbers."""
    return kind is not None and schemas.is_text(schemas.plain_type(kind))
