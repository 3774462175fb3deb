"""Loop that runs every program: noisy sums over units, stage after stage.

A :class:`~dprl.engine.program.Program` says what a unit's vector is and how a noisy sum changes the state. Everything
that touches rows (clipping, coins, noise, the journal) happens here, in two forms of the same steps: :func:`run` is a
pure function to ``jit`` and to ``vmap`` over noise keys and logs; :func:`run_on_host` takes any noise source and logs
of any size.

Privacy unit: that of the source, such as a trajectory, or a person with all their trajectories. Relation: that of each
stage's mechanism, such as add or remove one. Released: every noisy sum, hence every state and the answer; everything
computed from noisy sums is post-processing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from operator import add
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dprl.arrays import AnyArray
from dprl.engine.layouts import LEAST_ROWS, UnitRows, gather
from dprl.engine.program import AdaptiveProgram, Program, State, is_compiled
from dprl.engine.unit_source import Blocks, Source, all_reduced, clipped_sum, sum_over_devices, unit_mesh
from dprl.mechanisms.filtered_sum import ENDED, FilteredGaussianSum
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.protocols import NO_JOURNAL, Journal, NoiseSource

SUMMANDS = 2**22
"""Most coordinates of units' vectors that are in memory at a time, where there is more than one unit."""


def noiseless(program: Program) -> tuple[GaussianSum, ...]:
    """Return the noiseless limits of a program's mechanisms, for oracles and references. They protect nobody."""
    return tuple(stage.mechanism.plain() for stage in program.stages)


# --- the pure form ------------------------------------------------------------------------------------------------


def run(
    program: Program,
    noise: Any,
    data: Any,
    *,
    mechanisms: Sequence[GaussianSum] | None = None,
    batch: int = 32,
) -> tuple[State, jax.Array]:
    """Run all stages in compiled code: a pure function to ``jit``, and to ``vmap`` over noise keys and logs.

    Args:
        program: the algorithm.
        noise: a :class:`~dprl.mechanisms.noise.SeededNoise`; each stage draws from its own stream.
        data: :class:`~dprl.engine.unit_source.Blocks`, with the columns that the program asks for.
        mechanisms: mechanisms in place of the stages' own, such as :func:`noiseless` ones.
        batch: number of units in one block of a Poisson batch; a batch takes as many blocks as it needs.

    Returns:
        Final state, and the released weights ``(n,)``.
    """
    state = program.init()
    for number, stage in enumerate(program.stages):
        mechanism = stage.mechanism if mechanisms is None else mechanisms[number]
        state, _ = run_steps(program, number, mechanism, noise.stream(stage.name), data, state, batch=batch)
        state = program.finish(number, state)
    return state, program.answer(state)


def run_steps(
    program: Program,
    stage: int,
    mechanism: GaussianSum,
    noise: Any,
    data: Any,
    state: State,
    steps: tuple[Any, int] | None = None,
    batch: int = 32,
    trace: Callable[[State, jax.Array], Any] | None = None,
) -> tuple[State, Any]:
    """Run steps of one stage as one ``scan``.

    Args:
        noise: the stage's own stream, or all of its noise, drawn beforehand.
        data: see :func:`run`.
        steps: number of the first step, which may be traced, and number of steps; by default all steps of the stage.
        batch: see :func:`run`.
        trace: function of the state before a step and of the step's noisy sum. Its results are stacked and are the
            second result of this function.
    """
    mechanism.check_source(data)
    if isinstance(program.stages[stage].mechanism, FilteredGaussianSum):
        if steps is not None or trace is not None:
            raise RuntimeError("A filtered stage is run from its first step to its end, and is not traced.")
        return filtered_steps(program, stage, mechanism, noise, data, state, batch), None
    first = jnp.asarray(0 if steps is None else steps[0], dtype=jnp.uint32)
    count = mechanism.steps if steps is None else steps[1]
    last, width, drawn = first + jnp.uint32(count - 1), draw_width(mechanism), mechanism.bind(noise)

    def body(carry: tuple[State, Any], step: Any) -> tuple[tuple[State, Any], Any]:
        state, draw = carry
        total = _batch_total(program, stage, mechanism, noise, data, state, step, batch)
        noisy = mechanism.release(total, draw[: mechanism.dimension])
        # A step's noise is drawn a step ahead and carried, so that XLA keeps the draw as a separate loop instead of
        # fusing it into the slices of the update (3x slower). The draw of the last step is not used.
        following = drawn.draw(jnp.minimum(step + jnp.uint32(1), last), width)
        kept = None if trace is None else trace(state, noisy)
        return (program.update(stage, state, noisy, step), following), kept

    carry = (state, drawn.draw(first, width))
    (state, _), kept = jax.lax.scan(body, carry, first + jnp.arange(count, dtype=jnp.uint32))
    return state, kept


