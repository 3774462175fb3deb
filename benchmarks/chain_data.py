"""Logs of the 40-state chain for the GPOPE benchmark, the same for all candidates. Needs only NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

STATES, TRAJECTORIES, TRIALS = 39, 200, 100  # non-terminal states; trajectories of each trial's log
# With these numbers the clip binds in about half of the updates and the iteration is stable. With a step of 0.5 and a
# clip of 0.1 it is unstable, and rounding alone makes the candidates differ by 1e-3 of the largest weight.
DISCOUNT, CLIP, STEP_SIZE, NOISE_MULTIPLIER = 0.99, 0.01, 0.05, 1.5
CHECK_STEPS = 400


def flat_logs(rng: np.random.Generator, trajectories: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return source and target (-1 at the end) of every transition in order, and the offsets of the trajectories."""
    start = rng.integers(0, STATES, trajectories)
    state = np.arange(STATES)
    stays = (rng.geometric(0.5, (trajectories, STATES)) - 1) * (state >= start[:, None])
    visits = stays + (state >= start[:, None])  # all stays, and the step to the next state
    counts = visits.ravel()
    source = np.repeat(np.tile(state, trajectories), counts)
    target = source.copy()
    last = np.cumsum(counts)[counts > 0] - 1  # the last visit to a state leaves it
    target[last] += 1
    target[target == STATES] = -1
    return source, target, np.concatenate([[0], np.cumsum(visits.sum(axis=1))])


def make(path: Path) -> None:
    """Write every trial's log as weights over the unique transitions, and the trajectories drawn for the check."""
    rng = np.random.default_rng(7)
    table = np.eye(STATES, dtype=np.float32) * np.float32(np.sqrt(STATES))
    pairs = np.array([(s, s) for s in range(STATES)] + [(s, s + 1 if s < STATES - 1 else -1) for s in range(STATES)])
    slot = np.where(np.arange(2 * STATES) >= STATES, 1, 0)
    ends = pairs[:, 1] < 0
    following = np.where(ends[:, None], np.float32(0.0), table[pairs[:, 1]])
    # rewards in public units: the value range [0, 1] is mapped to [-1, 1]
    reward = (ends - 0.5 * (1.0 - DISCOUNT * ~ends)) / 0.5
    weight = np.zeros((TRIALS, TRAJECTORIES, len(pairs)), dtype=np.float32)
    first: dict[str, Any] = {}
    for trial in range(TRIALS):
        source, target, offsets = flat_logs(rng, TRAJECTORIES)
        lengths = np.diff(offsets)
        unit = np.repeat(np.arange(TRAJECTORIES), lengths)
        k = source + STATES * (target != source)
        flat = np.bincount(unit * len(pairs) + k, minlength=TRAJECTORIES * len(pairs))
        weight[trial] = flat.reshape(TRAJECTORIES, -1) / lengths[:, None]
        if trial == 0:
            first = {"rows": k, "offsets": offsets}
    assert (slot[pairs[:, 0] + STATES * (pairs[:, 1] != pairs[:, 0])] == slot).all()
    np.savez(
        path,
        table=table,
        pairs=pairs,
        phi=table[pairs[:, 0]],
        delta_phi=(table[pairs[:, 0]] - np.float32(DISCOUNT) * following).astype(np.float32),
        reward=reward.astype(np.float32),
        weight=weight,
        weight_reward=(weight * reward).astype(np.float32),
        chosen=rng.integers(0, TRAJECTORIES, (CHECK_STEPS, TRIALS)),
        **first,
    )


def clip_norm() -> float:
    """Return the L2 clip norm in feature units, as :meth:`dprl.evaluation.gpope.GPOPE.clip` computes it."""
    return CLIP * float(np.sqrt(STATES))
