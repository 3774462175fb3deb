"""A curator's look at a log. Everything here is private: it is printed for the curator and stored nowhere."""

from __future__ import annotations

from typing import Any

import numpy as np

from dprl.data.prepared import RawSource, count_unread
from dprl.data.readers import raw_cells, read_log
from dprl.data.trajectories import count_defects
from dprl.data.transitions import TRANSITION, count_defects_of_rows


def describe_log(source: Any, bounds: Any, unit: str | None, person: str | None) -> dict[str, Any]:
    """Counts and ranges that help a curator to choose public bounds and to mend a log. NOT private."""
    log = read_log(source, bounds=bounds, unit=unit, person=person)
    raw: dict[str, np.ndarray] = {}
    trajectories = log.load(inspect=raw.update)
    unread = {}
    if isinstance(log.source, RawSource):
        unread = count_unread(raw_cells(log.source), log.source.preparation)
    by_row, reasons = log.unit == TRANSITION, {}
    if "episode" in raw:
        reasons = count_defects_of_rows(raw, log.bounds) if by_row else count_defects(raw, log.bounds, log.unit)
    identified = (raw["episode"] >= 0) & (raw["person"] >= 0) if reasons else np.ones(0, dtype=bool)
    lengths = trajectories.lengths()
    some = len(trajectories.reward) > 0

    def over(values: np.ndarray, how: Any) -> float | None:
        return float(how(values)) if some else None

    known = log.bounds
    counted = "transitions" if by_row else "trajectories"
    # nothing tells which rows follow one another where each stands for itself
    of_trajectories = {
        "rows_without_an_identifier": int((~identified).sum()),
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
        "reward_least": over(trajectories.reward, np.min),
        "reward_most": over(trajectories.reward, np.max),
        "reward_mean": over(trajectories.reward, np.mean),
        "rewards_at_a_bound": int(np.isin(trajectories.reward, known.reward).sum()),
        "behavior_probability_least": over(trajectories.behavior_prob, np.min),
        "actions_unknown": int((trajectories.action < 0).sum()) if known.actions is not None else 0,
        "next_states_unknown": int((~trajectories.has_next & ~trajectories.terminated).sum()),
    }
