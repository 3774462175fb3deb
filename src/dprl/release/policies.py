"""Policies that a release is asked about: named, loaded, and tried on public states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dprl.errors import DprlError
from dprl.policies.loading import UNASKED, check_policy, load_policy, policies_in_file, policy_name
from dprl.protocols import Bounds


def named_policies(target: Any) -> dict[str, Any]:
    """Return target policies by name, as they were asked for; those of a list have names of their own."""
    if isinstance(target, Mapping):
        named = dict(target)
    else:
        several = list(target) if isinstance(target, Sequence) and not isinstance(target, str) else [target]
        named = {}
        for spec in several:
            for name, policy in (policies_in_file(spec) or {policy_name(spec): spec}).items():
                named[name if name not in named else f"{name}_{len(named)}"] = policy
    if not named:
        raise DprlError("Name at least one target policy.")
    return {
        str(name): load_policy(p, None) if isinstance(p, str) and p.startswith("column") else p
        for name, p in named.items()
    }


def load_policies(target: Any, bounds: Bounds) -> dict[str, Any]:
    """Target policies by name, each tried on public states; see :func:`evaluate`."""
    actions = bounds.actions, bounds.action_names
    policies = {name: load_policy(policy, *actions) for name, policy in named_policies(target).items()}
    for name, policy in policies.items():
        if not isinstance(policy, UNASKED):
            if bounds.actions is None:
                raise DprlError("Actions are continuous: give the target policy as a column of the log (column:NAME).")
            check_policy(policy, bounds, name)
    return policies


def load_behavior(below: Any, bounds: Bounds) -> Any:
    """Return the public behaviour policy that ``below`` names, tried on public states; None for None."""
    if below is not None and bounds.strata is not None:
        raise DprlError("bounds: behaviour probabilities are estimated within strata: leave the behaviour policy out.")
    behavior = None if below is None else load_policy(below, bounds.actions)
    if behavior is not None:
        if isinstance(behavior, UNASKED):
            raise DprlError("The behaviour policy must be a function of states; a column of the log is behavior_prob.")
        check_policy(behavior, bounds, "behaviour policy")
    return behavior


def check_best(
    best: bool,
    share: float | None,
    named: Mapping[str, Any],
    compare: Sequence[str],
    subgroups: Sequence[str],
) -> None:
    """Refuse a request for the best policy that contradicts itself, from the policies as they were named."""
    if not best:
        if share is not None:
            raise DprlError("choosing_share is for a choice among policies: ask for the best, or leave it out.")
        return
    if compare:
        raise DprlError("best: only the chosen policy is valued, and no other to compare it with: leave compare out.")
    if subgroups:
        raise DprlError("best: the chosen policy is valued for all people together: leave subgroups out.")
    seen: dict[Any, str] = {}
    for name, policy in named.items():
        key = policy if isinstance(policy, (str, Path, *UNASKED)) else id(policy)
        if key in seen:
            raise DprlError(f"best: the policies {seen[key]} and {name} are one and the same: name it once.")
        seen[key] = name
