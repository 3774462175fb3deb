"""Protectors of private policy evaluation: comparison with the best hand schedule on unseen chains, and transfer.

The setting has logs of 300 simulated episodes, 12 radial basis functions, GPOPE with 100 steps at a rate of 1/20, and
the whole budget of (epsilon, 1e-5) on the value function. Hand schedules are the best of a grid on public training
tasks, and protectors are trained on public tasks. Both are measured on tasks that neither has seen. Simulations only.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dprl.accounting.budget import Budget
from dprl.bounds import Bounds
from dprl.data.trajectories import Trajectories
from dprl.evaluation.gpope import GPOPE
from dprl.mechanisms.noise import SeededNoise
from dprl.protectors import random_chains as chains
from dprl.protectors.meta_training import simulation_of
from dprl.protectors.objective import Training
from dprl.protectors.policy_evaluation import RandomChains
from dprl.protectors.projector import Architecture
from dprl.protectors.protector import Protector
from dprl.protectors.simulation import Simulation, unroll
from dprl_papers.baselines.hand_grid import Grid, GridSearchResult, Point, hand_losses, point_arrays, search
from dprl_papers.harness.algorithm import answers
from dprl_papers.harness.domain import from_rollout, load_domain
from dprl_papers.harness.metrics import Metrics
from dprl_papers.harness.problem import Logs, Setting, Trials
from dprl_papers.harness.programmed import Run
from dprl_papers.paper_002_l2p.trainings import learned

DELTA = 1e-5
UNITS = 300
UNSEEN, REPEATS, TRANSFER_REPEATS = 48, 256, 32
"""Tasks, and runs of each: of 32 runs the ratio of two means still has a standard error of a tenth."""
UNSEEN_SEED, GRID_SEED = 2_000_003, 1_000_001

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
"""Grids of hand schedules, by epsilon."""
QUICK_GRID = Grid(step_sizes=(0.05, 0.1, 0.2), clip_norms=(0.0144, 0.0577), ratios=(1.0, 4.0))

FORMS = ("dense", "coordinate-wise", "schedule")
SEED_STRIDE = 1000
"""Distance between the seeds of two trainings; the second part of a training has the seed after its first part."""


def values(chain: chains.Chain, discount: float) -> jax.Array:
    """Return the ``(S,)`` expected discounted outcomes; an episode is never cut."""
    size = chain.ends.shape[0]
    live = chain.moves * (1.0 - chain.ends)[:, None]
    return jnp.linalg.solve(jnp.eye(size, dtype=jnp.float32) - discount * live, chain.ends * chain.outcome)


def family_of(epsilon: float) -> RandomChains:
    return RandomChains().tuned(Budget(epsilon, DELTA))


def architecture_of(family: RandomChains, form: str) -> Architecture:
    """Return the architecture of a form.

    ``dense`` is for one set of features. The paper's ``coordinate-wise`` LSTM serves any number of parameters, and so
    does a ``schedule`` of noise, steps and averaging without an LSTM.
    """
    if form == "dense":
        return family.architecture
    layers, scheduler = (2, "uniform") if form == "coordinate-wise" else (0, "public")
    return Architecture(layers=layers, scheduler=scheduler, knots=6, learned_clip=True, learned_average=True)


def training_of(family: RandomChains, form: str, seed: int, quick: bool) -> Training:
    training = dataclasses.replace(family.training, seed=seed * SEED_STRIDE)
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
    """Return ``(tasks,)`` mean errors relative to the start's, and mean RMSE of the values in the outcome's unit."""
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


def searched_grid(run: Run, epsilon: float) -> GridSearchResult:
    """Return the grid of hand schedules with its errors on public training tasks."""
    grid = QUICK_GRID if run.quick else GRIDS[epsilon]
    tasks, repeats = (4, 1) if run.quick else (48, 2)
    return GridSearchResult(grid, run.values_of(_search, epsilon, family_of(epsilon), grid, tasks, repeats))


def _search(epsilon: float, family: RandomChains, grid: Grid, tasks: int, repeats: int) -> np.ndarray:
    simulation = simulation_of(family, family.architecture, Budget(epsilon, DELTA))
    return search(simulation, grid, tasks, repeats, GRID_SEED).losses


def hand_on_unseen(run: Run, epsilon: float, hands: list[Point]) -> np.ndarray:
    """Return the ``(hands, tasks)`` mean errors of hand schedules, relative to the start's."""
    family = family_of(epsilon)
    simulation = simulation_of(family, family.architecture, Budget(epsilon, DELTA))
    tasks, keys = _unseen(family, *_counts(run.quick, REPEATS))
    return np.asarray(_hand_errors(simulation, tasks, keys, point_arrays(simulation, hands))).T


