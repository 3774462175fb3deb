"""Differentially private reinforcement learning, with guarantees that hold.

``__init__.pyi`` lists the public names, because type checkers and editors look for them there. Each name is loaded when
it is first used, so that ``import dprl`` costs nothing.
"""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path
from typing import Any

__version__ = "0.2.0"

if sys.platform == "win32":
    raise ImportError(
        "dprl runs on Linux and macOS and not on Windows, which lacks the file locks (fcntl) that keep its ledgers and "
        "run folders: use the Windows Subsystem for Linux."
    )

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_bytes())
_HOMES = {name.name: node.module for node in _STUB.body if isinstance(node, ast.ImportFrom) for name in node.names}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dprl' has no attribute {name!r}")
    return getattr(importlib.import_module(str(_HOMES[name])), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
