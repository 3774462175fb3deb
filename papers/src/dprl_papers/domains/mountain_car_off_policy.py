"""Mountain Car off-policy: logs of the soft learned policy of ``mountain_car``, and values of the uniform policy.

The learned policy takes each action with a probability of at least 1/15, so an importance ratio is at most (1/3) /
(1/15) = 5. Errors are taken over the states of the log, for two reasons: from the start states, the uniform policy
hardly ever leaves the valley, and over the states that it visits itself, its value is almost constant.
"""

from __future__ import annotations

from pathlib import Path

from dprl_papers.domains.mountain_car import ASSETS, CAR, EPSILON, SIMULATOR, UNIFORM, load_policy, public_bounds
from dprl_papers.harness.simulated import stored_domain

_BEHAVIOR = load_policy()

DOMAIN = stored_domain(
    Path(__file__),
    label="Mountain Car, off-policy",
    discount=CAR.discount,
    features="fourier:5",
    public=public_bounds(1.0 / EPSILON),
    policy=UNIFORM,
    behavior=_BEHAVIOR,
    simulate=lambda bounds, seed: SIMULATOR.log(_BEHAVIOR, bounds, seed),
    mean_reward=-1.0,
    depends_on=(ASSETS, Path(__file__).with_name("mountain_car.py")),
)
