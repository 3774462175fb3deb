"""A bounds file to fill in, from the names and types of a log's columns alone: no row is read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from dprl.data import schema as schemas
from dprl.data.bounds_file import ASKED
from dprl.data.preparation import is_text
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
    raw = any(
        not found[part] or any(kinds[column] is not None and _is_text(kinds[column]) for column in found[part])
        for part in ("observation", "action", "reward")
    )
    lines = [_HEAD.format(name=name, asked=ASKED), "", *_columns(found, names, steps), ""]
    people = "people" if found["person_id"] or raw else "trajectories" if steps else "rows"
    lines += [f"units = {ASKED}  # how many {people} you declare; a round number near the truth serves"]
    if steps:
        lines += [f"horizon = {ASKED}  # steps of the longest trajectory; what is longer is cut"]
    elif raw:
        lines += [f"horizon = {ASKED}  # steps of the longest trajectory; 1 where every row is a decision of its own"]
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
    if not found["behavior_prob"]:
        lines += ['# strata = ["site", "age:30,50"]  # where nobody knows the probabilities: components within whose']
        lines += ["#                             cells everybody had the same chances; they are then estimated"]
    lines += ['# action_names = ["placebo", "drug"]  # by which always:drug knows an action']
    lines += ["# fill = {0 = 35.0}            # a missing value of component 0 becomes this; else its row is broken"]
    lines += ['# censoring_hazard = "estimate"  # where people are lost, as a column censored tells; with strata']
    lines += ["# max_cumulative_ratio = 20    # of a trajectory, where it is known; else derived"] * steps
    lines += ["# return_range = [0, 1]        # of a discounted sum of rewards, where known more tightly"] * steps
    lines += _prepare(found, names, kinds) if raw else []
    return "\n".join(lines) + "\n"


_PREPARE = """
# The table is no log yet: this section says how it becomes one. Take away the # before the lines that you fill in, then
# `dprl data prepare` writes the log; `dprl plan` and `dprl evaluate` also take the table itself.
# [prepare]
# person = {person}  # column that tells people apart; false: every row is a person of its own
# step = "?"  # where a person has several rows: the number or date that orders them
# {steps}
# observation = ["?"]  # columns of the state; {{ previous = "COLUMN" }} is what a column was one step before
# action = "?"
# reward = "?"
# outcome = "each"  # or "sum", "last": one outcome of a person, at the last step
# terminated = "?"  # a column that says whether an event ended it, for survival; or true, the default, or false
# censored = "?"  # a column that says whether the person was lost then; or true: whoever has no reward was
# behavior_prob = "?"  # a column; or one number for all; or {{ by = ["COLUMN"], table = {{ VALUE = 0.5 }} }}
# [prepare.codes]  # every value of a column of text: a list for a category, VALUE = number for a quantity
# {codes}"""


def _prepare(found: Mapping[str, tuple[str, ...]], names: Sequence[str], kinds: Mapping[str, Any]) -> list[str]:
    """Return a section to fill in, as comments: what is text, and which columns are those of steps, is in the names."""
    families: dict[str, list[str]] = {}
    for name in names:
        if numbered := re.fullmatch(r"(.*[^0-9])([0-9]{1,3})", name):
            families.setdefault(numbered[1], []).append(numbered[2])
    families = {stem: labels for stem, labels in families.items() if len(labels) > 1 and stem.isprintable()}
    labels = max(families.values(), key=len, default=["1", "2", "3"])
    shown = ", ".join(f"{stem}{{step}}" for stem in families) or "NAME{step}"
    steps = f"steps = {_toml(labels)}  # where a row has a column for each step: {shown}"
    person = [column for column in found["person_id"] if column.isprintable()]
    texts = [name for name in names if kinds[name] is not None and _is_text(kinds[name]) and name not in person]
    codes = [f"{_toml(name)} = [{ASKED}]" for name in texts if name.isprintable()]
    written = {"person": _toml(person[0]) if person else ASKED, "steps": steps}
    return _PREPARE.format(**written, codes="\n# ".join(codes or [f'"COLUMN" = [{ASKED}]'])).splitlines()


def _is_text(kind: pa.DataType) -> bool:
    return is_text(kind.value_type if pa.types.is_dictionary(kind) else kind)


def _toml(value: str | Sequence[str]) -> str:
    """Return text, or a list of texts, as it is written in TOML."""
    return json.dumps(value, ensure_ascii=False)


def _one(column: str | None) -> tuple[str, ...]:
    return () if column is None else (column,)


def _columns(found: Mapping[str, tuple[str, ...]], names: Sequence[str], steps: bool) -> list[str]:
    """Say which column plays which part, which one is missing, and which ones play none."""
    lines = [_fact(part, ", ".join(map(_shown, columns))) for part, columns in found.items() if columns]
    for part in ("observation", "action", "reward", *(("terminated",) if steps else ())):
        if not found[part]:
            others = f" or {', '.join(schemas.ALIASES[part])}, or say it under [prepare]"
            lines.append(_fact(part, f"MISSING: name a column {part}{others}"))
    if not found["behavior_prob"]:
        lines.append(
            _fact(
                "behavior_prob", "MISSING: add the probability of what was done, or give --behavior-policy, or strata"
            )
        )
    used = {column for columns in found.values() for column in columns}
    unused = [_shown(name) for name in names if name not in used]
    return [*lines, *([_fact("not used", ", ".join(unused))] if unused else [])]


def _fact(part: str, text: str) -> str:
    return f"# {part:<16} {text}"


def _shown(column: str) -> str:
    """Return a name as it may stand in a comment: one line of it."""
    return column if column and column.isprintable() else repr(column)


def _vector(part: str, found: Mapping[str, tuple[str, ...]], kinds: Mapping[str, Any]) -> list[str]:
    """One pair of bounds for each component, in a line of its own."""
    columns = found[part] or (part,)
    rest = [] if found[part] else ["    # and one pair for each further component: [0, 1] for each value of a category"]
    kind = kinds.get(columns[0])
    if len(columns) == 1 and kind is not None and schemas.is_list(kind):
        size = kind.list_size if pa.types.is_fixed_size_list(kind) else 0
        columns = tuple(f"{columns[0]}[{i}]" for i in range(max(size, 1)))
        rest = [] if size else ["    # and one pair for each further number of the list"]
    return [f"{part} = [", *(f"    {_PAIR},  # {_shown(column)}" for column in columns), *rest, "]"]
