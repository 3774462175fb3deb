"""Logs from Parquet, CSV, Arrow tables, data frames and plain arrays.

Opening a log looks only at names and types. :meth:`Log.load` reads the rows, after the ledger was charged.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dprl.bounds import Bounds
from dprl.data import schema as schemas
from dprl.data.bounds_file import read_bounds_and_preparation
from dprl.data.cells import identifier_codes, lists, numbers
from dprl.data.memory import ColumnsInMemory
from dprl.data.parts import MANIFEST, Parts, codes_in_parts
from dprl.data.preparation import Preparation
from dprl.data.sources import LogSource, is_minari, open_source, path_of
from dprl.data.table_to_log import as_log
from dprl.data.trajectories import TRANSITION, Trajectories, assemble
from dprl.errors import DprlError
from dprl.files import replacing

UNITS = ("trajectory", "person", TRANSITION)


@dataclass(frozen=True)
class Log:
    """Log whose schema was checked and whose rows were not read yet."""

    name: str
    bounds: Bounds
    unit: str
    unit_column: str | None
    schema: schemas.Schema
    source: Any = field(repr=False)
    behavior_policy: Any = field(repr=False, default=None)
    preparation: Preparation | None = None

    @property
    def says_what_ends(self) -> bool:
        """Whether a column says of each trajectory if an event ended it; otherwise this is only assumed."""
        if self.preparation is not None:
            return isinstance(self.preparation.terminated, str)
        return isinstance(self.source, Trajectories) or "terminated" in self.schema.scalars

    def load(self, inspect: Callable[[Mapping[str, np.ndarray]], object] | None = None) -> Trajectories:
        """Return the trajectories of all rows; this succeeds whatever the rows hold, and unusable ones contribute zero.

        Args:
            inspect: called once with the raw columns, before anything is clamped, cut or dropped, as
                :func:`~dprl.data.trajectories.assemble` takes them; what it raises ends the loading. For a log that was
                opened from :class:`Trajectories` it is called with their arrays, which are clamped already.
        """
        if isinstance(self.source, Trajectories):
            if inspect is not None:
                names = ("observation", "action", "reward", "behavior_prob", "terminated")
                inspect({name: getattr(self.source, name) for name in names})
            return self.source
        if isinstance(self.source, Parts):
            self.source.check()
        # nested calls, so that no name keeps the table in memory while arrays are made of the columns
        columns = self._raw(self.source.read(self.schema))
        if inspect is not None:
            inspect(columns)
        loaded = assemble(columns, self.bounds, self.unit)
        pa.default_memory_pool().release_unused()
        return loaded

    def take(self, units: np.ndarray) -> Trajectories:
        """Return the trajectories of ``(k,)`` units of a log in parts, given by their numbers in ascending order.

        They are the trajectories that :meth:`load` returns for these units. Call
        :meth:`Parts.check <dprl.data.parts.Parts.check>` or :meth:`claim_in_blocks` once before.
        """
        parts = self._parts()
        taken = assemble(self._raw(parts.table(units, self.schema.columns())), self.bounds, self.unit)
        parts.release_pages()
        return taken

    def claim_in_blocks(self, inspect: Callable[[Iterable[Mapping[str, np.ndarray]]], object]) -> None:
        """Check a log in parts, and call ``inspect`` with its rows in blocks, in bounded memory.

        Each block is a mapping of some rows' columns; together the blocks are what :meth:`load` gives to its own
        ``inspect``. ``inspect`` may go through the blocks only once.

        Raises:
            DprlError: the log fails :meth:`Parts.check <dprl.data.parts.Parts.check>`, which this includes.
        """
        blocks = map(self._raw, self._parts().columns_in_blocks(self.schema.columns(), check=True))
        inspect(blocks)
        for _ in blocks:  # blocks that ``inspect`` left out are checked all the same
            continue

    def _parts(self) -> Parts:
        if not isinstance(self.source, Parts):
            raise DprlError(f"The log {self.name!r} is not in parts: `dprl data partition` makes a folder of them.")
        return self.source

    def _raw(self, table: pa.Table) -> dict[str, np.ndarray]:
        """Return the columns of some rows, as :func:`~dprl.data.trajectories.assemble` takes them."""
        ranked = codes_in_parts if isinstance(self.source, Parts) else identifier_codes
        rows = table.num_rows
        out: dict[str, np.ndarray] = {}
        for part, names in self.schema.vectors.items():
            size = len(self.bounds.action or ()) if part == "action" else len(self.bounds.observation)
            if schemas.is_list(table.column(names[0]).type):
                out[part] = lists(table.column(names[0]), size)
            elif len(names) == size:
                out[part] = np.column_stack([numbers(table.column(c)) for c in names])
            else:  # a column without a type, hence without a value
                out[part] = np.full((rows, size), np.nan)
        for part, name in self.schema.scalars.items():
            out[part] = (ranked if part in schemas.IDENTIFIERS else numbers)(table.column(name))
        if "censored" in out and "uncensored_prob" not in out:
            hazard = 0.0 if isinstance(self.bounds.censoring_hazard, str) else self.bounds.censoring_hazard or 0.0
            out["uncensored_prob"] = np.full(rows, 1.0 - hazard)
        one_step = self.bounds.horizon == 1 and self.unit != TRANSITION
        defaults = {"t": 0.0, "terminated": 1.0 if one_step else 0.0, "truncated": 0.0, "behavior_prob": 1.0}
        for part, value in defaults.items():
            out.setdefault(part, np.full(rows, value))
        if one_step and "episode_id" not in out:
            out["t"] = np.zeros(rows)
        # one-step rows need no episode id: each row is an episode of its own
        out["episode"] = out.pop("episode_id", np.arange(rows))
        out["person"] = out.pop("person_id", out["episode"])  # only a log by person has people
        return out


def read_log(
    source: LogSource,
    *,
    bounds: Bounds | Mapping[str, Any] | str | Path | None,
    unit: str | None = None,
    person: str | None = None,
    target_columns: Sequence[str] = (),
    behavior_policy: Any = None,
) -> Log:
    """Open a log and check its schema, without reading any row.

    Args:
        source: path of a ``.parquet`` or ``.csv`` file or of a folder that ``dprl data partition`` made; a table of
            Arrow, pandas or polars (a lazy one, too), or any object with an Arrow stream; a mapping of arrays, such as
            the feedback of obp or a logged dataset of SCOPE-RL; a dataset of Minari, or ``minari:DATASET-ID``. Where
            ``bounds`` have a section ``[prepare]``, the source is the table that the section describes, or the log that
            :func:`dprl.prepare` made of that table.
        bounds: public bounds, or a TOML file with them.
        unit: ``person``, ``trajectory`` or ``transition``. The default is person, which protects more, if ``person``
            names a column or the log has a column ``person_id``, and trajectory otherwise. The unit transition protects
            only one row: ``bounds`` then declare the number of rows, and each row holds its next observation.
        person: column that identifies the person.
        target_columns: columns with the probability of the logged action under a target policy.
        behavior_policy: public behaviour policy, for a log without behaviour probabilities.

    Raises:
        DprlError: a column or a bound is missing or of a wrong type; the message names it.
    """
    if isinstance(source, Trajectories):
        return _of_trajectories(source, target_columns, behavior_policy)
    if isinstance(behavior_policy, str) and behavior_policy.partition(":")[0] == "column":
        raise DprlError(
            "The behaviour policy is a function of states; behaviour probabilities of the log itself are its "
            "column behavior_prob."
        )
    known, preparation = read_bounds_and_preparation(bounds)
    if unit is not None and unit not in UNITS:
        raise DprlError(f"unit must be one of {', '.join(UNITS)}.")
    if unit in ("trajectory", "transition") and person:
        raise DprlError(f"The privacy unit is a {unit}, but a person column is named: use the unit person.")
    named = path_of(source)
    in_parts = bool(named) and os.path.isfile(os.path.join(named, MANIFEST))
    opened = Parts.open(named) if in_parts else open_source(source)
    if preparation is not None:
        person = "person_id" if person is not None and person == preparation.person else person
        if is_minari(source):
            raise DprlError("A Minari dataset is a log as it is: leave [prepare] out of the bounds.")
        if opened.prepared not in (None, preparation.digest):
            raise DprlError(
                "The log was prepared by another section [prepare] than that of the bounds: prepare it again."
            )
        if opened.prepared is None:
            if isinstance(opened, Parts):
                raise DprlError("A table is prepared first, and then partitioned: `dprl data prepare` writes the log.")
            opened = as_log(opened, preparation)
    unit = unit or ("person" if person or "person_id" in opened.names else "trajectory")
    found = schemas.match_columns(
        opened,
        known,
        unit,
        unit_column=person,
        needs_behavior=behavior_policy is None and known.strata is None,
        target_columns=target_columns,
    )
    if known.strata is not None and behavior_policy is not None:
        raise DprlError("bounds: behaviour probabilities are estimated within strata: leave the behaviour policy out.")
    lost_by_estimate = known.kinds > (known.actions or 1)
    if known.strata is not None and known.horizon == 1 and "censored" in found.scalars and not lost_by_estimate:
        raise DprlError(
            'bounds: of one decision with strata hazards are estimated within them: say censoring_hazard = "estimate", '
            "and leave a column 'uncensored_prob' out."
        )
    if "uncensored_prob" in found.scalars and known.max_importance_ratio == 1.0:
        raise DprlError(
            "bounds: max_importance_ratio is 1, and the log has a column 'uncensored_prob': it must bound the ratio of "
            "target to behaviour probability over the chance of staying, which is above 1."
        )
    if isinstance(opened, ColumnsInMemory):
        opened.check_lengths(found.columns())
    if isinstance(opened, Parts):
        _check_unit(opened, unit, found)
    return Log(opened.name, known, unit, found.scalars.get("person_id"), found, opened, behavior_policy, preparation)


def _check_unit(parts: Parts, unit: str, schema: schemas.Schema) -> None:
    """Refuse parts that are aligned to another privacy unit than the one asked for."""
    if unit == TRANSITION:
        raise DprlError("The privacy unit transition needs no parts: evaluate the file that they were made of.")
    if unit == "person" and parts.by != schema.scalars["person_id"]:
        raise DprlError(
            f"The parts of the log are aligned to its column {parts.by!r}, and the privacy unit is a person by "
            f"{schema.scalars['person_id']!r}: name the same column with --person-column, or partition the log by it."
        )
    if unit == "trajectory" and parts.by != schemas.column_of("episode_id", parts.names):
        raise DprlError(
            f"The parts of the log are aligned to its column {parts.by!r}, which does not tell trajectories apart: "
            "if it identifies a person, name it with --person-column, or partition the log by episode_id."
        )


def _of_trajectories(source: Trajectories, target_columns: Sequence[str], behavior_policy: Any) -> Log:
    for column in target_columns:
        if column not in source.target_prob:
            raise DprlError(f"The trajectories carry no target probabilities called {column!r}.")
    scalars = {f"target:{c}": c for c in source.target_prob}
    if source.stays is not None:
        scalars["censored"] = "censored"
    known = schemas.Schema(scalars, {"observation": ("observation",)})
    return Log("trajectories in memory", source.bounds, source.unit, None, known, source, behavior_policy)


# --- an ordinary table ----------------------------------------------------------------------------------------------


def prepare(source: Any, bounds: Mapping[str, Any] | str | Path, out: str | Path | None = None) -> pa.Table:
    """Return the log that a table becomes by the section ``[prepare]`` of the bounds, and write it to ``out``.

    Each person's rows become rows of that person, and depend on no other person's rows: adding or removing a person
    adds or removes that person's rows and changes no others. So whatever a release of the log promises to a person, it
    promises to the same person in the table. Nothing is learned from rows: a value that is not declared counts as
    missing, without a message, and its trajectory contributes nothing.

    Args:
        source: path of a ``.parquet`` or ``.csv`` file, a pyarrow Table, a data frame or a mapping of arrays.
        bounds: TOML file, or the table in it, with public bounds and a section ``[prepare]``.
        out: new Parquet file of mode 0600, which appears whole or not at all.

    Returns:
        A table with one row for each transition, as :func:`dprl.read_log` reads it. It is as private as ``source``.

    Raises:
        DprlError: something is wrong with the section, the table lacks a column, or ``out`` is there already.
    """
    _, preparation = read_bounds_and_preparation(bounds)
    if preparation is None:
        raise DprlError("The bounds have no section [prepare], which says how the table becomes a log.")
    if out is not None and Path(out).suffix.lower() not in (".parquet", ".pq"):
        raise DprlError(f"{Path(out).name!r} must be a .parquet file.")
    if out is not None and Path(out).exists():
        raise DprlError(f"{Path(out).name!r} is there already: name another file with --out.")
    if is_minari(source):
        raise DprlError("A Minari dataset is a log already.")
    made = as_log(open_source(source), preparation)
    table = made.rows(made.names)
    if out is not None:
        with replacing(out, 0o600) as temporary:
            pq.write_table(table, temporary)
    return table
