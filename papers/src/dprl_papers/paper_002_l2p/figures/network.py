"""A network of 20 hidden units over epsilon

Where: C.3

Statement: It can be seen that for similar low privacy conditions, L2P can train models with higher accuracy in most
cases. [...] Though L2P does not outperform in accuracies when ε > 0.8, it has obviously lower training losses.

Note: 1,342 parameters and 292 images: the noise of a step is as large as all of the signal in every ε of the paper.

Extra: digits
"""

from __future__ import annotations

from typing import Any

from dprl_papers.harness.programmed import Run
from dprl_papers.paper_002_l2p.over_epsilon import draw_classifiers

VALUES = (0.2, 0.8, 1.6, 6.4)
QUICK = (0.2, 1.6)


def draw(run: Run) -> dict[str, Any]:
    """Draw a network of 20 hidden units over epsilon."""
    return draw_classifiers(run, "network", ("digits",))