def filtered_steps(program: Any, stage: int, mechanism: Any, noise: Any, data: Any, state: State, batch: int) -> State:
    """Run a stage under a Renyi filter, and return its final state.

    A step that the filter does not admit ends the stage: the scan goes on, but the state no longer changes.
    """
    width, last = draw_width(mechanism), jnp.uint32(mechanism.steps - 1)

    def admit(state: State, spent: Any, live: Any, step: Any) -> tuple[Any, Any, Any]:
        level = jnp.asarray(program.level(stage, state, step)).astype(jnp.int64)
        admitted, after = mechanism.admit(spent, level)
        live = live & admitted
        return jnp.where(live, after, spent), live, mechanism.draw(noise, step, width, level=level)

    def body(carry: Any, step: Any) -> tuple[Any, None]:
        state, (spent, live, draw) = carry
        total = _batch_total(program, stage, mechanism, noise, data, state, step, batch)
        following = program.update(stage, state, mechanism.release(total, draw), step)
        state = jax.tree.map(lambda new, old: jnp.where(live, new, old), following, state)
        # the next step's noise is drawn here for the same reason as in run_steps
        return (state, admit(state, spent, live, jnp.minimum(step + jnp.uint32(1), last))), None

    begin = admit(state, jnp.zeros((), jnp.int64), jnp.ones((), dtype=bool), jnp.zeros((), jnp.uint32))
    (state, _), _ = jax.lax.scan(body, (state, begin), jnp.arange(mechanism.steps, dtype=jnp.uint32))
    return state


