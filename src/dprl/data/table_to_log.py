"""Make a raw table into a log as its section ``[prepare]`` declares: each person's rows from only that person's rows.

This succeeds whatever the cells hold. A cell that holds none of the declared codes, no number or no date, as its column
asks for, is missing, and a missing cell makes its trajectory contribute nothing, as in every log. What one person's
rows become depends on no other row: adding a person adds that person's rows and changes no others. Where every row is a
person of its own, the row's number in the table is a label and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dprl.data.cells import identifier_codes, numbers, one_array, plain
from dprl.data.memory import NUMBER, UNTYPED, ColumnsInMemory
from dprl.data.preparation import ByValue, Preparation, has_step_label
from dprl.data.schema import OpenedLog, is_text, plain_type
from dprl.data.trajectories import group, starts
from dprl.user_code import quietly

_BLANK = r"^\s*(|\.|NA|N/A|NaN|nan|NULL|null)\s*$"


def as_log(source: OpenedLog, preparation: Preparation) -> OpenedLog:
    """Return the log that a table becomes when its rows are read; refuse a table that the section does not fit."""
    kinds = source.kinds
    if isinstance(source, ColumnsInMemory):
        # a column without a type is read as text
        kinds = {name: None if kind is UNTYPED else kind for name, kind in kinds.items()}
    preparation.check(source.names, kinds)
    if isinstance(source, ColumnsInMemory):
        source.check_lengths(preparation.columns())
    identifiers = {name: pa.string() if kind is None else plain_type(kind) for name, kind in kinds.items()}
    written = preparation.log_schema(identifiers)

    def rows(names: list[str]) -> pa.Table:
        return _TableToLog(source.rows(preparation.columns()), preparation).log(written).select(names)

    return OpenedLog(source.name, written.names, written.types, rows, raw=source)


class _TableToLog:
    """Table on its way to a log, with CSV cells as text: it has a row for each step, in the order of the table.

    Attributes:
        section: what the section ``[prepare]`` declares.
        steps_per_row: number of steps that one row of the table becomes.
        row: ``(R,)`` number of the table's row from which a row comes.
        group: ``(R,)`` number of a row's trajectory.
        present: ``(R,)`` false for a step without cells in the table, and for a row whose person or episode has no
            name.
        order: ``(N,)`` the rows that are there, ordered by trajectory and step.
        place: ``(R,)`` position of a row in its trajectory, from 0.
        t: ``(R,)`` number of rows of the same trajectory with a smaller step, NaN where the row has no step.
        last: ``(R,)`` whether the row is the last of its trajectory.
        sound: ``(R,)`` whether every row of the trajectory has a step, and no two rows have the same step.
    """

    def __init__(self, table: pa.Table, section: Preparation) -> None:
        self.table, self.section, self.steps_per_row = table, section, len(section.labels)
        self.row = np.repeat(np.arange(table.num_rows), self.steps_per_row)
        self.rows = len(self.row)
        self.present = self._present()
        step = self._steps()
        person = self._each(section.person, identifier_codes) if section.person else self.row
        episode = (
            self._each(section.episode, identifier_codes) if section.episode else np.zeros(self.rows, dtype=np.int64)
        )
        # rows without a name belong to nobody: together they would be one trajectory, to which any person may add rows
        self.present &= (person >= 0) & (episode >= 0)
        if not (section.step or section.steps):  # every row is a trajectory of its own
            person = np.arange(self.rows)
        grouped = group(np.where(self.present, person, -1), episode, step)
        self.order = order = grouped.order

        def each(of_order: np.ndarray, elsewhere: Any = 0) -> np.ndarray:
            out = np.full(self.rows, elsewhere, dtype=of_order.dtype)
            out[order] = of_order
            return out

        self.group, self.place, self.last = each(grouped.index), each(grouped.position), each(grouped.last)
        # rows of one step share their place, so that the trajectory has a step twice and contributes nothing
        fresh = (grouped.position == 0) | starts(step[order])
        first = np.maximum.accumulate(np.where(fresh, np.arange(len(order)), 0))
        t = np.where(np.isfinite(step[order]), grouped.position[first], np.nan)
        self.t = each(t, np.nan)
        broken = np.bincount(grouped.index[t != grouped.position], minlength=len(grouped.owner)) > 0
        self.sound = each(~broken[grouped.index])

    def log(self, written: pa.Schema) -> pa.Table:
        """Return the log with the columns ``written``, which :meth:`Preparation.log_schema` returns."""
        section, columns = self.section, dict[str, Any]()
        if section.person:
            columns["person_id"] = self._identifiers(section.person)
        if section.stepwise:
            identified = section.episode or section.person
            columns["episode_id"] = self._identifiers(identified) if identified else self.row
            columns["t"] = self.t
        columns |= {f"observation_{i}": values for i, values in enumerate(self._observation())}
        several = len(section.action) > 1
        for i, name in enumerate(section.action):
            columns[f"action_{i}" if several else "action"] = self._values(name)
        columns["reward"] = self._reward()
        if section.behavior_prob is not None:
            columns["behavior_prob"] = self._behavior()
        ends = self._ends()
        if section.censored:
            columns["censored"] = self._lost(columns["reward"])
            ends = np.where(columns["censored"] > 0.0, 0.0, ends)
        columns |= {"terminated": ends, "truncated": self.last & (ends == 0.0)}
        columns |= {name: self._values(name) for name in section.keep}
        kept = self.present & ((self.place == 0) if section.decisions == "first" else True)
        chosen = np.flatnonzero(kept)
        return pa.table([_column(columns[f.name], chosen, f.type) for f in written], schema=written)

    # --- what the table says -------------------------------------------------------------------------------------

    def _each(self, name: str, read: Callable[[pa.ChunkedArray], np.ndarray]) -> np.ndarray:
        """Return what ``read`` makes of the cells behind a name, one for each row of the log."""
        found = [read(plain(self.table.column(column))) for column in self.section.columns_of(name)]
        return (
            np.repeat(found[0], self.steps_per_row)
            if len(found) < self.steps_per_row
            else np.stack(found, axis=1).ravel()
        )

    def _identifiers(self, name: str) -> pa.Array:
        return one_array(plain(self.table.column(name))).take(pa.array(self.row))

    def _present(self) -> np.ndarray:
        """Tell which steps of a row are there: those up to the last step with an action or a reward."""
        cells = [name for name in (*self.section.action, self.section.reward) if has_step_label(name)]
        if self.steps_per_row == 1 or not cells:
            return np.ones(self.rows, dtype=bool)
        absent = [
            self._each(name, _absent) & (self._places(name) < 0 if name in self.section.codes else True)
            for name in cells
        ]
        found = ~np.logical_and.reduce(absent).reshape(-1, self.steps_per_row)
        return np.maximum.accumulate(found[:, ::-1], axis=1)[:, ::-1].ravel()

    def _steps(self) -> np.ndarray:
        if self.section.step is None:
            return np.tile(np.arange(self.steps_per_row, dtype=np.float64), len(self.table))
        found = self._each(self.section.step, lambda column: moments(column, self.section.step_format))
        return np.where(np.isfinite(found), found, np.nan)

    def _places(self, name: str) -> np.ndarray:
        texts = self.section.codes[name].texts
        return self._each(name, lambda column: places(column, texts))

    def _values(self, name: str) -> np.ndarray:
        """Return the ``(R,)`` numbers behind a name, NaN for missing ones; for a category, the places of its values."""
        declared = self.section.codes.get(name)
        if declared is None:
            return self._each(name, numbers)
        return np.append(np.array(declared.places, dtype=np.float64), np.nan)[self._places(name)]

    # --- what the log says ----------------------------------------------------------------------------------------

    def _observation(self) -> list[np.ndarray]:
        found = []
        for one in self.section.observation:
            category = self.section.category(one.column)
            values = self._values(one.column)
            first = -1.0 if category else one.first  # before the first step a category has none of its values
            values = self._before(values, one.lag, first) if one.lag else values
            if category is None:
                found.append(values)
                continue
            missing = np.isnan(values)
            found += [np.where(missing, np.nan, values == i) for i in range(len(category))]
        return found

    def _before(self, values: np.ndarray, lag: int, first: float) -> np.ndarray:
        """Return the values ``lag`` steps before, and ``first`` where there was no such step."""
        out = np.full(self.rows, first)
        behind = np.arange(len(self.order)) - lag
        there = self.place[self.order] >= lag
        out[self.order[there]] = values[self.order[behind[there]]]
        return out

    def _reward(self) -> np.ndarray:
        values, order, section = self._values(self.section.reward), self.order, self.section
        if section.reward_less:
            with np.errstate(all="ignore"):  # a warning would tell of infinite cells
                values = values - self._values(section.reward_less)
        if section.outcome == "each":
            return values
        # summed in the order of the trajectory's own rows, so that to the last bit no other rows matter
        whole = values[order[self.last[order]]]
        if section.outcome == "sum":
            whole = np.bincount(self.group[order], weights=values[order])
        whole = whole[self.group] if len(order) else values
        at = self.place == 0 if section.decisions == "first" else self.last
        return np.where(self.sound, np.where(at, whole, 0.0), np.nan)

    def _ends(self) -> np.ndarray:
        """Return ``(R,)`` whether the trajectory ends at a row, NaN where the table does not say."""
        named = self.section.terminated
        if self.section.decisions == "first":
            return np.ones(self.rows)
        if isinstance(named, bool):
            return np.where(self.last, float(named), 0.0)
        ends = _truths(self._values(named))
        return ends if has_step_label(named) or not self.section.steps else np.where(self.last, ends, 0.0)

    def _lost(self, reward: np.ndarray) -> np.ndarray:
        """Return ``(R,)`` whether the person was lost in a step, NaN where the table does not say.

        Where only first decisions count, a column tells whether the person was lost in any step.
        """
        named = self.section.censored
        if not isinstance(named, str):
            return np.isnan(reward).astype(np.float64)
        lost = _truths(self._values(named))
        if self.section.decisions == "first":
            lost = _truths(np.bincount(self.group, np.where(self.present, lost, 0.0))[self.group])
        return lost

    def _behavior(self) -> np.ndarray:
        declared = self.section.behavior_prob
        if not isinstance(declared, ByValue):
            return self._values(declared) if isinstance(declared, str) else np.full(self.rows, declared)
        at, found, sizes = [], [], []
        for name, texts in zip(declared.by, zip(*declared.table, strict=True), strict=True):
            level, place = np.unique(np.array(texts, object), return_inverse=True)
            at.append(place)
            found.append(self._each(name, lambda column, level=level: places(column, list(level))))
            sizes.append(len(level) + 1)  # the last place is for values that are not declared
        table = np.full(sizes, np.nan)
        table[tuple(at)] = list(declared.table.values())
        return table[tuple(found)]


def count_unread(table: pa.Table, section: Preparation) -> dict[str, tuple[int, int]]:
    """Return how many cells of each column cannot be read, and how many are empty. NOT private.

    A cell that cannot be read holds something that is no number, no date or none of the declared codes.
    """

    def unread(name: str, part: str, column: pa.ChunkedArray) -> np.ndarray:
        if name in section.codes:
            return places(column, section.codes[name].texts) < 0
        return np.isnan(moments(column, section.step_format) if part == "step" else numbers(column))

    found: dict[str, tuple[int, int]] = {}
    for name, part in section.parts():
        if part not in ("person", "episode", "by"):
            for column in section.columns_of(name):
                cells = plain(table.column(column))
                empty = _absent(cells)
                count = int((unread(name, part, cells) & ~empty).sum())
                found[column] = max(count, found.get(column, (0, 0))[0]), int(empty.sum())
    return found


def count_nameless(table: pa.Table, section: Preparation) -> int:
    """Return how many rows of the table are in no log, because their person or episode has no name. NOT private."""
    named = [
        identifier_codes(plain(table.column(column))) >= 0 for column in (section.person, section.episode) if column
    ]
    return int((~np.logical_and.reduce(named)).sum()) if named else 0


# --- cells --------------------------------------------------------------------------------------------------------


def places(column: pa.ChunkedArray, texts: Sequence[str]) -> np.ndarray:
    """Return ``(R,)`` the place of the declared text that a cell holds, -1 where it holds none of the texts.

    Space around a text does not matter, and texts of equal numbers are the same: ``1`` is ``1.0``.
    """
    found = np.full(len(column), -1, dtype=np.int64)
    if pa.types.is_boolean(column.type):
        column, texts = pc.cast(column, pa.string()), [text.lower() for text in texts]
    if is_text(column.type):
        # cells of CSV have one character for each byte
        spelled = [*texts, *(text.encode().decode("latin-1") for text in texts)]
        trimmed = pc.ascii_trim_whitespace(pc.cast(column, pa.large_string()))  # type: ignore[attr-defined]
        index = pc.index_in(trimmed, value_set=pa.array(spelled, pa.large_string()))  # type: ignore[attr-defined]
        index = np.asarray(pc.fill_null(index, -1).to_numpy(), dtype=np.int64)
        found = np.where(index < 0, -1, index % max(len(texts), 1))
    known = {i: float(text) for i, text in enumerate(texts) if re.match(NUMBER, text)}
    if known:
        values = numbers(column)
        for i, number in known.items():
            found[(found < 0) & (values == number)] = i
    return found


def moments(column: pa.ChunkedArray, form: str | None) -> np.ndarray:
    """Return ``(R,)`` numbers with the order of the column's numbers or dates, NaN for a cell that is neither."""
    if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
        return numbers(pc.cast(column, pa.int32() if column.type == pa.date32() else pa.int64()))
    if not is_text(column.type):
        return numbers(column)
    times = pc.strptime(column, format=form or "%Y-%m-%d", unit="s", error_is_null=True)  # type: ignore[attr-defined]
    dates = numbers(pc.cast(times, pa.int64()))
    if form is not None:
        return dates
    values = numbers(column)
    values = np.where(np.isnan(values), dates, values)
    # a cell that is left has a time of day or is no date; cells are read one by one, as reading them together may raise
    unread = np.flatnonzero(np.isnan(values))
    for i, cell in zip(unread, column.take(pa.array(unread)), strict=True):
        values[i] = quietly(lambda cell=cell: _moment(cell.as_py()), np.nan)
    return values


def _truths(values: np.ndarray) -> np.ndarray:
    """Return 1 for values that are not zero, 0 for zeros, and NaN for missing values."""
    return np.where(np.isnan(values), np.nan, values != 0.0)


def _moment(text: str) -> float:
    found = datetime.fromisoformat(text.strip())
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _absent(column: pa.ChunkedArray) -> np.ndarray:
    """Tell which cells are empty."""
    empty = pc.is_null(column, nan_is_null=True)  # type: ignore[attr-defined]
    if is_text(column.type):
        blank = pc.match_substring_regex(column, _BLANK)  # type: ignore[attr-defined]
        empty = pc.or_(empty, pc.fill_null(blank, True))  # type: ignore[attr-defined]
    return np.asarray(empty.to_numpy(), dtype=bool)


def _column(values: Any, chosen: np.ndarray, kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array):
        return values.take(pa.array(chosen)).cast(kind)
    values = values[chosen]
    missing = np.isnan(values) if values.dtype == np.float64 else None
    if missing is not None and not pa.types.is_floating(kind):
        values = np.where(missing, 0.0, values).astype(np.int64 if pa.types.is_int64(kind) else bool)
    return pa.array(values, kind, mask=missing)
