"""What every test shares: one thread for products of matrices, caches, no deadline for property tests."""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings

# Two workers fill two cores. Threads of OpenBLAS that wait for each other there cost some 80 times what a product costs
# on one. It is read when NumPy is imported, which is later, and inherited by the processes that tests start.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# to explain a failure takes Hypothesis ten times as long as to find it, and a planted fault is there to fail
PHASES = [phase for phase in Phase if phase is not Phase.explain]
settings.register_profile("dprl", deadline=None, print_blob=True, phases=PHASES)
settings.load_profile("dprl")

# Calibrations are remembered on disk: between the tests of a session, and never in the user's own cache. Some plans are
# made while tests are collected, so it is set here and not in a fixture. Workers inherit the folder of who starts them.
if "DPRL_TESTS_CACHE" not in os.environ:
    os.environ["DPRL_TESTS_CACHE"] = tempfile.mkdtemp(prefix="dprl-tests-")
    atexit.register(shutil.rmtree, os.environ["DPRL_TESTS_CACHE"], ignore_errors=True)
os.environ["XDG_CACHE_HOME"] = os.environ["DPRL_TESTS_CACHE"]

# Half of the suite's time is compilation, much of it of the same programs. What is compiled is kept on disk, for both
# workers and for the next run; a folder that grew too large is emptied.
_COMPILED = Path(__file__).parent / ".cache" / "compiled"
_LARGEST = 1 << 30
_MOST_MEMORY = 3 << 29


def _keep_what_is_compiled() -> None:
    import jax
    from jax._src import lru_cache

    def put(self: Any, key: str, value: bytes) -> None:
        # JAX writes in place, where the other worker could read half of it
        folder = Path(str(self.path))
        unfinished = folder / f"{key}.{os.getpid()}"
        unfinished.write_bytes(value)
        unfinished.replace(folder / f"{key}-cache")

    _COMPILED.mkdir(parents=True, exist_ok=True)
    alone = "PYTEST_XDIST_WORKER" not in os.environ
    if alone and sum(file.stat().st_size for file in _COMPILED.iterdir()) > _LARGEST:
        shutil.rmtree(_COMPILED)
    lru_cache.LRUCache.put = put
    jax.config.update("jax_compilation_cache_dir", str(_COMPILED))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    # processes that tests start read what was compiled here; they may be killed at any time, so they write nothing
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(_COMPILED)
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "1e9"


_keep_what_is_compiled()
# Tracing makes many small objects that live: looking through all of them for cycles every so often is a tenth of the
# suite's time.
gc.set_threshold(50_000, 20, 50)


@pytest.fixture(autouse=True, scope="module")
def _little_memory() -> Iterator[None]:
    """A worker that holds much compiled code lets go of it between modules: what took long is read from disk again."""
    yield
    resident = Path("/proc/self/statm")
    if resident.exists() and int(resident.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") > _MOST_MEMORY:
        import jax

        jax.clear_caches()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
