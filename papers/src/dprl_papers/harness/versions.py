"""Fingerprints of the code behind a number: a file and every module of dprl that it imports, at any depth."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from pathlib import Path
from threading import Lock

import dprl

PACKAGES = {path.name: path for path in (Path(dprl.__file__).parent, Path(__file__).parents[1])}
"""Where the library is, and the reproductions of papers."""
# Python 3.11 counts the depth of a syntax tree for all threads together, and gives up when two parse at once.
_parsing = Lock()


@cache
def imported(path: Path) -> tuple[Path, ...]:
    """Files of the modules of :data:`PACKAGES` that the file imports, anywhere in it."""
    if path.suffix != ".py":
        return ()
    with _parsing:
        tree = ast.parse(path.read_bytes())
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        found |= {file for name in names if (file := module_file(name))}
    return tuple(sorted(found))


def module_file(name: str) -> Path | None:
    """Where the module ``name`` of one of :data:`PACKAGES` is; None for any other."""
    first, *rest = name.split(".")
    if first not in PACKAGES:
        return None
    base = PACKAGES[first].joinpath(*rest)
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if rest and path.is_file():
            return path
    return None


def fingerprint(files: Iterable[Path]) -> str:
    """Of these files and all that they import of :data:`PACKAGES`: changes whenever any of them does."""
    seen: set[Path] = set()
    todo = list(files)
    while todo:
        path = todo.pop()
        if path not in seen:
            seen.add(path)
            todo += imported(path)
    digest = hashlib.sha256()
    for content in sorted(hashlib.sha256(path.read_bytes()).digest() for path in seen):
        digest.update(content)
    return digest.hexdigest()[:24]


@cache
def libraries() -> dict[str, str]:
    """Versions of the libraries that do the arithmetic."""
    return {name: metadata.version(name) for name in ("jax", "jaxlib", "numpy", "scipy", "dp-accounting")}
