"""``python -m benchmarks.searches``: compare the constants that the papers' pages call chosen with others of a grid.

It takes minutes and prints one line for each constant, with the mean over seeds from 1000 on. No figure reports these
seeds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from dprl.accounting.budget import Budget
from dprl.mechanisms.noise import SeededNoise
from dprl.policies import parametric
from dprl_papers.harness.domain import load_domain
from dprl_papers.harness.problem import Logs, Setting, Trials
from dprl_papers.methods import recursive_gradients
from dprl_papers.paper_003_dp_pg.returns import measure, point
from dprl_papers.paper_beyond import primorl
from dprl_papers.paper_beyond.figures.value_iteration import PROCESSES
from dprl_papers.paper_beyond.processes import Process
from dprl_papers.paper_beyond.value_iteration import Counts, apvi, counts_mechanism, regression_mechanisms, vapvi

SEED, BUDGET = 1000, Budget(1.0, 1e-5)
Line = tuple[str, str, np.ndarray]
"""The figure and its setting, the constant, and the figure of each seed."""


def of_policy_gradient(seeds: int = 6) -> Iterator[Line]:
    """Yield figures of dp-pg by its constant feature: returns on Cart Pole, shares of the gap on bandits."""
    kept = parametric.CONSTANT
    settings: tuple[tuple[Any, int, float], ...] = (
        ("cart-pole", 500, 0.5), ("cart-pole", 500, 1.0), ("bandit", 3000, 0.5), ("treatment", 3000, 0.5)
    )  # fmt: skip
    for (problem, users, epsilon), constant in itertools.product(settings, (0.1, 0.2, 0.3, 0.5, 1.0)):
        parametric.CONSTANT = constant
        jax.clear_caches()  # compiled programs hold the previous constant
        found = measure(point(problem, users, epsilon), SEED, seeds)
        yield f"003, {problem}, N = {users}, epsilon {epsilon:g}", f"constant {constant:g}", found
    parametric.CONSTANT = kept


def of_value_iteration(seeds: int = 3) -> Iterator[Line]:
    """Yield losses at epsilon 1: of DP-APVI by factors of its bonus and of E, of DP-VAPVI by C and a factor of E."""
    for name, people in itertools.product(PROCESSES, (2000, 20_000)):
        logs = [_log(name, people, seed) for seed in range(SEED, SEED + seeds)]
        where = f"{name}, N = {people}"
        for bonus, edge in itertools.product((1e-5, 1e-4, 1e-3, 1e-2), (0.03, 0.1, 0.3, 1.0)):
            lost = [_apvi(log, bonus, edge) for log in logs]
            yield f"beyond, DP-APVI, loss, {where}", f"bonus {bonus:g}, E {edge:g}", np.array(lost)
        for bonus, edge in itertools.product((0.1, 1.0, 10.0), (0.3, 1.0)):
            lost = [_vapvi(log, bonus, edge) for log in logs]
            yield f"beyond, DP-VAPVI, loss, {where}", f"C {bonus:g}, E {edge:g}", np.array(lost)


def _log(name: str, people: int, seed: int) -> tuple[Process, Counts, int]:
    process: Any = PROCESSES[name](seed)
    return process, Counts.from_log(process, process.draw(seed, people)), seed


def _apvi(log: tuple[Process, Counts, int], bonus: float, edge: float) -> float:
    process, counts, seed = log
    mechanism = counts_mechanism(process, BUDGET)
    return process.value_lost(apvi(counts.noisy(mechanism, seed), mechanism.noise_std, bonus, edge))


def _vapvi(log: tuple[Process, Counts, int], bonus: float, edge: float) -> float:
    process, counts, seed = log
    return process.value_lost(vapvi(process, counts, regression_mechanisms(process, BUDGET), seed, bonus, edge))


def of_primorl(seeds: int = 4) -> Iterator[Line]:
    """Yield returns of PriMORL on Cart Pole by its clip norm, with 500 people at epsilon 1."""
    kept = primorl.CLIP
    for clip in (1.0, 1.0 / 3.0, 0.1):
        primorl.CLIP = clip  # compiled anew, since the mechanism is static
        found = [primorl.learn_by_primorl(500, BUDGET, seed) for seed in range(SEED, SEED + seeds)]
        yield "beyond, PriMORL, return", f"clip norm {clip:.3g}", np.array(found)
    primorl.CLIP = kept


def of_recursive_gradients(seeds: int = 4) -> Iterator[Line]:
    """Yield the size of DP-SRGD's last objective on Cart Pole, by L and zeta; finally that of its first objective."""
    domain, numbers = load_domain("cart_pole"), tuple(range(SEED, SEED + seeds))
    setting = Setting(domain=domain, units=5, budget=BUDGET, epochs=100)
    keys = np.stack([np.asarray(SeededNoise.from_seed(seed).key) for seed in numbers])
    trials = Trials(setting=setting, seeds=numbers, logs=Logs(domain, 5, numbers))
    kept = recursive_gradients.SMOOTHNESS, recursive_gradients.ACCURACY
    for smoothness, accuracy in ((5.0, 0.1), (5.0, 1.0), (50.0, 0.1), (50.0, 1.0), (500.0, 1.0), (500.0, 10.0)):
        recursive_gradients.SMOOTHNESS, recursive_gradients.ACCURACY = smoothness, accuracy
        jax.clear_caches()
        first, last = np.abs(recursive_gradients.curves(trials, keys, (0, 100))["objective"]).T
        yield "000, DP-SRGD, size of the objective", f"L {smoothness:g}, zeta {accuracy:g}", last
    recursive_gradients.SMOOTHNESS, recursive_gradients.ACCURACY = kept
    yield "000, DP-SRGD, size of the objective", "where it begins", first


def main() -> None:
    for lines in (of_policy_gradient, of_value_iteration, of_primorl, of_recursive_gradients):
        for what, setting, found in lines():
            error = found.std(ddof=1) / len(found) ** 0.5
            print(f"{what:45} {setting:24} {found.mean():8.3f} +- {error:.3f}", flush=True)


if __name__ == "__main__":
    main()
