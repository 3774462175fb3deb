"""Users who come back: every batch is a secret Poisson sample of all of them, and each batch is paid for.

Privacy unit: a person. Relation: add or remove one. Released: every noised sum, hence every iterate. The event is that
of :class:`~dprl.mechanisms.clipped_sum.ClippedGaussianSum` (docs/proofs/clipped-gaussian-sum.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import random

from dprl.algorithms.policy_gradient import trainer
from dprl.algorithms.policy_gradient.estimator import Rates, Shape, Trajectory
from dprl.algorithms.policy_gradient.users import Acting
from dprl.mechanisms.clipped_sum import ClippedGaussianSum


def run_resampled(
    shape: Shape,
    source: Any,
    rates: Rates,
    mechanism: ClippedGaussianSum,
    noise: Any,
    key: Any,
    progress: Callable[[int], None] | None = None,
) -> tuple[trainer.State, np.ndarray]:
    """A whole run, as of :func:`dprl.algorithms.policy_gradient.trainer.run_on_host`.

    Args:
        shape: ``batch`` is the expected number of members, by which sums are divided.
        source: ``answers(places, act)`` gives the trajectories of the users in ``places`` ``(n,)``.
        noise: of the coins and of the sums.
        key: of the simulation and of actions.
        progress: called with the number of batches done.
    """
    state = trainer.init(shape, key)
    history = [np.asarray(state.theta)]
    seeds = np.random.default_rng(np.asarray(random.key_data(key)))
    for t in range(shape.steps):
        members = np.flatnonzero(np.asarray(mechanism.coins(noise, t, shape.users)))
        act = Acting(shape.policy, state.theta, int(seeds.integers(2**63)))
        total = np.zeros(mechanism.dimension, np.int64)
        for start in range(0, len(members), shape.block):
            # filled up with places that nobody has, so that one compiled block serves all
            places = np.full(shape.block, shape.users)
            here = members[start : start + shape.block]
            places[: len(here)] = here
            rows = Trajectory(*(np.asarray(part) for part in source.answers(places, act)))
            total = total + np.asarray(_clipped(shape, mechanism, rates, state.theta, state.baseline, rows))
        noised = mechanism.release(jax.numpy.asarray(total), jax.numpy.asarray(mechanism.draw(noise, t)))
        state = _learned(shape, rates, state, noised)
        history.append(np.asarray(state.theta))
        if progress is not None:
            progress(t + 1)
    return state, np.stack(history)


def _block(shape: Shape, mechanism: ClippedGaussianSum, rates: Rates, theta: Any, baseline: Any, rows: Any) -> Any:
    vectors = jax.vmap(trainer.contribution, (None, None, None, None, 0))(shape, rates, theta, baseline, rows)
    return mechanism.clipped_sum(vectors, rows.length > 0)


_clipped = jax.jit(_block, static_argnums=(0, 1))
_learned = jax.jit(trainer.learn_step, static_argnums=0)
