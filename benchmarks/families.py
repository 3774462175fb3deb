"""Families of decision problems, drawn by seed, on which defaults are chosen and judged.

Every member is a finite process whose values are known exactly. A family's seeds fall into three disjoint ranges: seeds
on which defaults may be chosen, seeds on which they are judged, and seeds that nobody looks at before a release.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.coverage.domains import Paths, Process
from dprl.bounds import Bounds

CHOOSING, JUDGING, LOCKED = range(10), range(100, 110), range(200, 210)
"""Seeds of the members of each family: for choosing defaults, for judging them, and for the test of a release."""


@dataclass(frozen=True)
class Member:
    """A member of a family, with the facts that an analyst would declare about it.

    Attributes:
        process: the law. Its ``behavior`` makes the log, and its only target policy is evaluated.
        codes: ``(S, d)`` observation of each state.
        features: feature map that an analyst would choose.
        reward: bounds of a reward.
        return_range: bounds of a return, if these are known to be tighter than those that follow from ``reward``.
    """

    process: Process
    codes: np.ndarray
    features: str
    reward: tuple[float, float]
    return_range: tuple[float, float] | None = None

    @property
    def target(self) -> np.ndarray:
        """``(S, A)`` probabilities of the target policy."""
        return self.process.targets["target"]

    @property
    def on_policy(self) -> bool:
        """Whether the target policy made the log."""
        return self.target is self.process.behavior

    @property
    def ratio(self) -> float:
        """Largest importance ratio of a step."""
        return 1.0 if self.on_policy else float(np.max(self.target / self.process.behavior))

    def bounds(self, units: int) -> Bounds:
        """Return the declared bounds of a log of ``units`` people."""
        low, high = self.codes.min(axis=0), self.codes.max(axis=0)
        return Bounds(
            units=units,
            horizon=self.process.horizon,
            reward=self.reward,
            observation=tuple(zip(low.tolist(), high.tolist(), strict=True)),
            actions=self.target.shape[1],
            max_importance_ratio=self.ratio,
            return_range=self.return_range,
        )

    def draw(self, rng: np.random.Generator, units: int) -> dict[str, np.ndarray]:
        """Return a log as columns."""
        paths: Paths = self.process.draw(rng, units)
        columns = dataclasses.replace(paths, state=self.codes[paths.state]).columns()
        assert paths.ended is not None
        columns["terminated"] &= np.repeat(paths.ended, paths.length)
        del columns["person_id"]
        return columns

    def policy(self) -> Callable[[Any], np.ndarray]:
        """Return the target policy as :func:`dprl.evaluate` takes it."""
        codes, target = self.codes, self.target

        def probabilities(states: Any) -> np.ndarray:
            found, place = np.unique(np.asarray(states, np.float64), axis=0, return_inverse=True)
            nearest = [np.argmin(np.square(codes - state).sum(axis=1)) for state in found]
            return target[np.array(nearest)[place.ravel()]]

        return probabilities

    def values(self) -> np.ndarray:
        """Return ``(S,)`` the value function of the target policy without a horizon, unless that is one step."""
        p = self.process
        mean = np.sum(p.outcomes * p.rewards, axis=-1)
        reward = np.sum(self.target * mean, axis=1)
        following = np.einsum("sa,sat->st", self.target, p.following)[:, :-1]
        if p.horizon == 1:
            return reward
        return np.linalg.solve(np.eye(len(reward)) - p.discount * following, reward)

    def visits(self) -> np.ndarray:
        """Return ``(S,)`` the share of the log's rows in each state."""
        p = self.process
        following = np.einsum("sa,sat->st", p.behavior, p.following)[:, :-1]
        now, total = p.start.copy(), np.zeros(len(p.start))
        for _ in range(p.horizon):
            total += now
            now = now @ following
        return total / total.sum()

    def value(self) -> float:
        """Return the expected discounted return of the target policy up to the horizon."""
        return self.process.value("target")


def _softmax(rng: np.random.Generator, states: int, actions: int, heat: float, least: float) -> np.ndarray:
    odds = np.exp(rng.normal(size=(states, actions)) * heat)
    odds /= odds.sum(axis=1, keepdims=True)
    return least / actions + (1.0 - least) * odds


def _bernoulli(mean: np.ndarray) -> np.ndarray:
    return np.stack([1.0 - mean, mean], axis=-1)


def random_mdp(rng: np.random.Generator, off_policy: bool) -> Member:
    """Return a process without any structure (Archibald et al. 1995, "Garnet"), with dense rewards and no end."""
    S, A, branches = int(rng.integers(10, 40)), int(rng.integers(2, 5)), 4
    following = np.zeros((S, A, S + 1))
    for s in range(S):
        for a in range(A):
            following[s, a, rng.choice(S, branches, replace=False)] = rng.dirichlet(np.ones(branches))
    behavior = _softmax(rng, S, A, 0.5, 0.5)
    target = _softmax(rng, S, A, 1.5, 0.1) if off_policy else behavior
    horizon, discount = (40, 0.9) if rng.random() < 0.5 else (10, 0.7)
    return Member(
        Process(
            np.full(S, 1.0 / S), following, _bernoulli(rng.random((S, A)) ** 2), np.array([0.0, 1.0]), behavior,
            {"target": target}, horizon, discount,
        ),
        np.arange(S, dtype=float)[:, None], "tabular", (0.0, 1.0),
    )  # fmt: skip


