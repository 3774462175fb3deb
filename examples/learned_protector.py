"""A protector at work: a log from its task family is evaluated with GPOPE's own steps and with the protector's.

First learn the protector, which reads no data: ``dprl learn-protector --tasks policy-evaluation --epsilon 1 --delta
1e-5 --value-share 0.5 --out protector``. Then run ``python examples/learned_protector.py protector``.
"""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np

import dprl
from dprl.protectors.policy_evaluation import RandomChains
from dprl_papers.paper_002_l2p.protectors import trajectories_of

SEEDS = 5


def main(folder: str) -> None:
    family = RandomChains()
    # a process that the protector's training did not see
    chain, log = family.simulate(jax.random.key(2**20))
    task, trajectories = family.task_of(chain, log), trajectories_of(family, log)
    plain = dprl.GPOPE(discount=family.discount, value_budget_fraction=0.5)
    for name, algorithm in (("gpope", plain), ("with the protector", plain.replace(optimizer=folder))):
        errors = []
        for seed in range(SEEDS):
            release = dprl.evaluate(
                trajectories,
                "uniform",
                dprl.Budget(1.0, 1e-5),
                algorithm=algorithm,
                features=family.features,
                seed=seed,
                simulated=True,
            )
            assert release.value_function is not None
            theta = jnp.asarray(release.value_function.theta, jnp.float32)
            parameters = jnp.concatenate([theta, jnp.zeros_like(theta)])
            errors.append(float(family.loss(task, parameters) / family.reference(task)))
        print(f"{name:<20} mean squared projected Bellman error over that of the start: {np.mean(errors):.3f}")
        print(release.certificate["assumed_public"].get("protector", {}).get("in_force", "its own steps"))


if __name__ == "__main__":
    main(sys.argv[1])
