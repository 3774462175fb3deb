"""Fitted Q iteration over declared strata, for logs whose behaviour probabilities nobody wrote down.

A regression for each action needs no propensities, only people who got the action. As in the table of
:mod:`dprl.evaluation.fitted_q`, noisy counts of (stratum, action, next stratum) and sums of rewards are released once.
Q is the sum of a level of each action, an effect of each stratum, and a remainder of each cell. The remainder is shrunk
to zero as far as chance and noise explain it (empirical Bayes; Efron and Morris 1975), so with little budget every
stratum has the same action. An action that the released counts of a stratum do not show is not proposed there.

Privacy unit, relation, event and proofs: those of :mod:`dprl.evaluation.fitted_q`; docs/proofs/two-parts.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from typing_extensions import override

from dprl.errors import require
from dprl.evaluation.fitted_q import RESIDUAL_VARIANCE, TableQ
from dprl.evaluation.propensities import FEWEST_PEOPLE
from dprl.evaluation.strata import Axis, Strata
from dprl.policies.greedy import Basis
from dprl.policies.rules import DEEPEST, Rule, Split

# All numbers were chosen on problems like those of the seeds for choosing of benchmarks/learn_within_strata.py.
KAPPA = 1.0
"""Weight of a reward against a count."""
CLEAR_DEVIATIONS = 1.0
"""An action is proposed in a stratum where its count is at least so many standard deviations of its noise."""
FIT_ROUNDS = 20
"""Rounds in which levels and effects are fitted in turn."""


@dataclass(frozen=True)
class StrataBasis(Basis):
    """Basis with an indicator of each declared stratum.

    Attributes:
        strata: the strata that the basis tells apart; ``bounds`` are the ranges of their states.
    """

    strata: Strata

    @override
    def __post_init__(self) -> None:
        """Check nothing, because the strata have been checked."""

    @property
    @override
    def is_table(self) -> bool:
        return True

    @cached_property
    @override
    def size(self) -> int:
        return self.strata.count

    @override
    def index(self, states: Any, xp: Any = np) -> Any:
        return self.strata.cells(states, xp)


@dataclass(frozen=True)
class StrataQ(TableQ):
    """Program of fitted Q iteration over strata; its policy is a rule of comparisons.

    Attributes:
        min_propensity: smallest share of a stratum that must have taken an action for it to be proposed there.
    """

    caution: float = 0.0
    min_propensity: float = 0.0

    kappa: ClassVar[float] = KAPPA

    @override
    def _seen(self, rows: Any, error: float) -> Any:
        return rows >= jnp.maximum(
            self.min_propensity * jnp.sum(rows, axis=1, keepdims=True), max(FEWEST_PEOPLE, CLEAR_DEVIATIONS * error)
        )

    @override
    def _q_estimates(self, mean: Any, future: Any, private: Any, some: Any, seen: Any) -> tuple[Any, Any]:
        variance = (RESIDUAL_VARIANCE + future) / some + private
        weights = jnp.where(seen, 1.0 / variance, 0.0)
        pooled = jnp.sum(mean * some, axis=0) / jnp.sum(some, axis=0)

        def fit(_: Any, found: Any) -> Any:
            level = jnp.sum((mean - found[1][:, None]) * weights, axis=0) / jnp.maximum(jnp.sum(weights, axis=0), 1e-9)
            effect = jnp.sum((mean - level) * weights, axis=1) / jnp.maximum(jnp.sum(weights, axis=1), 1e-9)
            return level, effect

        level, effect = jax.lax.fori_loop(0, FIT_ROUNDS, fit, (pooled, jnp.zeros(mean.shape[0])))
        left, cells = jnp.where(seen, mean - level - effect[:, None], 0.0), jnp.sum(seen)
        free = jnp.maximum(cells - sum(mean.shape) + 1, 1)
        more = jnp.sum(weights * left**2) - free
        spread = jnp.maximum(more * cells / jnp.maximum(jnp.sum(weights) * free, 1e-9), 0.0)
        return level + effect[:, None] + left * spread / (spread + variance), jnp.broadcast_to(pooled, mean.shape)

    @override
    def policy(self, weights: Float[np.ndarray, " n"]) -> Rule:
        """Return the rule of the released scores."""
        strata: Strata = self.basis.strata  # type: ignore[attr-defined]
        best = np.argmax(weights.reshape(self.actions, self.basis.size), axis=0).reshape(strata.shape)
        return Rule(_rule_tree(strata.axes, best), self.actions, self.bounds.state_names, self.bounds.action_names)


def check_depth(strata: Strata) -> None:
    """Refuse strata whose rule could be too deep to be read back."""
    deepest = sum(len(axis.values) or math.ceil(math.log2(axis.size)) + 1 for axis in strata.axes)
    require(
        deepest <= DEEPEST,
        f"learn: a rule over these strata could have {deepest} comparisons that follow one another; at most {DEEPEST} "
        "can be read: declare fewer values, or cut points.",
    )


def _rule_tree(axes: Sequence[Axis], actions: np.ndarray) -> Split | int:
    """Return the comparisons that lead each stratum to its action; ``actions`` has a dimension for each axis."""
    if (actions == actions.flat[0]).all():
        return int(actions.flat[0])
    axis, found = axes[0], [_rule_tree(axes[1:], part) for part in actions]
    if not axis.values:
        return _along(axis, found, 0, len(found))
    rest = found[-1] if axis.none else Counter(found).most_common(1)[0][0]
    tree = rest
    for place, own in zip(axis.values, found, strict=False):
        if own != rest:
            tree = Split(place, 0.5, tree, own)
    return tree


def _along(axis: Axis, found: Sequence[Split | int], low: int, high: int) -> Split | int:
    """Return the comparisons between the cells ``low`` and ``high`` of an axis, by halving the changes of action."""
    changes = [cell for cell in range(low + 1, high) if found[cell] != found[cell - 1]]
    if not changes:
        return found[low]
    at = changes[len(changes) // 2]
    return Split(axis.component, axis.edges[at - 1], _along(axis, found, low, at), _along(axis, found, at, high))
