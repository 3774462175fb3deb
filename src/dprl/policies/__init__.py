"""Policies: functions of a batch of states that give action probabilities, row by row."""

from dprl.policies.given import SoftmaxPolicy as SoftmaxPolicy
from dprl.policies.given import TabularPolicy as TabularPolicy
from dprl.policies.loading import ColumnPolicy as ColumnPolicy
from dprl.policies.loading import UniformPolicy as UniformPolicy
from dprl.policies.loading import check_policy as check_policy
from dprl.policies.loading import load_policy as load_policy
from dprl.policies.loading import policy_name as policy_name
from dprl.policies.loading import policy_probabilities as policy_probabilities
from dprl.policies.loading import synthetic_states as synthetic_states
