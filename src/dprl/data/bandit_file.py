"""Rows of a contextual bandit from Parquet and CSV: what each visitor saw, and what each action would have paid."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dprl.data import cells
from dprl.data.parts import Parts
from dprl.data.schema import OpenedLog, Schema, check_identifier, check_number, check_once, column_of
from dprl.data.sources import open_source
from dprl.errors import DprlError

PERSON = "person_id"


class ArrivingRows(NamedTuple):
    """Rows with ``(R, d)`` observations and ``(R, A)`` rewards, NaN for cells that are not numbers.

    ``people`` holds ``(R,)`` codes of people, -1 where the name is missing; it is None where people are not told apart.
    """

    observations: np.ndarray
    rewards: np.ndarray
    people: np.ndarray | None


def open_rows(path: Path, components: int, actions: int) -> tuple[bool, Callable[[], ArrivingRows]]:
    """Check the columns of a file without reading rows; return whether it names people, and a reader of the rows.

    Raises:
        DprlError: a column is missing or of a wrong type; the message names the column.
    """
    source = open_source(path)
    schema = _schema(source, components, actions)
    named = PERSON in schema.scalars

    def read() -> ArrivingRows:
        table = source.read(schema)
        return ArrivingRows(*vectors_of(table, schema), cells.identifier_codes(table.column(PERSON)) if named else None)

    return named, read


def open_parts(folder: Path, components: int, actions: int) -> tuple[Parts, Schema]:
    """Return the parts in a folder that ``dprl data partition`` made, and their schema; each unit must be a person."""
    parts = Parts.open(folder)
    name, schema = parts.name, _schema(parts, components, actions)
    if parts.by != PERSON:
        raise DprlError(f"The parts {name!r} are made by column {parts.by!r}: a bandit needs them by {PERSON!r}.")
    episode = column_of("episode_id", parts.names)
    if episode is not None:  # in such parts, rows without an episode belong to nobody
        raise DprlError(f"The parts {name!r} have a column {episode!r}, which a bandit has not: partition without it.")
    return parts, schema


def vectors_of(table: pa.Table, schema: Schema) -> tuple[np.ndarray, np.ndarray]:
    """Return ``(R, d)`` observations and ``(R, A)`` rewards, NaN for cells that are not numbers."""
    seen, paid = (
        np.column_stack([cells.numbers(table.column(column)) for column in schema.vectors[part]])
        for part in ("observation", "reward")
    )
    return seen, paid


def _schema(source: OpenedLog | Parts, components: int, actions: int) -> Schema:
    kinds, vectors = source.kinds, dict[str, tuple[str, ...]]()
    for part, size, each in (
        ("observation", components, "component of the observation"),
        ("reward", actions, "action"),
    ):
        wanted = vectors[part] = tuple(f"{part}_{i}" for i in range(size))
        if {column for column in kinds if re.fullmatch(rf"{part}_\d+", column)} != {*wanted}:
            raise DprlError(
                f"The bandit file {source.name!r} needs columns {wanted[0]} to {wanted[-1]}, and no other {part}s: one "
                f"for each {each} that the bounds declare."
            )
        for column in wanted:
            check_number(column, kinds[column])
    if PERSON in kinds:
        check_identifier(PERSON, kinds[PERSON])
    schema = Schema({PERSON: PERSON} if PERSON in kinds else {}, vectors)
    check_once(source.names, schema.columns(), f"bandit file {source.name!r}")
    return schema
