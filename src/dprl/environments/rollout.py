"""Simulated logs: many trajectories of an environment under a policy, as the columns of a log, and in files.

All of this is public, because no people are in a simulation.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dprl.x64  # noqa: F401  (behaviour probabilities are float64)
from dprl.bounds import Bounds
from dprl.errors import DprlError
from dprl.files import replacing, write_atomically
from dprl.policies.loading import check_policy, synthetic_states
from dprl.protocols import Environment, Policy

Columns = dict[str, np.ndarray]
"""Columns of a log by name: ``(N,)`` each, observations ``(N, d)``."""

COLUMN_NAMES = (
    *("episode_id", "t", "observation", "next_observation"),
    *("action", "reward", "behavior_prob", "terminated", "truncated"),
)
SUFFIXES = (".parquet", ".csv")
_CHUNK = 64  # steps in one compiled scan; a batch may end after each scan


def rollout(
    environment: Environment,
    policy: Policy,
    key: jax.Array,
    episodes: int,
    *,
    batch: int = 4096,
    progress: Callable[[int], None] | None = None,
) -> Columns:
    """Simulate ``episodes`` trajectories of ``environment`` under ``policy``.

    A policy that JAX can trace is compiled with the simulator. Any other policy is called on the host, once per step,
    with the trajectories that are still running. A trajectory depends only on ``key`` and its own number, not on
    ``batch``.

    Args:
        environment: a :class:`dprl.protocols.Environment`, hashable.
        policy: function from states ``(N, d)`` float32 to probabilities ``(N, A)``, row by row.
        key: a JAX random key.
        episodes: number of trajectories.
        batch: number of trajectories that run side by side; it bounds the memory used besides the result.
        progress: function that is called with the number of trajectories that are done.

    Returns:
        ``episode_id``, ``t`` and ``action`` int64, ``observation`` and ``next_observation`` float32 ``(N, d)``,
        ``reward`` and ``behavior_prob`` float64, ``terminated`` and ``truncated`` bool; ordered by episode and time.
        ``truncated`` marks the last transition of a trajectory that the horizon cut.

    Raises:
        DprlError: the policy does not give probabilities (see :func:`dprl.policies.check_policy`).
    """
    if episodes < 1 or batch < 1:
        raise DprlError("The number of episodes must be at least 1.")
    check_policy(policy, environment_bounds(environment, units=episodes))
    width = min(batch, episodes)
    traced = _traceable(policy, len(environment.observation_bounds), environment.actions)
    parts = []
    for first in range(0, episodes, width):
        ids = np.arange(first, first + width)
        parts.append(_batch(environment, policy, traced, key, ids, ids < episodes))
        if progress is not None:
            progress(min(first + width, episodes))
    return {name: np.concatenate([part[name] for part in parts]) for name in COLUMN_NAMES}


def _batch(
    environment: Environment, policy: Policy, traced: bool, key: Any, ids: np.ndarray, exists: np.ndarray
) -> Columns:
    horizon = environment.horizon
    chunks = -(-horizon // _CHUNK)
    length = -(-horizon // chunks) if traced else 1
    state, keys = _start(environment, key, jnp.asarray(ids))
    alive, t = jnp.asarray(exists), 0
    records: list[Columns] = []
    while t < horizon and np.asarray(alive).any():
        if traced:
            state, alive, record = _scan(environment, policy, length, keys, t, state, alive)
        else:
            probabilities = _ask(policy, environment, _observe(environment, state), np.asarray(alive))
            state, alive, record = _single(environment, keys, t, state, alive, probabilities)
        records.append({name: np.asarray(value) for name, value in record.items()})
        t += length
    # from (time, trajectory, ...) to one row per transition that happened, by trajectory and then by time
    ran = np.concatenate([record.pop("ran") for record in records]).T
    columns = {
        name: np.swapaxes(np.concatenate([record[name] for record in records]), 0, 1)[ran] for name in records[0]
    }
    which, when = np.nonzero(ran)
    return {"episode_id": ids[which].astype(np.int64), "t": when.astype(np.int64), **columns}


@functools.partial(jax.jit, static_argnames="environment")
def _start(environment: Environment, key: Any, ids: Any) -> tuple[Any, Any]:
    def one(episode: Any) -> tuple[Any, Any]:
        reset_key, step_key = jax.random.split(jax.random.fold_in(key, episode))
        return environment.reset(reset_key), step_key

    return jax.vmap(one)(ids)


@functools.partial(jax.jit, static_argnames="environment")
def _observe(environment: Environment, state: Any) -> Any:
    return jax.vmap(environment.observe)(state)


def _transition(
    environment: Environment, keys: Any, t: Any, state: Any, alive: Any, probabilities: Any
) -> tuple[Any, ...]:
    """Take one step of every trajectory at once; the states of trajectories that are over do not change."""
    running = alive & (t < environment.horizon)
    step_keys = jax.vmap(lambda k: jax.random.split(jax.random.fold_in(k, t)))(keys)
    uniform = jax.vmap(lambda k: jax.random.uniform(k, dtype=jnp.float64))(step_keys[:, 0])
    action = _draw(jnp.asarray(probabilities, jnp.float64), uniform)
    following, reward, terminated = jax.vmap(environment.step)(step_keys[:, 1], state, action)
    record = {
        "observation": jax.vmap(environment.observe)(state).astype(jnp.float32),
        "next_observation": jax.vmap(environment.observe)(following).astype(jnp.float32),
        "action": action,
        "reward": reward.astype(jnp.float64),
        "behavior_prob": jnp.take_along_axis(jnp.asarray(probabilities, jnp.float64), action[:, None], axis=1)[:, 0],
        "terminated": terminated,
        "truncated": ~terminated & (t == environment.horizon - 1),
        "ran": running,
    }

    def keep(new: Any, old: Any) -> Any:
        return jnp.where(running.reshape((-1,) + (1,) * (new.ndim - 1)), new, old)

    return jax.tree.map(keep, following, state), running & ~terminated, record


def _draw(probabilities: Any, uniform: Any) -> Any:
    """Return an action for each row, by inverting its cumulative distribution; never one of probability zero."""
    cumulative = jnp.cumsum(probabilities, axis=1)
    action = jnp.sum(cumulative <= (uniform * cumulative[:, -1])[:, None], axis=1)
    largest = probabilities.shape[1] - 1 - jnp.argmax(probabilities[:, ::-1] > 0, axis=1)
    return jnp.minimum(action, largest).astype(jnp.int64)


@functools.partial(jax.jit, static_argnames=("environment", "policy", "length"))
def _scan(
    environment: Environment, policy: Any, length: int, keys: Any, t: Any, state: Any, alive: Any
) -> tuple[Any, ...]:
    def step(carry: Any, now: Any) -> tuple[Any, Any]:
        state, alive = carry
        probabilities = policy(jax.vmap(environment.observe)(state).astype(jnp.float32))
        state, alive, record = _transition(environment, keys, now, state, alive, probabilities)
        return (state, alive), record

    (state, alive), record = jax.lax.scan(step, (state, alive), t + jnp.arange(length, dtype=jnp.int64))
    return state, alive, record


@functools.partial(jax.jit, static_argnames="environment")
def _single(environment: Environment, keys: Any, t: Any, state: Any, alive: Any, probabilities: Any) -> tuple[Any, ...]:
    state, alive, record = _transition(environment, keys, t, state, alive, probabilities)
    return state, alive, {name: value[None] for name, value in record.items()}


def _ask(policy: Policy, environment: Environment, observations: Any, alive: np.ndarray) -> np.ndarray:
    observations = np.asarray(observations, dtype=np.float32)
    probabilities = np.full((len(alive), environment.actions), 1.0 / environment.actions)
    probabilities[alive] = action_probabilities(policy, observations[alive], environment.actions)
    return probabilities


def _traceable(policy: Policy, size: int, actions: int) -> bool:
    """Tell whether JAX can compile ``policy``."""
    try:
        hash(policy)
        answer = jax.eval_shape(policy, jax.ShapeDtypeStruct((3, size), jnp.float32))
    except Exception:
        return False
    return getattr(answer, "shape", None) == (3, actions)


# --- simulations on the host ------------------------------------------------------------------------------------------


def action_probabilities(policy: Policy, observations: np.ndarray, actions: int) -> np.ndarray:
    """Return ``(N, actions)`` float64 probabilities of a policy in a simulation, at ``(N, d)`` observations.

    Raises:
        DprlError: the answer has another shape, or a number in it is negative.
    """
    answer = np.asarray(policy(observations), dtype=np.float64)
    if answer.shape != (len(observations), actions) or not np.all(answer >= 0):
        raise DprlError("The policy did not return action probabilities for the states of the simulation.")
    return answer


def log_columns(trajectories: Sequence[Sequence[tuple[Any, ...]]]) -> Columns:
    """Return the columns of a log from the transitions of each trajectory, as :func:`rollout` describes them.

    A transition is a tuple of observation, next observation, action, reward, behaviour probability, whether it
    terminated, and whether it was truncated.
    """
    cells = zip(*(transition for trajectory in trajectories for transition in trajectory), strict=True)
    kinds = (np.float32, np.float32, np.int64, np.float64, np.float64, bool, bool)
    columns = [np.asarray(values).astype(kind, copy=False) for values, kind in zip(cells, kinds, strict=True)]
    lengths = [len(trajectory) for trajectory in trajectories]
    number = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
    time = np.concatenate([np.arange(length, dtype=np.int64) for length in lengths])
    return dict(zip(COLUMN_NAMES, [number, time, *columns], strict=True))


# --- public bounds of a simulation ------------------------------------------------------------------------------------


def environment_bounds(environment: Environment, units: int, max_importance_ratio: float = 1.0) -> Bounds:
    """Return the environment's public facts as the bounds of a log of ``units`` trajectories."""
    return Bounds(
        units=units,
        horizon=environment.horizon,
        reward=environment.reward_bounds,
        observation=environment.observation_bounds,
        actions=environment.actions,
        max_importance_ratio=max_importance_ratio,
        return_range=getattr(environment, "value_bounds", None),
    )


