"""Importance ratios of a log, bounded by public facts. A leaf of this room."""

from __future__ import annotations

import numpy as np

from dprl.data.trajectories import Trajectories
from dprl.policies.loading import ColumnPolicy, policy_probabilities
from dprl.protocols import Policy


def probability_of_logged(policy: Policy | ColumnPolicy, trajectories: Trajectories) -> np.ndarray:
    """``(N,)`` probability that ``policy`` takes the logged action; 0 for an undeclared action."""
    if isinstance(policy, ColumnPolicy):
        return np.maximum(trajectories.target_prob[policy.name], 0.0)
    actions = trajectories.bounds.actions
    assert actions is not None, "a callable policy needs discrete actions"
    out = np.zeros(len(trajectories.reward))
    for start in range(0, len(out), 1 << 16):
        part = slice(start, start + (1 << 16))
        table = policy_probabilities(policy, trajectories.observation[part], actions)
        action = trajectories.action[part]
        out[part] = np.where(action >= 0, np.take_along_axis(table, np.maximum(action, 0)[:, None], axis=1)[:, 0], 0.0)
    return out


def step_ratios(
    target: Policy | ColumnPolicy, trajectories: Trajectories, behavior: Policy | None = None
) -> np.ndarray:
    """``(N,)`` rho_t = pi(a_t | s_t) / pi_b(a_t | s_t), at most ``max_importance_ratio``."""
    below = trajectories.behavior_prob if behavior is None else probability_of_logged(behavior, trajectories)
    above = probability_of_logged(target, trajectories)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.where((above > 0.0) & (below > 0.0), above / below, 0.0)
    return np.clip(np.nan_to_num(ratio, posinf=np.inf), 0.0, trajectories.bounds.max_importance_ratio)


def cumulative_ratios(ratios: np.ndarray, trajectories: Trajectories) -> np.ndarray:
    """``(N,)`` rho_{0:t}, each at most ``max_cumulative_ratio``; the bound is applied to the whole product."""
    limit = trajectories.bounds.cumulative_ratio
    with np.errstate(divide="ignore"):
        logs = np.log(ratios)
    # a prefix sum within each episode; zeros are carried apart, for -inf minus -inf is no number
    zero = np.isneginf(logs)
    total = np.cumsum(np.where(zero, 0.0, logs))
    start = np.repeat(trajectories.episode_offsets[:-1], trajectories.lengths())
    before = np.where(start > 0, total[start - 1], 0.0) if len(total) else total
    zeros = np.cumsum(zero)
    zeros_before = np.where(start > 0, zeros[start - 1], 0) if len(total) else zeros
    product = np.exp(np.minimum(total - before, 700.0))
    return np.where(zeros > zeros_before, 0.0, np.minimum(product, limit))
