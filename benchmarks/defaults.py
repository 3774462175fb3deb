"""Where GPOPE's defaults come from: errors on public simulations, beside other choices and trivial answers.

The two simulations are very different: the 40-state chain (long trajectories, one reward at the end) and a one-step log
shaped like a trial's. All data here are simulated, so that choosing defaults by them costs no privacy.
"""

from __future__ import annotations

from typing import Any

from benchmarks.harness import figure, table

SEEDS = 8
FACTORS = {
    "default": (1.0, 1.0),
    "step / 5": (0.2, 1.0),
    "step x 5": (5.0, 1.0),
    "clip / 4": (1.0, 0.25),
    "clip x 4": (1.0, 4.0),
}


def run() -> dict[str, Any]:
    rows = [
        [
            f"{name}, epsilon {epsilon:g}, value share {share:g}",
            *map(figure, errors(simulation(), epsilon, share).values()),
        ]
        for name, simulation in (("chain", _Chain), ("trial", _Trial))
        for epsilon in (1.0, 0.1)
        for share in (0.05, 0.85)
    ]
    notes = [
        f"Root mean square error of the released value function over the states, mean over {SEEDS} seeds, at delta "
        "1e-5: the defaults, the same with another step size or clip norm, the public middle of the value range (where "
        "GPOPE starts), the best constant (which no private log gives away), and LSTD without privacy. Value share: "
        "the part of mu^2 that pays for value and interval instead; 0.85 is the default."
    ]
    headings = ["simulation", *FACTORS, "middle", "best constant", "LSTD, not private"]
    return {
        "title": "GPOPE's defaults on public simulations",
        "notes": notes,
        "table": table(headings, rows),
        "goals": [],
    }


class _Chain:
    """The 40-state chain with logs of 1,000 trajectories."""

    features, ratio, horizon = "tabular", 1.0, 400

    def __init__(self) -> None:
        import numpy as np

        from dprl.bounds import Bounds
        from dprl_papers.domains.chain import Chain

        self.environment = Chain(horizon=self.horizon)
        self.states, self.truth = np.arange(39.0)[:, None], self.environment.values()
        self.bounds = Bounds(
            units=1000,
            horizon=self.horizon,
            reward=(0.0, 1.0),
            observation=((0.0, 38.0),),
            actions=1,
            return_range=(0.0, 1.0),
        )

    def log(self, seed: int) -> Any:
        import jax

        from dprl.environments.rollout import rollout
        from dprl.policies.loading import UniformPolicy

        return rollout(self.environment, UniformPolicy(1), jax.random.key(seed), 1000)

    def data(self, log: Any, rows: Any, features: Any) -> Any:
        """Return the log as counts over the possible transitions. They are few, and the same for all seeds."""
        import numpy as np

        from dprl_papers.harness.transitions import shared_transitions

        pairs = np.array([(s, s) for s in range(39)] + [(s, s + 1) for s in range(38)] + [(38, -1)])
        source = log.observation[:, 0].astype(int)
        target = np.where(log.terminated, -1, log.next_observation[:, 0].astype(int))
        units = np.repeat(np.arange(log.units), np.diff(rows.offsets))
        return shared_transitions(units, source, target, rows, pairs, features(self.states), 0.99)


class _Trial:
    """A trial: 2,139 people with one decision each among four arms. The target policy always takes the second arm."""

    features, ratio, horizon = "columns", 4.0, 1

    def __init__(self) -> None:
        from dprl.bounds import Bounds

        self.states = self._people(99)[0]
        self.truth = 50.0 + 0.1 * (350.0 - self.states[:, 1])
        self.bounds = Bounds(
            units=2139, horizon=1, reward=(-500.0, 500.0), observation=((0.0, 90.0), (0.0, 1200.0)), actions=4,
            max_importance_ratio=4.0,
        )  # fmt: skip

    @staticmethod
    def _people(seed: int) -> Any:
        import numpy as np

        rng = np.random.default_rng(seed)
        age, cells = rng.normal(35.0, 9.0, 2139), rng.normal(350.0, 118.0, 2139)
        return np.column_stack([np.clip(age, 0.0, 90.0), np.clip(cells, 0.0, 1200.0)]), rng

    def log(self, seed: int) -> Any:
        import numpy as np

        states, rng = self._people(seed)
        arm = rng.integers(0, 4, 2139)
        mean = np.array([-17.0, 50.0, 20.0, 32.0])[arm] + 0.1 * (350.0 - states[:, 1])
        reward = mean + rng.normal(0.0, 115.0, 2139)
        return {"observation": states, "action": arm, "reward": reward, "behavior_prob": np.full(2139, 0.25)}

    def data(self, log: Any, rows: Any, features: Any) -> Any:
        from dprl.engine.layouts import padded_units

        return padded_units(rows)


def errors(simulation: Any, epsilon: float, share: float) -> dict[str, float]:
    """Return the root mean square error of each choice and of each trivial answer, as a mean over seeds."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from dprl.accounting.budget import Budget
    from dprl.data.readers import read_log
    from dprl.engine.columns import scale_of
    from dprl.engine.loop import run_steps
    from dprl.engine.plan import program_at
    from dprl.engine.rows import rows_of
    from dprl.evaluation.gpope import GPOPE
    from dprl.evaluation.plan import make_plan
    from dprl.mechanisms.noise import SeededNoise
    from dprl_papers.baselines.lstd import lstd

    bounds, states = simulation.bounds, simulation.states
    arm = min(1, bounds.actions - 1)
    policy = lambda s: np.tile(np.eye(bounds.actions)[arm], (len(s), 1))  # noqa: E731
    plan: Any = make_plan(
        GPOPE(value_budget_fraction=share), bounds, Budget(epsilon, 1e-5), [policy], simulation.features
    )
    features, algorithm = plan.features, plan.program
    function = algorithm.stages[0].mechanism
    value = bounds.value_interval(0.99)
    centre, half = scale_of(value)

    def root(theta: Any) -> float:
        answers = np.clip(centre + half * features(states) @ np.asarray(theta).T, *value)
        return float(np.mean(np.sqrt(np.mean((answers - simulation.truth[:, None]) ** 2, axis=0))))

    layouts, references = [], []
    for seed in range(SEEDS):
        log = read_log(simulation.log(seed), bounds=bounds).load()
        rows = rows_of(log, np.where(log.action == arm, simulation.ratio, 0.0), features, 0.99, value)
        layouts.append(simulation.data(log, rows, features))
        references.append(lstd(rows))
    data = jax.tree.map(lambda *leaves: jnp.stack(leaves), *layouts)
    keys = jnp.stack([SeededNoise.from_seed(seed).key for seed in range(SEEDS)])
    found = {}
    for name, (step, clip) in FACTORS.items():
        config = plan.config.replace(
            step_size=plan.config.step_size * step, clip_norm=function.clip_norm / features.size**0.5 * clip
        )
        program = program_at(config, algorithm.facts, function.noise_multiplier)

        def one(key: Any, log: Any, program: Any = program) -> Any:
            state, _ = run_steps(program, 0, program.stages[0].mechanism, SeededNoise(key), log, program.init())
            return program.answer(state)

        found[name] = root(jax.jit(jax.vmap(one))(keys, data))
    found["middle"] = root(algorithm.init().theta[None])
    found["best constant"] = float(simulation.truth.std())
    found["LSTD, not private"] = root(np.array(references))
    return found
