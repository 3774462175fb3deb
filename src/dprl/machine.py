"""Public facts on which the digits of an un-noised sum depend, besides the data: libraries, code and device."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from dprl import __version__

_LIBRARIES = ("numpy", "jax", "jaxlib", "cryptography", "scipy", "dp-accounting", "pyarrow", "safetensors")
_SETTINGS = ("JAX_", "XLA_", "TF_XLA_", "LIBTPU_", "CUDA_", "NVIDIA_TF32", "OMP_", "MKL_", "OPENBLAS_", "NPY_")


def versions() -> dict[str, str]:
    """Return the versions of Python and libraries, and a digest of dprl's code, which may change within a version."""
    own = {"python": platform.python_version(), "dprl": __version__, "code": _code()}
    return own | {name: metadata.version(name) for name in _LIBRARIES}


def device() -> dict[str, Any]:
    """Return what XLA compiles for; another processor, or another number of threads, may round a sum differently."""
    import jax

    first = jax.devices()[0]
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "processor": _processor(),
        "platform": first.platform,
        "device_kind": first.device_kind,
        "cpus": len(processors()),
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
    }


def processors() -> list[int]:
    """Return the numbers of the processors that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def settings() -> dict[str, str]:
    """Return all settings of JAX, and all environment variables by which a user may change how something is computed.

    Most of them change no digit. dprl keeps no list of those that do: a run is resumed with the settings of its start.
    """
    import jax

    found = {name: value for name, value in os.environ.items() if name.startswith(_SETTINGS)}
    # read as attributes, for a ``with`` block of a thread may change a setting
    return found | {name: str(getattr(jax.config, name, kept)) for name, kept in jax.config.values.items()}


@functools.cache
def _code() -> str:
    """Return the SHA-256 of the package's source files. It is read once, for the code that runs was imported once."""
    digest = hashlib.sha256()
    root = Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _processor() -> str:
    """Return the processor's model and its features, for different virtual processors share one model name."""
    wanted, found = ("model name", "flags", "Features"), {}
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name.strip() in wanted:
                found.setdefault(name.strip(), value.strip())
    return "; ".join(found[name] for name in wanted if name in found) or platform.processor()
