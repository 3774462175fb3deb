"""Removal of what noise is expected to add to the differences of actions (paper 001 has no such step).

If each action has its own path, the paths move the actions' rewards apart. With few people they do so by more than the
actions themselves differ, and the learned policy would follow the noise. So the part of an answer that depends on the
action is fitted by cosines, and a share of that part is subtracted. The share is what the noise is expected to have put
there, divided by what was found (the estimate of empirical Bayes), and at most 1. It is computed only from answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from dprl import x64 as x64
from dprl.value_functions.features import Fourier

if TYPE_CHECKING:
    from dprl.learning.q_updates import Rates, Transitions

ORDER = 3
"""Order of the cosines."""
CELLS = {1: 32, 2: 16, 3: 8}
"""Cells of each component, by the number of components: the noise of samples in one cell counts as the same."""
_RIDGE = 1.0  # pseudo-samples of 0: where an action was not taken, its fit is 0


def without_noise_in_differences(actions: int, rates: Rates, memory: Transitions, known: jax.Array) -> jax.Array:
    """Return ``(N,)`` float32: the answers, minus what the noise is expected to add to the actions' differences.

    Args:
        actions: number of actions, A; each has a path.
        rates: numbers of the run, with ``path_std`` and ``path_decay`` of a path.
        memory: the samples.
        known: ``(N,)`` bool: which samples have arrived already.
    """
    inputs = memory.states.shape[1]
    cosines, cells = Fourier(((0.0, 1.0),) * inputs, ORDER), CELLS[inputs]
    centres = (np.indices((cells,) * inputs).reshape(inputs, -1).T + 0.5) / cells
    features = cosines(centres)  # (M, P)
    kernel = jnp.exp(-rates.path_decay * np.abs(centres[:, None] - centres).sum(axis=2))
    place = jnp.clip((memory.states * cells).astype(jnp.int32), 0, cells - 1)
    cell = jnp.ravel_multi_index(tuple(place.T), (cells,) * inputs, mode="clip")
    empty = jnp.zeros((actions, len(centres)))
    counts = empty.at[memory.actions, cell].add(known)
    sums = empty.at[memory.actions, cell].add(jnp.where(known, memory.answers, 0.0))

    def fitted(count: jax.Array, total: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return one action's ``(P,)`` coefficients, and their ``(P, P)`` covariance under a path of variance 1."""
        gram = (features.T * count) @ features + _RIDGE * jnp.eye(cosines.size)
        solved = jnp.linalg.solve(gram, features.T)
        return solved @ total, (solved * count) @ kernel @ (solved * count).T

    coefficients, noise = jax.vmap(fitted)(counts, sums)
    differences = coefficients - coefficients.mean(axis=0)
    centred = np.eye(actions) - 1.0 / actions
    covariance = jnp.einsum("ac,bc,cpq->apbq", centred, centred, noise).reshape((differences.size,) * 2)
    found = differences.ravel() @ jnp.linalg.pinv(covariance, hermitian=True) @ differences.ravel()
    expected = rates.path_std**2 * (actions - 1) * cosines.size
    share = expected / jnp.maximum(found, expected + 1e-30)
    part = jnp.sum(cosines(memory.states, jnp) * differences[memory.actions], axis=1)
    return (memory.answers - share * part).astype(jnp.float32)
