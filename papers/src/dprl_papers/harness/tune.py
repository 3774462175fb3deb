"""Tuning of step sizes and ridges for a specification: the best value of a grid on simulations that no trial sees.

``python -m dprl_papers.harness.tune 004 gpope-single chain --epsilon 0.1 --units 100`` prints a ``[[tuned]]`` table.
The grid grows by a factor of two. A best value at the grid's edge is marked, and calls for a wider grid.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from dprl.accounting.budget import Budget
from dprl.errors import DprlError
from dprl.mechanisms.noise import SeededNoise
from dprl_papers.harness.algorithm import answers
from dprl_papers.harness.domain import load_domain
from dprl_papers.harness.method import library_methods
from dprl_papers.harness.metrics import Metrics
from dprl_papers.harness.problem import Logs, Setting, Trials
from dprl_papers.harness.spec import load_paper

SEEDS = 1 << 20
"""Logs and noise of tuning have seeds from here on; trials have seeds far below."""


def tune(
    method: str, domain: str, units: Sequence[int], epsilon: float, delta: float, *, grid: Sequence[float],
    trials: int = 20, metric: str = "mspbe", batch: int = 20,
) -> list[tuple[int, float, list[float]]]:  # fmt: skip
    """Return, for each number of units, the best value of the grid and the mean error of each value.

    Args:
        method: name of the method whose step size (or ridge) is tuned.
        grid: increasing values.
        metric: ``mspbe`` or ``rmse``.
    """
    found = library_methods().get(method)
    if found is None:
        raise DprlError(f"There is no method {method!r}.")
    place, out = load_domain(domain), []
    metrics, seeds = Metrics(place), tuple(range(SEEDS, SEEDS + trials))
    errors: dict[int, list[np.ndarray]] = {m: [] for m in units}
    for first in range(0, trials, batch):
        part = seeds[first : first + batch]
        logs, keys = Logs(place, max(units), part), np.stack([np.asarray(SeededNoise.from_seed(s).key) for s in part])
        for m in sorted(units):
            setting = Setting(domain=place, units=m, budget=Budget(epsilon, delta), tuned=1.0)
            if found.configured is not None:
                tried = answers(found.configured(setting), Trials(setting=setting, seeds=part, logs=logs), keys, grid)
            else:
                settings = [Setting(domain=place, units=m, budget=setting.budget, tuned=x) for x in grid]
                tried = np.stack([found.answer(Trials(setting=s, seeds=part, logs=logs), keys) for s in settings])
            errors[m].append(np.stack([metrics.errors(a, False, found.clamp)[metric] for a in tried]))
    for m in units:
        means = np.nanmean(np.where(np.isfinite(e := np.concatenate(errors[m], axis=1)), e, np.inf), axis=1)
        out.append((m, grid[int(np.argmin(means))], means.tolist()))
    return out


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Tune a method's step size or ridge on simulations.")
    for name in ("paper", "method", "domain"):
        parser.add_argument(name)
    for name, default in {"epsilon": 0.1, "low": 2.0**-8, "high": 2.0**8, "trials": 20, "batch": 20}.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    parser.add_argument("--units", type=int, nargs="+", default=[100, 200, 500, 1000, 2000, 5000])
    parser.add_argument("--metric", default="mspbe", choices=("mspbe", "rmse"))
    given = parser.parse_args(arguments)
    delta = load_paper(given.paper).delta
    steps = round(np.log2(given.high / given.low))
    grid = [given.low * 2.0**i for i in range(steps + 1)]
    found = tune(
        given.method, given.domain, given.units, given.epsilon, delta,
        grid=grid, trials=given.trials, metric=given.metric, batch=given.batch,
    )  # fmt: skip
    for m, best, means in found:
        edge = "  AT THE EDGE" if best in (grid[0], grid[-1]) else ""
        print(f"# m = {m}: {best:g}{edge}; " + ", ".join(f"{x:g}: {e:.3g}" for x, e in zip(grid, means, strict=True)))
    about = (
        f"best {given.metric} of {grid[0]:g} to {grid[-1]:g} by factors of 2, {given.trials} trials of seeds from 2^20"
    )
    print(f'[[tuned]]\nmethod = "{given.method}"\ndomain = "{given.domain}"\nepsilon = {given.epsilon:g}')
    print(f"units = {[m for m, _, _ in found]}\nbest = {[b for _, b, _ in found]}")
    print(f'provenance = "simulated: {about}"')


if __name__ == "__main__":
    main()