def _walk(rng: np.random.Generator, off_policy: bool, chance: float) -> Member:
    S, A = int(rng.integers(15, 50)), 2
    following = np.zeros((S, A, S + 1))
    up = np.array([rng.uniform(0.3, 0.5), rng.uniform(0.5, 0.9)])
    for s in range(S - 1):
        following[s, :, s + 1] = up
        following[s, :, s] = 1.0 - up
    following[-1, :, S] = 1.0
    outcomes = np.zeros((S, A, 2))
    outcomes[..., 0] = 1.0
    outcomes[-1] = [1.0 - chance, chance]
    behavior = np.full((S, A), 0.5)
    target = np.tile([0.3, 0.7], (S, 1)) if off_policy else behavior
    return Member(
        Process(
            np.full(S, 1.0 / S), following, outcomes, np.array([0.0, 1.0]), behavior, {"target": target}, 4 * S, 0.99
        ),
        np.arange(S, dtype=float)[:, None], "tabular", (0.0, 1.0), (0.0, 1.0),
    )  # fmt: skip


def chain(rng: np.random.Generator, off_policy: bool) -> Member:
    """Return a chain: progress to an end that always pays."""
    return _walk(rng, off_policy, 1.0)


def rare_chain(rng: np.random.Generator, off_policy: bool) -> Member:
    """Return a chain: progress to an end that seldom pays, with a chance of .05 to .3."""
    return _walk(rng, off_policy, float(rng.uniform(0.05, 0.3)))


def boyan(rng: np.random.Generator, off_policy: bool) -> Member:
    """Return Boyan's chain (2002): every step has a cost, and a step may skip a state."""
    S, A = int(rng.integers(12, 26)), 2
    following, outcomes = np.zeros((S, A, S + 1)), np.zeros((S, A, 2))
    skip = np.array([rng.uniform(0.2, 0.5), rng.uniform(0.5, 0.8)])
    for s in range(S):
        following[s, :, s + 1] = 1.0 - skip
        following[s, :, min(s + 2, S)] += skip
        outcomes[s, :, int(s == S - 1)] = 1.0
    behavior = np.full((S, A), 0.5)
    target = np.tile([0.2, 0.8], (S, 1)) if off_policy else behavior
    return Member(
        Process(np.eye(S)[0], following, outcomes, np.array([-3.0, -2.0]), behavior, {"target": target}, S, 1.0),
        np.arange(S, dtype=float)[:, None], "tabular", (-3.0, -2.0), (-3.0 * S, 0.0),
    )  # fmt: skip


def grid(rng: np.random.Generator, off_policy: bool) -> Member:
    """Return a windy grid: each step costs one until the goal is reached."""
    rows, columns = int(rng.integers(4, 7)), int(rng.integers(5, 10))
    S, A = rows * columns, 4
    wind = rng.integers(0, 2, columns) * (np.arange(columns) > 1)
    goal = (int(rng.integers(rows)), columns - 1)
    following, codes = np.zeros((S, A, S + 1)), np.array([(r, c) for r in range(rows) for c in range(columns)], float)
    moves = [(-1, 0), (1, 0), (0, -1), (0, 1)]
    good = np.zeros(S, int)
    for s, (r, c) in enumerate(codes.astype(int)):
        for a, (dr, dc) in enumerate(moves):
            for blown, p in ((0, 0.5), (int(wind[c]), 0.5)):
                to = (min(max(r + dr - blown, 0), rows - 1), min(max(c + dc, 0), columns - 1))
                following[s, a, S if to == goal else to[0] * columns + to[1]] += p
        good[s] = 3 if c < columns - 1 else (1 if goal[0] > r else 0)
    one = np.eye(A)[good]
    behavior = 0.5 * one + 0.5 / A
    target = 0.8 * one + 0.2 / A if off_policy else behavior
    start = np.full(S, 1.0 / S)
    outcomes = np.ones((S, A, 1))
    return Member(
        Process(start, following, outcomes, np.array([-1.0]), behavior, {"target": target}, 50, 0.95), codes, "tabular",
        (-1.0, -1.0), (-20.0, 0.0),
    )  # fmt: skip


