"""What is read as a log: protocols, so that no other library is imported for them."""

# ruff: noqa: D102 (members of a protocol say what they are by their names)

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from dprl.data.readers import Log
    from dprl.data.trajectories import Trajectories


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


class Episodes(Protocol):
    """Dataset of Minari."""

    @property
    def observation_space(self) -> Any: ...

    @property
    def action_space(self) -> Any: ...

    def iterate_episodes(self) -> Any: ...


LogSource: TypeAlias = (
    "Log | Trajectories | str | Path | Mapping[str, Any] | ArrowStream | LazyTable | DataFrame | Episodes"
)
"""What is read as a log."""
