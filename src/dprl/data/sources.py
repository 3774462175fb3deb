"""Sources that can be read as a log, and how each is opened. Opening looks only at names and types.

Objects of other libraries are described by protocols, so that none of these libraries is imported. Only the extra
``minari`` is, for a dataset that is given by its name.

A Minari dataset has no behaviour probabilities: give the public policy that made it as ``behavior_policy``. Spaces
and names are looked at when the log is opened; episodes are read when it is loaded.
"""

# ruff: noqa: D102 (members of a protocol say what they are by their names)

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dprl.data import csv_file, memory
from dprl.data.preparation import DIGEST_KEY
from dprl.data.schema import OpenedLog, check_once
from dprl.errors import DprlError
from dprl.user_code import quietly

if TYPE_CHECKING:
    from dprl.data.readers import Log
    from dprl.data.trajectories import Trajectories

_MINARI_SCALARS = {
    "episode_id": pa.int64(),
    "t": pa.int64(),
    "reward": pa.float64(),
    "terminated": pa.bool_(),
    "truncated": pa.bool_(),
}


class ArrowStream(Protocol):
    """Table that gives an Arrow stream: of pyarrow, pandas, polars and others."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


class LazyTable(Protocol):
    """Lazy frame of polars."""

    def clear(self) -> Any: ...

    def select(self, names: Any, /) -> Any: ...

    def collect(self) -> Any: ...


class DataFrame(Protocol):
    """Data frame of pandas."""

    @property
    def iloc(self) -> Any: ...

    @property
    def columns(self) -> Any: ...


class MinariDataset(Protocol):
    """Dataset of Minari."""

    @property
    def observation_space(self) -> Any: ...

    @property
    def action_space(self) -> Any: ...

    def iterate_episodes(self) -> Any: ...


LogSource: TypeAlias = (
    "Log | Trajectories | str | Path | Mapping[str, Any] | ArrowStream | LazyTable | DataFrame | MinariDataset"
)
"""Objects that can be read as a log."""


def open_source(source: Any) -> OpenedLog:
    """Return an opened log, or an opened table from which a log can be made; no row is read."""
    named = path_of(source)
    if is_minari(source):
        in_memory = "dataset in memory"
        return open_minari(named.removeprefix("minari:")) if named else minari_log(source, in_memory, in_memory)
    if hasattr(source, "to_arrow"):  # polars
        source = memory.ask_library(source.to_arrow)
    if isinstance(source, pa.Table):
        return _of_schema("table in memory", source.schema, source.select)
    if isinstance(source, Mapping):
        return memory.from_mapping(source)
    if hasattr(source, "iloc") and hasattr(source, "columns"):  # in this order: polars warns of columns of a lazy frame
        return memory.from_frame(source)
    opened = memory.open_deferred(source)
    if opened is not None:
        return opened
    if not named:
        raise DprlError(
            "A log is a path, minari:DATASET-ID, a Minari dataset, a table of Arrow, pandas or polars, or a mapping of "
            "arrays."
        )
    path = Path(named)
    try:
        return _open_file(path)
    except OSError as error:
        raise DprlError(f"Cannot read the log {path.name!r}: {error.strerror or 'it is damaged'}.") from error
    except pa.ArrowException as error:
        raise DprlError(f"The log {path.name!r} is not a Parquet file.") from error


def is_minari(source: Any) -> bool:
    """Tell whether a source is a Minari dataset, or the name of one."""
    return path_of(source).startswith("minari:") or hasattr(source, "iterate_episodes")


def path_of(source: Any) -> str:
    """Return the path of a source, or the name of a dataset; an empty text for a source in memory."""
    return str(source) if isinstance(source, str | Path) else ""


def _open_file(path: Path) -> OpenedLog:
    if path.is_dir():
        raise DprlError(
            f"There is no log file {str(path)!r}, but a folder: `dprl data partition` makes a log in parts of the "
            "files in one."
        )
    if not path.is_file():
        raise DprlError(f"There is no log file {path.name!r} in {str(path.parent)!r}.")
    if path.suffix.lower() == ".csv":
        return OpenedLog(path.name, csv_file.read_header(path), None, partial(_rows_of_file, path))
    if path.suffix.lower() not in (".parquet", ".pq"):
        raise DprlError(f"The log {path.name!r} must be a .parquet or .csv file.")
    schema = pq.read_schema(path)
    # whether pyarrow reads a file with a name twice depends on whether the file has rows
    check_once(schema.names, schema.names, "log")
    return _of_schema(path.name, schema, partial(_rows_of_file, path))


def _rows_of_file(path: Path, names: list[str]) -> pa.Table:
    with refuse_damaged(path):
        if path.suffix.lower() == ".csv":
            # every cell is read as text: a bad cell then becomes a missing number instead of an error that quotes it
            return csv_file.read_cells(path, names)
        # read_table would import pandas, and take folders' names for columns
        with pq.ParquetFile(path) as file:
            return file.read(names).select(names)


def _of_schema(name: str, schema: pa.Schema, rows: Any) -> OpenedLog:
    mark = (schema.metadata or {}).get(DIGEST_KEY)
    return OpenedLog(name, schema.names, list(schema.types), rows, None if mark is None else mark.decode())


@contextmanager
def refuse_damaged(path: Path) -> Iterator[None]:
    """Refuse a file that cannot be read to its end."""
    try:
        yield
    except (pa.ArrowException, OSError):
        # the cause may quote a cell: it is dropped
        raise DprlError(
            f"The log {path.name!r} is damaged and cannot be read to its end: put a whole copy there."
        ) from None


# --- datasets of Minari -----------------------------------------------------------------------------------------------


def open_minari(identifier: str) -> OpenedLog:
    """Return the local Minari dataset called ``identifier``, such as ``D4RL/door/human-v2``; nothing is downloaded.

    Raises:
        DprlError: minari is not installed, there is no such dataset, or its spaces are not plain vectors.
    """
    try:
        import minari  # type: ignore[import-not-found]
    except ImportError as error:
        raise DprlError("Reading a Minari dataset needs the package minari: pip install 'dprl[minari]'.") from error
    try:
        dataset = minari.load_dataset(identifier)  # type: ignore[attr-defined]  # a checker may take this file for it
    except Exception as error:  # minari raises many types for one thing
        raise DprlError(
            f"There is no Minari dataset {identifier!r} on this machine that could be opened; "
            "fetch it with `minari download`."
        ) from error
    return minari_log(dataset, identifier, f"minari:{identifier}")


def minari_log(dataset: Any, identifier: str, name: str) -> OpenedLog:
    """Return an opened Minari dataset as a log; raise where its spaces are not plain vectors.

    Args:
        dataset: the Minari dataset.
        identifier: name of the dataset in messages.
        name: public name of the log.
    """
    observation = _space_type("observation", dataset.observation_space)
    action = _space_type("action", dataset.action_space)
    widths = tuple(kind.list_size if pa.types.is_fixed_size_list(kind) else 1 for kind in (observation, action))
    types = {**_MINARI_SCALARS, "observation": observation, "next_observation": observation, "action": action}

    def rows(names: list[str]) -> pa.Table:
        """Return the named columns, one row per transition."""
        found = quietly(lambda: [episode for episode in _episodes(dataset, widths) if episode], None)
        if found is None:
            raise DprlError(
                f"The Minari dataset {identifier!r} is damaged and cannot be read to its end: put a whole copy there."
            )
        return pa.table({name: _array_of([columns[name] for columns in found], types[name]) for name in names})

    return OpenedLog(name, list(types), list(types.values()), rows)


def _episodes(dataset: Any, widths: tuple[int, ...]) -> Iterator[dict[str, np.ndarray]]:
    """Yield the columns of each episode; an episode that does not fit the spaces is missing and has no columns."""
    first = float(getattr(dataset.action_space, "start", 0))
    for number, episode in enumerate(dataset.iterate_episodes()):
        yield quietly(partial(_episode, number, episode, widths, first), {})


def _episode(number: int, episode: Any, widths: tuple[int, ...], first_action: float) -> dict[str, np.ndarray]:
    length, (components, of_action) = len(episode.rewards), widths
    # one observation more than there are transitions: the last one is where the episode ended
    observation = np.asarray(episode.observations, dtype=np.float64).reshape(length + 1, components)
    return {
        "episode_id": np.full(length, number),
        "t": np.arange(length),
        "observation": observation[:-1],
        "next_observation": observation[1:],
        "action": np.asarray(episode.actions, dtype=np.float64).reshape(length, of_action) - first_action,
        "reward": np.asarray(episode.rewards, dtype=np.float64).reshape(length),
        "terminated": np.asarray(episode.terminations, dtype=bool).reshape(length),
        "truncated": np.asarray(episode.truncations, dtype=bool).reshape(length),
    }


def _space_type(part: str, space: Any) -> pa.DataType:
    name = type(space).__name__
    if name == "Discrete":
        return pa.float64()
    if name not in ("Box", "MultiDiscrete", "MultiBinary"):
        raise DprlError(
            f"The {part}s of the Minari dataset are of the space {name}; only Box, Discrete, MultiDiscrete and "
            "MultiBinary are read."
        )
    return pa.list_(pa.float64(), int(np.prod(space.shape)))


def _array_of(parts: list[np.ndarray], kind: pa.DataType) -> pa.Array:
    values = np.concatenate([p.ravel() for p in parts]) if parts else np.zeros(0)
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(pa.array(values, pa.float64()), type=kind)
    return pa.array(values).cast(kind)
