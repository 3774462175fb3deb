"""Private TD(0) and return regression at the size of a release, beside a plain NumPy loop of the same steps."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from benchmarks.harness import Worker, alternate, figure, goal, pin, table
from benchmarks.walks import DISCOUNT, FEATURES, UNITS, walks

STEPS = 20
OURS = {"td": "TD(0), dprl, secure noise", "return-regression": "regression on returns, dprl, secure noise"}
PEERS = {"td": "TD(0), NumPy loop", "return-regression": "regression on returns, NumPy loop"}
TOLERANCE = 1e-3


def serve_candidates() -> None:
    pin(1)

    import numpy as np

    from benchmarks.harness import serve
    from dprl.accounting.budget import Budget
    from dprl.engine import loop as engine
    from dprl.engine.layouts import unit_rows
    from dprl.evaluation.plan import program_for
    from dprl.evaluation.return_regression import ReturnRegression
    from dprl.evaluation.td import TD
    from dprl.mechanisms.gaussian_sum import GaussianSum
    from dprl.mechanisms.noise import SecureNoise

    bounds, features, log = walks((-1.0, 0.0), ("returns",))
    rows = len(log.reward) - 1
    phi, delta, reward, weight, returns = (
        x[:-1] for x in (log.phi, log.delta_phi, log.reward, log.weight, log.returns)
    )
    data = unit_rows(log, UNITS)

    class Quiet(GaussianSum):
        """A sum that clips but draws no noise, for the check."""

        def draw(self, noise: Any, step: Any, width: int | None = None) -> Any:
            return np.zeros(self.dimension if width is None else width, dtype=np.int64)

    def fresh() -> Any:
        return SecureNoise.fresh()

    def program_of(config: Any) -> Any:
        return program_for(config, bounds, features, Budget(1.0, 1e-5))

    def ours(program: Any) -> Callable[[], int]:
        def go() -> int:
            np.asarray(engine.run_on_host(program, fresh(), data)[1])
            return STEPS

        return go

    def loop(program: Any, noisy: bool) -> Any:
        """Run the same steps as one would write them in NumPy: on flat rows, with one sum per trajectory."""
        mechanism, config = program.stages[0].mechanism, program.config
        assert config.step_size is not None
        clip, std = mechanism.clip_norm, mechanism.noise_std if noisy else 0.0
        target, difference = (reward, delta) if isinstance(config, TD) else (returns, phi)
        starts, generator = log.offsets[:-1], np.random.default_rng()
        theta, total = np.zeros(features.size), np.zeros(features.size)
        for step in range(STEPS):
            error = weight * (target - difference @ theta.astype(np.float32))
            vectors = np.add.reduceat(error[:, None] * phi, starts)
            norms = np.linalg.norm(vectors, axis=1)
            vectors *= np.minimum(1.0, clip / np.maximum(norms, 1e-30))[:, None]
            noisy = vectors.sum(axis=0) + std * generator.standard_normal(features.size)
            theta = theta + config.step_size * noisy / UNITS
            theta *= min(1.0, 1.5 / max(np.linalg.norm(theta), 1e-30))
            total += theta if step >= STEPS // 2 else 0.0
        return total / (STEPS - STEPS // 2)

    def peer(program: Any) -> Callable[[], int]:
        def go() -> int:
            loop(program, True)
            return STEPS

        return go

    configs = {
        "td": TD(steps=STEPS, discount=DISCOUNT),
        "return-regression": ReturnRegression(steps=STEPS, discount=DISCOUNT),
    }
    programs = {name: program_of(config) for name, config in configs.items()}
    candidates: dict[str, Callable[[], int]] = {}
    errors = {}
    for name, program in programs.items():
        candidates |= {OURS[name]: ours(program), PEERS[name]: peer(program)}
        # with the clip but without noise, both must do the same mathematics
        quiet = [Quiet(**vars(stage.mechanism)) for stage in program.stages]
        theta = engine.run_on_host(program, fresh(), data, mechanisms=quiet)[1]
        reference = loop(program, False)
        errors[name] = float(np.abs(np.asarray(theta) - reference).max() / np.abs(reference).max())
    serve(candidates, 1, {"errors": errors, "rows": rows})


def run() -> dict[str, Any]:
    worker = Worker(["-m", "benchmarks.descent"])
    errors = worker.facts["errors"]
    if wrong := [name for name, error in errors.items() if not error <= TOLERANCE]:
        raise SystemExit(f"descent: {', '.join(wrong)} and the NumPy loop did not do the same mathematics: {errors}")
    runs = alternate([worker], repetitions=7, seconds=90.0)
    worker.close()
    rows = [
        [name, figure(1e3 * r["time"]), figure(r["time"] / runs[OURS["td"]]["time"])]
        for name, r in sorted(runs.items(), key=lambda item: item[1]["time"])
    ]
    goals = [
        goal(f"NumPy loop over dprl, {name}", runs[PEERS[name]]["time"] / runs[ours]["time"], 1.0, True)
        for name, ours in OURS.items()
    ]
    return {
        "title": "TD(0) and regression on returns, a release's size",
        "notes": [
            f"Milliseconds an update on one core: {UNITS:,} trajectories, {worker.facts['rows']:,} transitions, "
            f"{FEATURES} of two components (36 features), full batches; medians over alternated rounds.",
            f"Without noise and with the clip, the answers agree to {max(errors.values()):.1e} of the largest weight.",
        ],
        "table": table(["candidate", "ms an update", "over dprl's TD(0)"], rows),
        "goals": goals,
        "seconds_an_update": runs,
        "errors": errors,
    }


if __name__ == "__main__":
    sys.exit(serve_candidates())
