"""Types of arrays and numbers, and states as arrays: their shape, their scale, and curves along one component.

Signatures give shapes in the notation of jaxtyping.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt

from dprl.bounds import Interval
from dprl.errors import require

AnyArray = Array | np.ndarray
"""Array of JAX or of NumPy."""
Step = int | np.integer | Int[Array, ""] | UInt[Array, ""]
"""Number of a step, from 0. In compiled code it may be traced."""
Real = float | Float[Array, ""]
"""Number that may be traced."""
Mask = Bool[AnyArray, " units"]
"""Participation mask: which units take part in a step. Private."""


def module_of(array: AnyArray) -> Any:
    """Return NumPy for an array of NumPy, and JAX's namespace for one of JAX or of compiled code.

    Code that runs once is not worth compiling: XLA takes longer to compile a sum than NumPy to add up a million rows.
    """
    if isinstance(array, np.ndarray):
        return np
    import jax.numpy as jnp

    return jnp


# --- states as released functions take them -----------------------------------------------------------------------


def state_rows(states: Any, components: int) -> np.ndarray:
    """Return states as ``(N, components)`` float64; states of a single component may be given as ``(N,)``.

    Raises:
        DprlError: the states have another shape.
    """
    states = np.asarray(states, dtype=np.float64)
    if states.ndim == 1 and components == 1:
        states = states[:, None]
    require(states.shape[1:] == (components,), f"States must have shape (N, {components}).")
    return states


def unit_states(states: Any, bounds: tuple[Interval, ...], xp: Any = np) -> Any:
    """Return ``(N, d)`` states scaled to [0, 1] by their public bounds; values outside are moved to the nearer end.

    A component whose bounds are a single value becomes 0.
    """
    low = np.array([b[0] for b in bounds])
    width = np.array([b[1] - b[0] if b[1] > b[0] else 1.0 for b in bounds])
    return xp.clip((states - xp.asarray(low, dtype=states.dtype)) / xp.asarray(width, dtype=states.dtype), 0.0, 1.0)


def cell_numbers(states: Any, bounds: tuple[Interval, ...], xp: Any = np) -> Any:
    """Return the cell number, int32 ``(...)``, of each of the whole-numbered states ``(..., d)``.

    Each component is rounded to the nearest whole number within its public bounds. Cells are numbered from the lowest
    state to the highest; the last component changes fastest.
    """
    out = xp.zeros(states.shape[:-1], dtype=np.int32)
    for i, (low, high) in enumerate(bounds):
        count = int(high) - int(low) + 1
        out = out * np.int32(count) + xp.clip(xp.round(states[..., i] - low), 0, count - 1).astype(np.int32)
    return out


def along_components(
    bounds: tuple[Interval, ...], points: int, most: int, whole: bool = False
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield each of the first ``most`` components, ``(P,)`` values along it, and the ``(P, d)`` states at these values.

    All other components are at the midpoint of their public bounds. With ``whole``, states have whole numbers only.
    """
    middle = np.array([(low + high) / 2.0 for low, high in bounds])
    if whole:
        middle = np.round(middle)
    for i, (low, high) in enumerate(bounds[:most]):
        grid = np.linspace(low, high, points)
        if whole:
            grid = np.unique(np.round(np.linspace(low, high, min(points, int(high - low) + 1))))
        states = np.tile(middle, (len(grid), 1))
        states[:, i] = grid
        yield i, grid, states


def slices(
    bounds: tuple[Interval, ...], points: int, most: int, whole: bool = False, **curves: Callable[[Any], np.ndarray]
) -> list[dict[str, Any]]:
    """Return plain data for each component: ``component``, ``grid``, and the values of the ``curves`` on the grid.

    The components and the grid are those of :func:`along_components`.

    A curve that has several numbers per state becomes a list of lists, one for each of the numbers.
    """
    return [
        {"component": i, "grid": grid.tolist(), **{name: of(states).T.tolist() for name, of in curves.items()}}
        for i, grid, states in along_components(bounds, points, most, whole)
    ]
