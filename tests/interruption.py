"""Ctrl-C at a chosen place, for tests of what goes on after it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def interrupted(owner: Any, name: str) -> Iterator[None]:
    """Meanwhile whoever calls ``owner.name`` is interrupted."""

    def interruption(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, interruption)
        yield
    gc.collect()  # a process that has ended holds no lock
