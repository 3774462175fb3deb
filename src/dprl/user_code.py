"""Load code that users bring, such as policies and streams of people, and call it on private data.

Whatever such code raises may quote a row. The error need not be an Exception: a panic in a Rust library is none, and
``sys.exit(text)`` prints its text. So errors are dropped, warnings are suppressed, and what such code compiles stays
out of JAX's cache on disk.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from dprl.errors import DprlError, explained, require

T = TypeVar("T")
S = TypeVar("S")


def quietly(call: Callable[[], T], otherwise: S) -> T | S:
    """Return what ``call`` returns, or ``otherwise`` where it raises anything; nothing of the error is kept.

    Only Ctrl-C passes, without its text. It is raised outside of the handler, because inside the first error would stay
    attached to it.
    """
    try:
        return call()
    except KeyboardInterrupt:
        pass
    except BaseException:  # its text may quote rows
        return otherwise
    raise KeyboardInterrupt


class _ProcessWide:
    """A setting of the whole process, changed by blocks in several threads.

    The first block that is entered changes it, and the last one that is left restores it.
    """

    def __init__(self, changed: Callable[[], AbstractContextManager[Any]]) -> None:
        self._changed, self._lock, self._inside, self._context = changed, threading.Lock(), 0, changed()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if self._inside == 0:
                self._context = self._changed()
                self._context.__enter__()
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if self._inside == 0:
                    self._context.__exit__(None, None, None)


_own_filters = _ProcessWide(warnings.catch_warnings)
_IGNORE = ("ignore", None, Warning, None, 0)
"""Filter that ``warnings.simplefilter("ignore")`` puts before all others."""


@contextmanager
def suppress_warnings() -> Iterator[None]:
    """Suppress warnings, also those of arithmetic, because a warning may depend on the rows."""
    with _own_filters(), np.errstate(all="ignore"):
        # putting it first takes it away for a moment, in which another thread's warning would be heard
        if warnings.filters[:1] != [_IGNORE]:
            warnings.simplefilter("ignore")
        yield


@contextmanager
def _nothing_cached() -> Iterator[None]:
    import jax

    seconds = "jax_persistent_cache_min_compile_time_secs"
    before = getattr(jax.config, seconds)
    jax.config.update(seconds, 1e18)
    try:
        yield
    finally:
        jax.config.update(seconds, before)


nothing_compiled_on_disk = _ProcessWide(_nothing_cached)
"""Context that keeps programs that JAX compiles inside the block out of its persistent cache.

Environments that users bring may hold private data and compile functions of their own. The cache is not switched off,
because JAX checks only once whether it is on. Instead, the least compilation time of a cached program, which JAX checks
for each program, is raised beyond reach.
"""


_PREFIX = "_dprl_"


def place_in_user_code(error: BaseException) -> str:
    """Return file and line of the user's code in which an error was raised, or an empty text where there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename!r}, line {error.lineno}"
    where = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if str(frame.f_globals.get("__name__")).startswith(_PREFIX):
            where = f"{frame.f_code.co_filename!r}, line {line}"
    return where


def load_python(path: Path, what: str, *, quoted: bool = False) -> ModuleType:
    """Execute a user's Python file and return it as a module; it may import files in the same folder.

    Args:
        path: path of the file.
        what: what a message calls the file, such as ``policy``.
        quoted: whether a message repeats the text of an error that the file raised. Only a file that sees no private
            row may be quoted.

    Raises:
        DprlError: there is no such file, or it cannot be executed. The message names the type of an error that the file
            raised, and either its place or, where ``quoted``, its text.
    """
    with explained(f"Cannot read the {what} file {str(path)!r}"):
        require(path.is_file(), f"There is no {what} file {str(path)!r}.")
    name = f"{_PREFIX}{what}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise DprlError(f"The {what} file {str(path)!r} cannot be loaded as Python.")
    module = importlib.util.module_from_spec(spec)
    # dataclasses look their module up in sys.modules
    previous = sys.modules.get(name)
    sys.modules[name] = module
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        if previous is None:
            del sys.modules[name]
        else:
            sys.modules[name] = previous
        if isinstance(error, KeyboardInterrupt):
            raise
        more = str(error).rstrip(".") if quoted else place_in_user_code(error)
        said = f"it raised {type(error).__name__}" + (f": {more}" if more else "")
        raise DprlError(f"The {what} file {str(path)!r} cannot be executed: {said}.") from None
    finally:
        sys.path.remove(folder)
    return module
