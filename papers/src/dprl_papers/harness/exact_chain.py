"""The chain of Xie, Thomas and Miklau (2019, section 7) with its exact values and MSPBE, on the host in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dprl.environments import chain
from dprl.errors import DprlError
from dprl.protocols import Policy


class Moments(NamedTuple):
    """Expected matrices of the mean squared projected Bellman error for tabular features, with zero terminal features.

    With ``n = length - 1``: ``A`` is ``(n, n)``, ``b`` is ``(n,)``, ``C`` is ``(n, n)`` (Eq. 2.1 of the paper).
    """

    A: np.ndarray
    b: np.ndarray
    C: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Chain(chain.Chain):
    """The chain, with its exact values and moments."""

    def values(self, policy: Policy | np.ndarray | None = None, steps: int | None = None) -> np.ndarray:
        """Return the ``(length - 1,)`` expected discounted returns from each transient state.

        Args:
            policy: a policy, or its table ``(length - 1, actions)``; uniform by default.
            steps: transitions until the trajectory is cut; without it, the trajectory is never cut.
        """
        advance = self._table(policy) @ self._advance()
        paid = np.append(np.zeros(self.length - 2), advance[-1])
        onward = self.discount * (np.diag(1.0 - advance) + np.diag(advance[:-1], k=1))
        if steps is None:
            return np.linalg.solve(np.eye(len(paid)) - onward, paid)
        values = np.zeros(len(paid))
        for _ in range(steps):
            values = paid + onward @ values
        return values

    def mspbe(self, behavior: Policy | np.ndarray | None = None, target: Policy | np.ndarray | None = None) -> Moments:
        """Return exact ``A``, ``b`` and ``C`` of Eq. (2.1) under ``behavior`` for ``target`` (default: the behaviour).

        Each transition of a trajectory of ``L`` transitions has weight ``1 / L``. (The paper's sum from 0 to the
        trajectory's length has one term more; the last term, out of the absorbing state, has zero features.) A
        truncated trajectory bootstraps from the state in which it was cut.
        """
        behavior_table = self._table(behavior)
        target_table = behavior_table if target is None else self._table(target)
        if np.any((target_table > 0) & (behavior_table <= 0)):
            raise DprlError("chain: the behaviour policy must take every action that the target policy takes.")
        n, horizon = self.length - 1, self.horizon
        advance, target_advance = behavior_table @ self._advance(), target_table @ self._advance()

        # inverse[t, s] = E[1 / L | not over at time t, and in s then]; in the absorbing column: over at time t.
        inverse = np.empty((horizon + 1, n + 1))
        inverse[1:, n] = 1.0 / np.arange(1, horizon + 1)
        inverse[0, n] = np.nan  # nobody is absorbed at time 0
        inverse[horizon, :n] = 1.0 / horizon
        for t in reversed(range(1, horizon)):
            inverse[t, :n] = advance * inverse[t + 1, 1:] + (1.0 - advance) * inverse[t + 1, :n]

        occupancy = np.full(n, 1.0 / n)
        visit, move, remain = np.zeros(n), np.zeros(n), np.zeros(n)
        for t in range(horizon):
            later = inverse[t + 1]
            # The ratio of an action times its behaviour probability is its target probability.
            move += occupancy * target_advance * later[1:]
            remain += occupancy * (1.0 - target_advance) * later[:n]
            visit += occupancy * (advance * later[1:] + (1.0 - advance) * later[:n])
            arriving = np.concatenate(([0.0], (occupancy * advance)[:-1]))
            occupancy = occupancy * (1.0 - advance) + arriving

        A = np.diag(move + (1.0 - self.discount) * remain) - self.discount * np.diag(move[:-1], k=1)
        b = np.zeros(n)
        b[-1] = move[-1]
        return Moments(A=A, b=b, C=np.diag(visit))

    def _advance(self) -> np.ndarray:
        """Return the ``(actions,)`` probabilities of advancing under each action."""
        return (1.0 - self.stay) * np.arange(1, self.actions + 1) / self.actions

    def _table(self, policy: Policy | np.ndarray | None) -> np.ndarray:
        n = self.length - 1
        if policy is None:
            return np.full((n, self.actions), 1.0 / self.actions)
        table = policy if isinstance(policy, np.ndarray) else policy(np.arange(n, dtype=np.float64)[:, None])
        table = np.asarray(table, dtype=np.float64)
        if table.shape != (n, self.actions):
            raise DprlError(f"chain: the policy must give probabilities of shape ({n}, {self.actions}).")
        return table
