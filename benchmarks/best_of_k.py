"""The best of a hundred policies, chosen on one part of the people and valued on the other: its loss and its interval.

``python -m benchmarks best_of_k`` draws members of problem families on the seeds for judging, with 10,000 people,
epsilon 1 and delta 1e-5, over one step and over ten steps. It reports two figures for each family. The loss is how much
less the chosen policy is worth than the best one, as a share of the policies' value range. The width is that of the
winner's interval, relative to the interval of a single policy that is valued on all people.
``python -m benchmarks.best_of_k`` prints the same figures for the seeds on which the defaults were chosen.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import dprl
from benchmarks.coverage.domains import Process
from benchmarks.families import CHOOSING, JUDGING, Member, member
from benchmarks.harness import goal, pin, table
from dprl.bounds import Bounds

PEOPLE, POLICIES, BUDGET = 10_000, 100, dprl.Budget(1.0, 1e-5)
DOMAINS = {1: ("random-mdp", "inventory", "bandit"), 10: ("random-mdp", "inventory", "clinic")}
TOWARDS = {1: 0.9, 10: 0.5}
"""Number of steps -> weight of a drawn policy in a target policy, which mixes it with the behaviour policy. Ten steps
have a smaller weight, since importance ratios multiply."""
MEMBERS, LOGS = 6, 4


@dataclasses.dataclass(frozen=True)
class Problem:
    """A member of a family with many target policies, from harmful ones to good ones.

    Attributes:
        member: the member of the family.
        law: the member's process, cut to the number of steps.
        truth: ``(K,)`` true values of the policies.
    """

    member: Member
    law: Process
    truth: np.ndarray

    @property
    def bounds(self) -> Bounds:
        """The declared bounds of a log of :data:`PEOPLE` people."""
        ratio = max(float(np.max(table / self.law.behavior)) for table in self.law.targets.values())
        whole = self.member.bounds(PEOPLE)
        return dataclasses.replace(whole, horizon=self.law.horizon, max_importance_ratio=ratio)

    @property
    def policies(self) -> dict[str, Any]:
        """Target policies by name."""
        places = _places(self.member.codes)
        return {name: _policy(places, table) for name, table in self.law.targets.items()}

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Return a log as columns."""
        paths = self.law.draw(rng, PEOPLE)
        columns = dataclasses.replace(paths, state=self.member.codes[paths.state]).columns()
        del columns["person_id"]
        return columns


def problem(family: str, seed: int, steps: int) -> Problem:
    """Return the family's member for a seed, with :data:`POLICIES` policies that are drawn from the same seed."""
    found = member(family, seed, off_policy=True)
    law, rng = dataclasses.replace(found.process, horizon=steps), np.random.default_rng([seed, steps])
    mean = np.sum(law.outcomes * law.rewards, axis=-1)
    best, ahead = mean.copy(), np.zeros(len(mean) + 1)
    for _ in range(steps):
        best = mean + law.discount * law.following @ ahead
        ahead[:-1] = best.max(axis=1)
    good = best - best.mean(axis=1, keepdims=True)
    good /= max(float(good.std()), 1e-12)
    tables = {}
    for k in range(POLICIES):
        aim, heat = rng.uniform(-1.0, 1.0), rng.uniform(0.5, 3.0)
        odds = np.exp(heat * (aim * good + np.sqrt(1.0 - aim**2) * rng.normal(size=good.shape)))
        odds /= odds.sum(axis=1, keepdims=True)
        tables[f"policy_{k}"] = (1.0 - TOWARDS[steps]) * law.behavior + TOWARDS[steps] * odds
    law = dataclasses.replace(law, targets=tables)
    return Problem(found, law, np.array([law.value(name) for name in tables]))