def clinic(rng: np.random.Generator, off_policy: bool) -> Member:
    """Return a clinic: four vital signs of three levels, two treatments on or off. The state at discharge pays."""
    levels, signs, A = 3, 4, 4
    codes = np.array(np.unravel_index(np.arange(2 * levels**signs), (2,) + (levels,) * signs)).T.astype(float)
    S, half = len(codes), len(codes) // 2
    following, outcomes = np.zeros((S, A, S + 1)), np.zeros((S, A, 3))
    outcomes[..., 1] = 1.0
    drift, effect = rng.uniform(-0.2, 0.2, signs), rng.normal(0.0, 0.2, (2, signs))
    for s, code in enumerate(codes.astype(int)):
        signs_now = code[1:]
        badness = np.abs(signs_now - 1).sum()
        if code[0]:
            good = np.clip(0.95 - 0.22 * badness, 0.02, 0.98)
            outcomes[s], following[s, :, S] = [1.0 - good, 0.0, good], 1.0
            continue
        for a in range(A):
            push = drift + (a & 1) * effect[0] + (a >> 1) * effect[1]
            end = 0.2 if badness == 0 or badness >= 3 else 0.05
            joint = np.ones(1)
            for i in range(signs):
                law = np.zeros(levels)
                back = 0.1 * (signs_now[i] - 1)
                up, down = np.clip(0.15 + push[i] - back, 0.01, 0.5), np.clip(0.15 - push[i] + back, 0.01, 0.5)
                law[min(signs_now[i] + 1, 2)] += up
                law[max(signs_now[i] - 1, 0)] += down
                law[signs_now[i]] += 1.0 - up - down
                joint = np.multiply.outer(joint, law)
            following[s, a, :half] = (1.0 - end) * joint.ravel()
            following[s, a, half:S] = end * joint.ravel()
    behavior = _softmax(rng, S, A, 0.4, 0.4)
    target = _softmax(rng, S, A, 1.2, 0.1) if off_policy else behavior
    start = np.concatenate([np.full(half, 1.0 / half), np.zeros(half)])
    return Member(
        Process(start, following, outcomes, np.array([-1.0, 0.0, 1.0]), behavior, {"target": target}, 30, 0.99),
        codes, "tabular", (-1.0, 1.0), (-1.0, 1.0),
    )  # fmt: skip


def inventory(rng: np.random.Generator, off_policy: bool) -> Member:
    """Return an inventory with stock, orders and random demand: dense rewards of many sizes, and no end."""
    most, A = int(rng.integers(10, 25)), 4
    S, orders = most + 1, np.linspace(0, most // 2, A).astype(int)
    demand = rng.dirichlet(np.ones(most // 2 + 1) * 2.0)
    price, cost, hold = 1.0, float(rng.uniform(0.3, 0.6)), float(rng.uniform(0.01, 0.1))
    following, mean = np.zeros((S, A, S + 1)), np.zeros((S, A))
    for s in range(S):
        for a, order in enumerate(orders):
            stock = min(s + order, most)
            for d, p in enumerate(demand):
                sold = min(stock, d)
                following[s, a, stock - sold] += p
                mean[s, a] += p * (price * sold - cost * (stock - s) - hold * (stock - sold))
    scale = np.abs(mean).max()
    outcomes = _bernoulli((mean / scale + 1.0) / 2.0)
    behavior = np.full((S, A), 1.0 / A)
    target = np.tile(rng.dirichlet(np.ones(A)), (S, 1)) if off_policy else behavior
    return Member(
        Process(np.full(S, 1.0 / S), following, outcomes, np.array([-1.0, 1.0]), behavior, {"target": target}, 40, 0.9),
        np.arange(S, dtype=float)[:, None], "tabular", (-1.0, 1.0),
    )  # fmt: skip


def bandit(rng: np.random.Generator, off_policy: bool) -> Member:
    """Return one decision about people with several covariates."""
    d, A, S = int(rng.integers(3, 10)), int(rng.integers(2, 5)), 400
    codes = rng.uniform(-1.0, 1.0, (S, d))
    linear = codes @ rng.normal(0.0, 1.0, (d, A)) / np.sqrt(d)
    mean = 1.0 / (1.0 + np.exp(-1.5 * linear - rng.normal(0.0, 0.5, A)))
    following = np.zeros((S, A, S + 1))
    following[..., S] = 1.0
    behavior = _softmax(rng, S, A, 0.3, 0.5)
    target = np.tile(np.eye(A)[0] * 0.9 + 0.1 / A, (S, 1)) if off_policy else behavior
    return Member(
        Process(
            np.full(S, 1.0 / S), following, _bernoulli(mean), np.array([0.0, 1.0]), behavior, {"target": target}, 1
        ),
        codes, "columns", (0.0, 1.0),
    )  # fmt: skip


FAMILIES: Mapping[str, Callable[[np.random.Generator, bool], Member]] = {
    "random-mdp": random_mdp,
    "chain": chain,
    "rare-chain": rare_chain,
    "boyan": boyan,
    "grid": grid,
    "clinic": clinic,
    "inventory": inventory,
    "bandit": bandit,
}


def member(family: str, seed: int, off_policy: bool) -> Member:
    """Return the family's member for a seed."""
    number = list(FAMILIES).index(family)
    return FAMILIES[family](np.random.default_rng([number, seed, off_policy]), off_policy)
