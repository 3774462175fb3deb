"""What the digits of an un-noised sum depend on besides the data: libraries, code and device. Public facts."""

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
from dprl.cluster import processors

_LIBRARIES = ("numpy", "jax", "jaxlib", "cryptography", "scipy", "dp-accounting", "pyarrow", "safetensors")
_SETTINGS = ("JAX_", "XLA_", "TF_XLA_", "LIBTPU_", "CUDA_", "NVIDIA_TF32", "OMP_", "MKL_", "OPENBLAS_", "NPY_")


def versions() -> dict[str, str]:
    """Return the versions of Python and the libraries, and the digest of dprl's own code, which may change without its
    version.
    """
    own = {"python": platform.python_version(), "dprl": __version__, "code": _code()}
    return own | {name: metadata.version(name) for name in _LIBRARIES}


def device() -> dict[str, Any]:
    """Return what XLA compiles for: another processor, or another number of threads, may round a sum differently."""
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


def settings() -> dict[str, str]:
    """Return every setting of JAX, and every variable of the environment by which a user may change what is computed
    how.

    Most change no digit. Which ones do is for no list of ours to say, and a run is resumed as it was begun.
    """
    import jax

    found = {name: value for name, value in os.environ.items() if name.startswith(_SETTINGS)}
    # by attribute: a setting may be another one within a thread's ``with`` block
    return found | {name: str(getattr(jax.config, name, kept)) for name, kept in jax.config.values.items()}


@functools.cache
def _code() -> str:
    """SHA-256 of the package's source files. Read once: what runs is what was imported."""
    digest = hashlib.sha256()
    root = Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _processor() -> str:
    """Return its model and, as virtual ones share a name, what it can do."""
    wanted, found = ("model name", "flags", "Features"), {}
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name.strip() in wanted:
                found.setdefault(name.strip(), value.strip())
    return "; ".join(found[name] for name in wanted if name in found) or platform.processor()
