"""Protectors of private policy evaluation: against the best hand schedule on unseen chains, and where they transfer.

The setting: logs of 300 simulated episodes, 12 radial basis functions, GPOPE with 100 steps at a rate of 1/20, the
whole budget of (epsilon, 1e-5) on the value function. Hand schedules are the best of a grid on public training tasks;
protectors are trained on public tasks; both are measured on tasks that neither has seen. Simulations only.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dprl.accounting.budget import Budget
from dprl.data.trajectories import Trajectories
from dprl.evaluation.gpope import GPOPE
from dprl.mechanisms.noise import SeededNoise
from dprl.protectors import random_chains as chains
from dprl.protectors.learn import simulation_of
from dprl.protectors.objective import Training
from dprl.protectors.policy_evaluation import RandomChains
from dprl.protectors.projector import Architecture
from dprl.protectors.protector import Protector
from dprl.protectors.simulation import Simulation, unroll
from dprl.protocols import Bounds
from dprl.report.formatting import number, plain
from dprl_papers.baselines.hand_grid import Found, Grid, Point, hand_losses, numbers_of, search
from dprl_papers.harness.algorithm import answers
from dprl_papers.harness.domain import from_rollout, load_domain
from dprl_papers.harness.figure_parts import make_claim, mean_text
from dprl_papers.harness.metrics import Metrics
from dprl_papers.harness.problem import Logs, Setting, Trials
from dprl_papers.paper_002_l2p.returns import Points

DELTA = 1e-5
UNITS = 300
UNSEEN, REPEATS, TRANSFER_REPEATS = 48, 256, 32
"""Tasks, and runs of each: of 32 runs the ratio of two means still has a standard error of a tenth."""
UNSEEN_SEED, GRID_SEED = 2_000_003, 1_000_001
GEOMETRIC, ARITHMETIC, WORST = 0.75, 0.85, 1.5
"""What a protector's error may be at most, over that of the best hand schedule: means, and any one task's."""

GRIDS = {
    0.1: Grid(
        step_sizes=(0.025, 0.05, 0.1, 0.2, 0.4),
        clip_norms=(0.0072, 0.0144, 0.0289, 0.0577, 0.115),
        ratios=(1.0, 2.0, 4.0, 8.0, 16.0),
        offsets=(None, 50.0),
        tails=(0.5, 1.0),
    ),
    1.0: Grid(
        step_sizes=(0.8, 1.6, 3.2, 6.4, 12.8),
        clip_norms=(0.0144, 0.0289, 0.0577, 0.115, 0.231),
        ratios=(0.125, 0.25, 0.5, 1.0, 2.0),
        offsets=(None, 50.0),
        tails=(0.5, 1.0),
    ),
}
"""Of hand schedules, by epsilon."""
QUICK_GRID = Grid(step_sizes=(0.05, 0.1, 0.2), clip_norms=(0.0144, 0.0577), ratios=(1.0, 4.0))

FORMS = ("dense", "coordinate-wise", "schedule")
DOMAINS = ("mountain_car", "hiv")


def values(chain: chains.Chain, discount: float) -> jax.Array:
    """``(S,)`` expected discounted outcomes; an episode is never cut."""
    size = chain.ends.shape[0]
    live = chain.moves * (1.0 - chain.ends)[:, None]
    return jnp.linalg.solve(jnp.eye(size, dtype=jnp.float32) - discount * live, chain.ends * chain.outcome)


def family_of(epsilon: float) -> RandomChains:
    return RandomChains().tuned(Budget(epsilon, DELTA))


def architecture_of(family: RandomChains, form: str) -> Architecture:
    """``dense`` is of one set of features; the paper's ``coordinate-wise`` LSTM, and a ``schedule`` of noise, steps and
    averaging without one, serve any number of parameters."""
    if form == "dense":
        return family.architecture
    layers, scheduler = (2, "uniform") if form == "coordinate-wise" else (0, "public")
    return Architecture(layers=layers, scheduler=scheduler, knots=6, learned_clip=True, learned_average=True)


def training_of(family: RandomChains, form: str, quick: bool) -> Training:
    training = family.training
    if form == "coordinate-wise":
        training = dataclasses.replace(training, epochs=150, tasks=8, repeats=1)
    if form == "schedule":
        training = dataclasses.replace(training, epochs=150)
    return _short(training, quick)


def _short(training: Training, quick: bool) -> Training:
    return dataclasses.replace(training, epochs=2, tasks=2, repeats=1, validation=4) if quick else training


# --- measuring --------------------------------------------------------------------------------------------------------


@partial(jax.jit, static_argnums=(0, 1, 2))
def _unseen(family: RandomChains, count: int, repeats: int) -> tuple[Any, Any]:
    root = jax.random.key(UNSEEN_SEED)
    tasks = jax.vmap(family.sample)(jax.random.split(root, count))
    return tasks, jax.random.split(jax.random.fold_in(root, 1), (count, repeats))


@partial(jax.jit, static_argnums=(0, 4))
def _errors(simulation: Simulation, weights: Any, tasks: Any, keys: Any, learned: bool) -> tuple[jax.Array, jax.Array]:
    """``(tasks,)`` mean errors over the start's, and mean RMSE of the values, in the unit of the outcome."""
    table = jnp.asarray(simulation.family.table())

    def one(task: Any, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        run = unroll(simulation, weights, task, key, learned=learned)
        truth = values(task.chain, simulation.family.discount)
        visits = chains.exact_moments(task.chain, simulation.family.horizon).visits
        found = jnp.clip(0.5 + 0.5 * table @ run.answer[: simulation.family.size], 0.0, 1.0)
        return run.final, jnp.sqrt(jnp.sum(visits * (found - truth) ** 2) / jnp.sum(visits))

    def mean(args: Any) -> tuple[jax.Array, jax.Array]:
        task, keys = args
        errors, rmse = jax.vmap(one, (None, 0))(task, keys)
        return jnp.mean(errors), jnp.mean(rmse)

    return jax.lax.map(mean, (tasks, keys))


@partial(jax.jit, static_argnums=0)
def _hand_errors(simulation: Simulation, tasks: Any, keys: Any, numbers: Any) -> jax.Array:
    def mean(args: Any) -> jax.Array:
        task, keys = args
        return jnp.mean(jax.vmap(lambda key: hand_losses(simulation, task, key, numbers))(keys), axis=0)

    return jax.lax.map(mean, (tasks, keys))


def searched(points: Points, epsilon: float, quick: bool) -> Found:
    """The grid's errors on public training tasks."""
    family, grid = family_of(epsilon), QUICK_GRID if quick else GRIDS[epsilon]
    simulation = simulation_of(family, family.architecture, Budget(epsilon, DELTA))
    about = {"hand grid": epsilon, "grid": dataclasses.asdict(grid), "family": dataclasses.asdict(family)}
    found = points.values(
        about, lambda: search(simulation, grid, 4 if quick else 48, 1 if quick else 2, GRID_SEED).losses
    )
    return Found(grid, found)


def hand_on_unseen(points: Points, epsilon: float, hands: list[Point], quick: bool) -> np.ndarray:
    """``(hands, tasks)`` mean errors over the start's."""
    family = family_of(epsilon)
    simulation = simulation_of(family, family.architecture, Budget(epsilon, DELTA))
    about = {"hands on unseen": epsilon, "hands": [list(p) for p in hands], "quick": quick}

    def compute() -> Any:
        tasks, keys = _unseen(family, *_counts(quick, REPEATS))
        return np.asarray(_hand_errors(simulation, tasks, keys, numbers_of(simulation, hands))).T

    return points.values(about, compute)


def protected_on_unseen(
    points: Points,
    epsilon: float,
    form: str,
    quick: bool,
    family: RandomChains | None = None,
    learned: bool = True,
    repeats: int = REPEATS,
) -> np.ndarray:
    """``(2, tasks)`` mean errors over the start's and RMSE of a protector (or of its hand schedule).

    ``family``: of the tasks, where it is another than that of training.
    """
    trained_on = family_of(epsilon)
    at = trained_on if family is None else family
    budget = Budget(epsilon, DELTA)
    simulation = simulation_of(at, architecture_of(trained_on, form), budget)
    about = {
        "protected on unseen": epsilon, "repeats": repeats, "form": form, "at": dataclasses.asdict(at), "quick": quick,
        "learned": learned,
        "training": dataclasses.asdict(training_of(trained_on, form, quick)),
        "refined": str(trained_on.refinement) if form == "dense" else "",
    }  # fmt: skip

    def compute() -> Any:
        weights = weights_of(points, epsilon, form, quick)
        tasks, keys = _unseen(at, *_counts(quick, repeats))
        return np.stack([np.asarray(x) for x in _errors(simulation, weights, tasks, keys, learned)])

    return points.values(about, compute)


def weights_of(points: Points, epsilon: float, form: str, quick: bool) -> Any:
    """Of a protector trained on public tasks, once."""
    family = family_of(epsilon)
    simulation = simulation_of(family, architecture_of(family, form), Budget(epsilon, DELTA))
    training = training_of(family, form, quick)
    first = points.learned(simulation, training, family.begin(simulation.architecture, training.seed)).weights
    if form != "dense":
        return first
    after = json.dumps(dataclasses.asdict(training), sort_keys=True)
    return points.learned(simulation, _short(family.refinement, quick), first, after).weights


def protector_of(points: Points, epsilon: float, form: str, quick: bool, learned: bool = True) -> Protector:
    """For :func:`on_domain`: without ranges, or, not ``learned``, with one that nothing is in."""
    family = family_of(epsilon)
    return Protector(
        architecture=architecture_of(family, form),
        hand=family.hand,
        weights=weights_of(points, epsilon, form, quick),
        algorithm=family.algorithm,
        ranges={} if learned else {"units": (0.0, 0.0)},
        provenance={"public": True, "tasks": family.name},
    )


def on_domain(points: Points, epsilon: float, name: str, method: str, quick: bool) -> np.ndarray:
    """``(2, trials)`` MSPBE and RMSE on a domain, 300 trajectories, the whole budget on the value function.

    ``method``: a form, ``hand`` (schedule) or ``default`` (GPOPE with the library's own options).
    """
    about = {"on domain": name, "epsilon": epsilon, "method": method, "quick": quick}

    def compute() -> Any:
        domain = load_domain(name)
        seeds = tuple(range(points.seed, points.seed + (2 if quick else 20)))
        setting = Setting(domain=domain, units=UNITS, budget=Budget(epsilon, DELTA))
        trials = Trials(setting=setting, seeds=seeds, logs=Logs(domain, UNITS, seeds))
        keys = np.stack([np.asarray(SeededNoise.from_seed(seed).key) for seed in seeds])
        config = GPOPE(discount=domain.discount)
        with tempfile.TemporaryDirectory() as folder:
            if method != "default":
                form = "schedule" if method == "hand" else method
                protector_of(points, epsilon, form, quick, method != "hand").save(folder)
                config = config.replace(optimizer=folder)
            found = answers(config, trials, keys, [1.0])[0]
        errors = Metrics(domain).errors(found, are_values=False, clamp=True)
        return np.stack([errors["mspbe"], errors["rmse"]])

    return points.values(about, compute)


def _counts(quick: bool, repeats: int) -> tuple[int, int]:
    return (4, 4) if quick else (UNSEEN, repeats)


def geometric(ratios: np.ndarray) -> float:
    return float(np.exp(np.mean(np.log(np.maximum(ratios, 1e-12)))))


# --- figures ----------------------------------------------------------------------------------------------------------


def policy_evaluation(key: Mapping[str, Any], points: Points) -> dict[str, Any]:
    """Unseen chains: protectors against the hand schedules that are best on public tasks."""
    rows, claims = [], []
    for epsilon in key["epsilon"]:
        found = searched(points, epsilon, key["quick"])
        hands = [found.best("arithmetic"), found.best("geometric")]
        at = hand_on_unseen(points, epsilon, hands, key["quick"])
        best_mean, best_geometric = min(x.mean() for x in at), min(geometric(x) for x in at)
        for name, point, errors in zip(("best mean", "best geometric mean"), hands, at, strict=True):
            edge = found.on_edge(point)
            text = f"step {plain(point.step_size)} and {plain(point.step_size * point.ratio)}, "
            text += f"clip {plain(point.clip_norm)}, {'the last half' if point.tail < 1.0 else 'all'}"
            text += f"; on the edge: {', '.join(edge)}" if edge else "; inside the grid"
            label = f"ε = {plain(epsilon)}: hand schedule, {name} ({text})"
            rows.append(_row(label, errors, None, best_mean, best_geometric, None))
        for form in FORMS:
            errors, rmse = protected_on_unseen(points, epsilon, form, key["quick"])
            rows.append(
                _row(f"ε = {plain(epsilon)}: protector, {form}", errors, rmse, best_mean, best_geometric, at[0])
            )
            if form != "dense":
                continue
            values = (geometric(errors) / best_geometric, errors.mean() / best_mean, float(np.max(errors / at[0])))
            claims.append(
                make_claim(
                    f"At ε = {plain(epsilon)} the protector's error on unseen chains is at most {GEOMETRIC} times "
                    f"(geometric mean) and {ARITHMETIC} times (mean) that of the best hand schedule, and on no task "
                    f"above {WORST} times.",
                    all(v <= limit for v, limit in zip(values, (GEOMETRIC, ARITHMETIC, WORST), strict=True)),
                    f"{number(values[0], 3)}, {number(values[1], 3)} and {number(values[2], 2)}.",
                    ours=True,
                )
            )
        errors, rmse = protected_on_unseen(points, epsilon, "dense", key["quick"], learned=False)
        rows.append(_row(f"ε = {plain(epsilon)}: its fallback", errors, rmse, best_mean, best_geometric, at[0]))
    caption = (
        f"MSPBE over that of the mid-range start on {UNSEEN} unseen chains, mean over {REPEATS} runs of each; beside "
        "it over the best hand schedule's, and on the worst task."
    )
    heads = ["", "mean", "geometric mean", "over best hand: mean", "geometric mean", "worst task", "RMSE of V"]
    return {
        "tables": [{"caption": caption, "heads": heads, "rows": rows}],
        "lines": [], "x": "", "y": "", "claims": claims,
    }  # fmt: skip


def _row(
    name: str, errors: np.ndarray, rmse: Any, best_mean: float, best_geometric: float, hand: np.ndarray | None
) -> list[str]:
    return [
        name,
        number(float(errors.mean()), 3),
        number(geometric(errors), 3),
        number(float(errors.mean() / best_mean), 3),
        number(geometric(errors) / best_geometric, 3),
        "–" if hand is None else number(float(np.max(errors / hand)), 2),
        "–" if rmse is None else number(float(np.mean(rmse)), 3),
    ]


def shifts(family: RandomChains) -> dict[str, RandomChains]:
    """Other tasks than those of training, by name."""
    replace = dataclasses.replace
    return {
        "as trained": family,
        "150 episodes": replace(family, units=150),
        "1,000 episodes": replace(family, units=1000),
        "horizon 24": replace(family, horizon=24),
        "discount 0.9": replace(family, discount=0.9),
        "60 states": replace(family, states=60),
        "random MDPs, 30 states": replace(family, kind="mdps"),
        "12 cosines": replace(family, features="fourier:11"),
        "6 radial functions": replace(family, features="rbf:6"),
        "24 radial functions": replace(family, features="rbf:24"),
    }


def transfer(key: Mapping[str, Any], points: Points) -> dict[str, Any]:
    """The same protectors on other tasks, without the fallback that a release would use."""
    rows = []
    for epsilon in key["epsilon"]:
        trained_on = family_of(epsilon)
        for name, family in shifts(trained_on).items():
            few = {"family": family, "repeats": TRANSFER_REPEATS}
            hand = protected_on_unseen(points, epsilon, "coordinate-wise", key["quick"], **few, learned=False)[0]
            row = [f"ε = {plain(epsilon)}: {name}", number(float(hand.mean()), 3)]
            for form in FORMS:
                if form == "dense" and family.size != trained_on.size:
                    row.append("–")
                    continue
                errors = protected_on_unseen(points, epsilon, form, key["quick"], **few)[0]
                row.append(
                    f"{number(geometric(errors / hand), 2)} / {number(float(errors.mean() / hand.mean()), 2)} / "
                    f"{number(float(np.max(errors / hand)), 1)}"
                )
            rows.append([*row, "protector" if name == "as trained" else "hand schedule"])
    caption = (
        "Error over that of the same hand schedule: geometric mean / mean / worst task, on 48 unseen tasks. What a "
        "release would use is in the last column: beyond what a protector was trained for it is its hand schedule."
    )
    heads = ["", "hand schedule's mean", *FORMS, "in a release"]
    tables = [{"caption": caption, "heads": heads, "rows": rows}]
    rows = []
    methods = {"default": "GPOPE's defaults", "hand": "the hand schedule", "schedule": "schedule"}
    methods |= {"coordinate-wise": "coordinate-wise"}
    for epsilon in key["epsilon"]:
        for name in DOMAINS:
            found = [on_domain(points, epsilon, name, method, key["quick"]) for method in methods]
            cells = [f"{mean_text(mspbe, 4)} / {mean_text(rmse, 4)}" for mspbe, rmse in found]
            rows.append([f"ε = {plain(epsilon)}: {name}", *cells])
    caption = f"MSPBE / RMSE of V on other domains, {UNITS} trajectories, mean ± standard error over 20 logs."
    tables.append({"caption": caption, "heads": ["", *methods.values()], "rows": rows})
    return {
        "tables": tables,
        "lines": [], "x": "", "y": "", "claims": [],
    }  # fmt: skip


# --- the path of a release --------------------------------------------------------------------------------------------


def bounds_of(family: RandomChains) -> Bounds:
    """The public facts of a family's logs."""
    return Bounds(
        units=family.units, horizon=family.horizon, reward=(0.0, 1.0), observation=family.observation, actions=1,
        value=(0.0, 1.0),
    )  # fmt: skip


def trajectories_of(family: RandomChains, log: chains.Log) -> Trajectories:
    """A simulated log as a release reads it."""
    state, following, reward, alive, ended = (np.asarray(x) for x in log)
    units = np.broadcast_to(np.arange(family.units)[:, None], alive.shape)
    columns = {
        "episode_id": units[alive],
        "observation": state[alive][:, None].astype(np.float64),
        "next_observation": following[alive][:, None].astype(np.float64),
        "action": np.zeros(int(alive.sum()), np.int64),
        "reward": reward[alive].astype(np.float64),
        "behavior_prob": np.ones(int(alive.sum())),
        "terminated": ended[alive],
    }
    return from_rollout(columns, bounds_of(family))
