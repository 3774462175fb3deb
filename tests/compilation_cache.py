"""JAX's persistent compilation cache in a folder of a test's own, and what lies in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
from jax._src import compilation_cache


@contextmanager
def persistent_cache(folder: Path) -> Iterator[None]:
    """JAX keeps in ``folder`` whatever it compiles."""
    names = {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in names}
    for name, value in names.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    try:
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()


def on_disk(folder: Path) -> bytes:
    """Everything in the cache, as it was before it was compressed."""
    found = b""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        raw = path.read_bytes()
        found += raw if path.name.endswith("-atime") else compilation_cache.decompress_executable(raw)
    return found
