"""Minari datasets as logs (extra ``minari``).

A Minari dataset has no behaviour probabilities: give the public policy that made it as ``behavior_policy``. Spaces
and names are looked at when the log is opened; episodes are read when it is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from dprl.errors import DprlError

_SCALARS = {
    "episode_id": pa.int64(),
    "t": pa.int64(),
    "reward": pa.float64(),
    "terminated": pa.bool_(),
    "truncated": pa.bool_(),
}


@dataclass(frozen=True)
class MinariLog:
    """A dataset whose spaces were checked and whose episodes were not read."""

    name: str
    types: dict[str, pa.DataType]
    _dataset: Any = field(repr=False)

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Return the named columns, one row a transition."""
        parts: dict[str, list[np.ndarray]] = {name: [] for name in columns}
        try:
            for number, episode in enumerate(self._dataset.iterate_episodes()):
                for name, values in self._episode(number, episode).items():
                    if name in parts:
                        parts[name].append(values)
        except (OSError, KeyError, ValueError):
            raise DprlError(
                f"The Minari dataset {self.name!r} is damaged and cannot be read to its end: put a whole copy there."
            ) from None
        return pa.table({name: _join(values, self.types[name]) for name, values in parts.items()})

    def _episode(self, number: int, episode: Any) -> dict[str, np.ndarray]:
        length = len(episode.rewards)
        # one observation more than there are transitions: the last one is where the episode ended
        observation = np.asarray(episode.observations, dtype=np.float64).reshape(length + 1, -1)
        action = np.asarray(episode.actions, dtype=np.float64).reshape(length, -1)
        start = getattr(self._dataset.action_space, "start", 0)
        return {
            "episode_id": np.full(length, number),
            "t": np.arange(length),
            "observation": observation[:-1],
            "next_observation": observation[1:],
            "action": action - float(start),
            "reward": np.asarray(episode.rewards, dtype=np.float64),
            "terminated": np.asarray(episode.terminations, dtype=bool),
            "truncated": np.asarray(episode.truncations, dtype=bool),
        }


def open_minari(identifier: str) -> MinariLog:
    """Return the local Minari dataset called ``identifier``, such as ``D4RL/door/human-v2``; nothing is downloaded.

    Raises:
        DprlError: minari is not installed, there is no such dataset, or its spaces are not plain vectors.
    """
    try:
        import minari  # type: ignore[import-not-found]
    except ImportError as error:
        raise DprlError("Reading a Minari dataset needs the package minari: pip install 'dprl[minari]'.") from error
    try:
        dataset = minari.load_dataset(identifier)
    except Exception as error:  # minari raises many types for one thing
        raise DprlError(
            f"There is no Minari dataset {identifier!r} on this machine that could be opened; "
            "fetch it with `minari download`."
        ) from error
    return minari_log(dataset, identifier)


def minari_log(dataset: Any, name: str) -> MinariLog:
    """Return a dataset that is open already, as a log; raises where its spaces are not plain vectors."""
    observation = _kind("observation", dataset.observation_space)
    action = _kind("action", dataset.action_space)
    types = {**_SCALARS, "observation": observation, "next_observation": observation, "action": action}
    return MinariLog(name, types, dataset)


def _kind(part: str, space: Any) -> pa.DataType:
    name = type(space).__name__
    if name == "Discrete":
        return pa.float64()
    if name not in ("Box", "MultiDiscrete", "MultiBinary"):
        raise DprlError(
            f"The {part}s of the Minari dataset are of the space {name}; only Box, Discrete, MultiDiscrete and "
            "MultiBinary are read."
        )
    return pa.list_(pa.float64(), int(np.prod(space.shape)))


def _join(parts: list[np.ndarray], kind: pa.DataType) -> pa.Array:
    if pa.types.is_fixed_size_list(kind):
        flat = np.concatenate([p.ravel() for p in parts]) if parts else np.zeros(0)
        return pa.FixedSizeListArray.from_arrays(pa.array(flat, pa.float64()), type=kind)
    values = np.concatenate([p.ravel() for p in parts]) if parts else np.zeros(0)
    return pa.array(values).cast(kind)
