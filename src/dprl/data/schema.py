"""Column names of a log, their aliases in other libraries, the opened log, and the checks before its rows are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeGuard

import pyarrow as pa

from dprl.bounds import Bounds
from dprl.errors import DprlError

if TYPE_CHECKING:
    from dprl.data.parts import Parts

# Names that Open Bandit Pipeline, SCOPE-RL, d3rlpy and Minari use for the same parts; the last names of observation,
# action, reward and behavior_prob are those in the Open Bandit Dataset's own files.
ALIASES: dict[str, tuple[str, ...]] = {
    "episode_id": ("episode", "trajectory_id", "trajectory"),
    "t": ("step", "timestep", "time_step"),
    "observation": ("observations", "state", "states", "context", "contexts", "user-item_affinity"),
    "next_observation": ("next_observations", "next_state", "next_states"),
    "action": ("actions", "item_id"),
    "reward": ("rewards", "click"),
    "behavior_prob": (
        "behaviour_prob", "behavior_probability", "behaviour_probability", "pscore", "propensity", "action_prob",
        "propensity_score",
    ),
    # `done` before `terminal`: where SCOPE-RL has both, `terminal` says that the step limit was reached
    "terminated": ("terminals", "termination", "terminations", "done", "terminal"),
    "truncated": ("timeout", "timeouts", "truncation", "truncations"),
    "censored": (),
    "uncensored_prob": (),
    "person_id": (),
    "target_prob": (),
}  # fmt: skip
VECTORS = ("observation", "next_observation", "action")
_FLAGS = ("terminated", "truncated", "censored")
IDENTIFIERS = ("episode_id", "person_id")


@dataclass(frozen=True)
class Schema:
    """Choice of the column of a log that plays each part. It is made only from names and types, and it is public.

    Attributes:
        scalars: part -> column name.
        vectors: part -> one list column, or its numbered columns in order.
    """

    scalars: dict[str, str]
    vectors: dict[str, tuple[str, ...]]

    def columns(self) -> list[str]:
        """Return the columns to read, without repetition."""
        wanted = list(self.scalars.values()) + [c for names in self.vectors.values() for c in names]
        return list(dict.fromkeys(wanted))


@dataclass(frozen=True)
class OpenedLog:
    """Opened log: names and types of its columns, and a function that reads rows when they are asked for.

    Attributes:
        name: public name.
        names: names of the columns.
        types: types of the columns; None for CSV, whose cells are known only once they are read. A null type fits all
            parts.
        rows: returns the columns of the given names.
        prepared: digest of the section ``[prepare]`` that made the log, if one did.
        raw: table from which a section ``[prepare]`` makes the log when its rows are read.
    """

    name: str
    names: list[str]
    types: list[pa.DataType] | None
    rows: Callable[[list[str]], pa.Table] = field(repr=False)
    prepared: str | None = None
    raw: OpenedLog | None = field(repr=False, default=None)

    @property
    def kinds(self) -> dict[str, pa.DataType | None]:
        """Type of each column, None for CSV."""
        return dict(zip(self.names, self.types or [None] * len(self.names), strict=True))

    def read(self, schema: Schema) -> pa.Table:
        """Return the columns that play a part in ``schema``."""
        return self.rows(schema.columns())


def match_columns(
    source: OpenedLog | Parts,
    bounds: Bounds,
    unit: str,
    *,
    unit_column: str | None = None,
    needs_behavior: bool = True,
    target_columns: Sequence[str] = (),
) -> Schema:
    """Find the columns of a log; raise in one sentence that names the column that is missing or has a wrong type.

    Args:
        source: opened log, of which only the names and types of columns are looked at.
        bounds: public bounds. With a horizon of 1 each row may be an episode of its own, as in bandit logs. Where the
            bounds declare no hazard of being censored, the log may have a column ``uncensored_prob``.
        unit: ``person``, ``trajectory`` or ``transition``. With ``transition`` a row stands for itself, with its next
            observation, and neither identifiers nor steps are looked at.
        unit_column: column that identifies the person.
        needs_behavior: whether the behaviour probability must be in the log.
        target_columns: further columns holding probabilities of a target policy.
    """
    kinds, by_row, hazard = source.kinds, unit == "transition", bounds.censoring_hazard is not None
    vectors: dict[str, tuple[str, ...]] = {}
    sizes = dict.fromkeys(("observation", "next_observation"), len(bounds.observation))
    for part, size in (sizes | ({"action": len(bounds.action)} if bounds.action else {})).items():
        columns = _vector(part, size, kinds)
        if columns:
            vectors[part] = columns
        elif part != "next_observation":
            raise _missing(part)
        elif by_row:
            raise DprlError(
                "The privacy unit transition needs next_observation in every row: the next row of the log is somebody "
                "else's."
            )
    required = ["reward", *(() if bounds.action else ("action",)), *(("behavior_prob",) if needs_behavior else ())]
    flow = ["terminated"] if by_row else ["episode_id", "t", "terminated"]
    required += flow if by_row or bounds.horizon > 1 else []
    optional = [] if by_row else [*flow, "truncated"]
    if column_of("uncensored_prob", kinds) is not None and not by_row:
        if hazard:
            raise DprlError("The log has a column 'uncensored_prob': leave censoring_hazard out of the bounds.")
        required += ["censored", "uncensored_prob"]
    elif hazard:
        if by_row:
            raise DprlError("The privacy unit transition knows no censoring: leave censoring_hazard out of the bounds.")
        required += ["censored"]
    scalars: dict[str, str] = {}
    for part in dict.fromkeys(required + optional):
        column = column_of(part, kinds)
        if column is not None:
            if part in IDENTIFIERS:
                check_identifier(column, kinds[column])
            else:
                check_number(column, kinds[column], flag=part in _FLAGS)
            scalars[part] = column
        elif part in required:
            raise _missing(part)
    if unit == "person":
        column = unit_column or column_of("person_id", kinds)
        if column is None or column not in kinds:
            raise DprlError(
                "The privacy unit is a person, but the log has no such column"
                + (f" {unit_column!r}" if unit_column else "")
                + ": name it with --person-column, or add person_id."
            )
        check_identifier(column, kinds[column])
        scalars["person_id"] = column
    for column in target_columns:
        if column not in kinds:
            raise _missing(column)
        check_number(column, kinds[column])
        scalars[f"target:{column}"] = column
    schema = Schema(scalars, vectors)
    check_once(source.names, schema.columns(), "log")
    return schema


def _vector(part: str, size: int, kinds: Mapping[str, pa.DataType | None]) -> tuple[str, ...]:
    """Return the columns of a vector of this size, () where there are none; refuse columns that cannot hold it."""
    columns = columns_of(part, kinds)
    if not columns:
        return ()
    kind = kinds[columns[0]]
    if numbered(part, kinds):
        if len(columns) != size:
            raise DprlError(
                f"The log has {len(columns)} columns {part}_0, {part}_1, ..., the bounds describe {size} components."
            )
        for column in columns:
            check_number(column, kinds[column])
    elif kind is None and size > 1:
        raise DprlError(f"A CSV log needs one column for each component: {part}_0 to {part}_{size - 1}.")
    else:
        check_number(columns[0], kind.value_type if is_list(kind) else kind)
        held = "one number" if size > 1 and not is_list(kind) else ""
        if kind is not None and pa.types.is_fixed_size_list(kind) and kind.list_size != size:
            held = f"{kind.list_size} numbers"
        if held and not (kind is not None and pa.types.is_null(kind)):
            raise DprlError(f"Column {columns[0]!r} holds {held} a row, the bounds describe {size} components.")
    return columns


def column_of(part: str, names: Collection[str]) -> str | None:
    """Return the column that has the name of a part, or an alias of it; None where there is none."""
    return next((c for c in (part, *ALIASES[part]) if c in names), None)


def columns_of(part: str, names: Collection[str]) -> tuple[str, ...]:
    """Return the columns of a part: several numbered ones, or a single one; () where there are none."""
    single = column_of(part, names)
    return numbered(part, names) or (() if single is None else (single,))


def numbered(part: str, names: Collection[str]) -> tuple[str, ...]:
    """Return the columns ``PART_0, PART_1, ...`` of a vector, in order; () where there are none."""
    for stem in (part, *ALIASES[part]):
        indices = sorted(int(m.group(1)) for c in names if (m := re.fullmatch(re.escape(stem) + r"_(\d{1,6})", c)))
        if indices:
            if indices != list(range(len(indices))):
                raise DprlError(f"Columns {stem}_0, {stem}_1, ... must be numbered without gaps from 0.")
            return tuple(f"{stem}_{i}" for i in indices)
    return ()


def _missing(part: str) -> DprlError:
    others = ALIASES.get(part, ())
    hint = f" (or {', '.join(others)})" if others else ""
    hint = f" (a list), nor {part}_0, {part}_1, ..." if part in VECTORS[:2] else hint
    if part == "behavior_prob":
        hint += ", no public behaviour policy is given, and no strata are declared within which to estimate them"
    way = "a log is one row per transition with named columns; of a table [prepare] in the bounds says which is which"
    return DprlError(f"The log has no column {part!r}{hint}; {way}.")


def check_once(names: Sequence[str], columns: Collection[str], what: str) -> None:
    """Refuse a log or a table in which one of these columns occurs twice; ``what`` says which of both it is."""
    for column in columns:
        if names.count(column) > 1:
            raise DprlError(f"The {what} has more than one column {column!r}.")


def is_list(kind: pa.DataType | None) -> TypeGuard[pa.DataType]:
    """Tell whether a column is known to hold a list in each row."""
    return kind is not None and _is_any(kind, "list", "large_list", "fixed_size_list")


def check_number(column: str, kind: pa.DataType | None, flag: bool = False) -> None:
    """Refuse a column that cannot hold numbers, or true and false where it is a ``flag``."""
    if not _is_any(kind, "integer", "floating", "boolean", "null", "decimal"):
        raise DprlError(f"Column {column!r} has type {kind}; it must hold {'true or false' if flag else 'numbers'}.")


def check_identifier(column: str, kind: pa.DataType | None) -> None:
    """Refuse a column that cannot tell people or episodes apart."""
    kind = plain_type(kind)
    if not _is_any(kind, "integer", "string", "large_string", "floating", "null"):
        raise DprlError(f"Column {column!r} has type {kind}; an identifier must be text or whole numbers.")


def plain_type(kind: pa.DataType | None) -> pa.DataType | None:
    """Return the type of a column's values, whether these are in the column or in its dictionary."""
    return kind.value_type if kind is not None and pa.types.is_dictionary(kind) else kind


def is_text(kind: pa.DataType | None) -> bool:
    """Tell whether a column holds text; a column of CSV, which has no type, does."""
    return _is_any(kind, "string", "large_string")


def comparable(kind: pa.DataType | None) -> pa.DataType:
    """Return the widest type of a column's own kind, in which its identifiers can be compared."""
    kind = plain_type(kind)
    if is_text(kind):
        return pa.large_string()  # a string array cannot hold more than 2 GiB of text
    if pa.types.is_floating(kind):
        return pa.float64()
    return pa.int64() if pa.types.is_integer(kind) and kind != pa.uint64() else kind


def _is_any(kind: pa.DataType | None, *names: str) -> bool:
    """Tell whether a type is of one of the kinds that pyarrow calls by these names; None is of every kind."""
    return kind is None or any(getattr(pa.types, f"is_{name}")(kind) for name in names)
