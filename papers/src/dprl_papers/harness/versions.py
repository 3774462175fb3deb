"""Fingerprints of the code behind a number: of a file and every module of dprl that it imports, at any depth."""

from __future__ import annotations

import ast
import hashlib
import subprocess
from collections.abc import Callable, Iterable
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import dprl
from dprl import machine

PACKAGES = {path.name: path for path in (Path(dprl.__file__).parent, Path(__file__).parents[1])}
"""Where the library is, and the reproductions of papers."""
DIRTY = "-dirty"
"""How the name of a commit ends if the code is not what it has."""


@cache
def imported(path: Path) -> tuple[Path, ...]:
    """Return the files of the modules in :data:`PACKAGES` that a file imports, in any place."""
    if path.suffix != ".py":
        return ()
    found = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        found |= {file for name in names if (file := module_file(name))}
    return tuple(sorted(found))


def module_file(name: str) -> Path | None:
    """Return the file of the module ``name`` if it is in :data:`PACKAGES`, else None."""
    first, *rest = name.split(".")
    if first not in PACKAGES:
        return None
    base = PACKAGES[first].joinpath(*rest)
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if rest and path.is_file():
            return path
    return None


def closure(files: Iterable[Path], counts: Callable[[Path], bool] = lambda path: True) -> set[Path]:
    """Return these files and all files in :data:`PACKAGES` that they import, at any depth, through files that count."""
    seen: set[Path] = set()
    todo = list(files)
    while todo:
        path = todo.pop()
        if path not in seen and counts(path):
            seen.add(path)
            todo += imported(path)
    return seen


def code_in(path: Path) -> bytes:
    """Return the content of a file; of a Python file only the code, as comments and docstrings make no number."""
    content = path.read_bytes()
    return _without_words(content) if path.suffix == ".py" else content


@cache
def _without_words(content: bytes) -> bytes:
    tree = ast.parse(content)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [x for x in node.body if not _is_text(x)] or [ast.Pass()]
    return ast.unparse(tree).encode()


def _is_text(statement: ast.stmt) -> bool:
    """Return whether a statement is a text only: a docstring, or the words below a constant or a field."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def fingerprint(files: Iterable[Path]) -> str:
    """Digest the code of these files and of all that they import of :data:`PACKAGES`, at any depth."""
    digest = hashlib.sha256()
    for content in sorted(hashlib.sha256(code_in(path)).digest() for path in closure(files)):
        digest.update(content)
    return digest.hexdigest()[:24]


def code_of(module: str) -> str:
    """Return the fingerprint of a module of :data:`PACKAGES`."""
    file = module_file(module)
    assert file is not None
    return fingerprint([file])


@cache
def libraries() -> dict[str, str]:
    """Return the versions of the libraries that do the arithmetic."""
    return {name: metadata.version(name) for name in ("jax", "jaxlib", "numpy", "scipy", "dp-accounting")}


def machine_facts() -> dict[str, Any]:
    """Return facts on which digits depend besides a result's key: libraries, and the processor compiled for."""
    # the number of processors changes nothing, as every cell has one thread; the code that counts is in the key
    own = ("cpus", "XLA_FLAGS", "code")
    return {name: x for name, x in (machine.versions() | machine.device()).items() if name not in own}


@cache
def commit() -> str | None:
    """Return the commit of the sources, followed by ``-dirty`` if code differs from it; None outside of a checkout."""

    def git(*asked: str) -> str:
        command = ["git", "-C", str(PACKAGES["dprl_papers"]), *asked]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", *map(str, PACKAGES.values()))
        return git("rev-parse", "HEAD") + DIRTY * bool(changed)
    except (OSError, subprocess.CalledProcessError):
        return None
