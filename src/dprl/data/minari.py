"""Minari datasets as logs (extra ``minari``).

A Minari dataset has no behaviour probabilities: give the public policy that made it as ``behavior_policy``. Spaces
and names are looked at when the log is opened; episodes are read when it is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from dprl.data.schema import OpenedLog
from dprl.errors import DprlError
from dprl.user_code import quietly

_SCALARS = {
    "episode_id": pa.int64(),
    "t": pa.int64(),
    "reward": pa.float64(),
    "terminated": pa.bool_(),
    "truncated": pa.bool_(),
}


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
    observation = _kind("observation", dataset.observation_space)
    action = _kind("action", dataset.action_space)
    widths = tuple(kind.list_size if pa.types.is_fixed_size_list(kind) else 1 for kind in (observation, action))
    types = {**_SCALARS, "observation": observation, "next_observation": observation, "action": action}

    def rows(names: list[str]) -> pa.Table:
        """Return the named columns, one row per transition."""
        found = quietly(lambda: [episode for episode in _episodes(dataset, widths) if episode], None)
        if found is None:
            raise DprlError(
                f"The Minari dataset {identifier!r} is damaged and cannot be read to its end: put a whole copy there."
            )
        return pa.table({name: _join([columns[name] for columns in found], types[name]) for name in names})

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
    values = np.concatenate([p.ravel() for p in parts]) if parts else np.zeros(0)
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(pa.array(values, pa.float64()), type=kind)
    return pa.array(values).cast(kind)
