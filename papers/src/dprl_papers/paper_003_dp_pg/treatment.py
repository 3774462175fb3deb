"""A treatment bandit from the ACTG 175 trial: arriving patients, four arms, and the change of the CD4 count as reward.

The simulator is fitted on one half of the patients, which is thereby declared public; the other half is not used. A
patient's context is drawn from that half with a little jitter. The change of the CD4 count in an arm is a linear
function of the context, fitted by ridge regression, plus a normal residual. Trial: Hammer et al. (1996).
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dprl.bounds import Interval

ARMS = ("zidovudine", "zidovudine and didanosine", "zidovudine and zalcitabine", "didanosine")
COLUMNS = ("age", "wtkg", "karnof", "cd40", "cd80", "preanti", "gender", "symptom")
"""Columns that describe the patient at the start."""
REWARD = (-300.0, 300.0)  # cells per mm3, clipped
_RIDGE, _JITTER = 10.0, 0.1


@cache
def fitted() -> dict[str, np.ndarray]:
    """Return the fit to the public half of the patients.

    It has ``contexts`` ``(n, d)`` in standard deviations, ``weights`` ``(1 + d, A)`` and the ``residual`` standard
    deviation ``(A,)`` of the change in CD4 cells per mm3.
    """
    source = Path(str(distribution("lifelines").locate_file("lifelines/datasets/ACTG175.csv")))
    with source.open(newline="") as file:
        rows = list(csv.DictReader(file))
    rows = [row for row in rows if int(row["pidnum"]) % 2 == 0]
    x = np.array([[float(row[name]) for name in COLUMNS] for row in rows])
    x = np.clip((x - x.mean(axis=0)) / x.std(axis=0), -3.0, 3.0)
    arm = np.array([int(row["arms"]) for row in rows])
    y = np.array([float(row["cd420"]) - float(row["cd40"]) for row in rows])
    weights, residual = np.zeros((1 + x.shape[1], len(ARMS))), np.zeros(len(ARMS))
    for a in range(len(ARMS)):
        design = np.c_[np.ones((arm == a).sum()), x[arm == a]]
        ridge = np.diag([0.0] + [_RIDGE] * x.shape[1])
        weights[:, a] = np.linalg.solve(design.T @ design + ridge, design.T @ y[arm == a])
        residual[a] = np.std(y[arm == a] - design @ weights[:, a])
    return {"contexts": x, "weights": weights, "residual": residual}


@dataclass(frozen=True)
class TreatmentBandit:
    """Simulator of the bandit; a patient acts once, that is, gets one arm."""

    @property
    def actions(self) -> int:
        return len(ARMS)

    @property
    def horizon(self) -> int:
        return 1

    @property
    def discount(self) -> float:
        return 1.0

    @property
    def observation_bounds(self) -> tuple[Interval, ...]:
        """Bounds in standard deviations of the public half."""
        return ((-3.0, 3.0),) * len(COLUMNS)

    @property
    def reward_bounds(self) -> Interval:
        return REWARD

    def mean_rewards(self, contexts: Any) -> Any:
        """Return the ``(N, A)`` mean changes in CD4 cells per mm3, before clipping, for ``(N, d)`` contexts."""
        weights = jnp.asarray(fitted()["weights"], jnp.float32)
        return weights[0] + contexts @ weights[1:]

    def reset(self, key: jax.Array) -> jax.Array:
        """Return a patient's context, ``(d,)`` float32."""
        which, jitter = jax.random.split(key)
        known = jnp.asarray(fitted()["contexts"], jnp.float32)
        chosen = known[jax.random.randint(which, (), 0, len(known))]
        return jnp.clip(chosen + _JITTER * jax.random.normal(jitter, chosen.shape, jnp.float32), -3.0, 3.0)

    def observe(self, state: Any) -> jax.Array:
        return state

    def step(self, key: jax.Array, state: Any, action: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return the state, the change of the CD4 count as reward, and True, as every episode is over."""
        mean = self.mean_rewards(jnp.asarray(state)[None])[0, action]
        residual = jnp.asarray(fitted()["residual"], jnp.float32)[action]
        reward = jnp.clip(mean + residual * jax.random.normal(key, (), jnp.float32), *REWARD)
        return state, reward, jnp.ones((), bool)
