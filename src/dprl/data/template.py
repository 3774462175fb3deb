"""A bounds file to fill in, from the names and types of a log's columns alone: no row is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from dprl.data import schema as schemas
from dprl.data.bounds_file import ASKED
from dprl.data.readers import open_source
from dprl.errors import DprlError

_PAIR = f"[{ASKED}, {ASKED}]"
_HEAD = """\
# What is public about the log {name}. Written from the names and types of its columns: no row was read.
# Replace every {asked} by what you know without the rows: from a protocol, a price list, the range of an instrument.
# Rows are clamped to these bounds. A bound taken from the rows themselves would give people away."""


def bounds_template(source: Any, person: str | None = None) -> str:
    """Write a commented bounds file for a log, with ``"?"`` wherever a public fact is to be filled in.

    Args:
        source: a log, as :func:`dprl.read_log` takes it.
        person: column that identifies the person.

    Returns:
        TOML. :func:`~dprl.data.bounds_file.read_bounds` names what is still to be filled in.

    Raises:
        DprlError: the log cannot be opened, or has no such column.
    """
    _, name, names, types = open_source(source)
    kinds = dict(zip(names, types or [None] * len(names), strict=True))
    found = {part: schemas.numbered(part, kinds) or _one(schemas.column_of(part, kinds)) for part in schemas.ALIASES}
    if person is not None:
        if person not in kinds:
            raise DprlError(f"The log has no column {person!r} to tell people apart.")
        found["person_id"] = (person,)
    steps = bool(found["t"] and found["episode_id"])
    lines = [_HEAD.format(name=name, asked=ASKED), "", *_columns(found, names, steps), ""]
    people = "people" if found["person_id"] else "trajectories" if steps else "rows"
    lines += [f"units = {ASKED}  # how many {people} you declare; a round number near the truth serves"]
    if steps:
        lines += [f"horizon = {ASKED}  # steps of the longest trajectory; what is longer is cut"]
    else:
        lines += ["horizon = 1  # no columns episode_id and t: every row is a decision of its own"]
    lines += [f"reward = {_PAIR}  # least and largest reward of one step", *_vector("observation", found, kinds)]
    action = kinds.get(found["action"][0]) if found["action"] else None
    if len(found["action"]) > 1 or (action is not None and (schemas.is_list(action) or pa.types.is_floating(action))):
        lines += _vector("action", found, kinds)
    else:
        lines += [f"actions = {ASKED}  # how many there are; the column counts them from 0"]
    lines += [
        f"max_importance_ratio = {ASKED}  # of one step, target over behaviour probability: one over the least chance",
        "#                             that an action ever had; 1 if the target policy made the log",
    ]
    lines += ["# fill = {0 = 35.0}            # a missing value of component 0 becomes this; else its row is broken"]
    lines += ["# max_cumulative_ratio = 20    # of a trajectory, where it is known; else derived"] * steps
    lines += ["# return_range = [0, 1]        # of a discounted sum of rewards, where known more tightly"] * steps
    return "\n".join(lines) + "\n"


def _one(column: str | None) -> tuple[str, ...]:
    return () if column is None else (column,)


def _columns(found: Mapping[str, tuple[str, ...]], names: Sequence[str], steps: bool) -> list[str]:
    """Say which column plays which part, which one is missing, and which ones play none."""
    lines = [_fact(part, ", ".join(map(_shown, columns))) for part, columns in found.items() if columns]
    for part in ("observation", "action", "reward", *(("terminated",) if steps else ())):
        if not found[part]:
            others = f" or {', '.join(schemas.ALIASES[part])}"
            lines.append(_fact(part, f"MISSING: name a column {part}{others}"))
    if not found["behavior_prob"]:
        lines.append(_fact("behavior_prob", "MISSING: add the probability of what was done, or give --behavior-policy"))
    used = {column for columns in found.values() for column in columns}
    unused = [_shown(name) for name in names if name not in used]
    return [*lines, *([_fact("not used", ", ".join(unused))] if unused else [])]


def _fact(part: str, text: str) -> str:
    return f"# {part:<16} {text}"


def _shown(column: str) -> str:
    """Return a name as it may stand in a comment: one line of it."""
    return column if column.isprintable() else repr(column)


def _vector(part: str, found: Mapping[str, tuple[str, ...]], kinds: Mapping[str, Any]) -> list[str]:
    """One pair of bounds for each component, in a line of its own."""
    columns, rest = found[part] or (part,), []
    kind = kinds.get(columns[0])
    if len(columns) == 1 and kind is not None and schemas.is_list(kind):
        size = kind.list_size if pa.types.is_fixed_size_list(kind) else 0
        columns = tuple(f"{columns[0]}[{i}]" for i in range(max(size, 1)))
        rest = [] if size else ["    # and one pair for each further number of the list"]
    return [f"{part} = [", *(f"    {_PAIR},  # {_shown(column)}" for column in columns), *rest, "]"]
