"""Noisy gradient descent on records, with equal noise in all steps: the baselines SGD-Adv and SGD-MA of paper 002.

Algorithm: Bassily, Smith and Thakurta (2014); Abadi et al. (2016). Privacy unit: a record. Relation: add or remove one.
Released: every noisy sum, hence every iterate. There are two accountants, both correct: ``strong-composition``, which
is that of SGD-Adv (Dwork, Rothblum and Vadhan, 2010, Theorem III.3), and ``pld``, which is tighter than the moments
accountant of SGD-MA. For simulations only: the noise is drawn in floating point from public seeds. Proof:
docs/papers/002.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp

from dprl.accounting import events
from dprl.accounting.budget import Budget
from dprl.accounting.calibration import gaussian_noise_multiplier, noise_multiplier_for
from dprl.errors import DprlError
from dprl.protectors.simulation import seeded_noise, unit_sum
from dprl_papers.records.losses import RecordLoss, Records

Accounting = Literal["strong-composition", "pld"]


@dataclass(frozen=True, kw_only=True)
class Descent:
    """Public facts of a run.

    Attributes:
        steps: number of steps T.
        sampling_rate: sampling rate q of the Poisson batches.
        accounting: the accountant; see the module's docstring.
    """

    steps: int
    sampling_rate: float = 1.0
    accounting: Accounting = "pld"

    def __post_init__(self) -> None:
        if self.accounting not in ("strong-composition", "pld"):
            raise DprlError("The accounting of a descent is strong-composition or pld.")
        events.poisson_gaussian(self.sampling_rate, 1.0, self.steps)  # refuses numbers out of range


def noise_multiplier(config: Descent, budget: Budget) -> float:
    """Return the standard deviation of a step's noise over C."""
    if config.accounting == "pld":
        return noise_multiplier_for(
            lambda z: events.poisson_gaussian(config.sampling_rate, z, config.steps), budget, tolerance=1e-4
        )
    return gaussian_noise_multiplier(step_budget(budget, config.steps, config.sampling_rate))


def step_budget(budget: Budget, steps: int, sampling_rate: float = 1.0) -> Budget:
    """Return the budget of one of ``steps`` on its own sample with which strong composition stays within ``budget``.

    Half of delta is the composition's slack, and the steps share the other half.
    ``sqrt(2 T ln(2/delta)) e + T e (exp(e) - 1)`` must be at most epsilon. Poisson sampling turns (e', d') into (log(1
    + q (exp(e') - 1)), q d').
    """
    slack = math.sqrt(2.0 * steps * math.log(2.0 / budget.delta))
    low, high = 0.0, budget.epsilon
    for _ in range(200):
        e = 0.5 * (low + high)
        low, high = (e, high) if slack * e + steps * e * math.expm1(e) <= budget.epsilon else (low, e)
    on_sample = math.log1p(math.expm1(low) / sampling_rate)
    return Budget(on_sample, min(budget.delta / (2.0 * steps * sampling_rate), 0.5))


@partial(jax.jit, static_argnums=(0, 1))
def descend(
    config: Descent,
    loss: RecordLoss,
    records: Records,
    start: jax.Array,
    multiplier: Any,
    clip_norm: Any,
    step_size: Any,
    seed: Any,
) -> jax.Array:
    """Return ``(T + 1, d)`` iterates of ``theta - step_size (noisy mean gradient + gradient of the penalty)``.

    Args:
        multiplier: from :func:`noise_multiplier`, or 0 for no noise.
        clip_norm: clip norm C of a record's gradient.
        step_size: factor of the mean gradient.
        seed: () public number of the run.
    """
    mechanism, noise = unit_sum(loss.dimension, config.sampling_rate), seeded_noise(seed)
    units = records.y.shape[0]

    def one(parameters: jax.Array, step: jax.Array) -> tuple[jax.Array, jax.Array]:
        vectors = loss.gradients(parameters, records) / clip_norm
        total = mechanism.clipped_sum(vectors, mechanism.participation_mask(noise, step, units))
        noisy = mechanism.add_noise(total, multiplier * mechanism.draw(noise, step))
        mean = clip_norm / (units * config.sampling_rate) * noisy
        moved = parameters - step_size * (mean + jax.grad(loss.penalty)(parameters))
        return moved.astype(jnp.float32), parameters

    last, visited = jax.lax.scan(one, start.astype(jnp.float32), jnp.arange(config.steps))
    return jnp.concatenate([visited, last[None]])
