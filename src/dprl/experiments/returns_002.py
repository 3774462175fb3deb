"""What paper 002's reproduction keeps: protectors that were trained and runs that were measured, by their seeds.

Everything is simulated, or a public table; noise is drawn from public seeds, in floating point instead of on the grid.
"""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from dprl.experiments.store import Store, address
from dprl.experiments.versions import fingerprint, libraries, module_file
from dprl.protectors.meta_training import Training, train
from dprl.protectors.projector import Weights
from dprl.protectors.simulation import Simulation

DELTA = 1e-8
"""Of every figure but those of policy evaluation."""

_locks: dict[Any, threading.Lock] = {}
_lock = threading.Lock()


@dataclass(frozen=True)
class Learned:
    """A trained protector's weights, and its training log."""

    weights: Weights
    log: list[dict[str, float]]


@dataclass
class Points:
    """Results kept in a store; two threads that want the same one compute it once.

    Attributes:
        store: of the reproduction.
        seed: the first run's.
    """

    store: Store
    seed: int

    def kept(
        self, about: Mapping[str, Any], compute: Callable[[], dict[str, Any]], modules: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        """What ``compute`` gives, or gave before with the same code: of its module, or of ``modules``. Plain data."""
        files = [module_file(name) for name in modules or (compute.__module__,)]
        code = {"code": fingerprint([f for f in files if f]), "libraries": libraries(), "seed": self.seed}
        # as the store reads it: lists instead of tuples
        key = json.loads(json.dumps({**about, **code}))
        with _lock:
            lock = _locks.setdefault((str(self.store.folder), address(key)), threading.Lock())
        with lock:
            found = self.store.read(key)
            if found is None:
                found = json.loads(json.dumps(compute()))
                self.store.save(key, found)
        return found

    def values(self, about: Mapping[str, Any], compute: Callable[[], Any]) -> np.ndarray:
        """The array that ``compute`` gives, or gave before."""

        def plain() -> dict[str, Any]:
            return {"values": np.asarray(compute(), np.float64).tolist()}

        return np.array(self.kept(about, plain, (compute.__module__,))["values"])

    def learned(
        self, simulation: Simulation, training: Training, begin: Weights | None = None, after: str = ""
    ) -> Learned:
        """A protector, trained once for all figures; ``begin`` are weights to start from, which ``after`` names."""
        about = {"protector": identity(simulation), "training": dataclasses.asdict(training), "after": after}

        def compute() -> dict[str, Any]:
            found = train(simulation, training, begin)
            weights = {name: np.asarray(w).tolist() for name, w in found.weights.items()}
            return {"weights": weights, "log": found.log}

        family = type(simulation.family).__module__
        kept = self.kept(about, compute, (family, "dprl.protectors.meta_training"))
        return Learned({name: jnp.asarray(w, jnp.float32) for name, w in kept["weights"].items()}, kept["log"])


def identity(simulation: Simulation) -> dict[str, Any]:
    """A simulation as plain data."""
    found = dataclasses.asdict(simulation)
    return found | {"family": {"name": simulation.family.name, **dataclasses.asdict(simulation.family)}}
