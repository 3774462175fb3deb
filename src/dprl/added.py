"""What other distributions add to dprl: its entry points.

dprl-papers adds ``dprl reproduce``, baselines, and tasks on which a protector can be learned.
"""

from __future__ import annotations

from importlib import metadata
from typing import Any

from dprl.errors import DprlError

ALGORITHMS, COMMANDS, PUBLISHED, TASKS = "dprl.algorithms", "dprl.commands", "dprl.published", "dprl.tasks"


def names(group: str) -> list[str]:
    """Return the names that installed distributions add to a group."""
    return sorted({entry.name for entry in metadata.entry_points(group=group)})


def load(group: str, name: str, what: str) -> Any:
    """Return what an installed distribution adds under ``name``.

    Args:
        what: that asks for it, as a refusal calls it.

    Raises:
        DprlError: no distribution adds it.
    """
    for entry in metadata.entry_points(group=group, name=name):
        return entry.load()
    raise DprlError(f"{what} needs the distribution dprl-papers: pip install ./papers in the sources of dprl.")
