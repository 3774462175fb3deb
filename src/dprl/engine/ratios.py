"""Importance ratios of a log, bounded by public facts. This module imports nothing else of the engine."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from dprl.data.trajectories import Trajectories
from dprl.policies.loading import ColumnPolicy, LoggedPolicy, policy_probabilities
from dprl.protocols import Policy


def probability_of_logged(policy: Policy | ColumnPolicy, trajectories: Trajectories) -> Float[np.ndarray, " rows"]:
    """Return the probability that ``policy`` takes the logged action; 0 for an undeclared action."""
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
    target: Policy | ColumnPolicy | LoggedPolicy, trajectories: Trajectories, behavior: Policy | None = None
) -> Float[np.ndarray, " rows"]:
    """Return the ratios rho_t = pi(a_t | s_t) / pi_b(a_t | s_t), at most ``max_importance_ratio``.

    Where people are censored, staying counts as part of the action, and the target policy always stays. So the ratio is
    also divided by the probability of staying, and it is zero in the row in which a person was lost.
    """
    below = trajectories.behavior_prob if behavior is None else probability_of_logged(behavior, trajectories)
    above = below if isinstance(target, LoggedPolicy) else probability_of_logged(target, trajectories)
    if trajectories.stays is not None:
        below, above = below * trajectories.stays, above * (trajectories.stays > 0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.where((above > 0.0) & (below > 0.0), above / below, 0.0)
    return np.clip(np.nan_to_num(ratio, posinf=np.inf), 0.0, trajectories.bounds.max_importance_ratio)


def policy_columns(
    policy: Policy | ColumnPolicy | LoggedPolicy, trajectories: Trajectories, behavior: Policy | None = None
) -> Float[np.ndarray, "rows columns"]:
    """Return everything about a policy that a unit's vector may depend on, for a run folder to bind.

    These are the ratios and, for a policy that is a function, the probabilities of all actions, because two policies
    may differ only in actions that were not taken.
    """
    ratios = step_ratios(policy, trajectories, behavior)[:, None]
    if isinstance(policy, ColumnPolicy | LoggedPolicy):
        return ratios
    actions = trajectories.bounds.actions
    assert actions is not None, "a callable policy needs discrete actions"
    return np.hstack([ratios, policy_probabilities(policy, trajectories.observation, actions)])


def cumulative_ratios(ratios: Float[np.ndarray, " rows"], trajectories: Trajectories) -> Float[np.ndarray, " rows"]:
    """Return the products rho_{0:t}, at most ``max_cumulative_ratio``. The bound applies to the whole product.

    They are computed step by step, not by prefix sums over the log, so that adding a person changes no other person's
    products.
    """
    out, running = np.zeros(len(ratios)), np.ones(trajectories.episodes)
    for t, who in trajectories.episodes_by_step():
        rows = trajectories.episode_offsets[who] + t
        out[rows] = running[who] = np.minimum(running[who] * ratios[rows], 1e300)
    return np.minimum(out, trajectories.bounds.cumulative_ratio)


def usable(trajectories: Trajectories) -> Bool[np.ndarray, " episodes"]:
    """Return a mask of the trajectories that can be used; a trajectory without rows has no last ratio."""
    return trajectories.valid & (trajectories.lengths() > 0)


def unit_means(trajectories: Trajectories, values: Float[np.ndarray, " episodes"]) -> Float[np.ndarray, " units"]:
    """Return the mean over each unit's trajectories; a trajectory that cannot be used counts as zero."""
    kept = np.where(usable(trajectories), values, 0.0)
    siblings = np.diff(trajectories.unit_offsets)
    return np.bincount(trajectories.unit_of_episode(), kept, minlength=trajectories.units) / np.maximum(siblings, 1)
