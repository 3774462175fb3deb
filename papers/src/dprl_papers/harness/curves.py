"""Errors along a run: what methods that measure themselves give, checked, stored and picked out again.

A cell of such a method holds for each metric a list of trials, each a list over the epochs at which it was measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dprl.errors import DprlError
from dprl_papers.harness.store import finite

if TYPE_CHECKING:
    from dprl_papers.harness.method import Method
    from dprl_papers.harness.problem import Trials

MEASURED = ("objective", "mspbe", "msbe", "rmse", "value")
"""Metrics of a cell; further ones are these over something."""


def measure(method: Method, trials: Trials, keys: Any, at: tuple[int, ...]) -> dict[str, list[list[float | None]]]:
    """What a method with curves gives at the epochs ``at``, or of its answer where there are none.

    Raises:
        DprlError: it gives a metric that is not known, or something of another shape.
    """
    assert method.curves is not None
    found = method.curves(trials, keys, at)
    unknown = set(found) - set(MEASURED)
    if unknown or not found:
        raise DprlError(f"Method {method.name!r} must measure some of {', '.join(MEASURED)}.")
    shape = (len(trials), max(len(at), 1))
    if any(np.shape(errors) != shape for errors in found.values()):
        raise DprlError(f"Method {method.name!r} must give one number a trial and epoch.")
    return {name: [finite(row) for row in np.asarray(errors, dtype=np.float64)] for name, errors in found.items()}


def column(errors: Sequence[Any], at: Sequence[int], epoch: float | None) -> list[float | None]:
    """One number a trial: at ``epoch``, or at the end; errors that are no curves are the same at every epoch."""
    if not errors or not isinstance(errors[0], list):
        return list(errors)
    place = -1 if epoch is None or not at else list(at).index(int(epoch))
    return [trial[place] for trial in errors]


def shown(figure: Mapping[str, Any]) -> list[str]:
    """Metrics of a figure of curves that something measures, its own first; a TD error only where there is no MSPBE."""
    known = [
        name
        for name in dict.fromkeys((figure["metric"], "objective", "mspbe", "rmse", "msbe"))
        if any(p[name]["mean"] is not None for s in figure["series"] for p in s["points"])
    ]
    return [name for name in known if name != "msbe" or "mspbe" not in known or figure["metric"] == "msbe"]
