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
    from dprl.audits.audit import audit as audit
    from dprl.data.bounds_file import read_bounds as read_bounds
    from dprl.data.readers import read_log as read_log
    from dprl.data.trajectories import Trajectories as Trajectories
    from dprl.environments.bandit import Bandit as Bandit
    from dprl.environments.user_stream import Answer as Answer
    from dprl.environments.user_stream import UserStream as UserStream
    from dprl.errors import DprlError as DprlError
    from dprl.errors import OverspendError as OverspendError
    from dprl.evaluation.adassp import AdaSSP as AdaSSP
    from dprl.evaluation.doubly_robust import DoublyRobust as DoublyRobust
    from dprl.evaluation.dptd import DPTD as DPTD
    from dprl.evaluation.gpope import GPOPE as GPOPE
    from dprl.evaluation.importance_sampling import ImportanceSampling as ImportanceSampling
    from dprl.evaluation.neural_td import NeuralTD as NeuralTD
    from dprl.evaluation.noisy_counts import NoisyCounts as NoisyCounts
    from dprl.evaluation.plan import make_plan as make_plan
    from dprl.evaluation.private_constant import PrivateConstant as PrivateConstant
    from dprl.evaluation.private_lstd import PrivateLSTD as PrivateLSTD
    from dprl.evaluation.recommended import Recommended as Recommended
    from dprl.evaluation.return_regression import ReturnRegression as ReturnRegression
    from dprl.evaluation.td import TD as TD
    from dprl.learning.functional_q import FunctionalQ as FunctionalQ
    from dprl.learning.policy_gradient.dp_pg import DPPG as DPPG
    from dprl.learning_facts import LearningFacts as LearningFacts
    from dprl.policies.loading import load_policy as load_policy
    from dprl.policies.released import ReleasedPolicy as ReleasedPolicy
    from dprl.protocols import Bounds as Bounds
    from dprl.release.evaluate import Release as Release
    from dprl.release.evaluate import evaluate as evaluate
    from dprl.release.train import TrainedRelease as TrainedRelease
    from dprl.release.train import train as train
    from dprl.release.train_policy import TrainedPolicy as TrainedPolicy
    from dprl.value_functions.linear import load_value_function as load_value_function
    from dprl.value_functions.q_function import load_q_function as load_q_function

__version__ = VERSION

_HOMES = {
    "AdaSSP": "dprl.evaluation.adassp",
    "Answer": "dprl.environments.user_stream",
    "Bandit": "dprl.environments.bandit",
    "Bounds": "dprl.protocols",
    "Budget": "dprl.accounting.budget",
    "DPPG": "dprl.learning.policy_gradient.dp_pg",
    "DPTD": "dprl.evaluation.dptd",
    "DoublyRobust": "dprl.evaluation.doubly_robust",
    "DprlError": "dprl.errors",
    "FunctionalQ": "dprl.learning.functional_q",
    "GPOPE": "dprl.evaluation.gpope",
    "ImportanceSampling": "dprl.evaluation.importance_sampling",
    "LearningFacts": "dprl.learning_facts",
    "Ledger": "dprl.accounting.ledger",
    "NeuralTD": "dprl.evaluation.neural_td",
    "NoisyCounts": "dprl.evaluation.noisy_counts",
    "OverspendError": "dprl.errors",
    "PrivateConstant": "dprl.evaluation.private_constant",
    "PrivateLSTD": "dprl.evaluation.private_lstd",
    "Recommended": "dprl.evaluation.recommended",
    "Release": "dprl.release.evaluate",
    "ReleasedPolicy": "dprl.policies.released",
    "ReturnRegression": "dprl.evaluation.return_regression",
    "TD": "dprl.evaluation.td",
    "TrainedPolicy": "dprl.release.train_policy",
    "TrainedRelease": "dprl.release.train",
    "Trajectories": "dprl.data.trajectories",
    "UserStream": "dprl.environments.user_stream",
    "audit": "dprl.audits.audit",
    "evaluate": "dprl.release.evaluate",
    "load_policy": "dprl.policies.loading",
    "load_q_function": "dprl.value_functions.q_function",
    "load_value_function": "dprl.value_functions.linear",
    "make_plan": "dprl.evaluation.plan",
    "read_bounds": "dprl.data.bounds_file",
    "read_log": "dprl.data.readers",
    "train": "dprl.release.train",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dprl' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
