"""What the tests of the released-once algorithms share: small logs with extreme rows, and programs on them."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np

from dprl.accounting.budget import Budget
from dprl.bounds import Bounds
from dprl.data.readers import read_log
from dprl.engine.layouts import padded_units
from dprl.engine.loop import noiseless, run
from dprl.engine.ratios import step_ratios
from dprl.engine.rows import rows_of
from dprl.engine.value_query import value_mechanism
from dprl.evaluation.plan import program_for
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SeededNoise
from dprl.value_functions.features import make_features

from . import helpers

BUDGET = Budget(1.0, 1e-5)


def extreme_bounds(units: int, components: int = 1) -> Bounds:
    """Values tighter than the rewards imply, ratios above one."""
    return Bounds(
        units=units, horizon=6, reward=(-1.0, 2.0), observation=((0.0, 4.0),) * components, actions=2,
        max_importance_ratio=1.6, max_cumulative_ratio=2.5, return_range=(-2.0, 3.0),
    )  # fmt: skip


def extreme_log(units: int, seed: int, components: int = 1) -> dict[str, Any]:
    """People with one to three trajectories of one to six steps; every value is somewhere at its bound."""
    rng = np.random.default_rng(seed)
    rows: list[dict[str, float]] = []
    episode = 0
    for person in range(units):
        for _ in range(rng.integers(1, 4)):
            length = int(rng.integers(1, 7))
            ends = rng.random() < 0.7
            sticky = rng.random() < 0.5
            state = rng.integers(0, 5, components)
            for t in range(length):
                rows.append(
                    {
                        "person_id": person, "episode_id": episode, "t": t, "action": int(rng.random() < 0.5),
                        "reward": float(rng.choice([-1.0, 2.0, 0.0, rng.uniform(-1, 2)])), "behavior_prob": 0.5,
                        "terminated": float(ends and t == length - 1),
                    }
                    | {f"x{i}": float(v) for i, v in enumerate(state)}
                )  # fmt: skip
                state = state if sticky else rng.integers(0, 5, components)
            episode += 1
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def extreme_policy(states: np.ndarray) -> np.ndarray:
    return np.column_stack([np.full(len(states), 0.2), np.full(len(states), 0.8)])


def load(columns: dict[str, Any], bounds: Bounds, person: str | None = None) -> Any:
    """The log; columns x0, x1, ... are its observation."""
    columns = dict(columns)
    names = [name for name in columns if name.startswith("x")]
    if names:
        columns["observation"] = np.column_stack([columns.pop(name) for name in names])
    return read_log(columns, bounds=bounds, person=person).load()


def extreme(units: int, seed: int, components: int = 1) -> Any:
    return load(extreme_log(units, seed, components), extreme_bounds(units, components), "person_id")


def make(config: Any, bounds: Bounds, features: str, budget: Budget = BUDGET) -> Any:
    """The program with all of the budget."""
    return program_for(config, bounds, make_features(features, bounds.observation), budget)


def rows(log: Any, program: Any, config: Any, features: str, policy: Any = None, dtype: Any = np.float64) -> Any:
    """Its rows, with the columns that the program asks for; on-policy without a policy."""
    ratios = np.ones(len(log.reward)) if policy is None else step_ratios(policy, log)
    value = log.bounds.value_interval(config.discount)
    return rows_of(
        log, ratios, make_features(features, log.bounds.observation), config.discount, value, dtype=dtype,
        columns=program.columns,
    )  # fmt: skip


def made(
    config: Any, log: Any, features: str, policy: Any = None, bounds: Bounds | None = None, **options: Any
) -> tuple[Any, Any, Any]:
    """The program with all of a budget, the log's rows as it sees them, and the same rows padded.

    The program is that of ``bounds``, by default the log's; ``options`` are those of :func:`make` and :func:`rows`.
    """
    budget = options.pop("budget", BUDGET)
    program = make(config, log.bounds if bounds is None else bounds, features, budget)
    flat = rows(log, program, config, features, policy, **options)
    return program, flat, padded_units(flat)


def plain(program: Any, data: Any) -> tuple[Any, np.ndarray]:
    """Final state and answer in the noiseless limit."""
    state, theta = _plain(program, data)
    return state, np.asarray(theta)


@partial(jax.jit, static_argnums=0)
def _plain(program: Any, data: Any) -> Any:
    return run(program, SeededNoise.from_seed(0), data, mechanisms=noiseless(program))


def vectors(program: Any, stage: int, state: Any, data: Any) -> np.ndarray:
    """``(U, dimension)`` vectors of all units."""
    return np.asarray(of_block(program, stage, state, data.block(slice(None))))


# compiled whole: one operation after the other, each for its own shapes, takes several times as long
@partial(jax.jit, static_argnums=(0, 1))
def of_block(program: Any, stage: int, state: Any, block: Any) -> Any:
    """The same of one block of units."""
    return program.contribution(stage, state, block)


def quiet(query: Any) -> GaussianSum:
    """The noiseless limit of a query's mechanism."""
    return value_mechanism(query, 1.0).plain()


def check_no_clip_binds(program: Any, state: Any, data: Any) -> None:
    """Every unit's vector of every stage is within the clip norm that follows from the public bounds."""
    for stage, found in enumerate(program.stages):
        made = vectors(program, stage, state, data)
        assert made.shape[1] == found.mechanism.dimension
        assert np.linalg.norm(made, axis=1).max() <= found.mechanism.clip_norm * (1 + 1e-9)


def stepped(people: int, seed: int = 0, bounds: Bounds | None = None) -> Any:
    """A log of several decisions over three states."""
    return load(helpers.stepped_log(people, seed), helpers.stepped_bounds(people) if bounds is None else bounds)


def chain(units: int, seed: int) -> Any:
    """A log of the 40-state chain."""
    return load(helpers.chain_log(units, seed), helpers.chain_bounds(units))


def chain_values(advance: float = 0.5, discount: float = helpers.DISCOUNT) -> np.ndarray:
    """Values of the chain's states, from the end backwards."""
    out, following = np.zeros(helpers.STATES), 1.0 / discount
    for state in reversed(range(helpers.STATES)):
        following = out[state] = advance * discount * following / (1.0 - discount * (1.0 - advance))
    return out
