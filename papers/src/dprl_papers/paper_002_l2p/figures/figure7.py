"""Figure 7: support vector machines over epsilon

Where: C.2; IPUMS and MNIST there, a synthetic census and scikit-learn's digits here

Statement: The results are reported in Fig. 7. The results are similar to the Logistic.

Note: The hinge is made smooth, as perturbed objectives need it. 292 images and 2,000 people are protected; MNIST has
some 11,500 images of 3 and 5.

Extra: digits
"""

from __future__ import annotations

from typing import Any

from dprl_papers.harness.programmed import Run
from dprl_papers.paper_002_l2p.over_epsilon import draw_classifiers

VALUES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
QUICK = (0.05, 1.6)


def draw(run: Run) -> dict[str, Any]:
    """Draw support vector machines over epsilon."""
    return draw_classifiers(run, "svm", ("census", "digits"))
