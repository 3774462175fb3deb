"""Turn on 64-bit arrays and full-precision matrix products in JAX, for the whole process.

The release arithmetic sums int64 grid points; without this flag JAX would silently make them 32 bits wide. Every array
of dprl has an explicit dtype, so that the flag changes no precision by accident. On a GPU, JAX would compute products
of single-precision matrices in TF32, which has ten bits. On a CPU the second flag changes nothing.
"""

from __future__ import annotations

import jax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_default_matmul_precision", "highest")
