"""Turn on 64-bit arrays and whole precision in JAX, for the whole process, where dprl computes.

The release arithmetic sums int64 grid points; without this flag JAX would silently make them 32 bits wide. Every
array of ours carries an explicit dtype, so that the flag changes no precision by accident. On a GPU products of single
precision would be made in TF32, of ten bits; on a processor the second flag changes nothing.
"""

from __future__ import annotations

import jax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_default_matmul_precision", "highest")
