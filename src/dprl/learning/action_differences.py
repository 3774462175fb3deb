"""What the noise adds to the differences of actions, and answers without it (paper 001 has no such step).

Where each action has a path of its own, the paths move the actions' rewards apart, and with few people by more than
the actions themselves do: the learned policy would follow the noise. So the part of an answer that depends on the
action is fitted by cosines, and of that part a share is taken away: what the noise is expected to have put there, over
what was found (the estimate of empirical Bayes; at most all of it). It is made of answers alone.
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
_RIDGE = 1.0  # samples of 0: where an action was not taken its fit is 0


def without_noise_in_differences(actions: int, rates: Rates, memory: Transitions, known: jax.Array) -> jax.Array:
    """Return ``(N,)`` float32: the answers, less what the noise is expected to add to the actions' differences.

    Args:
        actions: how many there are, A; each has a path.
        rates: its ``path_std`` and ``path_decay`` are those of a path.
        memory: the samples.
        known: ``(N,)`` bool: which samples are there already.
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