def draw_width(mechanism: GaussianSum) -> int:
    """Return how many coordinates to draw per step: a few more than are used, so that XLA vectorises the loop."""
    return -(-mechanism.dimension // 16) * 16


def _batch_total(
    program: Program, stage: int, mechanism: GaussianSum, noise: Any, data: Any, state: State, step: Any, batch: int
) -> Any:
    """Return the exact sum over the units that take part in a step."""
    if mechanism.batch is not None:
        return _total_of_places(program, stage, mechanism, data, state, step, min(batch, mechanism.batch))
    everybody = data.units

    def summed(units: Any, included: Any) -> Any:
        return clipped_sum(program, stage, mechanism, state, data.block(units, state), included)

    width = max(1, SUMMANDS // mechanism.dimension)
    if mechanism.sampling_rate == 1.0 and everybody <= width:
        return summed(slice(None), jnp.ones(everybody, dtype=bool))
    batch = max(1, min(batch, width, mechanism.most_members(everybody)))
    if mechanism.sampling_rate == 1.0:
        units = jnp.arange(-(-everybody // width) * width)
        return _in_slices(summed, (jnp.minimum(units, everybody - 1), units < everybody), width)
    # blocks of fixed size until the batch is exhausted, so that no unit that was drawn is left out
    order, count = mechanism.members(noise, step, everybody, batch)
    if len(order) == batch:
        return summed(jnp.minimum(order, everybody - 1), order < everybody)

    def more(carry: tuple[Any, Any]) -> Any:
        return carry[0] * batch < count

    def add(carry: tuple[Any, Any]) -> tuple[Any, Any]:
        block, total = carry
        members = jax.lax.dynamic_slice(order, (block * batch,), (batch,))
        return block + 1, total + summed(jnp.minimum(members, everybody - 1), members < everybody)

    # zeros that vary where the noise and the state vary, as the loop's carry must under vmap
    zero = jnp.zeros(mechanism.dimension, jnp.int64)
    empty = jnp.zeros_like(mechanism.release(zero, zero)[: mechanism.dimension])
    return jax.lax.while_loop(more, add, (jnp.zeros((), jnp.int64), empty.astype(mechanism.dtype)))[1]


def _total_of_places(
    program: Program, stage: int, mechanism: GaussianSum, data: Blocks, state: State, step: Any, size: int
) -> Any:
    """Return the sum over the places of one batch, in blocks of ``size``. Several devices share the blocks."""
    assert mechanism.batch is not None
    number = jnp.asarray(step, jnp.int32) // mechanism.epochs

    def total_of(same: Any, numbers: Any) -> Any:
        data, state, batch = same

        def one(total: Any, block: Any) -> tuple[Any, None]:
            place = block * size + jnp.arange(size)
            units = batch * mechanism.batch + place
            included = (place < mechanism.batch) & (units < data.units)
            rows = data.block(units, state)
            return total + clipped_sum(program, stage, mechanism, state, rows, included), None

        return jax.lax.scan(one, jnp.zeros(mechanism.dimension, mechanism.dtype), numbers)[0]

    same, blocks = (data, state, number), -(-mechanism.batch // size)
    mesh = unit_mesh() if mechanism.certifies and blocks > 1 else None
    if mesh is None:
        return total_of(same, jnp.arange(blocks, dtype=jnp.int32))
    # each device gets the same number of whole blocks; blocks beyond the batch have no units
    return all_reduced(mesh, total_of, same, jnp.arange(-(-blocks // mesh.size) * mesh.size, dtype=jnp.int32))


# --- the form of a release ----------------------------------------------------------------------------------------


def run_on_host(
    program: Program,
    noise: NoiseSource,
    data: UnitRows | Source,
    *,
    mechanisms: Sequence[GaussianSum] | None = None,
    progress: Callable[[int], None] | None = None,
    journal: Journal = NO_JOURNAL,
) -> tuple[State, jax.Array]:
    """Run the same steps with the loop on the host: for any noise source, and logs of any size.

    ``data`` is a log in memory, or a :class:`~dprl.engine.unit_source.Source` elsewhere. ``progress`` is called with
    the number of steps done, which is public. For a step that ``journal`` holds, nothing is computed again: no coins,
    no sum and no noise.
    """
    state, done = _compiled_or_plain(program, _init)(program), 0
    for number, stage in enumerate(program.stages):
        mechanism = stage.mechanism if mechanisms is None else mechanisms[number]
        own = noise.stream(stage.name), data, state, progress, journal.stream(stage.name), done
        state = run_steps_on_host(program, number, mechanism, *own)
        state = _compiled_or_plain(program, _finish)(program, number, state)
        done += mechanism.steps
    return state, _compiled_or_plain(program, _answer)(program, state)


def run_steps_on_host(
    program: Program,
    stage: int,
    mechanism: GaussianSum,
    noise: Any,
    data: UnitRows | Source,
    state: State,
    progress: Callable[[int], None] | None = None,
    journal: Journal = NO_JOURNAL,
    done: int = 0,
    trace: Callable[[State], object] | None = None,
) -> State:
    """Run every step of one stage, or as many as its filter admits; ``done`` steps came before this stage.

    ``trace`` is called with the state after each step.
    """
    mechanism.check_source(data)
    filtered, drawn = isinstance(program.stages[stage].mechanism, FilteredGaussianSum), mechanism.in_order(noise)

    def noisy(step: int, state: State, level: int | None) -> Any:
        included = mechanism.included(noise, step, data.units)
        if isinstance(data, UnitRows):
            total = sum_of_rows(program, stage, mechanism, state, data, np.asarray(included))
        else:
            total = data.total(program, stage, mechanism, state, included)
        draw = drawn.draw(step) if level is None else drawn.draw(step, level=level)
        return mechanism.add_noise(np.asarray(total), np.asarray(draw))

    def filtered_step(step: int, state: State, spent: int) -> np.ndarray:
        """Return the journal's record of a step: its level, the total spent after the step, and what it releases."""
        level = int(_level(program, stage, state, np.uint32(step)))  # type: ignore[arg-type]
        admitted, after = mechanism.admit(spent, level)  # type: ignore[union-attr]
        if not admitted:  # before anything is drawn
            return np.array([ENDED, spent] + [0] * mechanism.released)
        return np.concatenate([np.array([level, int(after)]), np.asarray(noisy(step, state, level))])

    spent = 0
    for step in range(mechanism.steps):
        if filtered:
            # the record says what was spent, even if the level would now be computed differently
            record = journal.step(step, 2 + mechanism.released, partial(filtered_step, step, state, spent))
            (level, spent), points = record[:2].tolist(), record[2:]
            if level == ENDED:
                break
        else:
            points = journal.step(step, mechanism.released, partial(noisy, step, state, None))
        state = _compiled_or_plain(program, _advance)(program, stage, mechanism, state, points, np.uint32(step))
        if trace is not None:
            trace(state)
        if progress is not None:
            progress(done + step + 1)
    if filtered and progress is not None:
        progress(done + mechanism.steps)
    return state


def sum_of_rows(
    program: Program, stage: int, mechanism: GaussianSum, state: State, data: UnitRows, included: np.ndarray
) -> AnyArray:
    """Return the exact sum ``(dimension,)`` of the clipped vectors of the ``included`` units, a mask ``(units,)``.

    The sum runs on all devices that JAX sees, with the same digits as on one; see :mod:`~dprl.engine.unit_source`.
    """
    compiled = is_compiled(program)
    mesh = unit_mesh() if mechanism.certifies and compiled else None
    if mesh is not None:
        width = partial(_slice_units, mechanism)
        return sum_over_devices(mesh, _accumulate, width, program, stage, mechanism, state, data, included)
    columns = data.columns if compiled else data.mapped(np.asarray)
    chunks, accumulate = data.chunks(included, mechanism.sampling_rate), _compiled_or_plain(program, _accumulate)
    sums = (accumulate(program, stage, mechanism, state, columns, *chunk) for chunk in chunks)
    return reduce(add, sums, np.zeros(mechanism.dimension, mechanism.dtype))


def _compiled_or_plain(program: Program, step: Any) -> Callable[..., Any]:
    """Return the compiled ``step``, or the plain function for a program that is not to be compiled."""
    return step if is_compiled(program) else step.__wrapped__


@partial(jax.jit, static_argnames=("program", "stage"))
def _level(program: AdaptiveProgram, stage: int, state: State, step: Any) -> Any:
    return jnp.asarray(program.level(stage, state, step)).astype(jnp.int64)


@partial(jax.jit, static_argnames=("program",))
def _init(program: Program) -> State:
    return program.init()


@partial(jax.jit, static_argnames=("program", "stage", "mechanism"))
def _accumulate(
    program: Program, stage: int, mechanism: GaussianSum, state: State, rows: Mapping[str, Any], index: Any, live: Any
) -> jax.Array:
    def clipped_sum(index: Any, live: Any) -> Any:
        return mechanism.clipped_sum(program.contribution(stage, state, gather(rows, index)), live)

    width = _slice_units(mechanism, index.shape[1])
    # vectors that are clipped must not be made by a GPU's faster, less precise products
    with jax.default_matmul_precision("highest"):
        return clipped_sum(index, live) if len(index) <= width else _in_slices(clipped_sum, (index, live), width)


def _slice_units(mechanism: GaussianSum, length: int) -> int:
    """Return the number of units of ``length`` rows whose vectors are in memory at a time, from public facts only.

    The number is a power of two, as a block's size is.
    """
    fit = max(1, SUMMANDS // mechanism.dimension)
    return max(-(-LEAST_ROWS // length), 1 << (fit.bit_length() - 1))


def _in_slices(clipped_sum: Callable[..., Any], units: tuple[Any, ...], width: int) -> Any:
    """Add up ``width`` units at a time, which keeps few long vectors in memory; ``width`` divides their number."""
    slices = [x.reshape(len(x) // width, width, *x.shape[1:]) for x in units]

    def add(total: Any, part: Any) -> tuple[Any, None]:
        return total + clipped_sum(*part), None

    like = jax.eval_shape(clipped_sum, *(x[0] for x in slices))
    return jax.lax.scan(add, jnp.zeros(like.shape, like.dtype), slices)[0]


@partial(jax.jit, static_argnames=("program", "stage", "mechanism"))
def _advance(program: Program, stage: int, mechanism: GaussianSum, state: State, points: Any, step: Any) -> State:
    return program.update(stage, state, mechanism.scaled(points), step)  # type: ignore[arg-type]


@partial(jax.jit, static_argnames=("program", "stage"))
def _finish(program: Program, stage: int, state: State) -> State:
    return program.finish(stage, state)


@partial(jax.jit, static_argnames=("program",))
def _answer(program: Program, state: State) -> jax.Array:
    return program.answer(state)
