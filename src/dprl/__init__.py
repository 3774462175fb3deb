"""Differentially private reinforcement learning, with guarantees that hold.

The names below are loaded when they are first used, so that ``import dprl`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dprl.version import VERSION

if TYPE_CHECKING:
    from dprl.accounting.budget import Budget as Budget
    from dprl.accounting.ledger import Ledger as Ledger
    from dprl.algorithms.evaluation.adassp import AdaSSP as AdaSSP
    from dprl.algorithms.evaluation.doubly_robust import DoublyRobust as DoublyRobust
    from dprl.algorithms.evaluation.dptd import DPTD as DPTD
    from dprl.algorithms.evaluation.first_visit import FirstVisit as FirstVisit
    from dprl.algorithms.evaluation.gpope import GPOPE as GPOPE
    from dprl.algorithms.evaluation.importance_sampling import ImportanceSampling as ImportanceSampling
    from dprl.algorithms.evaluation.langevin import DPGLD as DPGLD
    from dprl.algorithms.evaluation.neural_td import NeuralTD as NeuralTD
    from dprl.algorithms.evaluation.noisy_counts import NoisyCounts as NoisyCounts
    from dprl.algorithms.evaluation.plan import make_plan as make_plan
    from dprl.algorithms.evaluation.primal_dual_sgd import DPSGDA as DPSGDA
    from dprl.algorithms.evaluation.private_constant import PrivateConstant as PrivateConstant
    from dprl.algorithms.evaluation.private_lstd import PrivateLSTD as PrivateLSTD
    from dprl.algorithms.evaluation.recommended import Recommended as Recommended
    from dprl.algorithms.evaluation.recursive_momentum import DPSRM as DPSRM
    from dprl.algorithms.evaluation.return_regression import ReturnRegression as ReturnRegression
    from dprl.algorithms.evaluation.td import TD as TD
    from dprl.algorithms.learning.functional_q import FunctionalQ as FunctionalQ
    from dprl.algorithms.policy_gradient.dp_pg import DPPG as DPPG
    from dprl.data.bounds_file import read_bounds as read_bounds
    from dprl.data.readers import read_log as read_log
    from dprl.data.trajectories import Trajectories as Trajectories
    from dprl.environments.bandit import Bandit as Bandit
    from dprl.environments.user_stream import Answer as Answer
    from dprl.environments.user_stream import UserStream as UserStream
    from dprl.errors import DprlError as DprlError
    from dprl.errors import OverspendError as OverspendError
    from dprl.learning_facts import LearningFacts as LearningFacts
    from dprl.policies.loading import load_policy as load_policy
    from dprl.policies.released import ReleasedPolicy as ReleasedPolicy
    from dprl.protocols import Bounds as Bounds
    from dprl.releases.audit import audit as audit
    from dprl.releases.evaluate import Release as Release
    from dprl.releases.evaluate import evaluate as evaluate
    from dprl.releases.train import TrainedRelease as TrainedRelease
    from dprl.releases.train import train as train
    from dprl.releases.train_policy import TrainedPolicy as TrainedPolicy
    from dprl.value_functions.linear import load_value_function as load_value_function
    from dprl.value_functions.q_function import load_q_function as load_q_function

__version__ = VERSION

_HOMES = {
    "AdaSSP": "dprl.algorithms.evaluation.adassp",
    "Answer": "dprl.environments.user_stream",
    "Bandit": "dprl.environments.bandit",
    "Bounds": "dprl.protocols",
    "Budget": "dprl.accounting.budget",
    "DPGLD": "dprl.algorithms.evaluation.langevin",
    "DPPG": "dprl.algorithms.policy_gradient.dp_pg",
    "DPSGDA": "dprl.algorithms.evaluation.primal_dual_sgd",
    "DPSRM": "dprl.algorithms.evaluation.recursive_momentum",
    "DPTD": "dprl.algorithms.evaluation.dptd",
    "DoublyRobust": "dprl.algorithms.evaluation.doubly_robust",
    "DprlError": "dprl.errors",
    "FirstVisit": "dprl.algorithms.evaluation.first_visit",
    "FunctionalQ": "dprl.algorithms.learning.functional_q",
    "GPOPE": "dprl.algorithms.evaluation.gpope",
    "ImportanceSampling": "dprl.algorithms.evaluation.importance_sampling",
    "LearningFacts": "dprl.learning_facts",
    "Ledger": "dprl.accounting.ledger",
    "NeuralTD": "dprl.algorithms.evaluation.neural_td",
    "NoisyCounts": "dprl.algorithms.evaluation.noisy_counts",
    "OverspendError": "dprl.errors",
    "PrivateConstant": "dprl.algorithms.evaluation.private_constant",
    "PrivateLSTD": "dprl.algorithms.evaluation.private_lstd",
    "Recommended": "dprl.algorithms.evaluation.recommended",
    "Release": "dprl.releases.evaluate",
    "ReleasedPolicy": "dprl.policies.released",
    "ReturnRegression": "dprl.algorithms.evaluation.return_regression",
    "TD": "dprl.algorithms.evaluation.td",
    "TrainedPolicy": "dprl.releases.train_policy",
    "TrainedRelease": "dprl.releases.train",
    "Trajectories": "dprl.data.trajectories",
    "UserStream": "dprl.environments.user_stream",
    "audit": "dprl.releases.audit",
    "evaluate": "dprl.releases.evaluate",
    "load_policy": "dprl.policies.loading",
    "load_q_function": "dprl.value_functions.q_function",
    "load_value_function": "dprl.value_functions.linear",
    "make_plan": "dprl.algorithms.evaluation.plan",
    "read_bounds": "dprl.data.bounds_file",
    "read_log": "dprl.data.readers",
    "train": "dprl.releases.train",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dprl' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
