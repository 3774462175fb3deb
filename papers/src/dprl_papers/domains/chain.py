"""The chain of Xie, Thomas and Miklau (2019, section 7): 40 states, uniform start, reward 1 at the end, discount 0.99.

Values and moments are exact (:class:`Chain`). A log is drawn without a loop over steps: the number of steps in a state
is geometric, so a trajectory is its start and one geometric number per state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dprl.bounds import Bounds
from dprl.data.trajectories import Trajectories
from dprl.environments import chain
from dprl.environments.rollout import environment_bounds
from dprl.errors import DprlError
from dprl.policies import UniformPolicy
from dprl.protocols import Policy
from dprl.value_functions.features import Features
from dprl_papers.harness.domain import Domain, Moments, Truth


class ChainMoments(NamedTuple):
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

    def mspbe(
        self, behavior: Policy | np.ndarray | None = None, target: Policy | np.ndarray | None = None
    ) -> ChainMoments:
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
        return ChainMoments(A=A, b=b, C=np.diag(visit))

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


def draw_log(chain: Chain, bounds: Bounds, seed: int, success: float = 1.0) -> Trajectories:
    """Return a log of ``bounds.units`` trajectories of ``chain`` under its one action.

    The reward of the step into the absorbing state is 1 with probability ``success``, else 0; all others are 0.
    """
    if chain.actions != 1:
        raise DprlError("chain: logs are drawn in one go for a chain of one action; use rollout for more.")
    rng = np.random.default_rng(seed)
    units, n = bounds.units, chain.length - 1
    start = rng.integers(0, n, units)
    visits = rng.geometric(1.0 - chain.stay, (units, n))  # steps that a trajectory takes out of each state
    visits[np.arange(n) < start[:, None]] = 0
    lengths = visits.sum(axis=1)
    flat = visits.ravel()
    state = np.repeat(np.tile(np.arange(n), units), flat)
    advances = np.zeros(len(state), dtype=bool)
    advances[np.cumsum(flat)[flat > 0] - 1] = True  # the last step out of a state
    reward = np.zeros(len(state))
    reward[np.cumsum(lengths) - 1] = 1.0 if success >= 1.0 else rng.random(units) < success
    if lengths.max() > chain.horizon:
        time = np.arange(len(state)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        state, advances, reward = (x[time < chain.horizon] for x in (state, advances, reward))
        lengths = np.minimum(lengths, chain.horizon)
    return Trajectories(
        observation=state[:, None].astype(np.float64),
        next_observation=np.minimum(state + advances, n - 1)[:, None].astype(np.float64),
        action=np.zeros(len(state), dtype=np.int64),
        reward=reward,
        behavior_prob=np.ones(len(state)),
        target_prob={},
        terminated=advances & (state == n - 1),
        has_next=np.ones(len(state), dtype=bool),
        episode_offsets=np.r_[0, np.cumsum(lengths)].astype(np.int64),
        unit_offsets=np.arange(units + 1, dtype=np.int64),
        valid=np.ones(units, dtype=bool),
        bounds=bounds,
        unit="trajectory",
    )


def chain_domain(name: str, label: str, success: float = 1.0) -> Domain:
    """Return the paper's chain, where the terminal reward of 1 is paid with probability ``success``."""
    chain = Chain()
    n = chain.length - 1
    policy = UniformPolicy(1)

    def exact(features: Features) -> Moments:
        # moments of any features follow from the tabular ones
        tabular = chain.mspbe()
        phi = features(np.arange(n, dtype=np.float64)[:, None])
        return phi.T @ tabular.A @ phi, success * (phi.T @ tabular.b), phi.T @ tabular.C @ phi

    def true_values() -> Truth:
        states = np.arange(n, dtype=np.float64)[:, None]
        return Truth(states, success * chain.values(), np.full(n, 1.0 / n), np.zeros(n))

    return Domain(
        name=name,
        label=label,
        discount=chain.discount,
        features="tabular",
        public=environment_bounds(chain, 1),
        target_policy=policy,
        behavior=policy,
        simulate=lambda bounds, seed: draw_log(chain, bounds, seed, success),
        true_values=true_values,
        start_values=true_values,  # a trajectory starts in any state, and one in 10^200 is cut
        # one reward per trajectory, over its mean number of steps: (n + 1) / 2 states of 1 / (1 - stay) steps each
        mean_reward=success * (1.0 - chain.stay) / ((n + 1) / 2.0),
        exact_moments=exact,
    )


DOMAIN = chain_domain("chain", "Chain of 40 states")
