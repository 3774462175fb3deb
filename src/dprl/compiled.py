"""Context that keeps compiled programs out of JAX's cache on disk. A leaf, as :mod:`dprl.protocols` is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import jax

_SECONDS = "jax_persistent_cache_min_compile_time_secs"
_lock, _inside, _before = threading.Lock(), 0, 0.0


@contextmanager
def nothing_compiled_on_disk() -> Iterator[None]:
    """Keep programs that JAX compiles inside the block out of its persistent cache.

    Environments that users bring may hold private data and compile functions of their own. The cache is not switched
    off, because JAX checks only once whether it is on. Instead, the least compilation time of a cached program, which
    JAX checks for each program, is raised beyond reach.
    """
    global _inside, _before
    with _lock:
        if _inside == 0:
            _before = getattr(jax.config, _SECONDS)
            jax.config.update(_SECONDS, 1e18)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                jax.config.update(_SECONDS, _before)
