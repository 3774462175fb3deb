"""Logs from Parquet, CSV, Arrow tables, data frames and plain arrays.

Opening a log looks at names and types alone. The rows are read by :meth:`Log.load`, after the ledger was charged.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dprl.data import csv_file, memory
from dprl.data import schema as schemas
from dprl.data.bounds_file import read_public
from dprl.data.cells import codes as codes
from dprl.data.cells import lists, numbers
from dprl.data.cells import one_array as one_array
from dprl.data.minari import MinariLog, minari_log, open_minari
from dprl.data.parts import MANIFEST, Parts, coded, episode_column
from dprl.data.preparation import MARK, Preparation
from dprl.data.prepared import RawSource, prepared
from dprl.data.sources import LogSource
from dprl.data.trajectories import TRANSITION, Trajectories, assemble
from dprl.errors import DprlError
from dprl.protocols import Bounds

UNITS = ("trajectory", "person", TRANSITION)


@dataclass(frozen=True)
class Log:
    """A log whose schema was checked and whose rows were not read."""

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
        """Whether a column says of each trajectory if an event ended it, and nobody takes that for granted."""
        if self.preparation is not None:
            return isinstance(self.preparation.terminated, str)
        return isinstance(self.source, Trajectories) or "terminated" in self.schema.scalars

    def load(self, inspect: Callable[[Mapping[str, np.ndarray]], object] | None = None) -> Trajectories:
        """Read the rows. Whatever they hold, this succeeds; what cannot be used contributes zero.

        Args:
            inspect: called once with the raw columns, before anything is clamped, cut or dropped, as
                :func:`~dprl.data.trajectories.assemble` takes them; what it raises ends the loading. Of a log that was
                opened from :class:`Trajectories` it gets their arrays, which are clamped already.
        """
        if isinstance(self.source, Trajectories):
            known = self.source
            if inspect is not None:
                columns = {"observation": known.observation, "action": known.action, "reward": known.reward}
                inspect(columns | {"behavior_prob": known.behavior_prob, "terminated": known.terminated})
            return known
        if isinstance(self.source, Parts):
            self.source.check()
        # nested, so that no name keeps the table in memory while the arrays are made of it
        columns = self._raw(read_table(self.source, self.schema))
        if inspect is not None:
            inspect(columns)
        loaded = assemble(columns, self.bounds, self.unit)
        pa.default_memory_pool().release_unused()
        return loaded

    def take(self, units: np.ndarray) -> Trajectories:
        """Return some units of a log in parts, ``(k,)`` numbers in ascending order: what :meth:`load` has of them,
        alone.

        :meth:`Parts.check <dprl.data.parts.Parts.check>` or :meth:`claim_in_blocks` comes first, once.
        """
        parts = self._parts()
        taken = assemble(self._raw(parts.table(units, self.schema.columns())), self.bounds, self.unit)
        parts.forget()
        return taken

    def claim_in_blocks(self, inspect: Callable[[Iterable[Mapping[str, np.ndarray]]], object]) -> None:
        """Check a log in parts, and call ``inspect`` with its rows: mappings of some rows each, of all together what
        :meth:`load` hands to its own ``inspect``. In bounded memory: it is to go through them once.

        Raises:
            DprlError: see :meth:`Parts.check <dprl.data.parts.Parts.check>`, which this does on the way.
        """
        blocks = self._blocks()
        inspect(blocks)
        for _ in blocks:  # what was not looked at is checked all the same
            continue

    def _blocks(self) -> Iterator[dict[str, np.ndarray]]:
        for table in self._parts().columns_in_blocks(self.schema.columns(), check=True):
            yield self._raw(table)

    def _parts(self) -> Parts:
        if not isinstance(self.source, Parts):
            raise DprlError(f"The log {self.name!r} is not in parts: `dprl data partition` makes a folder of them.")
        return self.source

    def _raw(self, table: pa.Table) -> dict[str, np.ndarray]:
        ranked = coded if isinstance(self.source, Parts) else codes
        return _columns(table, self.schema, self.bounds, self.unit, ranked)


def read_log(
    source: LogSource,
    *,
    bounds: Bounds | Mapping[str, Any] | str | Path | None,
    unit: str | None = None,
    person: str | None = None,
    target_columns: Sequence[str] = (),
    behavior_policy: Any = None,
) -> Log:
    """Open a log and check its schema, reading no row.

    Args:
        source: path of a ``.parquet`` or ``.csv`` file or of a folder that ``dprl data partition`` made; a table of
            Arrow, pandas or polars (a lazy one, too), or whatever gives an Arrow stream; a mapping of arrays, such as
            the feedback of obp or a logged dataset of SCOPE-RL; a dataset of Minari, or ``minari:DATASET-ID``. Where
            ``bounds`` have a section ``[prepare]`` it is the table that the section is about, or the log that
            :func:`dprl.prepare` made of it.
        bounds: public bounds, or the TOML file they are in.
        unit: ``person``, ``trajectory`` or ``transition``; by default a person if ``person`` names a column or the log
            has a column ``person_id``, which protects more, and a trajectory otherwise. A transition protects one row
            and no more: ``bounds`` then declare how many of those there are, and each row holds its next observation.
        person: column that identifies the person.
        target_columns: columns with the probability of the logged action under a target policy.
        behavior_policy: public behaviour policy, for a log without behaviour probabilities.

    Raises:
        DprlError: names the column that is missing or of a wrong type, or the bound that is.
    """
    if isinstance(source, Trajectories):
        return _of_trajectories(source, target_columns, behavior_policy)
    if isinstance(behavior_policy, str) and behavior_policy.partition(":")[0] == "column":
        raise DprlError(
            "The behaviour policy is a function of states; behaviour probabilities of the log itself are its "
            "column behavior_prob."
        )
    known, preparation = read_public(bounds)
    if unit is not None and unit not in UNITS:
        raise DprlError(f"unit must be one of {', '.join(UNITS)}.")
    if unit in ("trajectory", "transition") and person:
        raise DprlError(f"The privacy unit is a {unit}, but a person column is named: use the unit person.")
    named = _name(source)
    opened: Any = Parts.open(named) if named and os.path.isfile(os.path.join(named, MANIFEST)) else source
    if isinstance(opened, Parts):
        name, names, types = opened.folder.name, opened.names, opened.types
    else:
        opened, name, names, types = open_source(opened)
    if preparation is not None:
        person = "person_id" if person is not None and person == preparation.person else person
        if isinstance(opened, MinariLog):
            raise DprlError("A data set of Minari is a log as it is: leave [prepare] out of the bounds.")
        if not _is_prepared(opened, preparation):
            if isinstance(opened, Parts):
                raise DprlError("A table is prepared first, and then partitioned: `dprl data prepare` writes the log.")
            opened = raw_source(opened, names, types, preparation)
            names, types = opened.written.names, opened.written.types
    unit = unit or ("person" if person or "person_id" in names else "trajectory")
    found = schemas.match(
        names,
        types,
        observation_size=len(known.observation),
        horizon=known.horizon,
        unit=unit,
        unit_column=person,
        needs_behavior=behavior_policy is None and known.strata is None,
        target_columns=target_columns,
        continuous_size=len(known.action or ()),
        hazard=known.censoring_hazard is not None,
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
    if isinstance(opened, memory.Columns):
        opened.check_lengths(found)
    if isinstance(opened, Parts):
        _check_unit(opened, unit, found)
    return Log(name, known, unit, found.scalars.get("person_id"), found, opened, behavior_policy, preparation)


def raw_source(
    source: Any, names: Sequence[str], types: Sequence[pa.DataType] | None, preparation: Preparation
) -> RawSource:
    """Return what :func:`open_source` found as the log that it becomes; refused where the section does not fit."""
    kinds: Sequence[pa.DataType | None] = types or [None] * len(names)
    if isinstance(source, memory.Columns):  # what has no type is read as text
        kinds = [None if kind is memory.ANY else kind for kind in kinds]
    preparation.check(names, kinds)
    if isinstance(source, memory.Columns):
        source.check_lengths(_as_they_are(preparation))
    identifiers = {
        name: pa.string() if kind is None else kind.value_type if pa.types.is_dictionary(kind) else kind
        for name, kind in zip(names, kinds, strict=True)
    }
    return RawSource(source, preparation, preparation.written(identifiers))


def _is_prepared(source: Any, preparation: Preparation) -> bool:
    """Tell whether a table was made by a section ``[prepare]``, and refuse one that another section made."""
    mark = source.prepared if isinstance(source, Parts) else mark_of(source)
    if mark is not None and mark != preparation.digest:
        raise DprlError("The log was prepared by another section [prepare] than that of the bounds: prepare it again.")
    return mark is not None


def mark_of(source: Any) -> str | None:
    """Return the digest of the section ``[prepare]`` that made a table or a file; None where none did."""
    metadata = None
    if isinstance(source, pa.Table):
        metadata = source.schema.metadata
    elif isinstance(source, Path) and source.suffix.lower() != ".csv":
        metadata = pq.read_schema(source).metadata
    mark = (metadata or {}).get(MARK)
    return None if mark is None else mark.decode()


def _check_unit(parts: Parts, unit: str, schema: schemas.Schema) -> None:
    """Refuse parts that are aligned to another privacy unit than the one asked for."""
    if unit == TRANSITION:
        raise DprlError("The privacy unit transition needs no parts: evaluate the file that they were made of.")
    if unit == "person" and parts.by != schema.scalars["person_id"]:
        raise DprlError(
            f"The parts of the log are aligned to its column {parts.by!r}, and the privacy unit is a person by "
            f"{schema.scalars['person_id']!r}: name the same column with --person-column, or partition the log by it."
        )
    if unit == "trajectory" and parts.by != episode_column(parts.names):
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


def open_source(source: Any) -> tuple[Any, str, list[str], list[pa.DataType] | None]:
    """Return what can be read, its public name, and names and types of its columns (no types of CSV); no row is
    read.
    """
    named = _name(source)
    if named.startswith("minari:") or hasattr(source, "iterate_episodes"):
        log = open_minari(named.removeprefix("minari:")) if named else minari_log(source, "dataset in memory")
        return log, named or log.name, list(log.types), list(log.types.values())
    if hasattr(source, "to_arrow"):  # polars
        source = source.to_arrow()
    if isinstance(source, pa.Table):
        return source, "table in memory", source.schema.names, list(source.schema.types)
    if isinstance(source, Mapping):
        columns = memory.from_mapping(source)
        return columns, "arrays in memory", columns.names, columns.types
    if hasattr(source, "iloc") and hasattr(source, "columns"):  # in this order: polars warns of columns of a lazy frame
        columns = memory.from_frame(source)
        return columns, "data frame in memory", columns.names, columns.types
    later = memory.deferred(source)
    if later is not None:
        return later, "table in memory", later.schema.names, later.schema.types
    if not named:
        raise DprlError(
            "A log is a path, minari:DATASET-ID, a Minari dataset, a table of Arrow, pandas or polars, or a mapping of "
            "arrays."
        )
    path = Path(named)
    try:
        if path.is_dir():
            raise DprlError(
                f"There is no log file {str(path)!r}, but a folder: `dprl data partition` makes a log in parts of the "
                "files in one."
            )
        if not path.is_file():
            raise DprlError(f"There is no log file {path.name!r} in {str(path.parent)!r}.")
        if path.suffix.lower() in (".parquet", ".pq"):
            schema = pq.read_schema(path)
            # pyarrow reads such a file or not, depending on whether it has rows
            twice = next((name for name in schema.names if schema.names.count(name) > 1), None)
            if twice is not None:
                raise DprlError(f"The log has more than one column {twice!r}.")
            return path, path.name, schema.names, list(schema.types)
        if path.suffix.lower() == ".csv":
            return path, path.name, csv_file.read_header(path), None
    except OSError as error:
        raise DprlError(f"Cannot read the log {path.name!r}: {error.strerror or 'it is damaged'}.") from error
    except pa.ArrowException as error:
        raise DprlError(f"The log {path.name!r} is not a Parquet file.") from error
    raise DprlError(f"The log {path.name!r} must be a .parquet or .csv file.")


def _name(source: Any) -> str:
    return str(source) if isinstance(source, str | Path) else ""


def read_table(source: Any, schema: schemas.Schema) -> pa.Table:
    """Return the rows of what :func:`open_source` found: the columns that play a part."""
    columns = schema.columns()
    if isinstance(source, RawSource):
        return prepared(raw_cells(source), source.preparation, source.written).select(columns)
    if isinstance(source, memory.Columns):
        return source.read(schema)
    if isinstance(source, pa.Table):
        return source.select(columns)
    if isinstance(source, MinariLog | memory.Deferred):
        return source.read(columns)
    if isinstance(source, Parts):
        no_rows = source.table(np.zeros(0, dtype=np.int64), columns)
        return pa.concat_tables([no_rows, *source.columns_in_blocks(columns)])
    try:
        if source.suffix.lower() == ".csv":
            # every cell as text: a bad one then becomes a missing number instead of an error that quotes it
            return csv_file.read_cells(source, columns)
        # read_table would import pandas, and take folders' names for columns
        with pq.ParquetFile(source) as file:
            return file.read(columns).select(columns)
    except (pa.ArrowException, OSError):
        # the cause may quote a cell: it is dropped
        raise DprlError(
            f"The log {source.name!r} is damaged and cannot be read to its end: put a whole copy there."
        ) from None


def raw_cells(raw: RawSource) -> pa.Table:
    """Return the columns of a table that its section names, as they are."""
    if isinstance(raw.source, memory.Columns):
        return raw.source.cells(raw.preparation.columns())
    return read_table(raw.source, _as_they_are(raw.preparation))


def _as_they_are(preparation: Preparation) -> schemas.Schema:
    return schemas.Schema({name: name for name in preparation.columns()}, {})


def _columns(
    table: pa.Table,
    schema: schemas.Schema,
    bounds: Bounds,
    unit: str,
    ranked: Callable[[pa.ChunkedArray], np.ndarray],
) -> dict[str, np.ndarray]:
    rows = table.num_rows
    out: dict[str, np.ndarray] = {}
    for part, names in schema.vectors.items():
        size = len(bounds.action or ()) if part == "action" else len(bounds.observation)
        if schemas.is_list(table.column(names[0]).type):
            out[part] = lists(table.column(names[0]), size)
        elif len(names) == size:
            out[part] = np.column_stack([numbers(table.column(c)) for c in names]) if rows else np.zeros((0, size))
        else:  # a column without a type, hence without a value
            out[part] = np.full((rows, size), np.nan)
    for part, name in schema.scalars.items():
        if part in ("episode_id", "person_id"):
            continue
        out[part] = numbers(table.column(name))
    if "censored" in out and "uncensored_prob" not in out:
        hazard = 0.0 if isinstance(bounds.censoring_hazard, str) else bounds.censoring_hazard or 0.0
        out["uncensored_prob"] = np.full(rows, 1.0 - hazard)
    one_step = bounds.horizon == 1 and unit != TRANSITION
    defaults = {"t": 0.0, "terminated": 1.0 if one_step else 0.0, "truncated": 0.0, "behavior_prob": 1.0}
    for part, value in defaults.items():
        out.setdefault(part, np.full(rows, value))
    if one_step and "t" in schema.scalars and "episode_id" not in schema.scalars:
        out["t"] = np.zeros(rows)
    has_episode, has_person = "episode_id" in schema.scalars, "person_id" in schema.scalars
    out["person"] = ranked(table.column(schema.scalars["person_id"])) if has_person else np.zeros(rows, dtype=np.int64)
    # one-step rows need no episode id: each is an episode of its own
    out["episode"] = ranked(table.column(schema.scalars["episode_id"])) if has_episode else np.arange(rows)
    if unit != "person":
        out["person"] = out["episode"]
    return out
