"""A rule learned from a log like the trial ACTG 175: how far its value is on the way from uniform arms to the best arm.

``python -m benchmarks learn_from_log`` draws logs of 2,139 people and four arms from a simulator that was fitted to the
trial's public data. In one version no rule is better than the best arm for everybody; in the other version one is. It
reports for each release where the rule's true value lies between that of uniform arms, 0, and that of the best arm, 1.
It reports the same for the choice without noise among the same rules, by the same people, and whether the intervals
hold. On the first ten logs of each version it adds learners without privacy. They learn from all people and release no
value.
"""

from __future__ import annotations

import csv
import dataclasses
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import numpy as np

import dprl
from benchmarks.gpope_chain import peers_python
from benchmarks.harness import ROOT, figure, goal, pin, table
from dprl.evaluation.learned_policy import plan_of_learned
from dprl.mechanisms.noise import SeededNoise

PEOPLE, ARMS, RANGE = 2_139, 4, 500.0
EPSILONS, DELTA, LOGS = (1.0, 4.0), 1e-5, 100
OFFLINE, PEER_LOGS = Path(__file__).resolve().parent / "requirements-offline-peers.txt", 10
OURS = f"dprl, epsilon {EPSILONS[-1]:g}"
GAIN = 60.0
"""CD4 cells per mm3 by which, in the second version, another arm is better than the best arm for people with few cells.
"""
CUT = 300.0
DEVIATION = 125.0
"""Declared root mean square of a change, in CD4 cells per mm3."""


@dataclasses.dataclass(frozen=True)
class Trial:
    """A simulator of the trial.

    Attributes:
        covariates: ``(N, 2)`` age and CD4 count of the trial's people.
        means: ``(N, 4)`` mean change of the CD4 count under each arm.
        residuals: deviations from the mean change, from which a log draws.
    """

    covariates: np.ndarray
    means: np.ndarray
    residuals: np.ndarray

    @property
    def bounds(self) -> dprl.Bounds:
        """Bounds that follow from the trial's protocol (examples/actg175_bounds.toml)."""
        return dprl.Bounds(
            units=PEOPLE, horizon=1, reward=(-RANGE, RANGE), observation=((0.0, 90.0), (0.0, 1200.0)), actions=ARMS,
            max_importance_ratio=float(ARMS), observation_names=("age", "CD4 count"),
        )  # fmt: skip

    def value(self, policy: Any) -> float:
        """Return a policy's true value."""
        return float(np.mean(np.sum(policy(self.covariates) * self.means, axis=1)))

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Return a log as columns. The few outcomes beyond the declared range are cut."""
        who, arm = rng.integers(0, len(self.covariates), PEOPLE), rng.integers(0, ARMS, PEOPLE)
        change = self.means[who, arm] + rng.choice(self.residuals, PEOPLE)
        return {
            "observation_0": self.covariates[who, 0], "observation_1": self.covariates[who, 1], "action": arm,
            "reward": np.clip(change, -RANGE, RANGE), "behavior_prob": np.full(PEOPLE, 1.0 / ARMS),
        }  # fmt: skip


@cache
def trial(rule_is_better: bool) -> Trial:
    """Return the simulator. Changes are linear in age and fall with the CD4 count, and each arm adds its own mean.

    If ``rule_is_better``, another arm is better for people with few CD4 cells.
    """
    source = Path(str(distribution("lifelines").locate_file("lifelines/datasets/ACTG175.csv")))
    with source.open(newline="") as file:
        rows = list(csv.DictReader(file))
    age, before, after, arm = (np.array([float(r[name]) for r in rows]) for name in ("age", "cd40", "cd420", "arms"))
    design = np.column_stack([arm == a for a in range(ARMS)] + [before - before.mean(), age - age.mean()]).astype(float)
    weights = np.linalg.lstsq(design, after - before, rcond=None)[0]
    means = (design[:, ARMS:] @ weights[ARMS:])[:, None] + weights[:ARMS]
    if rule_is_better:
        first, second = np.argsort(-weights[:ARMS])[:2]
        few = before < CUT
        means[few, second] = means[few, first] + GAIN
    residuals = after - before - design @ weights
    return Trial(np.column_stack([age, before]), means, residuals[np.abs(residuals) < 300.0])


def _hits(release: Any, found: Trial) -> tuple[bool, bool]:
    """Return whether the rule's interval holds its value, and whether all differences hold theirs."""
    truth = found.value(release.policy)
    others = {f"always_{a}": float(found.means[:, a].mean()) for a in range(ARMS)} | {
        "logged": float(found.means.mean())
    }
    inside = all(
        low <= truth - others[c["against"]] <= high
        for c in release.contrasts
        for low, high in [c["simultaneous_interval"]]
    )
    low, high = release.interval
    return low <= truth <= high, inside


