"""Grid search for the best hand schedule on public tasks, which a learned protector corrects and is compared with.

All points of the grid run side by side on the same tasks with the same coins and noise. An optimum on the grid's edge
shows that the grid is too small (:meth:`Found.on_edge`). For public simulations only.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dprl.mechanisms import threefry
from dprl.protectors.simulation import Simulation

CHUNK = 25
"""Points that run side by side."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Candidates of a search: every combination of these values.

    Attributes:
        step_sizes: step sizes of the primal block, or of the only block.
        ratios: ratios of the dual block's step size to the primal block's.
        clip_norms: clip norms, as in the option of the algorithm that is served.
        offsets: offsets of the diminishing schedule; None for constant steps.
        tails: shares of the last iterates whose mean is the answer.
    """

    step_sizes: tuple[float, ...]
    clip_norms: tuple[float, ...]
    ratios: tuple[float, ...] = (1.0,)
    offsets: tuple[float | None, ...] = (None,)
    tails: tuple[float, ...] = (0.5,)

    def points(self) -> list[Point]:
        """Return all combinations."""
        axes = (self.step_sizes, self.ratios, self.clip_norms, self.offsets, self.tails)
        return [Point(*values) for values in itertools.product(*axes)]


class Point(NamedTuple):
    """One hand schedule; see :class:`Grid`."""

    step_size: float
    ratio: float
    clip_norm: float
    offset: float | None
    tail: float


class Numbers(NamedTuple):
    """Points as arrays, with one number per point."""

    step_size: Any
    ratio: Any
    clip_norm: Any
    offset: Any
    kept: Any


@dataclass(frozen=True)
class Found:
    """Result of a search.

    Attributes:
        grid: the grid that was searched.
        losses: ``(tasks, points)`` mean losses over the repeats, relative to the task's reference.
    """

    grid: Grid
    losses: np.ndarray

    def best(self, by: str = "arithmetic") -> Point:
        """Return the point with the smallest finite ``arithmetic`` or ``geometric`` mean over the tasks."""
        with np.errstate(all="ignore"):
            means = self.losses.mean(axis=0) if by == "arithmetic" else np.exp(np.log(self.losses).mean(axis=0))
        return self.grid.points()[int(np.argmin(np.where(np.isfinite(means), means, np.inf)))]

    def on_edge(self, point: Point) -> list[str]:
        """Return the axes among step size, ratio and clip norm on whose smallest or largest value the point lies."""
        axes = {
            "step_size": self.grid.step_sizes,
            "ratio": self.grid.ratios,
            "clip_norm": self.grid.clip_norms,
        }
        found = point._asdict()
        return [name for name, values in axes.items() if len(values) > 1 and found[name] in (min(values), max(values))]


def search(simulation: Simulation, grid: Grid, tasks: int = 48, repeats: int = 2, seed: int = 0) -> Found:
    """Run the whole grid under the noise of the simulation's budget, on ``tasks`` tasks of ``seed``."""
    points = grid.points()
    made, keys = _tasks(simulation, tasks, repeats, seed)
    parts = []
    for first in range(0, len(points), CHUNK):
        chunk = points[first : first + CHUNK]
        filled = chunk + [chunk[-1]] * (CHUNK - len(chunk))
        parts.append(np.asarray(_losses(simulation, made, keys, numbers_of(simulation, filled)))[:, : len(chunk)])
    return Found(grid, np.concatenate(parts, axis=1))


def numbers_of(simulation: Simulation, points: list[Point]) -> Numbers:
    """Return the arrays that :func:`hand_losses` takes."""
    steps = simulation.hand.steps
    columns = (
        [p.step_size for p in points],
        [p.ratio for p in points],
        [p.clip_norm for p in points],
        [np.inf if p.offset is None else p.offset for p in points],
        [max(1, round(p.tail * steps)) for p in points],
    )
    return Numbers(*(jnp.asarray(column, jnp.float32) for column in columns))


def with_point(family: Any, point: Point) -> Any:
    """Return the family of tasks with this hand schedule."""
    return dataclasses.replace(family, **fields_of(point))


def fields_of(point: Point) -> dict[str, Any]:
    """Return the fields of a family of policy-evaluation tasks for this hand schedule."""
    return {
        "clip_norm": point.clip_norm,
        "step_size": point.step_size,
        "dual_step": point.step_size * point.ratio,
        "offset": point.offset,
        "tail": point.tail,
    }


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _tasks(simulation: Simulation, tasks: int, repeats: int, seed: Any) -> tuple[Any, Any]:
    root = jax.random.key(seed)
    keys = jax.random.split(jax.random.fold_in(root, 1), (tasks, repeats))
    return jax.vmap(simulation.family.sample)(jax.random.split(root, tasks)), keys


@functools.partial(jax.jit, static_argnums=0)
def _losses(simulation: Simulation, tasks: Any, keys: Any, numbers: Numbers) -> jax.Array:
    def one(task: Any, keys: Any) -> jax.Array:
        return jnp.mean(jax.vmap(lambda key: hand_losses(simulation, task, key, numbers))(keys), axis=0)

    return jax.lax.map(lambda x: one(*x), (tasks, keys))


def hand_losses(simulation: Simulation, task: Any, key: jax.Array, numbers: Numbers) -> jax.Array:
    """Return ``(points,)`` final losses, relative to the task's reference, of hand schedules with traced numbers.

    Steps, coins and noise are the same as in :func:`~dprl.protectors.simulation.unroll` with ``learned=False``.
    """
    family, steps, size = simulation.family, simulation.hand.steps, simulation.family.dimension
    std = jnp.asarray(simulation.std, jnp.float32)
    dual = jnp.asarray(np.asarray(family.blocks) == 1)
    coins, noise = jax.random.split(key)
    words = jax.random.key_data(noise)

    def body(carry: Any, step: Any) -> tuple[Any, None]:
        parameters, kept = carry
        draw = std * threefry.normal(words, step.astype(jnp.uint32), size + 1)[:size]
        time, coin = step.astype(jnp.float32), jax.random.fold_in(coins, step)

        def one(parameters: Any, kept: Any, point: Numbers) -> tuple[Any, Any]:
            clip = family.natural_clip(point.clip_norm)
            mean = family.mean_gradient(task, parameters, coin, clip).astype(jnp.float32) + draw
            sizes = point.step_size * clip * jnp.where(dual, point.ratio, 1.0) / (1.0 + time / point.offset)
            parameters = family.project(parameters - sizes * mean)
            counted = time >= steps - point.kept
            return parameters, kept + jnp.where(counted, parameters, 0.0) / point.kept

        return jax.vmap(one)(parameters, kept, numbers), None

    start = jnp.broadcast_to(family.initial(task).astype(jnp.float32), (len(numbers.step_size), size))
    (_, kept), _ = jax.lax.scan(body, (start, jnp.zeros_like(start)), jnp.arange(steps, dtype=jnp.int32))
    losses = jax.vmap(lambda answer: family.loss(task, answer))(kept)
    return (losses / family.reference(task)).astype(jnp.float32)
