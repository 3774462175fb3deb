"""The chain of Xie, Thomas and Miklau (2019, section 7): 40 states, uniform start, reward 1 at the end, discount 0.99.

Values and moments are exact (:mod:`~dprl_papers.harness.exact_chain`). A log is drawn without a loop over steps: the
number of steps in a state is geometric, so a trajectory is its start and one geometric number per state.
"""

from __future__ import annotations

import numpy as np

from dprl.bounds import Bounds
from dprl.data.trajectories import Trajectories
from dprl.environments.rollout import environment_bounds
from dprl.errors import DprlError
from dprl.policies import UniformPolicy
from dprl.value_functions.features import Features
from dprl_papers.harness.domain import Domain, Moments, Truth
from dprl_papers.harness.exact_chain import Chain


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
