"""Paper 002's table 1: time and memory of one meta-gradient over the number of unrolled steps.

A coordinate-wise LSTM of two layers of 20 on 785 coordinates (C.4 has a network of 4 layers on a TITAN X; here it is a
processor's single thread). Memory is what the compiled program reserves for itself. Beside PyTorch: benchmarks/.
"""

from __future__ import annotations

import dataclasses
import math
import time

import jax
import jax.numpy as jnp

from dprl.protectors.projector import Architecture, init_weights
from dprl.protectors.simulation import Simulation, unroll
from dprl_papers.records.losses import Records
from dprl_papers.records.tasks import Classification

PAPER = {
    200: (474, 282, 250, 19, 21, 21),
    400: (730, 282, 250, 41, 90, 89),
    600: (1242, 282, 250, 57, 102, 173),
    1000: (1843, 282, 250, 164, 188, 190),
    1200: (2066, 282, 250, 172, 248, 266),
    1600: (2266, 282, 250, 418, 357, 350),
}
"""Memory in MB and time of an epoch in seconds: full, batches of 40, of 20."""
COORDINATES = 785


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Bare(Classification):
    """Logistic regression of the paper's number of parameters, on a table of noise: what is computed takes as long."""

    @property
    def features(self) -> int:
        return COORDINATES

    def sample(self, key: jax.Array) -> Records:
        x = jax.random.normal(key, (self.records, COORDINATES), jnp.float32) / math.sqrt(COORDINATES)
        return Records(x, jnp.where(x[:, 0] > 0.0, 1.0, -1.0).astype(jnp.float32))


def cost(steps: int, segment: int | None, seed: int, runs: bool) -> dict[str, float]:
    """Return ``megabytes``, and ``seconds`` where it ``runs``: of one exact meta-gradient through ``steps`` steps."""
    family = _Bare(records=16, steps=steps, units=1000, walk=None)
    architecture = Architecture(scheduler="public")
    simulation = Simulation(family=family, architecture=architecture, std=0.1, segment=segment)
    weights, key = init_weights(architecture, jax.random.key(seed)), jax.random.key(seed + 1)
    task = family.sample(key)
    gradient = jax.jit(jax.grad(lambda w: unroll(simulation, w, task, key).final)).lower(weights).compile()
    analysis = gradient.memory_analysis()
    found = {"megabytes": analysis.temp_size_in_bytes / 1e6 if analysis is not None else 0.0}
    if runs:
        began = time.perf_counter()
        jax.block_until_ready(gradient(weights))
        found["seconds"] = time.perf_counter() - began
    return found
