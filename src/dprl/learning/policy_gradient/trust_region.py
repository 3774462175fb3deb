"""Step sizes from released gradients: how far a step of policy gradient may go, whatever the size of the rewards.

A released gradient is signal and noise, and the variance of the noise is public. The squared length of the gradient
less that of its noise is an estimate of the signal. A step may change the policy's preferences by the signal's share of
the gradient times a public radius. Everything here is a function of what was released and of what is public.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from dprl import x64 as x64
from dprl.policies.parametric import Parametric

RADIUS = 2.0
"""Most that a full step changes preferences by, root mean square over public states, if its gradient is like those
before; chosen on Cart Pole and the families named CHOSEN_ON in benchmarks/learning_families.py, as is
:data:`WARM_UP`."""
WARM_UP = 0.1
"""Share of the batches over which steps grow from nothing: the first ones make the baseline, and the signal known."""


def squared_change(policy: Parametric, theta: Any, direction: Any, released: Any, noise_std: Any, states: Any) -> Any:
    """Return the part of the squared change of preferences by a direction that is not noise; negative by chance.

    Args:
        theta: ``(d,)`` parameters.
        direction: ``(d,)`` of the step, made of the released gradient.
        released: ``(d,)`` noisy gradient.
        noise_std: standard deviation of the noise in each coordinate of it.
        states: ``(S, n)`` public states, over which is averaged.
    """
    _, change = jax.jvp(lambda theta: policy.preferences(theta, states), (theta,), (direction,))
    if not policy.gaussian:  # adding the same to all preferences changes no softmax
        change = change - jnp.mean(change, axis=-1, keepdims=True)
    squared = jnp.sum(released**2)
    signal = jnp.where(squared > 0.0, 1.0 - policy.size * noise_std**2 / squared, 0.0)
    return jnp.mean(jnp.sum(change**2, axis=-1)) * signal


def share_of_step(step: Any, steps: int, longest: Any, squared: Any) -> Any:
    """Return the share of the ``longest`` step size that is taken.

    Args:
        step: batches before this one.
        steps: batches in all.
        squared: mean of :func:`squared_change` over this batch and those before.
    """
    change = longest * jnp.sqrt(jnp.maximum(squared, 0.0))
    return jnp.minimum(1.0, (step + 1.0) / (1.0 + WARM_UP * steps)) * RADIUS / jnp.maximum(change, RADIUS)
