"""One private step on prompts of a language model, the same for all candidates. Needs only NumPy.

The model is a decoder of 3.2 million weights: four blocks, each layer after a normalisation, four heads of attention,
ReLU. A user is a prompt with a group of answers, each with a weight (its reward less the group's mean). A user's vector
is the gradient of the weighted log-probabilities, clipped to C. A step is the noisy sum over the users.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import SCRATCH

USERS, GROUP, LENGTH, ANSWER = 16, 4, 32, 16
SIZES = {"symbols": 64, "length": LENGTH - 1, "width": 256, "heads": 4, "blocks": 4, "inner": 1024}
CLIP, NOISE_MULTIPLIER, STEP_SIZE = 1.0, 4.22, 1e-3
SCALE = 0.0074
"""Scale of the answers' weights, with which about half of the users are clipped."""
TOLERANCE = 1e-4  # of the largest coordinate of the sum without noise


def shapes() -> list[tuple[int, ...]]:
    """Return the shapes of the weights in the order of use; dense layers are (in, out)."""
    k, inner, symbols = SIZES["width"], SIZES["inner"], SIZES["symbols"]
    dense = lambda i, o: [(i, o), (o,)]  # noqa: E731
    block = [(k,), (k,), *dense(k, 3 * k), *dense(k, k), (k,), (k,), *dense(k, inner), *dense(inner, k)]
    return [(symbols, k), (SIZES["length"], k), *SIZES["blocks"] * block, (k,), (k,), *dense(k, symbols)]


def make() -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Return random weights of the model, tokens ``(m, G, L)``, and weights of the answers ``(m, G)``."""
    rng = np.random.default_rng(7)
    drawn = [rng.standard_normal(s).astype(np.float32) for s in shapes()]
    theta = [w / np.float32(s[0] ** 0.5) if len(s) == 2 else 1.0 + w / 10 for w, s in zip(drawn, shapes(), strict=True)]
    tokens = rng.integers(0, SIZES["symbols"], (USERS, GROUP, LENGTH))
    weights = rng.standard_normal((USERS, GROUP)) * np.exp(rng.standard_normal((USERS, 1))) * SCALE
    return theta, tokens, (weights - weights.mean(axis=1, keepdims=True)).astype(np.float32)


def path_of(name: str) -> Path:
    """Return the path at which a candidate's clipped sum without noise is kept for the comparison."""
    SCRATCH.mkdir(exist_ok=True)
    return SCRATCH / f"language-{name.replace(' ', '-').replace(',', '')}.npy"


def peak_of(call: Callable[[], Any]) -> int:
    """Return by how many bytes the memory of this process grows at most during a call. Linux only."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak begins anew
    before = _status("VmRSS")
    call()
    return _status("VmHWM") - before


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))
