"""Where GPOPE's defaults come from: errors on public simulations, beside other choices and trivial answers.

Two simulations that could not be less alike: the 40-state chain (long trajectories, one reward at the end) and a
one-step log shaped like a trial's. Everything here is simulated, so that choosing by it costs no privacy.
"""

from __future__ import annotations

from typing import Any

from benchmarks.harness import figure, table

SEEDS = 4
FACTORS = (
    ("default", 1.0, 1.0),
    ("step / 5", 0.2, 1.0),
    ("step x 5", 5.0, 1.0),
    ("clip / 4", 1.0, 0.25),
    ("clip x 4", 1.0, 4.0),
)


def run() -> dict[str, Any]:
    import numpy as np

    from dprl.accounting.budget import Budget
    from dprl.algorithms.evaluation import gpope
    from dprl.algorithms.evaluation.gpope import GPOPE
    from dprl.algorithms.evaluation.lstd import lstd
    from dprl.algorithms.evaluation.plan import make_plan
    from dprl.algorithms.evaluation.unit_data import rows_of, unit_rows
    from dprl.data.readers import read_log
    from dprl.environments.chain import Chain
    from dprl.environments.rollout import rollout
    from dprl.mechanisms.noise import SeededNoise
    from dprl.protocols import Bounds

    def chain(seed: int, horizon: int) -> Any:
        environment = Chain(horizon=horizon)
        import jax

        log = rollout(environment, lambda s: np.ones((len(s), 1)), jax.random.key(seed), 1000)
        bounds = Bounds(
            units=1000, horizon=horizon, reward=(0.0, 1.0), observation=((0.0, 38.0),), actions=1, value=(0.0, 1.0)
        )
        states = np.arange(39.0)[:, None]
        return log, bounds, states, environment.values(), "tabular", 1.0

    def trial(seed: int, _: int) -> Any:
        rng, people = np.random.default_rng(seed), 2139
        age = np.clip(rng.normal(35.0, 9.0, people), 0.0, 90.0)
        cells = np.clip(rng.normal(350.0, 118.0, people), 0.0, 1200.0)
        arm = rng.integers(0, 4, people)
        mean = np.array([-17.0, 50.0, 20.0, 32.0])
        log = {
            "observation": np.column_stack([age, cells]),
            "action": arm,
            "reward": mean[arm] + 0.1 * (350.0 - cells) + rng.normal(0.0, 115.0, people),
            "behavior_prob": np.full(people, 0.25),
        }
        bounds = Bounds(
            units=people, horizon=1, reward=(-500.0, 500.0), observation=((0.0, 90.0), (0.0, 1200.0)), actions=4,
            max_importance_ratio=4.0,
        )  # fmt: skip
        return log, bounds, log["observation"], 50.0 + 0.1 * (350.0 - cells), "columns", 4.0

    rows = []
    for name, simulate, horizon in (("chain", chain, 400), ("trial", trial, 1)):
        for epsilon in (1.0, 0.1):
            for share in (0.05, 0.85):
                errors: dict[str, list[float]] = {}
                for seed in range(SEEDS):
                    columns, bounds, states, truth, features, ratio = simulate(seed, horizon)
                    log = read_log(columns, bounds=bounds).load()
                    policy = lambda s, a=bounds.actions: np.tile(np.eye(a)[min(1, a - 1)], (len(s), 1))  # noqa: E731
                    ratios = np.where(log.action == min(1, bounds.actions - 1), ratio, 0.0)
                    base = make_plan(GPOPE(value_share=share), bounds, Budget(epsilon, 1e-5), [policy], features)
                    value = bounds.value_interval(0.99)
                    centre, half = (value[0] + value[1]) / 2.0, (value[1] - value[0]) / 2.0
                    flat = rows_of(log, ratios, base.features, 0.99, value)
                    data = unit_rows(flat, bounds.units)

                    def root(theta: Any) -> float:
                        answer = np.clip(centre + half * base.features(states) @ theta, *value)
                        return float(np.sqrt(np.mean((answer - truth) ** 2)))

                    for label, step, clip in FACTORS:
                        width = base.function_mechanism.clip_norm / base.features.size**0.5
                        config = base.config.replace(step_size=base.config.step_size * step, clip_norm=width * clip)
                        mechanism = gpope.mechanism(
                            config, base.features.size, horizon, base.function_mechanism.noise_multiplier
                        )
                        theta = gpope.run_on_host(
                            config, mechanism, SeededNoise.from_seed(seed), data, base.start,
                            units=bounds.units, projection=base.projection,
                        )[1]  # fmt: skip
                        errors.setdefault(label, []).append(root(np.asarray(theta)))
                    errors.setdefault("mid-range", []).append(root(base.start))
                    errors.setdefault("LSTD, not private", []).append(root(lstd(flat)))
                    errors.setdefault("best constant", []).append(float(truth.std()))
                rows.append(
                    [
                        f"{name}, epsilon {epsilon:g}, value share {share:g}",
                        *(figure(np.mean(e)) for e in errors.values()),
                    ]
                )
                headings = ["root mean square error of the value function", *errors]
    notes = [
        "Root mean square error of the released value function over the states, mean over 4 seeds, at delta 1e-5: the "
        "defaults, the same with another step size or clip norm, the public middle of the value range (where GPOPE "
        "starts), LSTD without privacy, and the constant that a private log could at best give. Value share: part of "
        "mu^2 that pays for value and interval instead; 0.85 is the default."
    ]
    return {
        "title": "GPOPE's defaults on public simulations",
        "notes": notes,
        "table": table(headings, rows),
        "goals": [],
    }
