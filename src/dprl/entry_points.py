"""Entry points by which other distributions add to dprl.

The distribution dprl-papers adds ``dprl reproduce``, baselines, calibrations as published, and tasks on which
protectors are learned.
"""

from __future__ import annotations

from dataclasses import fields
from importlib import metadata
from typing import Any, TypeVar

from dprl.errors import DprlError

ALGORITHMS, CALIBRATIONS, COMMANDS, TASKS = "dprl.algorithms", "dprl.calibrations", "dprl.commands", "dprl.tasks"
VERIFIED = "verified"
"""Name of dprl's own calibration; any other calibration is a table of entries by the algorithm's name."""

C = TypeVar("C")


def names(group: str) -> list[str]:
    """Return the names that installed distributions add to a group."""
    return sorted({entry.name for entry in metadata.entry_points(group=group)})


def load(group: str, name: str, what: str) -> Any:
    """Return what an installed distribution adds under ``name``.

    Args:
        group: entry point group, such as :data:`ALGORITHMS`.
        name: name of the entry point.
        what: what needs it, as a refusal calls it.

    Raises:
        DprlError: no distribution adds this name.
    """
    for entry in metadata.entry_points(group=group, name=name):
        return entry.load()
    raise DprlError(f"{what} needs the distribution dprl-papers: pip install ./papers in the sources of dprl.")


def entry_in_calibration(algorithm: str, calibration: str) -> Any:
    """Return the registry entry of an algorithm in a calibration that another distribution adds.

    Raises:
        DprlError: no distribution adds this calibration of the algorithm.
    """
    what = f"calibration = {calibration!r}"
    tables = {name: load(CALIBRATIONS, name, what) for name in names(CALIBRATIONS) or [calibration]}
    there = [VERIFIED, *(name for name, table in tables.items() if algorithm in table)]
    if calibration not in there:
        raise DprlError(f"{algorithm} has no calibration {calibration!r}; it has {', '.join(there)}.")
    return tables[calibration][algorithm]


def config_in_calibration(config: C) -> C:
    """Return the options in the calibration that they name: unchanged, or in another distribution's class.

    The other class has the same options and its own mechanisms; it is not dprl's own, and certifies nothing.
    """
    calibration = getattr(config, "calibration", VERIFIED)
    if calibration == VERIFIED:
        return config
    kind = entry_in_calibration(config.algorithm, calibration).load_config()  # type: ignore[attr-defined]
    if isinstance(config, kind):
        return config
    return kind(**{f.name: getattr(config, f.name) for f in fields(config)})  # type: ignore[arg-type]
