"""Linear projections of values on covariates in a release, beside weighted least squares in NumPy without privacy."""

from __future__ import annotations

import sys
from typing import Any

from benchmarks.harness import Worker, alternate, figure, goal, pin, table

PEOPLE, COVARIATES, RELEASES = 20_000, 3, 20
OURS, VALUES = "dprl, best-linear-projection, secure noise", "dprl, importance-sampling, secure noise"
PEER = "NumPy, least squares and sandwich, not private"
EPSILONS = (0.3, 1.0, 3.0)


def serve_candidates() -> None:
    pin(1)

    import numpy as np

    import dprl
    from benchmarks.harness import serve
    from dprl.evaluation.projections import critical_value

    rng = np.random.default_rng(0)
    states = rng.uniform(-1.0, 1.0, (PEOPLE, COVARIATES))
    arm = rng.integers(0, 2, PEOPLE)
    reward = (rng.random(PEOPLE) < 0.4 + 0.3 * arm * np.sin(2.0 * states[:, 0])).astype(np.float64)
    columns = {f"observation_{i}": states[:, i] for i in range(COVARIATES)}
    columns |= {"action": arm, "reward": reward, "behavior_prob": np.full(PEOPLE, 0.5)}
    bounds = dprl.Bounds(
        units=PEOPLE, horizon=1, reward=(0.0, 1.0), observation=((-1.0, 1.0),) * COVARIATES, actions=2,
        max_importance_ratio=2.0,
    )  # fmt: skip
    critical = critical_value(1.0 - 0.05 / 3.0, 1 + COVARIATES)
    design = np.column_stack([np.ones(PEOPLE), states])

    def release(config: Any, epsilon: float = 1.0) -> Any:
        arms, budget, compare = ["always:0", "always:1"], dprl.Budget(epsilon, 1e-6), ["always_1:always_0"]
        return dprl.evaluate(columns, arms, budget, algorithm=config, bounds=bounds, compare=compare)

    def peer() -> list[Any]:
        weighted = [0.5 + 2.0 * (arm == a) * (reward - 0.5) for a in range(2)]
        bread, found = np.linalg.inv(design.T @ design), []
        for outcome in (*weighted, weighted[1] - weighted[0]):
            weights = bread @ (design.T @ outcome)
            scores = design * (outcome - design @ weights)[:, None]
            found.append((weights, bread @ (scores.T @ scores) @ bread))
        return found

    def width(covariance: Any) -> float:
        """Return the width of a band as a mean over people."""
        return float(2.0 * critical * np.sqrt(np.einsum("ni,ij,nj->n", design, covariance, design)).mean())

    def once(call: Any) -> Any:
        def go() -> int:
            call()
            return 1

        return go

    projections, values = dprl.BestLinearProjection(discount=1.0), dprl.ImportanceSampling(discount=1.0)
    widths = {
        f"{epsilon:g}": float(np.median([
            width(release(projections, epsilon).projections.found[2].covariance) for _ in range(RELEASES)
        ]))
        for epsilon in EPSILONS
    }  # fmt: skip
    numbers = [release(config).certificate["mechanisms"][0]["dimension"] for config in (projections, values)]
    facts = {"widths": widths, "peer": width(peer()[2][1]), "numbers": numbers}
    serve({OURS: once(lambda: release(projections)), VALUES: once(lambda: release(values)), PEER: once(peer)}, 1, facts)


def run() -> dict[str, Any]:
    worker = Worker(["-m", "benchmarks.who_benefits"])
    widths, known, numbers = (worker.facts[name] for name in ("widths", "peer", "numbers"))
    runs = alternate([worker], repetitions=7, seconds=90.0)
    worker.close()
    rows = [
        [name, figure(1e3 * r["time"]), figure(r["time"] / runs[OURS]["time"])]
        for name, r in sorted(runs.items(), key=lambda item: item[1]["time"])
    ]
    wide = ", ".join(f"{width:.3f} at epsilon {epsilon}" for epsilon, width in widths.items())
    return {
        "title": "Who benefits: linear projections on three covariates",
        "notes": [
            f"Milliseconds on one core: two arms and their difference, {PEOPLE:,} people in memory; medians over "
            f"alternated rounds. A person's vector has {numbers[0]} numbers, and {numbers[1]} of values alone: that is "
            "where the time goes.",
            f"Width of the difference's band in the mean over people, whose values lie in [0, 1]: {wide} (medians of "
            f"{RELEASES} releases, delta 1e-6); {known:.3f} without privacy, at the same critical value.",
        ],
        "table": table(["candidate", "ms", "over dprl's projections"], rows),
        "goals": [goal("width at epsilon 1 over that without privacy", widths["1"] / known, 1.5, False)],
        "seconds": runs,
        "widths": widths | {"without privacy": known},
    }


if __name__ == "__main__":
    sys.exit(serve_candidates())
