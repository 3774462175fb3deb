"""A curator's look at a log. Every result is private: it is printed for the curator and stored nowhere."""

from __future__ import annotations

from typing import Any

import numpy as np

from dprl.bounds import Bounds
from dprl.data.readers import read_log
from dprl.data.schema import OpenedLog
from dprl.data.table_to_log import count_nameless, count_unread
from dprl.data.trajectories import TRANSITION, count_defects


def describe_log(
    source: Any, bounds: Any, unit: str | None, person: str | None, behavior_policy: Any = None
) -> dict[str, Any]:
    """Return counts and ranges that help a curator to choose public bounds and to mend a log. NOT private.

    Statistics of rewards are about the rows that have a reward, clamped to its bounds. The behaviour policy is never
    called.
    """
    log = read_log(source, bounds=bounds, unit=unit, person=person, behavior_policy=behavior_policy)
    raw: dict[str, np.ndarray] = {}
    trajectories = log.load(inspect=raw.update)
    unread, nameless, made = {}, 0, log.preparation
    if made is not None and isinstance(log.source, OpenedLog) and log.source.raw is not None:
        table = log.source.raw.rows(made.columns())
        unread, nameless = count_unread(table, made), count_nameless(table, made)
    by_row, reasons = log.unit == TRANSITION, {}
    if "episode" in raw:
        reasons = count_defects(raw, log.bounds, log.unit)
        identified = (raw["episode"] >= 0) & (raw["person"] >= 0)
    else:  # the source was Trajectories, which hold only identified rows
        identified = np.ones(len(raw["reward"]), dtype=bool)
    lengths, known = trajectories.lengths(), log.bounds
    rewards = raw["reward"][identified]
    seen = np.isfinite(rewards)
    rewards = np.clip(np.sort(rewards[seen]), *known.reward)  # sorted: the mean is the same in any order of rows
    logged = "episode" not in raw or "behavior_prob" in log.schema.scalars

    def over(values: np.ndarray, how: Any) -> float | None:
        return float(how(values)) if len(values) else None

    counted, lost = "transitions" if by_row else "trajectories", {}
    if trajectories.stays is not None:
        lost = {f"{counted}_lost": len(np.unique(trajectories.episode_of()[trajectories.stays == 0.0]))}
    # where each row stands for itself, nothing tells which rows follow one another
    of_trajectories = {
        "rows_without_an_identifier": int((~identified).sum()) + nameless,
        "longest_trajectory": int(lengths.max(initial=0)),
        "horizon_declared": known.horizon,
        "mean_trajectory": over(lengths, np.mean),
    }
    return {
        "transitions": len(trajectories.reward),
        counted: trajectories.episodes,
        "units": trajectories.units,
        "units_declared": known.units,
        f"{counted}_that_contribute": int(trajectories.valid.sum()),
        f"{counted}_that_contribute_nothing": int((~trajectories.valid).sum()),
        **{f"because_of_{reason}": count for reason, count in reasons.items()},
        **{f"cells_not_read_in {column}": count for column, (count, _) in unread.items()},
        **{f"cells_empty_in {column}": empty for column, (_, empty) in unread.items()},
        **({} if by_row else of_trajectories),
        **lost,
        "reward_least": over(rewards, np.min),
        "reward_most": over(rewards, np.max),
        "reward_mean": over(rewards, np.mean),
        "rewards_at_a_bound": int(np.isin(rewards, known.reward).sum()),
        "rewards_missing": int((~seen).sum()),
        **_outside(raw["observation"], identified, known),
        **({"behavior_probability_least": over(trajectories.behavior_prob, np.min)} if logged else {}),
        "actions_unknown": int((trajectories.action < 0).sum()) if known.actions is not None else 0,
        "next_states_unknown": int((~trajectories.has_next & ~trajectories.terminated).sum()),
    }


def _outside(observation: np.ndarray, identified: np.ndarray, bounds: Bounds) -> dict[str, int]:
    """Count the rows with an observation outside of its bounds, in total and for each component that has any."""
    low, high = np.array(bounds.observation).T
    values = observation[:, : len(low)]
    outside = ((values < low) | (values > high)) & identified[:, None]
    names = bounds.observation_names or [f"observation_{i}" for i in range(len(low))]
    found = {f"outside_bounds_in {name}": int(n) for name, n in zip(names, outside.sum(axis=0), strict=True) if n}
    return {"observations_outside_bounds": int(outside.any(axis=1).sum()), **found}
