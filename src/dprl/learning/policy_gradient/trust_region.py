"""Direction and length of policy gradient steps, the scale of people's vectors, and the released policy's sharpness.

Steps fit features and rewards of any size. A released gradient is signal plus noise, and the variance of the noise is
public. The squared length of the gradient minus the expected squared length of the noise estimates the squared length
of the signal. Neither signal nor noise may change the policy's preferences by more than a public radius in one step.
People's vectors are scaled up before they are clipped. Everything here is a function of what was released and of what
is public.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dprl import x64 as x64
from dprl.policies.parametric import Parametric

PREFERENCE_RADIUS = 1.0
"""Most that the signal of a full step changes preferences by, and its noise: root mean square over public states. All
numbers were chosen on Cart Pole, Acrobot and the families named CHOSEN_ON in benchmarks/learning_families.py."""
WARM_UP = 0.5
"""Share of the batches over which steps grow from nothing: the first ones make the baseline, and the signal known."""
AVERAGED_BATCHES = 20
"""Batches over which the size of signal and noise is averaged: a new one has the weight of one in so many at least."""
TARGET_FILL, LARGEST_GROWTH = 0.3, 10.0
"""Mean share of the clip that people's vectors shall fill, and most that they are scaled up by for it."""
FASTEST_GROWTH, QUIET_GROWTH = 0.2, 0.07
"""Most that the scale's logarithm moves by in a batch: for a share that is off by 1, and for noise of one standard
deviation."""
SHARP_PREFERENCES = 15.0
"""Size of preferences, root mean square over public states, from which a policy is left as it is."""
LEAST_DAMPING, DAMPING = 0.01, 100.0
"""Least damping in :func:`whitened`, and its growth with the square of the noise of a batch's mean gradient."""
PUBLIC_STATES = 256


def public_states(policy: Parametric) -> np.ndarray:
    """Return ``(S, d)`` states that stand for Unif_S in Eq. (3).

    They are all states of a tabular policy, or otherwise spread over the public bounds.
    """
    if policy.kind == "tabular":
        low, high = policy.observation[0]
        return np.arange(low, high + 1.0)[:, None]
    low, high = np.array(policy.observation, np.float64).T
    return low + (high - low) * np.random.default_rng(0).random((PUBLIC_STATES, len(low)))  # noqa: TID251 (public)


def squared_size(policy: Parametric, preferences: Float[Array, "states outputs"]) -> Float[Array, ""]:
    """Return the mean over states of the squared length of preferences, or of a change of them.

    Adding the same number to all preferences of a softmax changes nothing, so their mean does not count.
    """
    if not policy.gaussian:
        preferences = preferences - jnp.mean(preferences, axis=-1, keepdims=True)
    return jnp.mean(jnp.sum(preferences**2, axis=-1))


def whitened(policy: Parametric, gradient: Float[Array, " d"], noise_std: Any) -> Float[Array, " d"]:
    """Return the direction of a step in which features that are small, or nearly alike, count as much as others.

    Preferences are linear in features, and a small or common feature moves them slowly. So the gradient is divided by
    the second moments of features over public states. This also lifts the noise, so the more noise there is, the weaker
    is the division. The gradient of a network is returned unchanged, and so is the gradient for more features than
    public states can tell apart.

    Args:
        policy: policy without its parameters.
        gradient: ``(d,)`` released mean gradient.
        noise_std: standard deviation of the noise in each coordinate of ``gradient``, in units of the clip.
    """
    if policy.hidden or policy.features > PUBLIC_STATES:
        return gradient
    rows = policy.feature_rows(public_states(policy))
    moments = rows.T @ rows * (policy.features / jnp.sum(rows**2))
    damping = LEAST_DAMPING + DAMPING * noise_std**2
    whole = ((moments + damping * jnp.eye(policy.features)) / (1.0 + damping)).astype(gradient.dtype)
    of_outputs = gradient.reshape(policy.outputs, policy.features)
    return jnp.linalg.solve(whole, of_outputs.T).T.reshape(-1)


def squared_changes(
    policy: Parametric, theta: Any, direction: Any, released: Any, noise_std: Any, states: Any
) -> Float[Array, " 2"]:
    """Return the squared change of preferences by a direction's signal (by chance negative) and by its noise.

    Args:
        theta: ``(d,)`` parameters.
        direction: ``(d,)`` direction of the step, made from the released gradient.
        released: ``(d,)`` noisy gradient.
        noise_std: standard deviation of the noise in each coordinate of ``released``.
        states: ``(S, n)`` public states, over which the change is averaged.
    """
    _, change = jax.jvp(lambda theta: policy.preferences(theta, states), (theta,), (direction,))
    squared = jnp.sum(released**2)
    noise = jnp.where(squared > 0.0, policy.size * noise_std**2 / squared, 0.0)
    return squared_size(policy, change) * jnp.stack([1.0 - noise, noise])


def share_of_step(step: Any, steps: int, longest: Any, squared: Float[Array, " 2"]) -> Any:
    """Return the share of the ``longest`` step size that is taken.

    Args:
        step: number of batches before this one.
        steps: number of batches in all.
        squared: mean of :func:`squared_changes` over this batch and earlier ones; the newest batches count most.
    """
    changes = longest * jnp.sqrt(jnp.maximum(squared, 0.0))
    grown = jnp.minimum(1.0, (step + 1.0) / (1.0 + WARM_UP * steps))
    return grown * PREFERENCE_RADIUS / jnp.maximum(jnp.max(changes), PREFERENCE_RADIUS)


def running_mean(mean: Any, found: Any, step: Any) -> Any:
    """Return the running mean after this batch, in which ``found`` was found; ``step`` batches came before it."""
    return (mean + (found - mean) * jnp.maximum(1.0 / (step + 1.0), 1.0 / AVERAGED_BATCHES)).astype(jnp.float32)


def next_growth(growth: Any, excess: Any, noise_std: Any) -> Any:
    """Return the factor on the scale of people's vectors in the next batch, from 1 to :data:`LARGEST_GROWTH`.

    Vectors that are far shorter than the clip pay noise for room that they do not use. This follows Andrew, Thakkar,
    McMahan and Ramaswamy (2021), who move the clip instead.

    Args:
        growth: factor in this batch.
        excess: released mean over the batch's places: the share of the clip that a vector fills (1 if it is clipped)
            minus :data:`TARGET_FILL`, and 0 for a person who answers nothing.
        noise_std: standard deviation of the noise in ``excess``.
    """
    pace = jnp.minimum(FASTEST_GROWTH, QUIET_GROWTH / noise_std)
    return jnp.clip(growth * jnp.exp(-pace * excess), 1.0, LARGEST_GROWTH).astype(jnp.float32)


def sharpened(policy: Parametric, theta: Any, most: float) -> Any:
    """Return parameters ``(d,)`` of a softmax that mixes less than the policies that people met, which had to explore.

    Preferences are multiplied by ``most``, or by less where they would become larger than :data:`SHARP_PREFERENCES`.
    """
    size = jnp.sqrt(squared_size(policy, policy.preferences(theta, jnp.asarray(public_states(policy), jnp.float32))))
    return scale_preferences(policy, theta, jnp.clip(SHARP_PREFERENCES / jnp.maximum(size, 1e-6), 1.0, most))


def scale_preferences(policy: Parametric, theta: Any, factor: Any) -> Any:
    """Return parameters ``(d,)`` whose preferences are ``factor`` times those of ``theta``.

    In a network only the parameters of the last layer change.
    """
    hidden = jnp.arange(policy.size) < policy.random_weights
    return theta * jnp.where(hidden, 1.0, factor).astype(jnp.float32)
