"""Delayed imports: slow modules of another library are imported at their first use, which most releases never reach."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _Later:
    """Stand-in for a module, or for one of its names."""

    __spec__ = None  # the import system asks every module for its spec

    def __init__(self, module: str, name: str | None = None) -> None:
        self._module, self._name = module, name

    def _found(self) -> Any:
        module = importlib.import_module(self._module)
        return module if self._name is None else getattr(module, self._name)

    def __getattr__(self, name: str) -> Any:
        # while the other library is being imported, it only collects names
        return _Later(self._module, name) if sys.modules.get(self._module) is self else getattr(self._found(), name)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._found()(*arguments, **named)


@contextmanager
def imported_later(*names: str) -> Iterator[None]:
    """Let imports in this block find stand-ins for these modules, except for modules that are imported already."""
    stand_ins = {name: _Later(name) for name in names if name not in sys.modules}
    sys.modules.update(stand_ins)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in stand_ins:
            del sys.modules[name]