def measure(better: bool, epsilon: float, seeds: Sequence[int], deviation: float | None = None) -> dict[str, float]:
    """Return mean shares of the way from uniform arms to the best arm, and how often intervals held."""
    found, out = trial(better), []
    uniform, best = float(found.means.mean()), float(found.means.mean(axis=0).max())
    budget, options = dprl.Budget(epsilon, DELTA), dprl.ImportanceSampling(discount=1.0)
    first: Any = plan_of_learned(options, found.bounds, budget, deviation=deviation).first
    for seed in seeds:
        rng = np.random.default_rng([seed, better])
        log = dprl.read_log(found.draw(rng), bounds=found.bounds)
        noise = int(rng.integers(2**62))
        release = dprl.learn(log, budget, algorithm=options, seed=noise, return_deviation=deviation)
        loaded = log.load(None)
        chose = loaded.of_units(first.split.in_first(SeededNoise.from_seed(noise), loaded.units), found.bounds)
        total, rules = first.total(chose), list(first.candidates.values())
        exact, plain = (rules[int(np.argmax(scores))] for scores in (total, total + np.array(first.handicaps)))
        ways = [(found.value(policy) - uniform) / (best - uniform) for policy in (release.policy, exact, plain)]
        sign = next(c["sign"] for c in release.contrasts if c["against"] == "logged")
        out.append((*ways, isinstance(release.policy.tree, int), sign > 0, *_hits(release, found)))
    own, other, plain, single, shown, one, together = np.array(out, float).T
    return {
        "way": float(own.mean()), "worst": float(own.min()), "without_noise": float(other.mean()),
        "plain": float(plain.mean()),
        "single": int(single.sum()), "shown": int(shown.sum()), "hits": int(one.sum()), "together": int(together.sum()),
        "of": len(out), "best_rule": _best_rule(found, first, uniform, best),
    }  # fmt: skip


def _best_rule(found: Trial, first: Any, uniform: float, best: float) -> float:
    return (max(found.value(rule) for rule in first.candidates.values()) - uniform) / (best - uniform)


def figures_of(seeds: Sequence[int]) -> dict[str, dict[str, float]]:
    """Return the figures of both versions at each epsilon, without and with a declared deviation."""
    out = {}
    for better, deviation, epsilon in itertools.product((False, True), (None, DEVIATION), EPSILONS):
        declared = "" if deviation is None else ", declared"
        name = f"{'a rule' if better else 'no rule'} is better{declared}, {epsilon:g}"
        out[name] = measure(better, epsilon, seeds, deviation)
        print(name, out[name], flush=True)
    return out


