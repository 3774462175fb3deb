"""Results that paper 002's reproduction keeps: trained protectors and measured runs, by their seeds.

All data are simulated, or a public table. Noise is drawn from public seeds, in floating point instead of on the grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from dprl.protectors.meta_training import Training, train
from dprl.protectors.projector import Weights
from dprl.protectors.simulation import Simulation
from dprl_papers.harness.programmed import Run
from dprl_papers.harness.versions import code_of, libraries

DELTA = 1e-8
"""Of every figure but those of policy evaluation."""
RUNS = 20
"""Most runs of a point but figure 8's."""


@dataclass(frozen=True)
class Learned:
    """A trained protector's weights, and its training log."""

    weights: Weights
    log: list[dict[str, float]]


def learned(
    run: Run, simulation: Simulation, training: Training, begin: Weights | None = None, after: str = ""
) -> Learned:
    """Return a protector that is trained once for all figures.

    Training starts from the weights ``begin``, which ``after`` names in the key of the result.
    """
    modules = (type(simulation.family).__module__, "dprl.protectors.meta_training")
    key = {
        "protector": {"family": simulation.family.name, "simulation": simulation},
        "training": training,
        "after": after,
        "code": [code_of(name) for name in modules],
        "libraries": libraries(),
    }

    def compute() -> dict[str, Any]:
        found = train(simulation, training, begin)
        return {"weights": {name: np.asarray(w) for name, w in found.weights.items()}, "log": found.log}

    kept = run.store.kept(key, compute)
    return Learned({name: jnp.asarray(w, jnp.float32) for name, w in kept["weights"].items()}, kept["log"])
