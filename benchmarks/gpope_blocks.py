"""GPOPE's compiled updates with the noise of a release, for many trials at once: drawn on the host in blocks of steps,
while the loop computes another.

The draws are those that :class:`SecureNoise` gives step by step, whatever the size of a block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dprl.engine.layouts import PaddedUnits, SharedTransitions
from dprl.engine.program import draw_width, run_steps
from dprl.evaluation.gpope import GPOPE, Projection, State, answer, init, program_of
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SecureNoise
from dprl.mechanisms.rounded_gaussian import TOTAL_VARIATION

BLOCK_BYTES = 1 << 24
"""Size of a block of draws and coins. Two are there at a time; one step of all trials is the least."""
_MOST_STEPS = 256


@dataclass(frozen=True)
class DrawnNoise:
    """One block of a secure source's draws as a :class:`~dprl.protocols.NoiseSource` for compiled code.

    A pytree: ``vmap`` over its trials as :meth:`axes` says. Steps outside of the block have no draws: asked for one,
    it gives the least int64 in every coordinate and nobody's coin, never another step's noise.

    Attributes:
        first: number of the block's first step.
        draws: ``(steps, width)`` int64; with trials ``(trials, steps, width)``.
        heads: ``(steps, units)`` booleans, ``(trials, steps, units)`` with trials, or None at a sampling rate of 1.
        chosen: ``(steps,)`` or ``(trials, steps)`` int32 indices for calibrations as published, or None.
        std: standard deviation of the draws, in grid points.
        rate: sampling rate of the coins.
    """

    first: Any
    draws: Any
    heads: Any
    chosen: Any
    std: float
    rate: float
    secure: bool = field(default=True, init=False)
    total_variation_per_draw: float = field(default=TOTAL_VARIATION, init=False)

    def describe(self) -> str:
        return "ChaCha20 keyed by the operating system, rounded Gaussian on an integer grid, drawn in blocks"

    def axes(self) -> DrawnNoise:
        """``in_axes`` for ``vmap`` over the trials."""
        axis: Any = lambda x: None if x is None else 0  # noqa: E731
        return DrawnNoise(None, 0, axis(self.heads), axis(self.chosen), self.std, self.rate)

    def gaussian(self, step: Any, dimension: int, std: float) -> jax.Array:
        if std != self.std or dimension > self.draws.shape[-1]:
            raise ValueError("the block was drawn for another standard deviation, or for fewer coordinates")
        return self._of(self.draws, step, np.iinfo(np.int64).min)[:dimension]

    def coins(self, step: Any, count: int, rate: float) -> jax.Array:
        if rate == 1.0:
            return jnp.ones(count, dtype=bool)
        if self.heads is None or rate != self.rate or count != self.heads.shape[-1]:
            raise ValueError("the block was drawn for another sampling rate or number of units")
        return self._of(self.heads, step, False)

    def below(self, step: Any, count: int) -> jax.Array:
        """The index that was drawn below ``count`` for this step."""
        if self.chosen is None:
            raise ValueError("the block was drawn without indices")
        del count
        return self._of(self.chosen, step, 0)

    def _of(self, values: Any, step: Any, fill: Any) -> jax.Array:
        place = jnp.asarray(step).astype(jnp.int64) - self.first
        inside = (place >= 0) & (place < values.shape[0])
        row = jax.lax.dynamic_index_in_dim(jnp.asarray(values), jnp.where(inside, place, 0), keepdims=False)
        return jnp.where(inside, row, jnp.asarray(fill, dtype=row.dtype))


jax.tree_util.register_dataclass(
    DrawnNoise, data_fields=["first", "draws", "heads", "chosen"], meta_fields=["std", "rate"]
)


def draw_block(
    mechanism: GaussianSum,
    sources: Sequence[SecureNoise],
    first: int,
    steps: int,
    width: int,
    units: int,
    index: bool = False,
) -> DrawnNoise:
    """The draws of ``steps`` steps from ``first``, for as many trials as there are sources.

    Args:
        width: Gaussian draws of a step, at least the mechanism's dimension.
        units: number of coins of a step, tossed at the mechanism's sampling rate.
        index: draw one uniform index below ``units`` a step instead of coins.
    """
    std, rate = mechanism.noise_on_grid, mechanism.sampling_rate
    draws = np.empty((len(sources), steps, width), dtype=np.int64)
    heads = np.empty((len(sources), steps, units), dtype=bool) if rate < 1.0 and not index else None
    chosen = np.empty((len(sources), steps), dtype=np.int32) if index else None
    for trial, source in enumerate(sources):
        source.block(first, steps, width, std, draws[trial])
        if heads is not None:
            heads[trial] = source.coin_block(first, steps, units, rate)
        if chosen is not None:
            chosen[trial] = source.below_block(first, steps, units)
    return DrawnNoise(np.int64(first), draws, heads, chosen, std, rate)


def split(steps: int, bytes_a_step: int, budget: int = BLOCK_BYTES) -> Iterator[tuple[int, int]]:
    """First step and length of blocks that hold at most ``budget`` bytes, or one step. Of two lengths at most, since
    compiled code is for one length.

    >>> list(split(10, 3, 12))
    [(0, 4), (4, 3), (7, 3)]
    """
    most = min(max(budget // max(bytes_a_step, 1), 1), _MOST_STEPS)
    blocks = -(-steps // most)
    first = 0
    for i in range(blocks):
        length = steps // blocks + (i < steps % blocks)
        yield first, length
        first += length


def run_in_blocks(
    config: GPOPE,
    mechanism: GaussianSum,
    sources: Sequence[SecureNoise],
    data: SharedTransitions | PaddedUnits,
    start: Any,
    *,
    units: int,
    projection: Projection,
    batch: int = 32,
    data_axes: Any = None,
    released: Callable[[np.ndarray], None] | None = None,
) -> tuple[State, jax.Array]:
    """As :func:`~dprl.evaluation.gpope.run` with the noise of a release, one trial a source.

    A block of steps is drawn on the host while the one before is computed. Two blocks of draws are in memory, each of
    at most 16 MiB or one step of all trials.

    Args:
        sources: the trials' noise, already the mechanism's streams; draws and coins are those of their steps.
        data: the log that all trials share; or one a trial, where ``data_axes`` has the trials' axes, as in ``vmap``.
        released: called with every block's ``(trials, steps, 2n)`` noised sums, in order.

    Returns:
        Final states, and the released weights ``(trials, n)``: every array with the trials first.
    """
    one = init(config, start)
    state = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(sources), *x.shape)), one)
    count = jax.vmap(lambda log, trial: jnp.zeros(log.units), in_axes=(data_axes, 0))
    members = jax.eval_shape(count, data, jnp.zeros(len(sources))).shape[1]
    width, by_index = draw_width(mechanism), config.calibration == "as-published"
    bytes_a_step = len(sources) * (8 * width + (members if mechanism.sampling_rate < 1.0 and not by_index else 0))
    trace = None
    for first, steps in split(config.steps, bytes_a_step):
        noise = draw_block(mechanism, sources, first, steps, width, members, by_index)
        jax.block_until_ready(state)
        options = (config, mechanism, units, projection, batch, data_axes, released is not None)
        following = _block(*options, state, noise, data)
        if released is not None and trace is not None:
            released(np.asarray(trace))
        state, trace = following
    if released is not None and trace is not None:
        released(np.asarray(trace))
    return state, answer(config, state)


@partial(jax.jit, static_argnames=("config", "mechanism", "units", "projection", "batch", "data_axes", "trace"))
def _block(
    config: GPOPE, mechanism: GaussianSum, units: int, projection: Projection, batch: int, data_axes: Any,
    trace: bool, state: State, noise: DrawnNoise, data: Any,
) -> tuple[State, Any]:  # fmt: skip
    # the steps are those that the block holds: none is computed without noise
    steps = (noise.first, noise.draws.shape[1])
    program = program_of(config, mechanism, units, projection)

    def one(state: State, noise: DrawnNoise, log: Any) -> tuple[State, Any]:
        keep = (lambda state, noised: noised) if trace else None
        return run_steps(program, 0, mechanism, noise, log, state, steps, batch, keep)

    return jax.vmap(one, in_axes=(0, noise.axes(), data_axes))(state, noise, data)
