"""Paper 002's figures as plain data for the page: which function computes which."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dprl.experiments import figures_002 as figures
from dprl.experiments import protectors_002 as protectors
from dprl.experiments.privacy_002 import noise
from dprl.experiments.returns_002 import Points
from dprl.experiments.scalability_002 import table_1

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
