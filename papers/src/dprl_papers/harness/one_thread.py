"""One thread for each cell; nothing is imported here, so that it can be set before JAX is."""

from __future__ import annotations

import os

SETTINGS = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_CPU_ENABLE_ASYNC_DISPATCH": "false",
    "OPENBLAS_NUM_THREADS": "1",
}


def one_thread_a_cell() -> None:
    """Set one thread for each cell, as cells run side by side: before JAX is imported; what is set already stays.

    XLA's pool of threads, shared by two programs that each wait for a part of it, can wait for ever.
    """
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
