"""One meta-gradient of a protector, the gradient of its loss by its weights, the same for all candidates.

A coordinate-wise LSTM of two layers of 20 units, shared by 785 coordinates, turns the clipped and noisy mean gradient
of a logistic regression into updates, T times. The meta-gradient is that of the last loss by the LSTM's weights,
through all steps. The equations are those of ``dprl.protectors.projector``. Needs only NumPy.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

RECORDS, DIMENSION, HIDDEN, INPUTS = 100, 785, 20, 6
STEP_SIZE, CLIP, NOISE, FREE = 0.5, 1.0, 1e-3, 0.05
STEPS = 1000
TABLE = (200, 400, 600, 1000, 1200, 1600)  # numbers of unrolled steps in the paper's Table 1
BATCHES = (40, 20)
CHECKED = 60  # steps of the comparison of gradients, without noise
TOLERANCE = 1e-4  # of the largest coordinate of the gradient


class Problem(NamedTuple):
    x: np.ndarray  # (m, d) float32 of norm 1, the last one a constant
    y: np.ndarray  # (m,) float32, 0 or 1
    weights: dict[str, np.ndarray]  # by the protector's names


def make() -> Problem:
    rng = np.random.default_rng(5)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    x = np.concatenate([normal(RECORDS, DIMENSION - 1), np.ones((RECORDS, 1), np.float32)], axis=1)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = (x @ normal(DIMENSION) > 0).astype(np.float32)
    weights, width = {}, INPUTS
    for layer in range(2):
        weights[f"projector.{layer}.w"] = normal(4 * HIDDEN, width + HIDDEN) / np.float32((width + HIDDEN) ** 0.5)
        weights[f"projector.{layer}.b"] = np.repeat(np.array([0.0, 1.0, 0.0, 0.0], np.float32), HIDDEN)
        width = HIDDEN
    # an output that is not zero, so that every weight matters
    weights["projector.out.w"] = np.float32(0.02) * normal(2, HIDDEN)
    weights["projector.out.b"] = np.zeros(2, np.float32)
    return Problem(x, y, weights)


def error(found: dict[str, Any], wanted: dict[str, Any]) -> float:
    """Return the largest difference of two gradients, relative to the largest coordinate of ``wanted``."""
    scale = max(float(np.abs(v).max()) for v in wanted.values())
    return max(float(np.abs(np.asarray(found[k]) - v).max()) for k, v in wanted.items()) / scale


def peak_bytes(call: Callable[[], Any]) -> int:
    """Return by how many bytes this process grows at most while ``call`` runs, measured every millisecond."""
    most, done = [resident()], threading.Event()

    def watch() -> None:
        while not done.is_set():
            most.append(max(most.pop(), resident()))
            time.sleep(1e-3)

    before, watcher = resident(), threading.Thread(target=watch)
    watcher.start()
    try:
        call()
    finally:
        done.set()
        watcher.join()
    return most[0] - before


def resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096
