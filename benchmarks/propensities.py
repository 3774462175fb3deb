"""Cells compared with a regression for unknown propensities: one decision, continuous confounders.

``python -m benchmarks.propensities [LOGS]`` prints the table in docs/how-to/unknown-propensities.md. Each log is drawn
from another law. The log odds of being treated have a standard deviation of 1, and success depends on the same
components by other functions. The budget is (1, 1e-5), and the estimate is the difference between always and never
treating. A cell of the table has the root mean square error, the number of intervals that hold the truth, and their
median width. Outcomes are 0 or 1.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

import dprl

SIZES, COMPONENTS, BINS, LOGS = (2_000, 20_000), (2, 5), (2, 3, 4), 6
POLICIES = ["always:0", "always:1"]


def drawn(seed: int, components: int, right: bool) -> Callable[[int, np.random.Generator], tuple[np.ndarray, ...]]:
    """Return a law drawn by seed.

    The law is a function from the number of people to their components from -1 to 1, propensities of treatment, and
    chances of success without and with treatment.

    Args:
        seed: seed of the law.
        components: number of components.
        right: whether the regression has the form of the propensities. Chances of success are linear in neither case.
    """
    rng = np.random.default_rng([seed, components])
    odds = rng.uniform(0.5, 1.5, components) * rng.choice([-1.0, 1.0], components)
    odds *= np.sqrt(3.0) / np.linalg.norm(odds)
    base = np.sign(odds) * rng.uniform(0.3, 1.5, components)
    base *= np.sqrt(3.0) / np.linalg.norm(base)
    gain = rng.normal(0.0, 0.3, components)

    def law(people: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        x = rng.uniform(-1.0, 1.0, (people, components))
        bent = 0.0 if right else 1.0 * (x[:, 0] > 0.3) - 0.35 + x[:, 0] * x[:, 1]
        success = x @ base + 0.5 * np.sin(3.0 * x[:, 0]) + 0.5 * x[:, 0] * x[:, 1] - 0.3 * x[:, 0] ** 2
        logits = x @ odds + bent, success - 0.2, success + 0.2 + x @ gain
        return x, *(1.0 / (1.0 + np.exp(-one)) for one in logits)

    return law


@cache
def truth(seed: int, components: int, right: bool) -> float:
    """Return how much treating everybody adds to the mean outcome."""
    _, _, low, high = drawn(seed, components, right)(400_000, np.random.default_rng(seed))
    return float(np.mean(high - low))


def error(seed: int, people: int, components: int, right: bool, bins: int | None) -> tuple[float, bool, float]:
    """Return the error of the difference, whether its interval holds the truth, and the interval's width.

    Propensities come from cells of ``bins`` bins per component, or from the regression if ``bins`` is None.
    """
    law, rng = drawn(seed, components, right), np.random.default_rng([seed, people, components, right])
    x, treated, low, high = law(people, rng)
    action = (rng.random(people) < treated).astype(int)
    reward = (rng.random(people) < np.where(action == 1, high, low)).astype(float)
    cuts = "" if bins is None else ",".join(f"{cut:g}" for cut in np.linspace(-1.0, 1.0, bins + 1)[1:-1])
    names = [f"observation_{i}" for i in range(components)]
    bounds = dprl.Bounds(
        units=people, horizon=1, reward=(0.0, 1.0), observation=((-1.0, 1.0),) * components, actions=2,
        max_importance_ratio=10.0, strata=tuple(f"{name}:{cuts or 'linear'}" for name in names),
    )  # fmt: skip
    columns = {"action": action, "reward": reward, **{name: x[:, i] for i, name in enumerate(names)}}
    release = dprl.evaluate(columns, POLICIES, dprl.Budget(1.0, 1e-5), bounds=bounds, compare=["always_1:always_0"])
    found: Any = release.estimate["contrasts"][0]
    (start, end), true = found["interval"], truth(seed, components, right)
    return found["value"] - true, start <= true <= end, end - start


def main(arguments: list[str]) -> int:
    logs = int(arguments[0]) if arguments else LOGS
    ways = {"regression": None, **{f"{bins} cells each": bins for bins in BINS}}
    print(f"| People, components, form | {' | '.join(ways)} |\n|---|{'---|' * len(ways)}")
    for right in (True, False):
        for people in SIZES:
            for components in COMPONENTS:
                told = []
                for bins in ways.values():
                    if bins is not None and 2 * bins**components > 2_000:
                        told.append("too many")
                        continue
                    each = [error(1_000 + s, people, components, right, bins) for s in range(logs)]
                    errors, holds, widths = (np.array(part, dtype=float) for part in zip(*each, strict=True))
                    hold = f"{int(holds.sum())} of {logs} hold"
                    told.append(f"error {np.sqrt(np.mean(errors**2)):.3f}, {hold}, width {np.median(widths):.2f}")
                form = "right" if right else "wrong"
                print(f"| {people:,}, {components}, {form} | {' | '.join(told)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
