"""Pong on-policy in pieces of 200 decisions, so that a log has many trajectories.

Policy and values are those of ``pong``.

Pieces are simulated once, which takes some minutes, and kept in the cache folder. A log is drawn from them without
replacement. Therefore logs of several trials overlap, and their spread is below that of fresh logs.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import numpy as np

from dprl.bounds import Bounds
from dprl.data.trajectories import Trajectories
from dprl.environments.atari import DISCOUNT, HORIZON, atari_log
from dprl.errors import DprlError
from dprl_papers.domains import pong
from dprl_papers.harness.domain import MOMENT_SEED, Domain, cached, from_rollout
from dprl_papers.harness.simulated import stored_truth

POOL = 2048
_POLICY = pong.load_policy()


@functools.cache
def _pool() -> dict[str, np.ndarray]:
    """Return ``POOL`` pieces one after another, with observations as bytes, and the row at which each piece begins."""

    def make() -> dict[str, np.ndarray]:
        log = atari_log(_POLICY, 11, POOL, horizon=HORIZON)
        small = {name: log[name].astype(np.uint8) for name in ("observation", "next_observation")}
        kept = {name: log[name] for name in ("action", "reward", "behavior_prob", "terminated")}
        return {**small, **kept, "first": np.flatnonzero(log["t"] == 0)}

    return cached("pong-pool", f"{POOL} {HORIZON}", make, (pong.ASSETS, Path(pong.__file__)))


def simulate(bounds: Bounds, seed: int) -> Trajectories:
    """Return a log of ``bounds.units`` pieces, drawn from the pool; logs for the moments have fresh pieces."""
    units = bounds.units
    if seed >= MOMENT_SEED:
        return pong.simulate(_POLICY, bounds, seed)
    if units > POOL:
        raise DprlError(f"pong_pieces: a log has at most {POOL} trajectories, as many as are simulated beforehand.")
    pool = dict(_pool())
    ends = np.append(pool.pop("first"), len(pool["reward"]))
    chosen = np.random.default_rng(seed).choice(POOL, units, replace=False)
    rows = np.concatenate([np.arange(int(ends[i]), int(ends[i + 1])) for i in chosen])
    columns = {name: kept[rows] for name, kept in pool.items()}
    columns["episode_id"] = np.repeat(np.arange(units), np.diff(ends)[chosen])
    return from_rollout(columns, bounds)


DOMAIN = Domain(
    name="pong_pieces",
    label="Pong, pieces of games",
    discount=DISCOUNT,
    features="columns",
    network="mlp:50",
    extra="atari",
    public=replace(pong.PUBLIC, horizon=HORIZON),
    target_policy=_POLICY,
    behavior=_POLICY,
    simulate=simulate,
    true_values=lambda: stored_truth(pong.ASSETS),
    mean_reward=pong.mean_reward(),
    moment_units=1000,
    depends_on=(pong.ASSETS, Path(pong.__file__)),
)