def _places(codes: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that finds the nearest code of each state.

    It keeps its last results, since a hundred policies are asked about the same states.
    """

    @functools.lru_cache(maxsize=4)
    def places(raw: bytes, width: int) -> np.ndarray:
        found, place = np.unique(np.frombuffer(raw).reshape(-1, width), axis=0, return_inverse=True)
        return np.array([np.argmin(np.square(codes - state).sum(axis=1)) for state in found])[place.ravel()]

    return lambda states: places(states.tobytes(), states.shape[1])


def _policy(places: Callable[[np.ndarray], np.ndarray], table: np.ndarray) -> Any:
    return lambda states: table[places(np.asarray(states, np.float64))]


def measure(family: str, seed: int, steps: int, logs: int = LOGS) -> dict[str, float]:
    """Return the mean loss, the mean ratio of widths, and in how many of the ``logs`` logs the interval held."""
    asked = problem(family, seed, steps)
    policies, names, span = asked.policies, list(asked.policies), float(np.ptp(asked.truth))
    losses, widths, hits = [], [], 0
    for number in range(logs):
        rng = np.random.default_rng([seed, steps, number])
        log = dprl.read_log(asked.draw(rng), bounds=asked.bounds)
        options: dict[str, Any] = {
            "algorithm": dprl.ImportanceSampling(discount=asked.law.discount), "seed": int(rng.integers(2**62)),
        }  # fmt: skip
        release = dprl.evaluate(log, policies, BUDGET, best=True, **options)
        won = names.index(str(release.chosen))
        alone = dprl.evaluate(log, {names[won]: policies[names[won]]}, BUDGET, **options)
        losses.append((asked.truth.max() - asked.truth[won]) / span)
        widths.append(np.ptp(release.interval) / np.ptp(alone.interval))
        hits += release.interval[0] <= asked.truth[won] <= release.interval[1]
    return {"loss": float(np.mean(losses)), "width": float(np.mean(widths)), "hits": hits, "of": logs}


def figures_of(seeds: Sequence[int]) -> dict[str, dict[str, float]]:
    """Return the figures of each domain over the members of these seeds, and print each as soon as it is known."""
    out = {}
    for steps, families in DOMAINS.items():
        for family in families:
            found = [measure(family, seed, steps) for seed in seeds]
            mean = {name: float(np.mean([one[name] for one in found])) for name in ("loss", "width")}
            counts = {name: int(sum(one[name] for one in found)) for name in ("hits", "of")}
            out[f"{family}, {steps}"] = mean | counts
            print(
                f"{family:12} {steps:5d} {mean['loss']:6.1%} {mean['width']:6.2f} {counts['hits']:3d}/{counts['of']}",
                flush=True,
            )
    return out


def record(figures: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Return the benchmark's record from the figures of each domain."""
    rows = [
        [*name.split(", "), f"{one['loss']:.1%}", f"{one['width']:.2f}", f"{one['hits']:.0f} of {one['of']:.0f}"]
        for name, one in figures.items()
    ]
    worst = {steps: [one for name, one in figures.items() if name.endswith(f", {steps}")] for steps in DOMAINS}
    goals = [
        goal(f"loss of the chosen policy, {steps} step(s), mean", 100.0 * float(np.mean([o["loss"] for o in found])),
             10.0, False, "%")
        for steps, found in worst.items()
    ]  # fmt: skip
    limits = {1: 1.6, 10: 2.2}  # over one step sampling error dominates the width, over ten steps noise does
    goals += [
        goal(f"width over that of all people, {steps} step(s), worst", max(o["width"] for o in found),
             limits[steps], False)
        for steps, found in worst.items()
    ]  # fmt: skip
    return {
        "title": "The best of a hundred policies",
        "notes": [
            f"{PEOPLE:,} people, epsilon {BUDGET.epsilon:g}, delta {BUDGET.delta:g}; {MEMBERS} members of each family, "
            f"{LOGS} logs each. Loss: value of the best policy less that of the chosen one, over the policies' value "
            "range. Width: of the winner's interval, over that of the same policy valued by all people. Holds: "
            "intervals of winners that hold the true value. Both cuts were chosen on other seeds, but after "
            "runs on the first three of these six: over ten steps the losses there were once .6%, 11.4% and 10.7%. On "
            "the other three, never looked at before, they are 0.0%, 5.1% and 2.0% (with both cuts as they are)."
        ],
        "table": table(["family", "steps", "loss", "width", "holds"], rows),
        "goals": goals,
        "figures": dict(figures),
    }


def run() -> dict[str, Any]:
    """Return the benchmark's record for the seeds for judging."""
    return record(figures_of(JUDGING[:MEMBERS]))


if __name__ == "__main__":
    pin(1)
    figures_of(CHOOSING[:MEMBERS])
