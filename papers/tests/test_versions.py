"""Fingerprints of code, asked for by several figures at once."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from dprl_papers.harness import versions


@pytest.fixture
def threads_that_switch() -> Iterator[None]:
    """Whenever memory is collected, which is often, another thread goes on: as JAX's own callback lets it."""

    def let_go(*_: Any) -> None:
        time.sleep(0)

    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    gc.callbacks.append(let_go)
    gc.set_threshold(50)
    sys.setswitchinterval(1e-6)
    yield
    gc.callbacks.remove(let_go)
    gc.set_threshold(*threshold)
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("threads_that_switch")
def test_several_threads_may_ask_at_once() -> None:
    files = sorted((versions.PACKAGES["dprl_papers"] / "harness").glob("*.py"))
    once = [versions.imported(file) for file in files]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(versions.imported.__wrapped__, files)) == once
