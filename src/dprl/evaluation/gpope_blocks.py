"""GPOPE's compiled updates with the noise of a release, for many trials at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dprl.engine.layouts import PaddedUnits, SharedTransitions
from dprl.engine.program import draw_width, run_steps
from dprl.evaluation.gpope import GPOPE, Projection, State, answer, init, program_of
from dprl.mechanisms.blocks import DrawnNoise, draw_block, split
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SecureNoise


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
