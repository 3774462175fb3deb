"""Rows of a log over a finite public set of transitions, which many trials of one domain share.

Where the transitions lie on a few diagonals, :mod:`dprl.engine.layouts` avoids the products of feature matrices.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from dprl.engine.columns import COEFFICIENTS, Columns
from dprl.engine.layouts import Bands, SharedTransitions, is_shared
from dprl.engine.rows import Rows
from dprl.errors import DprlError

MAX_BANDS = 8
"""With more diagonals than this the dense products win."""


def shared_transitions(
    units: Int[np.ndarray, " rows"],
    source: Int[np.ndarray, " rows"],
    target: Int[np.ndarray, " rows"],
    rows: Rows,
    transitions: Int[np.ndarray, "transitions 2"],
    table: Float[np.ndarray, "states n"],
    discount: float,
    states: Float[np.ndarray, "states d"] | None = None,
) -> SharedTransitions:
    """Rewrite rows over a finite public set of transitions.

    Args:
        units: ``(N,)`` unit of each transition.
        source, target: ``(N,)`` state indices; ``target`` is -1 for the terminal state.
        rows: the rows themselves; every coefficient column among theirs is summed.
        transitions: ``(K, 2)`` public list of (source, target) pairs that can happen.
        table: ``(S, n)`` features of each state.
        discount: gamma.
        states: ``(S, d)`` states, for programs that ask for them.
    """
    bands = find_bands(transitions, table, discount)
    if bands is not None:
        transitions = slots_of(bands)
    base = len(table) + 1
    code = transitions[:, 0] * base + transitions[:, 1] + 1
    order = np.argsort(code)
    k = order[np.searchsorted(code[order], source * base + target + 1)]
    shape, n, kind = (len(rows.lengths), len(transitions)), len(units), rows.phi.dtype
    flat = units * shape[1] + k

    before, after = transitions.T
    ends = (after < 0)[:, None]
    phi = table[before]
    shared = {"phi": phi, "delta_phi": phi - discount * np.where(ends, 0.0, table[after])}
    if "states" in rows.columns:
        if states is None:
            raise DprlError("A program asks for states, and the finite set of transitions comes without them.")
        going_on = np.where(ends, 0.0, states[after])
        shared |= {"states": states[before], "next_states": going_on, "alive": ~ends[:, 0]}

    exact = Columns({name: x[:n].astype(np.float64) for name, x in rows.columns.items() if not is_shared(name)})
    sums = {
        name: np.bincount(flat, getattr(exact, name), minlength=shape[0] * shape[1]).reshape(shape)
        for name in COEFFICIENTS
        if hasattr(exact, name)
    }
    return SharedTransitions({name: jnp.asarray(x, dtype=kind) for name, x in {**shared, **sums}.items()}, bands)


def find_bands(transitions: np.ndarray, table: np.ndarray, discount: float) -> Bands | None:
    """Return the bands of these public ``transitions`` ``(K, 2)``.

    Return None where the transitions or ``table`` have none.
    """
    states = len(table)
    scale = float(table[0, 0])
    if table.shape != (states, states) or not np.array_equal(table, scale * np.eye(states)):
        return None
    source, target = transitions.T
    ends = target < 0
    offsets = sorted({int(o) for o in (target - source)[~ends]})
    if ends.any():
        after = [source[ends] + o for o in offsets]
        if not any(np.all((x < 0) | (x >= states)) for x in after):
            offsets.append(states)  # leads past the last state from every state
    return Bands(tuple(offsets), states, scale, discount) if len(offsets) <= MAX_BANDS else None


def slots_of(bands: Bands) -> np.ndarray:
    """Return the ``(K, 2)`` pairs (source, target) of the slots; the target -1 is the terminal state."""
    source = np.tile(np.arange(bands.states), len(bands.offsets))
    target = source + np.repeat(bands.offsets, bands.states)
    return np.column_stack([source, np.where((target >= 0) & (target < bands.states), target, -1)])
