"""Settings for one thread per cell. This file imports nothing heavy, so that they can be set before JAX is imported."""

from __future__ import annotations

import os

SETTINGS = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_CPU_ENABLE_ASYNC_DISPATCH": "false",
    "OPENBLAS_NUM_THREADS": "1",
}


def one_thread_a_cell() -> None:
    """Set one thread per cell, because cells run side by side.

    Call this before JAX is imported. Variables that are already set stay.

    Two programs that share XLA's pool of threads, and each wait for a part of it, can wait for ever.
    """
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
