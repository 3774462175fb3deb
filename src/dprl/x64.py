"""Turn on 64-bit arrays in JAX, for the whole process, where dprl computes.

The release arithmetic sums int64 grid points; without this flag JAX would silently make them 32 bits wide. Every
array of ours carries an explicit dtype, so that the flag changes no precision by accident.
"""

from __future__ import annotations

import jax

jax.config.update("jax_enable_x64", True)
