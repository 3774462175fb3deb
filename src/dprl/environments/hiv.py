"""Treatment of HIV: the model of Adams et al. (2004) as the decision problem of Ernst et al. (2006).

State, float64: T1, T2 (healthy cells), T1*, T2* (infected cells), V (free virus), E (immune effectors), each per ml;
time in days. An action switches two drugs on or off for the next five days, with efficacies ``(e1, e2)``: no drug,
reverse transcriptase inhibitor, protease inhibitor, both drugs.

Reward of a transition, at the state in which it ends: ``-0.1 V - 20000 e1^2 - 2000 e2^2 + 1000 E``. Observation: log10
of the six components of the state, each **clipped to the public bounds [-5, 8]**, float32. No trajectory terminates.

The equations are stiff at times: after an infection the fast rate ``k2 V`` reaches several hundred per day. A
fixed-step Runge-Kutta method blows up there. So every five days are integrated with Dormand and Prince's pair of orders
5 and 4, whose step size follows its error estimate. A step that would leave the finite non-negative numbers is never
taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

import dprl.x64  # noqa: F401  (the integrator needs float64)
from dprl.bounds import Interval
from dprl.errors import DprlError

# Adams et al. (2004), Table 1, per ml and day.
L1, D1, K1 = 1e4, 0.01, 8e-7
L2, D2, K2 = 31.98, 0.01, 1e-4
F, DELTA, M1, M2 = 0.34, 0.7, 1e-5, 1e-5
N_T, C, RHO1, RHO2 = 100.0, 13.0, 1.0, 1.0
L_E, B_E, K_B, D_E, K_D, DELTA_E = 1.0, 0.3, 100.0, 0.25, 500.0, 0.1

EFFICACY = ((0.0, 0.0), (0.7, 0.0), (0.0, 0.3), (0.7, 0.3))
"""Efficacies ``(e1, e2)`` of each action."""

STEADY_STATES: dict[str, tuple[float, ...]] = {
    "uninfected": (1e6, 3198.0, 0.0, 0.0, 0.0, 10.0),
    "unhealthy": (163572.8, 4.995, 11944.9, 45.60, 63918.6, 23.54),
    "healthy": (967838.7, 620.5, 76.01, 6.09, 415.4, 353108.0),
}
"""Steady states without treatment: T1, T2, T1*, T2*, V, E. The first is unstable, the others are stable."""

OBSERVATION_BOUND: Interval = (-5.0, 8.0)
CEILING = 1e8
"""States are kept in [0, CEILING], the ends of the observation bounds; no trajectory of ours comes near it."""

# Without treatment T1 + T1* stays below 1e6, and so V below 5.4e6, which bounds rewards from below. E has no bound that
# is so simple: the upper ends cover constant and random treatment with room to spare. From the unhealthy start such
# treatment earned at most 1.3e6 per step; a rule that reaches the healthy state earns 3.5e8 and needs wider bounds.
REWARD_BOUNDS: dict[str, Interval] = {
    "uninfected": (-6e5, 2e4),
    "unhealthy": (-6e5, 2e6),
    "healthy": (-6e5, 1e9),
}
"""Public bounds of a reward, by start."""

STEP_DAYS = 5.0
RTOL, ATOL = 1e-8, 1e-12
MAX_STEPS = 200_000  # rates are below 2e4 per day, so that five days need fewer
GROUP = 64

# Dormand and Prince (1980), RK5(4)7M: stages, fifth-order weights (the last row), difference to fourth order.
_STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
_ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)


def derivative(state: Any, e1: Any, e2: Any) -> jax.Array:
    """Return the time derivative ``(6, ...)``, per day, of states ``(6, ...)`` under drug efficacies ``e1``, ``e2``."""
    t1, t2, t1s, t2s, v, e = (state[i] for i in range(6))
    infected = t1s + t2s
    a = (1.0 - e1) * K1 * v * t1
    b = (1.0 - F * e1) * K2 * v * t2
    growth = B_E * infected / (infected + K_B) - D_E * infected / (infected + K_D) - DELTA_E
    return jnp.stack(
        [
            L1 - D1 * t1 - a,
            L2 - D2 * t2 - b,
            a - DELTA * t1s - M1 * e * t1s,
            b - DELTA * t2s - M2 * e * t2s,
            # virus that enters cells leaves the blood
            (1.0 - e2) * N_T * DELTA * infected - C * v - (RHO1 * a + RHO2 * b),
            L_E + growth * e,
        ]
    )


def integrate(state: Any, e1: Any, e2: Any) -> jax.Array:
    """Return the state ``(6,)`` float64 five days later, under constant efficacies.

    The result is finite and non-negative for any input. The error estimate of a step is held below ``RTOL`` of each
    component. A component of ``state`` outside of [0, 1e8] is replaced by the nearer end, NaN by 0.
    """
    state = jnp.clip(jnp.nan_to_num(jnp.asarray(state, jnp.float64), nan=0.0), 0.0, CEILING)
    return _integrate(state, jnp.asarray(e1, jnp.float64), jnp.asarray(e2, jnp.float64))


@jax.custom_batching.custom_vmap
def _integrate(state: jax.Array, e1: jax.Array, e2: jax.Array) -> jax.Array:
    return _integrate_group(state[:, None], e1[None], e2[None])[:, 0]


@_integrate.def_vmap
def _integrate_batch(size: int, batched: Any, state: Any, e1: Any, e2: Any) -> tuple[jax.Array, bool]:
    """Integrate a batch of states in small groups, with components as the first axis.

    So each component is contiguous over the trajectories. A group takes as many steps as its slowest member; groups are
    small, so that an outbreak in one trajectory does not slow all others down.
    """
    state = state if batched[0] else jnp.broadcast_to(state, (size, 6))
    e1, e2 = (
        e if is_batched else jnp.broadcast_to(e, (size,)) for e, is_batched in zip((e1, e2), batched[1:], strict=True)
    )
    width = min(GROUP, size)
    groups = -(-size // width)
    order = jnp.arange(groups * width) % size  # the last group is filled up with the first members
    packed = state[order].reshape(groups, width, 6).transpose(0, 2, 1)
    arguments = (packed, e1[order].reshape(groups, width), e2[order].reshape(groups, width))
    result = jax.lax.map(lambda group: _integrate_group(*group), arguments)
    return result.transpose(0, 2, 1).reshape(groups * width, 6)[:size], True


def _integrate_group(state: jax.Array, e1: jax.Array, e2: jax.Array) -> jax.Array:
    """Return the states ``(6, B)`` five days later, under efficacies ``(B,)``; each column has its own step sizes."""

    def proceed(carry: Any) -> Any:
        remaining, _, _, _, count = carry
        return jnp.any(remaining > 0.0) & (count < MAX_STEPS)

    def attempt(carry: Any) -> Any:
        remaining, step, y, slope, count = carry
        last = step >= remaining
        h = jnp.minimum(step, remaining)
        slopes = [slope]
        candidate = y
        for row in _STAGES:
            candidate = y + h * sum(w * k for w, k in zip(row, slopes, strict=True) if w)
            slopes.append(derivative(candidate, e1, e2))
        error = h * sum(w * k for w, k in zip(_ERROR, slopes, strict=True) if w)
        scale = ATOL + RTOL * jnp.maximum(jnp.abs(y), jnp.abs(candidate))
        ratio = jnp.max(jnp.abs(error) / scale, axis=0)
        sound = jnp.isfinite(ratio) & jnp.all(candidate >= 0.0, axis=0)
        ratio = jnp.where(sound, ratio, jnp.inf)
        accept = (ratio <= 1.0) & (remaining > 0.0)
        # The usual controller: order 5, safety factor 0.9, a step changes at most to a fifth or to five times its size.
        factor = jnp.clip(0.9 * jnp.maximum(ratio, 1e-10) ** -0.2, 0.2, 5.0)
        return (
            jnp.where(accept, jnp.where(last, 0.0, remaining - h), remaining),
            jnp.where(remaining > 0.0, h * factor, step),
            jnp.where(accept, candidate, y),
            jnp.where(accept, slopes[-1], slope),  # first same as last
            count + 1,
        )

    slope = derivative(state, e1, e2)
    # In the first step no component x changes by more than (x + 1) / 100.
    step = jnp.minimum(STEP_DAYS, 0.01 / jnp.max(jnp.abs(slope) / (state + 1.0), axis=0))
    start = (jnp.full(e1.shape, STEP_DAYS, jnp.float64), step, state, slope, jnp.zeros((), jnp.int32))
    return jnp.minimum(jax.lax.while_loop(proceed, attempt, start)[2], CEILING)


@dataclass(frozen=True, kw_only=True)
class HIV:
    """The treatment problem as pure functions; the state is ``(6,)`` float64.

    Attributes:
        start: steady state in which a trajectory begins (``unhealthy`` in Ernst et al.).
        perturbation: bound on the perturbation of the start. Each component is multiplied by ``exp(u)``, with ``u``
            uniform within plus and minus this bound.
        horizon: transitions after which a trajectory is truncated (200, that is 1000 days).
        discount: discount factor of a step.
        reward_range: public bounds of a reward (default: :data:`REWARD_BOUNDS` of the start). Rewards are not clipped.
    """

    start: Literal["uninfected", "unhealthy", "healthy"] = "unhealthy"
    perturbation: float = 0.0
    horizon: int = 200
    discount: float = 0.98
    reward_range: Interval | None = None

    def __post_init__(self) -> None:
        if self.start not in STEADY_STATES:
            raise DprlError(f"hiv: start must be one of {', '.join(STEADY_STATES)}.")
        if not (math.isfinite(self.perturbation) and self.perturbation >= 0) or self.horizon < 1:
            raise DprlError("hiv: perturbation must be at least 0 and horizon at least 1.")

    @property
    def actions(self) -> int:
        """Number of actions: no drug, the first, the second, both."""
        return len(EFFICACY)

    @property
    def reward_bounds(self) -> Interval:
        """Smallest and largest reward of a step."""
        return REWARD_BOUNDS[self.start] if self.reward_range is None else self.reward_range

    observation_bounds = (OBSERVATION_BOUND,) * 6
    """Bounds to which log10 of each state is clipped."""

    def reset(self, key: jax.Array) -> jax.Array:
        """Return the steady state ``start``, perturbed."""
        spread = self.perturbation
        factor = jnp.exp(jax.random.uniform(key, (6,), jnp.float64, minval=-spread, maxval=spread))
        return jnp.asarray(np.array(STEADY_STATES[self.start]), jnp.float64) * factor

    def observe(self, state: Any) -> jax.Array:
        """Return ``(6,)`` float32: log10 of the state, clipped to [-5, 8]."""
        low, high = OBSERVATION_BOUND
        return jnp.log10(jnp.clip(jnp.asarray(state, jnp.float64), 10.0**low, 10.0**high)).astype(jnp.float32)

    def step(self, key: jax.Array, state: Any, action: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Take one step of five days of treatment; deterministic, ``key`` is not used."""
        e1, e2 = jnp.asarray(EFFICACY, jnp.float64)[action]
        following = integrate(state, e1, e2)
        reward = -0.1 * following[4] - 2e4 * e1**2 - 2e3 * e2**2 + 1e3 * following[5]
        return following, reward, jnp.zeros((), bool)
