"""Faults that one person or one reward shows, where neighbours are released through the front door."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np

from dprl.data import trajectories
from dprl.environments import bandit, people
from dprl.environments.bandit import Cells
from dprl.evaluation import best_linear_projection, importance_sampling, subgroups
from dprl.learning import q_learner
from dprl.mechanisms.action_coins import BatchCoins

from .faults_with_people import in_order
from .planting import Planting, fault


@fault(
    "a log is cut at the declared number of people",
    "neighbours in logs of one decision",
    (importance_sampling.ImportanceQuery, "unit_vectors"),
)
def _(original: Any, query: Any, *more: Any) -> Any:
    return original(query, *more)[: query.bounds.units]


@fault(
    "what a person adds is scaled by the largest of the log",
    "neighbours in logs",
    (importance_sampling.ImportanceQuery, "unit_vectors"),
)
def _(original: Any, *asked: Any) -> Any:
    vectors = original(*asked)
    return vectors / max(np.abs(vectors).max(initial=0.0), 1e-3)


@fault("a missing value becomes the mean of the log", "neighbours with missing states", (trajectories, "_states"))
def _(original: Any, columns: Any, name: str, rows: Any, bounds: Any) -> Any:
    seen = columns[name][rows]
    return np.where(np.isnan(seen), np.nanmean(seen), seen)


@fault("subgroups are cut at shares of the people in the log", "neighbours in subgroups", (subgroups, "first_states"))
def _(original: Any, log: Any) -> Any:
    states = original(log)
    return states - states.mean(axis=0) + 1.0 if len(states) else states


@fault("covariates go by places in the log", "neighbours in projections", (best_linear_projection, "first_states"))
def _(original: Any, log: Any) -> Any:
    states = original(log)
    return 0.0 * states + 2.0 * (np.arange(len(states)) % 2)[:, None]


@fault("sampled people are those of the first places", "neighbours among sampled people", (bandit, "_in_places"))
def _(original: Any, rows: Any, facts: Any) -> Any:
    return Cells(*(cells[:12] for cells in original(rows, facts)))


@fault("who answers nothing has no place", "neighbours in places of a log", (bandit, "_in_places"))
def _(original: Any, rows: Any, facts: Any) -> Any:
    cells = original(rows, facts)
    return Cells(*(each[cells.length > 0] for each in cells))


fault("all who arrive draw from one generator", "neighbours among those who arrive")(
    lambda planting: planting.replace(BatchCoins, "words_at", in_order)
)


@fault("a name of another type that is not a number is a new one", "neighbours without names")
def _(planting: Planting) -> None:
    strangers = count()

    def new(original: Any) -> Any:
        return lambda value: original(value) if value is None else original(value) or f"stranger {next(strangers)}"

    planting.replace(people, "name_of", new)


def kept_by_environment(original: Any) -> Any:
    """As a compiled run keeps an environment that is a constant of its program."""
    kept = dict[Any, Any]()

    def faulty(shape: Any, source: Any, *more: Any) -> Any:
        if source.environment not in kept:
            kept[source.environment] = original(shape, source, *more)
        return kept[source.environment]

    return faulty


fault(
    "an environment is a constant of what is kept, and another that equals it finds its rewards",
    "neighbours in environments that compare equal",
)(lambda planting: planting.replace(q_learner, "run_on_host", kept_by_environment))
