"""Paper 002's figures as plain data for the page: which function computes which."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dprl_papers.paper_002_l2p import figures, protectors
from dprl_papers.paper_002_l2p.privacy import noise
from dprl_papers.paper_002_l2p.returns import Points
from dprl_papers.paper_002_l2p.scalability import table_1

FIGURES: dict[str, Callable[[Mapping[str, Any], Points], dict[str, Any]]] = {
    "noise": noise,
    "figure8": figures.figure_8,
    "figure6": figures.figure_6,
    "queries": figures.queries,
    "covariance": figures.covariance,
    "figure7": figures.figure_7,
    "logistic": figures.logistic,
    "network": figures.network,
    "figure4": figures.figure_4,
    "table1": table_1,
    "policy-evaluation": protectors.policy_evaluation,
    "transfer": protectors.transfer,
}
