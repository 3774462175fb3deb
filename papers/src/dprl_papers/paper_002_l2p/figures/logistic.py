"""Logistic regression over epsilon

Where: C.2; the paper's own figure is in its main text

Extra: digits
"""

from __future__ import annotations

from typing import Any

from dprl_papers.harness.programmed import Run
from dprl_papers.paper_002_l2p.over_epsilon import draw_classifiers

VALUES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
QUICK = (0.05, 1.6)


def draw(run: Run) -> dict[str, Any]:
    """Draw logistic regression over epsilon."""
    return draw_classifiers(run, "logistic", ("census", "digits"))
