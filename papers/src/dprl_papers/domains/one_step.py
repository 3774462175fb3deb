"""A trial of four arms as a log with one decision per person: a contextual bandit with importance ratios up to 4.

Two columns, like age and a blood count, are known of a person. The arm is uniformly random. The outcome is the arm's
effect, minus a tenth of the count's difference from its mean, plus much noise. The target policy treats everybody with
the second arm. The shape of the value function is small beside the noise of its mean, so the private constant is hard
to beat here.
"""

from __future__ import annotations

import numpy as np

from dprl.bounds import Bounds
from dprl.data.trajectories import Trajectories
from dprl.policies import TabularPolicy, UniformPolicy
from dprl_papers.harness.domain import Domain, Truth

AGE, COUNT = (35.0, 9.0, 0.0, 90.0), (350.0, 118.0, 0.0, 1200.0)
"""Mean and standard deviation of each column, and the bounds to which it is clipped."""
EFFECTS = (-17.0, 50.0, 20.0, 32.0)
SLOPE, NOISE, OUTCOME = -0.1, 115.0, 500.0
ARM = 1
_TRUTH_PEOPLE, _TRUTH_SEED = 2139, 99
_QUANTILES = 40


def people(rng: np.random.Generator, count: int) -> np.ndarray:
    """Return ``(count, 2)`` people of the trial."""
    columns = [np.clip(rng.normal(mean, std, count), low, high) for mean, std, low, high in (AGE, COUNT)]
    return np.stack(columns, axis=1)


def _mean_outcome(states: np.ndarray, arm: np.ndarray | int) -> np.ndarray:
    return np.asarray(EFFECTS)[arm] + SLOPE * (states[:, 1] - COUNT[0])


def simulate(bounds: Bounds, seed: int) -> Trajectories:
    """Return a log of ``bounds.units`` people."""
    rng = np.random.default_rng(seed)
    units = bounds.units
    states = people(rng, units)
    arm = rng.integers(0, len(EFFECTS), units)
    outcome = np.clip(_mean_outcome(states, arm) + rng.normal(0.0, NOISE, units), -OUTCOME, OUTCOME)
    each = np.arange(units + 1, dtype=np.int64)
    return Trajectories(
        observation=states,
        next_observation=states,
        action=arm.astype(np.int64),
        reward=outcome,
        behavior_prob=np.full(units, 1.0 / len(EFFECTS)),
        target_prob={},
        terminated=np.ones(units, dtype=bool),
        has_next=np.ones(units, dtype=bool),
        episode_offsets=each,
        unit_offsets=each,
        valid=np.ones(units, dtype=bool),
        bounds=bounds,
        unit="trajectory",
    )


def true_values() -> Truth:
    """Return the exact expected clipped outcomes of the evaluated arm, for people who are in no log."""
    states = people(np.random.default_rng(_TRUTH_SEED), _TRUTH_PEOPLE)
    return _exact(states)


def start_values() -> Truth:
    """Return the outcomes for all pairs of quantiles of the two columns, which represent the population of the logs."""
    from scipy.stats import norm

    quantiles = norm.ppf((np.arange(_QUANTILES) + 0.5) / _QUANTILES)
    columns = [np.clip(mean + std * quantiles, low, high) for mean, std, low, high in (AGE, COUNT)]
    return _exact(np.stack(np.meshgrid(*columns, indexing="ij"), axis=-1).reshape(-1, 2))


def _exact(states: np.ndarray) -> Truth:
    from scipy.stats import norm

    mean = _mean_outcome(states, ARM)
    low, high = (-OUTCOME - mean) / NOISE, (OUTCOME - mean) / NOISE
    inside = mean * (norm.cdf(high) - norm.cdf(low)) + NOISE * (norm.pdf(low) - norm.pdf(high))
    values = inside + OUTCOME * (norm.sf(high) - norm.cdf(low))
    return Truth(states, values, np.full(len(states), 1.0 / len(states)), np.zeros(len(states)))


DOMAIN = Domain(
    name="one_step",
    label="One-step trial",
    discount=0.99,
    features="columns",
    public=Bounds(
        units=1,
        horizon=1,
        reward=(-OUTCOME, OUTCOME),
        observation=(AGE[2:], COUNT[2:]),
        actions=len(EFFECTS),
        max_importance_ratio=float(len(EFFECTS)),
        return_range=(-OUTCOME, OUTCOME),
        observation_names=("age", "count"),
    ),
    target_policy=TabularPolicy(np.eye(len(EFFECTS))[[ARM]]),
    behavior=UniformPolicy(len(EFFECTS)),
    simulate=simulate,
    true_values=true_values,
    start_values=start_values,
    mean_reward=EFFECTS[ARM],  # clipping moves the mean by less than 0.01
    moment_units=400_000,
)
