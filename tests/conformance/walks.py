"""Small made-up logs, and an algorithm as the audits' suite plans it: its mechanisms, and its compiled form."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from dprl.audits.attacks.programs import noisy_sum
from dprl.engine.layouts import padded_units
from dprl.engine.loop import run
from dprl.engine.ratios import step_ratios
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SeededNoise

_WALKS = {
    "episode_id": np.int64, "t": np.int64, "observation": np.float64, "action": np.int64,
    "reward": np.float64, "behavior_prob": np.float64, "terminated": bool, "censored": bool,
}  # fmt: skip


def walks(conformance: Any, units: int, seed: int) -> dict[str, np.ndarray]:
    """Columns of ``units`` walks around three states, of lengths from 1 to the horizon; ids are numbers from 0.

    One in five is lost in its last row, for those whose bounds declare how often that happens.
    """
    rng, rows = np.random.default_rng(seed), list[tuple[float, ...]]()
    for unit in range(units):
        state, length = int(rng.integers(0, 3)), int(rng.integers(1, conformance.bounds.horizon + 1))
        for t in range(length):
            action = int(rng.integers(0, 2))
            seen, paid = min(max(state + 0.8 * rng.random() - 0.4, 0.0), 2.0), rng.random() < 0.2 + 0.3 * action
            last = t == length - 1
            rows.append((unit, t, seen, action, paid, 0.5, last, last and unit % 5 == 0))
            state = min(max(state + 2 * action - 1, 0), 2)
    return {name: np.array(column, _WALKS[name]) for name, column in zip(_WALKS, zip(*rows, strict=True), strict=True)}


def mechanisms_of(conformance: Any, setting: str) -> dict[str, GaussianSum]:
    """The values' noisy sum and those of the stages, by the names of their noise streams."""
    plan = conformance.plan(setting)
    return {"value": plan.value_mechanism, **{stage.name: stage.mechanism for stage in plan.stages}}


def arrays_of(conformance: Any, setting: str, log: Any) -> Any:
    """A log, read under the plan's bounds, as the pytree of arrays that :func:`compute` takes."""
    plan, policies = conformance.plan(setting), conformance.policies
    # values around a function are made on the host, after it
    vectors = None if plan.around_function else jnp.asarray(plan.query.unit_vectors(log, policies))
    return vectors, None if plan.program is None else padded_units(plan.rows(log, step_ratios(policies[0], log)))


def compute(conformance: Any, setting: str, key: Any, arrays: Any) -> Any:
    """The algorithm as a pure JAX function of a ``(2,)`` uint32 noise key and a log's arrays."""
    plan, (vectors, units), noise = conformance.plan(setting), arrays, SeededNoise(key)
    value = None if vectors is None else noisy_sum(plan.value_mechanism, noise.stream("value"), vectors)
    return value, None if plan.program is None else run(plan.program, noise, units, batch=8)[1]
