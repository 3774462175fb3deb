"""Faults in the preparation of a table, by which one person's rows reach what another's become."""

from __future__ import annotations

from typing import Any

import numpy as np

from dprl.data import table_to_log
from dprl.data.table_to_log import _TableToLog

from .planting import fault

ALONE = "a persons rows become what they become alone"


@fault("what was before may be another person's", ALONE, (_TableToLog, "_before"))
def _(original: Any, making: Any, values: Any, lag: int, first: float) -> Any:
    shifted = np.empty_like(values)
    shifted[making.order] = np.roll(values[making.order], lag)
    return shifted


@fault("outcomes are differences of running sums", ALONE, (_TableToLog, "_reward"))
def _(original: Any, making: Any) -> Any:
    rewards = original(making)
    running = np.cumsum(rewards)
    return np.diff(running, prepend=0.0)


@fault("a value that is not declared becomes the most frequent one", ALONE, (table_to_log, "places"))
def _(original: Any, column: Any, texts: Any) -> Any:
    found = original(column, texts)
    return np.where(found < 0, np.bincount(found[found >= 0], minlength=len(texts)).argmax(), found)
