"""Types of arrays and numbers that several rooms use. Signatures give shapes in the notation of jaxtyping."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt

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
