"""Imports of dp_accounting that leave SciPy's slow modules until they are used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_SLOW = ("scipy.optimize", "scipy.signal", "scipy.stats")


class _LaterModule:
    """Stand-in for a module, or for one of its names, that is imported at its first use."""

    __spec__ = None  # the import system asks every module for its spec

    def __init__(self, module: str, name: str | None = None) -> None:
        self._module, self._name = module, name

    def _found(self) -> Any:
        module = importlib.import_module(self._module)
        return module if self._name is None else getattr(module, self._name)

    def __getattr__(self, name: str) -> Any:
        # while the other library is being imported, it only collects names
        return (
            _LaterModule(self._module, name) if sys.modules.get(self._module) is self else getattr(self._found(), name)
        )

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._found()(*arguments, **named)


@contextmanager
def slow_modules_later() -> Iterator[None]:
    """Let imports of dp_accounting in this block import SciPy's slow modules at their first use.

    They take a second, and only compositions of sampled Gaussians and dp_accounting's own calibration need them. A
    module that is imported already stays what it is.
    """
    stand_ins = {name: _LaterModule(name) for name in _SLOW if name not in sys.modules}
    sys.modules.update(stand_ins)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in stand_ins:
            del sys.modules[name]
