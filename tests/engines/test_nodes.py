"""Clusters of several nodes: the bytes of the engine local, also where a whole node is lost in the middle of a step.

The nodes are on this machine, each with an address, a raylet and workers of its own; the driver's has no worker.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import dprl
from dprl.engine import shards
from dprl.release.engines import ray_workers
from dprl.release.engines.cluster import _with_token, import_ray

from ..release.in_parts import ALGORITHMS, PartsTrial, release
from ..release.resumable import fix_key
from .test_ray import Killer, everybody

PORT = 6398
HEAD = f"127.0.0.2:{PORT}"  # Ray takes 127.0.0.1 for any address of the machine
pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="has one loopback address")]


class Nodes:
    """The nodes of a cluster, by the last number of their addresses; 2 is the head."""

    def __init__(self, folder: str) -> None:
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._env = os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": folder}

    def start(self, number: int, workers: int) -> None:
        """Start a node."""
        where = ["--head", f"--port={PORT}", "--include-dashboard=false"] if number == 2 else [f"--address={HEAD}"]
        command = [
            Path(sys.executable).with_name("ray"), "start", *where, f"--num-cpus={workers}",
            f"--node-ip-address=127.0.0.{number}", "--object-store-memory=100000000", "--block",
        ]  # fmt: skip
        self._processes[number] = subprocess.Popen(
            command, env=self._env, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def wait(self, count: int) -> None:
        """Until so many nodes are there."""
        from ray._raylet import GcsClient  # type: ignore[attr-defined]

        end, alive = time.monotonic() + 120, 0
        while alive < count:
            assert time.monotonic() < end
            assert all(process.poll() is None for process in self._processes.values())
            time.sleep(0.2)
            with suppress(Exception):
                alive = sum(x.state == 0 for x in GcsClient(address=HEAD).get_all_node_info().values())

    def kill(self, number: int) -> None:
        """All processes of a node at once, as when its power fails."""
        process = self._processes.pop(number)
        for path in Path("/proc").glob("[0-9]*"):  # its workers are groups of their own, in its session
            with suppress(ProcessLookupError):
                if os.getsid(int(path.name)) == process.pid:
                    os.kill(int(path.name), signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        for number in list(self._processes):
            self.kill(number)


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    """A head without workers, and two nodes with two each; who has no token is not let in."""
    import_ray()
    # the paths of Ray's sockets must be short
    with _with_token(), tempfile.TemporaryDirectory(prefix="r", dir="/tmp", ignore_cleanup_errors=True) as folder:
        started = Nodes(folder)
        try:
            for count, workers in enumerate((0, 2, 2), start=1):  # two at once would meet in the names of their sockets
                started.start(1 + count, workers)
                started.wait(count)
            yield started
        finally:
            started.close()


def test_the_bytes_of_two_nodes(logs, nodes):
    """Four workers have room on both together, and on neither alone."""
    file, parts = logs
    expected = release(file, ALGORITHMS["gpope"])
    assert release(parts, ALGORITHMS["gpope"], engine="ray", shards=4, address=HEAD) == expected


def test_a_node_that_is_lost_in_the_middle_of_a_step(logs, nodes, policies, tmp_path, monkeypatch):
    """Its shares wait for the node that comes in its place: the same bytes from the same key, for one charge."""
    fix_key(monkeypatch)
    monkeypatch.setattr(shards, "KEPT_BYTES", 0)
    policy = policies(0.4)
    expected = everybody(PartsTrial(tmp_path / "local", logs[1]), policy["even"])
    killer = Killer(monkeypatch)

    def replace() -> None:
        nodes.kill(4)
        nodes.start(5, workers=2)

    killer.on_step = lambda step: threading.Timer(0.2, replace).start() if step == 2 else None
    trial = PartsTrial(tmp_path / "ray", logs[1])
    assert everybody(trial, policy["even"], engine="ray", shards=4, address=HEAD) == expected
    assert killer.started >= 4 + 2
    (charge,) = trial.ledger.history()
    assert charge.digest is not None


def test_a_node_that_does_not_come_back(logs, nodes, policies, tmp_path, monkeypatch):
    """The release ends with a sentence, and goes on where there is room: the same bytes, one charge."""
    fix_key(monkeypatch)
    monkeypatch.setattr(shards, "KEPT_BYTES", 0)
    monkeypatch.setattr(ray_workers, "ROOM_SECONDS", 2)
    policy = policies(0.4)
    expected = everybody(PartsTrial(tmp_path / "local", logs[1]), policy["even"])
    killer = Killer(monkeypatch)
    killer.on_step = lambda step: threading.Timer(0.2, nodes.kill, [4]).start() if step == 2 else None
    trial = PartsTrial(tmp_path / "ray", logs[1])
    with pytest.raises(dprl.DprlError, match="no room for a worker in the place of one that ended"):
        everybody(trial, policy["even"], engine="ray", shards=4, address=HEAD)
    killer.on_step = lambda step: None
    assert everybody(trial, policy["even"], engine="ray", shards=2, address=HEAD) == expected
    (charge,) = trial.ledger.history()
    assert charge.digest is not None