def largest_ratio(policy: Policy, bounds: Bounds) -> float:
    """Return a bound on the importance ratio of any target policy.

    It is one over the behaviour policy's least positive probability on the public synthetic states. It is exact for a
    behaviour policy that does not depend on the state.
    """
    probabilities = np.asarray(policy(synthetic_states(bounds)), dtype=np.float64)
    return float(max(1.0, 1.0 / probabilities[probabilities > 0].min()))


def bounds_toml(bounds: Bounds, notes: Mapping[str, str] | None = None) -> str:
    """Return ``bounds`` as TOML text, with ``notes`` as comments on the lines of their names."""

    def text(value: Any) -> str:
        if isinstance(value, tuple):
            return f"[{', '.join(map(text, value))}]"
        return repr(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))

    lines = ["# Everything that is assumed public about the log. Rows are clamped to these bounds."]
    for name, value in bounds.as_dict().items():
        note = (notes or {}).get(name)
        lines.append(f"{name} = {text(value)}" + (f"  # {note}" if note else ""))
    return "\n".join(lines) + "\n"


# --- files ------------------------------------------------------------------------------------------------------------


def check_output(path: Path | str, suffixes: Sequence[str] = SUFFIXES) -> Path:
    """Return ``path``; raise a DprlError if its suffix is not known or its folder cannot be written to."""
    path = Path(path)
    if path.suffix.lower() not in suffixes:
        raise DprlError(f"The file {path.name!r} must end in {' or '.join(suffixes)}.")
    if not path.parent.is_dir():
        raise DprlError(f"There is no folder {str(path.parent)!r} to write {path.name!r} in; create it first.")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise DprlError(f"Cannot write {str(path)!r}; choose another file.")
    return path


