"""Policies of several steps learned from a log: how much of the improvement found without noise is left.

``python -m benchmarks learn_many_steps`` has two kinds of problems: treatment regimes of two stages with two
measurements, 5,000 people; and random processes of twenty states, three actions and ten steps, 20,000 people. It
reports the true value of each release's policy, as a share of the way from a baseline to the optimum. The baseline is
the best fixed regime, or the behaviour policy of a random process. It reports the same for the same learner without
noise on the same people, and for fitted Q iteration in NumPy without noise or pessimism; and whether the interval holds
the value. Constants were chosen on other seeds: ``python -m benchmarks.learn_many_steps``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from scipy.stats import norm

import dprl
from benchmarks.harness import goal, pin, table
from dprl.engine.program import Stage
from dprl.evaluation.learned_policy import plan_of_learned
from dprl.mechanisms.noise import SeededNoise
from dprl.policies.greedy import Basis
from dprl.protocols import NO_JOURNAL
from dprl_papers.paper_beyond.processes import draw_per_row

EPSILONS, SMALL, DELTA = (1.0, 4.0), (0.05, 0.1, 0.3), 1e-5
LEARNERS = ("recommended", "advantage", "fitted-q", "rules")
CHOOSING, JUDGING = range(10), range(100, 200)
GOALS = (80.0, 95.0)
"""Goal at each epsilon, in percent of the improvement without noise."""
_DRAWS = 20_000


@dataclass(frozen=True)
class Regime:
    """A regime of two decisions with two actions each, on a severity that changes and a marker that does not.

    Rewards are 0 or 1/2. In the first stage the treatment pays where the marker is above a threshold, and it moves the
    severity. In the second stage it pays where the severity is above another threshold.
    """

    seed: int

    people = 5_000
    actions = 2
    bounds = dprl.Bounds(
        units=5_000, horizon=2, reward=(0.0, 0.5), observation=((0.0, 1.0), (-1.0, 1.0), (-1.0, 1.0)), actions=2,
        max_importance_ratio=2.0, observation_names=("stage", "severity", "marker"),
    )  # fmt: skip

    @cached_property
    def law(self) -> np.ndarray:
        """Gain and threshold of the second stage, those of the first, and how far the first one moves the severity."""
        rng = np.random.default_rng([self.seed, 0])
        return rng.uniform([0.15, -0.3, 0.1, -0.3, 0.1], [0.4, 0.3, 0.3, 0.3, 0.4])

    def means(self, stage: int, states: np.ndarray, action: np.ndarray) -> np.ndarray:
        """Return expected rewards."""
        gain, cut, first, at, _ = self.law
        if stage == 0:
            return 0.5 * np.clip(0.5 + first * (2 * action - 1) * (states[:, 2] - at), 0.0, 1.0)
        return 0.5 * np.clip(0.5 - 0.2 * states[:, 1] + gain * (2 * action - 1) * (states[:, 1] - cut), 0.0, 1.0)

    def second(self, first: np.ndarray, action: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Return states of the second stage."""
        severity = np.clip(0.6 * first[:, 1] + 0.5 * self.law[4] * (2 * action - 1) + noise, -1.0, 1.0)
        return np.column_stack([np.ones(len(first)), severity, first[:, 2]])

    def start(self, rng: np.random.Generator, people: int) -> np.ndarray:
        """Return states of the first stage."""
        return np.column_stack([np.zeros(people), rng.uniform(-1.0, 1.0, (people, 2))])

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Return a log in which both actions are equally likely."""
        n, first = self.people, self.start(rng, self.people)
        action = rng.integers(0, 2, (n, 2))
        states = np.stack([first, self.second(first, action[:, 0], rng.normal(0.0, 0.3, n))], axis=1)
        mean = np.column_stack([self.means(t, states[:, t], action[:, t]) for t in range(2)])
        return _columns(states, action, 0.5 * (rng.random((n, 2)) < 2.0 * mean), np.full((n, 2), 0.5))

    def value(self, policy: Any) -> float:
        """Return the value of a policy, a function from states to actions, with the same draws for every policy."""
        rng = np.random.default_rng([self.seed, 1])
        first = self.start(rng, _DRAWS)
        action = policy(first)
        second = self.second(first, action, rng.normal(0.0, 0.3, _DRAWS))
        return float(np.mean(self.means(0, first, action) + self.means(1, second, policy(second))))

    @cached_property
    def ends(self) -> tuple[float, float]:
        """Values of the best one of the four fixed regimes and of the best regime."""
        cut = self.law[1]
        noise = 0.3 * norm.ppf((np.arange(50) + 0.5) / 50)

        def best(states: np.ndarray) -> np.ndarray:
            if states[0, 0] > 0.0:
                return (states[:, 1] > cut).astype(int)
            worth = np.zeros((len(states), 2))
            for a in range(2):
                action = np.full(len(states), a)
                worth[:, a] = self.means(0, states, action)
                for z in noise:
                    after = self.second(states, action, np.full(len(states), z))
                    worth[:, a] += self.means(1, after, (after[:, 1] > cut).astype(int)) / len(noise)
            return np.argmax(worth, axis=1)

        fixed = [
            self.value(lambda states, pair=pair: np.full(len(states), pair[int(states[0, 0])]))
            for pair in product(range(2), repeat=2)
        ]
        return max(fixed), self.value(best)

    def plain(self, columns: Mapping[str, np.ndarray]) -> Any:
        """Return the policy of regressions in NumPy, from the last stage to the first, without noise or pessimism."""
        states = np.column_stack([columns[f"observation_{i}"] for i in range(3)])
        basis, fits, after = Basis(self.bounds.state, "products:2"), np.zeros((2, 7)), np.zeros(len(states))
        for stage in (1, 0):
            own = columns["t"] == stage
            y = columns["reward"] + after
            new = np.zeros((2, 7))
            for a in range(2):
                rows = (columns["t"] >= stage) & (columns["action"] == a)
                new[a] = np.linalg.lstsq(basis(states[rows]), y[rows], rcond=None)[0]
            fits = new
            after = np.where(~own & (columns["t"] == 0), np.roll((basis(states) @ fits.T).max(axis=1), -1), 0.0)
        return lambda states: np.argmax(basis(states) @ fits.T, axis=1)


@dataclass(frozen=True)
class Walk:
    """A random process of twenty states and three actions over ten steps. The behaviour policy prefers some actions."""

    seed: int

    people = 20_000
    actions, states, horizon = 3, 20, 10
    bounds = dprl.Bounds(
        units=20_000, horizon=10, reward=(0.0, 1.0), observation=((0.0, 19.0),), actions=3, max_importance_ratio=10.0
    )

    @cached_property
    def law(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Laws of the next state ``(S, A, S)``, chances of a reward ``(S, A)``, and behaviour policy ``(S, A)``."""
        rng = np.random.default_rng([self.seed, 3])
        following = rng.dirichlet(np.full(self.states, (0.1, 0.3, 1.0)[self.seed % 3]), (self.states, self.actions))
        rewards = rng.random((self.states, self.actions))
        return following, rewards, 0.7 * rng.dirichlet(np.ones(self.actions), self.states) + 0.3 / self.actions

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Return a log."""
        following, rewards, behavior = self.law
        shape = (self.people, self.horizon)
        s, a, r = np.zeros((self.people, self.horizon + 1), int), np.zeros(shape, int), np.zeros(shape)
        s[:, 0] = rng.integers(0, self.states, self.people)
        for t in range(self.horizon):
            a[:, t] = draw_per_row(rng, behavior[s[:, t]])
            r[:, t] = rng.random(self.people) < rewards[s[:, t], a[:, t]]
            s[:, t + 1] = draw_per_row(rng, following[s[:, t], a[:, t]])
        return _columns(s[:, :-1, None].astype(float), a, r, behavior[s[:, :-1], a])

    def value(self, policy: Any) -> float:
        """Return the exact value of a policy, a function from states to actions."""
        return self._value(np.eye(self.actions)[policy(np.arange(self.states, dtype=float)[:, None])])

    def _value(self, chances: np.ndarray) -> float:
        following, rewards, _ = self.law
        ahead = np.zeros(self.states)
        for _ in range(self.horizon):
            ahead = np.sum(chances * (rewards + following @ ahead), axis=1)
        return float(ahead.mean())

    @cached_property
    def ends(self) -> tuple[float, float]:
        """Values of the behaviour policy, and of the best policy, which may differ by step."""
        following, rewards, behavior = self.law
        ahead = np.zeros(self.states)
        for _ in range(self.horizon):
            ahead = np.max(rewards + following @ ahead, axis=1)
        return self._value(behavior), float(ahead.mean())

    def plain(self, columns: Mapping[str, np.ndarray]) -> Any:
        """Return the policy of fitted Q iteration on a table in NumPy, without noise or pessimism."""
        s, a, end = columns["observation_0"].astype(int), columns["action"], columns["terminated"]
        cell, after = s * self.actions + a, np.append(s[1:], 0)
        many, q = np.maximum(np.bincount(cell, minlength=60), 1), np.zeros((self.states, self.actions))
        for _ in range(self.horizon):
            target = columns["reward"] + np.where(end, 0.0, q[after].max(axis=1))
            q = (np.bincount(cell, target, minlength=60) / many).reshape(q.shape)
        return lambda states: np.argmax(q[states[:, 0].astype(int)], axis=1)


PROBLEMS: Mapping[str, Any] = {"two stages": Regime, "ten steps": Walk}


def _columns(states: np.ndarray, action: np.ndarray, reward: np.ndarray, chance: np.ndarray) -> dict[str, np.ndarray]:
    people, steps = action.shape
    observed = {f"observation_{i}": states[:, :, i].ravel() for i in range(states.shape[2])}
    return observed | {
        "episode_id": np.repeat(np.arange(people), steps), "t": np.tile(np.arange(steps), people),
        "action": action.ravel(), "reward": reward.ravel(), "behavior_prob": chance.ravel(),
        "terminated": np.tile(np.arange(steps) == steps - 1, people),
    }  # fmt: skip


def without_noise(first: Any) -> Any:
    """Return the same learner without noise, so that it needs no pessimism about noise either."""
    stage = first.program.stages[0]
    return replace(first, program=replace(first.program, stages=(Stage(stage.name, stage.mechanism.plain()),)))


def taught(
    problem: Any, epsilon: float, seed: int, release: bool = True, learner: str = "recommended"
) -> dict[str, float]:
    """Return shares of the way from the baseline to the optimum for one log, and whether the interval holds.

    Args:
        problem: the problem.
        epsilon: of the budget.
        seed: seed of the log and the noise.
        release: whether the policy is also valued. Otherwise only the first part of the people is asked.
        learner: name of the learner.
    """
    options, budget = dprl.ImportanceSampling(discount=1.0), dprl.Budget(epsilon, DELTA)
    columns = problem.draw(np.random.default_rng([seed, 4]))
    log = dprl.read_log(columns, bounds=problem.bounds)
    first: Any = plan_of_learned(options, problem.bounds, budget, learner=learner).first
    loaded, noise, out = log.load(None), SeededNoise.from_seed(seed), {}
    teach = first.split.in_first(noise, loaded.units)
    own = loaded.of_units(teach, problem.bounds)
    low, high = problem.ends
    policies = {"no noise": without_noise(first).released(own, None, noise, NO_JOURNAL)}
    if release:
        found = dprl.learn(log, budget, algorithm=options, seed=seed)
        ends, policy = found.interval, found.policy
    else:
        told = first.released(own, None, noise, NO_JOURNAL)
        ends, policy = (-np.inf, np.inf), next(iter(told.policies.values()))
    value = problem.value(policy.action)
    of_plain = next(iter(policies["no noise"].policies.values()))
    kept = np.repeat(teach, problem.bounds.horizon)
    numpy = problem.plain({name: column[kept] for name, column in columns.items()})
    for name, one in (("own", policy.action), ("no noise", of_plain.action), ("numpy", numpy)):
        out[name] = (problem.value(one) - low) / (high - low)
    return out | {"hit": float(ends[0] <= value <= ends[1]), "width": (ends[1] - ends[0]) / (high - low)}


def measure(name: str, epsilon: float, seeds: Sequence[int], release: bool = True) -> dict[str, float]:
    """Return mean shares over one log of the problem of each seed."""
    problem = PROBLEMS[name]
    found = [taught(problem(seed), epsilon, seed, release) for seed in seeds]
    mean = {key: float(np.mean([one[key] for one in found])) for key in found[0]}
    mean["of no noise"] = mean["own"] / mean["no noise"]
    return mean | {"worst": float(min(one["own"] for one in found)), "of": len(found)}


def small_budgets(seeds: Sequence[int]) -> dict[str, dict[str, float]]:
    """Return the mean share that each learner reaches with a small budget, from only the first part of the people."""
    options, out = dprl.ImportanceSampling(discount=1.0), {}
    for name, epsilon, learner in product(PROBLEMS, SMALL, LEARNERS):
        shares = []
        for seed in seeds:
            problem, noise = PROBLEMS[name](seed), SeededNoise.from_seed(seed)
            budget = dprl.Budget(epsilon, DELTA)
            first: Any = plan_of_learned(options, problem.bounds, budget, learner=learner).first
            log = dprl.read_log(problem.draw(np.random.default_rng([seed, 4])), bounds=problem.bounds).load(None)
            own = log.of_units(first.split.in_first(noise, log.units), problem.bounds)
            policy = next(iter(first.released(own, None, noise, NO_JOURNAL).policies.values()))
            low, high = problem.ends
            shares.append((problem.value(policy.action) - low) / (high - low))
        out.setdefault(f"{name}, {epsilon:g}", {})[learner] = float(np.mean(shares))
        print(name, epsilon, learner, out[f"{name}, {epsilon:g}"][learner], flush=True)
    return out


def figures_of(seeds: Sequence[int]) -> dict[str, dict[str, float]]:
    """Return the figures of both kinds of problems at each epsilon, and print each as soon as it is known."""
    out = {}
    for name, epsilon in product(PROBLEMS, EPSILONS):
        out[f"{name}, {epsilon:g}"] = found = measure(name, epsilon, seeds)
        print(name, epsilon, found, flush=True)
    return out


def record(figures: Mapping[str, Mapping[str, float]], small: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Return the benchmark's record from the figures and from those of small budgets."""
    shares = ("own", "of no noise", "no noise", "numpy", "worst")
    rows = [
        [*name.split(", "), *(f"{f[each]:.0%}" for each in shares), f"{f['hit'] * f['of']:.0f}", f"{f['width']:.1f}"]
        for name, f in figures.items()
    ]
    goals = [
        goal(f"improvement kept, {name.replace(', ', ', epsilon ')}", 100.0 * f["of no noise"], limit, True, "%")
        for name, f in figures.items()
        for epsilon, limit in zip(EPSILONS, GOALS, strict=True)
        if name.endswith(f", {epsilon:g}")
    ]
    logs = int(next(iter(figures.values()))["of"])
    goals += [goal(f"intervals that hold, {n}", 100.0 * f["hit"], 93.0, True, "%") for n, f in figures.items()]
    return {
        "title": "Policies of several steps learned from a log",
        "notes": [
            f"Delta {DELTA:g}; {logs} problems, one log of each; 40% of the people teach, the others value. Shares of "
            "the way from the baseline to the optimum: of the learned policy; what that is of the same learner's "
            "without noise on the same people; that itself; of fitted Q iteration in NumPy without noise or "
            "pessimism, on the same people; and of the worst log. Then of how many logs the interval holds the "
            "policy's value, and how wide it is against that way. Two stages: the baseline is the best of four "
            "fixed regimes; 5,000 people. Ten steps: it is what was done; 20,000 people. Nothing was chosen on these."
        ],
        "table": table(
            ["problem", "epsilon", "share", "of no noise", "no noise", "NumPy", "worst", "held", "width"], rows
        ),
        "small budgets": table(
            ["problem", "epsilon", *LEARNERS],
            [[*name.split(", "), *(f"{f[learner]:.0%}" for learner in LEARNERS)] for name, f in small.items()],
        ),
        "goals": goals,
        "figures": dict(figures),
        "figures of small budgets": dict(small),
    }


def run() -> dict[str, Any]:
    """Return the benchmark's record for a hundred problems of each kind."""
    return record(figures_of(JUDGING), small_budgets(JUDGING[:40]))


if __name__ == "__main__":
    pin(1)
    for problem, size in product(PROBLEMS, EPSILONS):
        print(problem, size, measure(problem, size, CHOOSING, release=len(sys.argv) > 1), flush=True)
