"""Files that are no part of a package, as modules."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any


def module_of(path: Path) -> Any:
    """Execute a file and return it as a module, under the name of the file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
