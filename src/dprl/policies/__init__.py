"""Policies: functions of a batch of states that give action probabilities, row by row."""

from dprl.policies.given import SoftmaxPolicy, TabularPolicy
from dprl.policies.loading import (
    ColumnPolicy,
    UniformPolicy,
    check_policy,
    load_policy,
    policy_name,
    policy_probabilities,
    synthetic_states,
)

__all__ = [
    "ColumnPolicy",
    "SoftmaxPolicy",
    "TabularPolicy",
    "UniformPolicy",
    "check_policy",
    "load_policy",
    "policy_name",
    "policy_probabilities",
    "synthetic_states",
]