def write_text(text: str, path: Path | str) -> None:
    """Write a text file, either whole or not at all."""
    write_atomically(path, text.encode())


def write_log(columns: Mapping[str, np.ndarray], path: Path | str) -> None:
    """Write the columns of a log as Parquet or CSV, by the suffix of ``path``, either whole or not at all.

    A column ``(N, d)`` becomes ``name_0 .. name_{d-1}``. Types: int64, float64 or float32, bool.

    Raises:
        DprlError: the suffix is unknown, the folder is missing, or the file cannot be written.
    """
    import pyarrow as pa

    path = check_output(path)
    arrays: dict[str, np.ndarray] = {}
    for name, values in columns.items():
        if values.ndim == 2:
            arrays.update({f"{name}_{i}": np.ascontiguousarray(values[:, i]) for i in range(values.shape[1])})
        else:
            arrays[name] = values
    kinds: dict[str, Callable[[], pa.DataType]] = {"i": pa.int64, "f": pa.float64, "b": pa.bool_}
    schema = pa.schema(
        [
            pa.field(name, pa.float32() if a.dtype == np.float32 else kinds[a.dtype.kind](), nullable=False)
            for name, a in arrays.items()
        ]
    )
    table = pa.table({f.name: pa.array(arrays[f.name], type=f.type) for f in schema}, schema=schema)
    with replacing(path) as temporary:
        if path.suffix.lower() == ".csv":
            from pyarrow import csv

            csv.write_csv(table, temporary)
        else:
            from pyarrow import parquet

            parquet.write_table(table, temporary)
