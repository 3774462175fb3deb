"""A policy that imitates the answers of the public start that a reward model likes best.

A reward model knows only answers that the start gives. A policy that is free to look for other answers finds some that
the model likes and no user does. A policy that imitates the favourite of eight answers cannot do so. It is made from
released weights and made-up prompts, so it costs no privacy.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from dprl_papers.paper_003_dp_pg.language import DIGITS, GROUP, JUDGE, SMALL, ascended, multiplier_of

FAVOURITES = "favourites of comparisons"
STEPS, RATE = 60, 1e-3
_IMITATE = 36  # seed of its JAX key


def imitating(model: Any, seed: int) -> Any:
    """Return the weights of the policy that imitates the favourites of a reward model."""
    key = random.fold_in(random.key(_IMITATE), seed)
    return ascended(SMALL.start, _of_favourites, STEPS, RATE, key, model, SMALL.start)


def _of_favourites(theta: Any, key: Any, model: Any, start: Any) -> Any:
    """Return the gradient of the mean log-probability of the favourite answers."""
    tokens = SMALL.sampled_answers(start, key, GROUP)
    best = jnp.argmax(SMALL.gains_of(model, start, tokens), axis=1)
    chosen = jnp.take_along_axis(tokens, best[:, None, None], axis=1)[:, 0]
    return jax.grad(lambda theta: jnp.mean(SMALL.model.log_probs(theta, chosen, DIGITS)[0]))(theta)


def measured(users: int, epsilon: float | None, delta: float, seed: int, seeds: int) -> np.ndarray:
    """Return the ``(seeds,)`` shares of right answers to held-out prompts; see :func:`language.measured`."""
    multiplier = 0.0 if epsilon is None else multiplier_of(epsilon, delta)
    found = []
    for i in range(seed, seed + seeds):
        policy = imitating(SMALL.trained(SMALL.compared_answers, users, multiplier, i), i)
        found.append(float(SMALL.judged(policy, random.fold_in(random.key(JUDGE), i))))
    return np.array(found)