def protected_on_unseen(
    run: Run, epsilon: float, form: str, at: RandomChains, repeats: int, learns: bool, seed: int
) -> dict[str, np.ndarray]:
    """Return each task's mean ``errors``, relative to the start's, and ``rmse``, by a protector or its hand schedule.

    ``at`` is the family of the tasks, which may differ from the family of training.
    """
    simulation = simulation_of(at, architecture_of(family_of(epsilon), form), Budget(epsilon, DELTA))
    weights = weights_of(run, epsilon, form, seed)
    tasks, keys = _unseen(at, *_counts(run.quick, repeats))
    errors, rmse = _errors(simulation, weights, tasks, keys, learns)
    return {"errors": np.asarray(errors), "rmse": np.asarray(rmse)}


def weights_of(run: Run, epsilon: float, form: str, seed: int) -> Any:
    """Return the weights of a protector, which is trained once on public tasks."""
    family = family_of(epsilon)
    simulation = simulation_of(family, architecture_of(family, form), Budget(epsilon, DELTA))
    training = training_of(family, form, seed, run.quick)
    first = learned(run, simulation, training, family.begin(simulation.architecture, training.seed)).weights
    if form != "dense":
        return first
    after = json.dumps(dataclasses.asdict(training), sort_keys=True)
    refinement = dataclasses.replace(family.refinement, seed=training.seed + 1)
    return learned(run, simulation, _short(refinement, run.quick), first, after).weights


def protector_of(run: Run, epsilon: float, form: str, learns: bool, seed: int) -> Protector:
    """Return a protector for :func:`on_domain`.

    It has no ranges if it ``learns``. Otherwise it has a range that contains nothing, so that its hand schedule runs.
    """
    family = family_of(epsilon)
    return Protector(
        architecture=architecture_of(family, form),
        hand=family.hand,
        weights=weights_of(run, epsilon, form, seed),
        algorithm=family.algorithm,
        ranges={} if learns else {"units": (0.0, 0.0)},
        provenance={"public": True, "tasks": family.name},
    )


def on_domain(run: Run, epsilon: float, name: str, method: str, seed: int) -> dict[str, np.ndarray]:
    """Return ``mspbe`` and ``rmse`` of each log of a domain, with the whole budget on the value function.

    A log has 300 trajectories.

    ``method`` is a form, ``hand`` (the hand schedule) or ``default`` (GPOPE with the library's own options).
    """
    domain = load_domain(name)
    seeds = tuple(range(run.seed, run.seed + (2 if run.quick else 20)))
    setting = Setting(domain=domain, units=UNITS, budget=Budget(epsilon, DELTA))
    trials = Trials(setting=setting, seeds=seeds, logs=Logs(domain, UNITS, seeds))
    keys = np.stack([np.asarray(SeededNoise.from_seed(seed).key) for seed in seeds])
    config = GPOPE(discount=domain.discount)
    with tempfile.TemporaryDirectory() as folder:
        if method != "default":
            form = "schedule" if method == "hand" else method
            protector_of(run, epsilon, form, method != "hand", seed).save(folder)
            config = config.replace(optimizer=folder)
        found = answers(config, trials, keys, [1.0])[0]
    errors = Metrics(domain).errors(found, are_values=False, clamp=True)
    return {name: errors[name] for name in ("mspbe", "rmse")}


def _counts(quick: bool, repeats: int) -> tuple[int, int]:
    return (4, 4) if quick else (UNSEEN, repeats)


def geometric(ratios: np.ndarray) -> float:
    return float(np.exp(np.mean(np.log(np.maximum(ratios, 1e-12)))))


# --- the path of a release --------------------------------------------------------------------------------------------


def bounds_of(family: RandomChains) -> Bounds:
    """Return the public facts of a family's logs."""
    return Bounds(
        units=family.units, horizon=family.horizon, reward=(0.0, 1.0), observation=family.observation, actions=1,
        return_range=(0.0, 1.0),
    )  # fmt: skip


def trajectories_of(family: RandomChains, log: chains.Log) -> Trajectories:
    """Return a simulated log in the form that a release reads."""
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
