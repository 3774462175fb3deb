"""Mountain Car off-policy: logs of the soft learned policy of ``mountain_car``, values of the uniform policy.

The learned policy takes each action with a probability of at least 1/15, so a ratio is at most (1/3) / (1/15) = 5.
Errors are taken over the states of the log: from the start states the uniform policy hardly ever leaves the valley, and
over the states that it visits itself its value is almost a constant.
"""

from __future__ import annotations

from pathlib import Path

from dprl_papers.domains.mountain_car import (
    ASSETS,
    CAR,
    EPSILON,
    OFF_POLICY_ASSETS,
    UNIFORM,
    load_policy,
    public_bounds,
)
from dprl_papers.harness.domain import Domain
from dprl_papers.harness.simulated import simulate_log, stored_starts, stored_truth

_BEHAVIOR = load_policy()

DOMAIN = Domain(
    name="mountain_car_off_policy",
    label="Mountain Car, off-policy",
    discount=CAR.discount,
    features="fourier:5",
    public=public_bounds(1.0 / EPSILON),
    target_policy=UNIFORM,
    behavior=_BEHAVIOR,
    simulate=lambda bounds, seed: simulate_log(CAR, _BEHAVIOR, bounds, seed),
    true_values=lambda: stored_truth(OFF_POLICY_ASSETS),
    start_values=lambda: stored_starts(OFF_POLICY_ASSETS),
    mean_reward=-1.0,
    depends_on=(ASSETS, Path(__file__).with_name("mountain_car.py")),
)