def beside(better: bool, seeds: Sequence[int]) -> dict[str, dict[str, float]]:
    """Return the mean share of the way and the median of seconds on one core, for each peer and for this library."""
    found, ways, seconds = trial(better), dict[str, list[float]](), dict[str, list[float]]()
    uniform, best = float(found.means.mean()), float(found.means.mean(axis=0).max())
    options = dprl.ImportanceSampling(discount=1.0)

    def add(name: str, actions: np.ndarray, spent: float) -> None:
        value = float(found.means[np.arange(len(found.means)), actions].mean())
        ways.setdefault(name, []).append((value - uniform) / (best - uniform))
        seconds.setdefault(name, []).append(spent)

    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            rng = np.random.default_rng([seed, better])
            log = found.draw(rng)
            states = np.column_stack([log["observation_0"], log["observation_1"]])
            np.savez(
                Path(folder) / f"{seed:06d}.npz", states=states, action=log["action"], reward=log["reward"],
                asked=found.covariates,
            )  # fmt: skip
            noise = int(rng.integers(2**62))
            for epsilon in EPSILONS:
                start = time.process_time()
                release = dprl.learn(
                    log, dprl.Budget(epsilon, DELTA), bounds=found.bounds, algorithm=options, seed=noise
                )
                spent = time.process_time() - start
                add(f"dprl, epsilon {epsilon:g}", release.policy.action(found.covariates), spent)
        python = peers_python(OFFLINE, "d3rlpy-venv")
        command = [python, "-m", "benchmarks.learn_from_log_peers", folder]
        lines = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    for line in lines:
        if line.startswith("{"):  # other lines are PyTorch's
            for name, one in json.loads(line).items():
                add(name, np.array(one["actions"]), one["seconds"])
    out = {n: {"way": float(np.mean(ways[n])), "seconds": statistics.median(seconds[n])} for n in ways}
    print("beside, a rule is better" if better else "beside, no rule is better", out, flush=True)
    return out


def record(
    figures: Mapping[str, Mapping[str, float]], none: Mapping[str, Any], one: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the benchmark's record. ``none`` are the peers' figures where no rule is better, ``one`` where one is."""
    shares, counts = ("way", "without_noise", "plain", "best_rule"), ("single", "shown", "hits", "together")
    rows = [
        [*name.rsplit(", ", 1), *(f"{f[each]:.0%}" for each in shares), *(f"{f[each]:.0f}" for each in counts)]
        for name, f in figures.items()
    ]

    def words(name: str) -> str:
        way, other, spent = none[name]["way"], one[name]["way"], one[name]["seconds"]
        where = f"{name} {way:.0%} where no rule is better and {other:.0%} where one is"
        return f"{where}, {figure(spent)} s ({figure(spent / one[OURS]['seconds'])} times ours)"

    goals = [
        goal(f"way to the best arm, {', epsilon '.join(name.rsplit(', ', 1))}", 100.0 * f["way"], limit, True, "%")
        for name, f in figures.items()
        for epsilon, limit in zip(EPSILONS, (90.0, 100.0), strict=True)
        if name.endswith(f", {epsilon:g}")
    ]
    return {
        "title": "A rule learned from a trial's log",
        "notes": [
            f"A simulator fitted to ACTG 175: {PEOPLE:,} people, four arms of a quarter each, delta {DELTA:g}, {LOGS} "
            "logs. Way: true value of the rule, 0 for uniform arms and 100% for the best arm. Beside it that of the "
            "best by the same scores and handicaps without noise, of the same people; of the best without handicaps, "
            "too (plain); and of the best rule of the class. Then of how many logs the rule is one arm for everybody, "
            "is shown to be better than what was done, has its value in its interval, and has all differences in "
            f"theirs together. Declared: a deviation of {DEVIATION:g} cells is stated. Nothing was chosen on these "
            "logs.",
            f"Beside it, on {PEER_LOGS} of the logs: learners without privacy, of all people, that tell no value. "
            "Seconds are the median of one core's; dprl's are of the rule, its values and their intervals. "
            + "; ".join(words(name) for name in one) + ".",
        ],
        "table": table(
            ["version", "epsilon", "way", "no noise", "plain", "best rule", "one arm", "better", "value", "all"],
            rows,
        ),
        "goals": goals,
        "figures": dict(figures) | {"beside, no rule is better": none, "beside, a rule is better": one},
    }  # fmt: skip


def run() -> dict[str, Any]:
    """Return the benchmark's record for a hundred logs."""
    peers = (beside(better, range(100, 100 + PEER_LOGS)) for better in (False, True))
    return record(figures_of(range(100, 100 + LOGS)), *peers)


if __name__ == "__main__":
    pin(1)
    figures_of(range(int(sys.argv[1]) if len(sys.argv) > 1 else 5))
