"""Programs that JAX keeps compiled, and how they are dropped. A leaf, as :mod:`dprl.protocols` is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import jax

_SECONDS = "jax_persistent_cache_min_compile_time_secs"
_lock, _inside, _before = threading.Lock(), 0, 0.0


@contextmanager
def nothing_compiled_on_disk() -> Iterator[None]:
    """Keep what is compiled inside out of JAX's persistent cache.

    Environments that people bring along may hold what is private, and compile functions of their own.
    JAX looks once at whether the cache is on, but at each program at whether its compilation took long enough.
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
