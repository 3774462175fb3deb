"""Clusters that a release starts, finds or does not find; each in processes of its own, for a process has one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import dprl
from dprl.release.engines import cluster

from ..release.in_parts import PartsTrial, contents
from .conftest import write_bounds

ROOT = Path(__file__).parents[2]


@pytest.fixture
def short():
    """A folder for Ray, whose sockets need short paths."""
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield folder


def test_nobody_answers_at_the_address(logs, tmp_path):
    trial = PartsTrial(tmp_path / "trial", logs[1])
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{held.getsockname()[1]}"
        with pytest.raises(dprl.DprlError, match=r"no Ray cluster at .* that takes this process"):
            trial.evaluate(engine="ray", address=address)
    assert trial.ledger.history() == []


class Listener(threading.Thread):
    """Whoever connects is told ``answer``, and then nothing until the line is closed."""

    def __init__(self, answer: bytes, close: bool) -> None:
        super().__init__(daemon=True)
        self.answer, self.closes, self.lines = answer, close, []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.socket.getsockname()[1]}"

    def run(self) -> None:
        with suppress(OSError):
            while True:
                line, _ = self.socket.accept()
                self.lines.append(line)
                line.sendall(self.answer)
                if self.closes:
                    line.close()


NO_RAY = {
    "silent": (b"", False), "hangs up": (b"", True), "a web server": (b"HTTP/1.1 400 Bad Request\r\n\r\n", True),
    "slow": (b"\0\0", False), "something else": (b"SSH-2.0-OpenSSH_9.6\r\n", False),
}  # fmt: skip


@pytest.mark.parametrize("who", NO_RAY)
@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_who_answers_at_the_address_is_no_ray(monkeypatch, who, scheme):
    """Ray would try for minutes, or for ever."""
    assert 2 * cluster.KNOCK_SECONDS <= 15.0
    monkeypatch.setattr(cluster, "KNOCK_SECONDS", 0.1)
    ray = SimpleNamespace(is_initialized=lambda: False, init=lambda *_, **__: pytest.fail("Ray was asked"))
    listener = Listener(*NO_RAY[who])
    listener.start()
    with (
        listener.socket,
        pytest.raises(dprl.DprlError, match=r"no Ray cluster at .* that takes this process"),
        cluster.cluster(ray, None, scheme + listener.address),
    ):
        pass
    for line in listener.lines:
        line.close()


def listening() -> set[str]:
    """Addresses, in the kernel's spelling, on which processes listen that this one started."""
    own, sockets = {str(os.getpid())}, set()
    parents = {p.parent.name: p.read_text().rpartition(")")[2].split()[1] for p in Path("/proc").glob("[0-9]*/stat")}
    for _ in range(8):  # children of children
        own |= {process for process, parent in parents.items() if parent in own}
    for process in own:
        for link in Path(f"/proc/{process}/fd").iterdir():
            with suppress(OSError):
                sockets.add(os.readlink(link))
    text = "".join(Path(f"/proc/net/{kind}").read_text().partition("\n")[2] for kind in ("tcp", "tcp6"))
    lines = [line.split() for line in text.splitlines()]
    return {line[1].partition(":")[0] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in sockets}


LISTENS = """
import json
from dprl.release.engines import cluster
from tests.engines.test_clusters import listening
ray = cluster.import_ray()
with cluster.cluster(ray, 1, None):
    address = ray.get_runtime_context().gcs_address
    cluster._knock(address)
    print(json.dumps([address, sorted(listening())]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="asks the kernel of Linux")
def test_a_cluster_of_its_own_listens_on_loopback_alone():
    command = [sys.executable, "-c", LISTENS]
    found = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True, cwd=ROOT)
    address, where = json.loads(found.stdout.splitlines()[-1])
    assert address.startswith("127.0.0.1:")
    assert where
    assert set(where) <= {"0100007F", "0000000000000000FFFF00000100007F"}


@pytest.mark.slow
def test_a_cluster_that_runs(logs, tmp_path, short):
    """Started by somebody else, and left as it was; in processes of their own, for a process has one cluster."""
    ray, port = Path(sys.executable).with_name("ray"), 6397
    settings = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": short}
    start = f"--head --port={port} --num-cpus=2 --include-dashboard=false --node-ip-address=127.0.0.1 --block"
    head = subprocess.Popen(
        [ray, "start", *start.split()], env=os.environ | settings, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        end = time.monotonic() + 120
        while time.monotonic() < end and head.poll() is None:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            time.sleep(0.2)
        command = [
            sys.executable, "-m", "dprl", "evaluate", str(logs[1]), "--target-policy", "uniform", "--bounds",
            str(write_bounds(tmp_path)), "--person-column", "person_id", "--epsilon", "1", "--delta", "1e-5",
            "--algorithm", "importance-sampling", "--seed", "1",
        ]  # fmt: skip
        for engine in (["local"], ["ray", "--address", f"127.0.0.1:{port}", "--shards", "2"]):
            asked = [*command, "--engine", *engine, "--out", str(tmp_path / engine[0])]
            done = subprocess.run(asked, capture_output=True, text=True, check=False)
            assert (done.returncode, done.stderr) == (0, "")
        assert head.poll() is None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(head.pid, signal.SIGTERM)
        head.wait(60)
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")


@pytest.mark.slow
def test_a_cluster_of_its_own_leaves_nothing(logs, tmp_path):
    """Neither a process nor a folder; and nobody gets in without its token."""
    program = f"""
import dprl, json, os, subprocess
from dprl.release.engines import ray_workers
from tests.sample_log import BOUNDS
seen = []
ask = ray_workers.RayWorkers._ask
def asked(units, method, *arguments):
    import ray
    seen.append(ray._private.worker._global_node.get_session_dir_path())
    if len(seen) == 1:
        address = ray.get_runtime_context().gcs_address
        other = {{k: v for k, v in os.environ.items() if not k.startswith("RAY_")}} | {{"RAY_AUTH_MODE": "disabled"}}
        tried = subprocess.run([{sys.executable!r}, "-c", f"import ray; ray.init({{address!r}}); print('in')"],
            env=other, capture_output=True, text=True)
        seen.append("in" if tried.stdout.strip().endswith("in") else "out")
    return ask(units, method, *arguments)
ray_workers.RayWorkers._ask = asked
made = dprl.evaluate({str(logs[1])!r}, "uniform", dprl.Budget(1.0, 1e-5), bounds=BOUNDS, person="person_id",
    algorithm=dprl.ImportanceSampling(), seed=1, engine="ray", shards=1)
print(json.dumps([seen[0], seen[1], os.path.exists(seen[0]), made.value]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=os.getcwd(), check=False)
    assert done.returncode == 0, done.stderr
    folder, way, exists, value = json.loads(done.stdout.splitlines()[-1])
    assert (way, exists) == ("out", False)
    assert folder.startswith("/tmp/dprl-ray-")
    expected = dprl.evaluate(
        str(logs[1]), "uniform", dprl.Budget(1.0, 1e-5), bounds=dprl.read_bounds(write_bounds(tmp_path)),
        person="person_id", algorithm=dprl.ImportanceSampling(), seed=1,
    )  # fmt: skip
    assert value == expected.value
    assert np.isfinite(value)


@pytest.mark.slow
def test_the_driver_is_killed_and_the_release_resumed(logs, policies, tmp_path):
    """By either engine: the numbers are those of the run, whose key is in its folder. Ray's own goes with the next."""
    policy, bounds = policies(0.3), write_bounds(tmp_path)
    command = [
        sys.executable, "-m", "dprl", "evaluate", str(logs[1]), "--target-policy", policy["even"], "--bounds",
        str(bounds), "--person-column", "person_id", "--epsilon", "1", "--delta", "1e-5", "--algorithm", "gpope",
        "--set", "steps=8", "--set", "sampling_rate=0.7", "--engine", "ray", "--shards", "2",
    ]  # fmt: skip
    out = tmp_path / "results"
    driver = subprocess.Popen([*command, "--out", str(out)], start_new_session=True)
    journal, end = tmp_path / "results.run" / "journal", time.monotonic() + 300
    while not (journal.exists() and journal.stat().st_size > 200):
        assert driver.poll() is None
        assert time.monotonic() < end
        time.sleep(0.02)
    opened = []
    for link in Path(f"/proc/{driver.pid}/fd").iterdir():
        with suppress(OSError):  # closed since
            opened.append(os.readlink(link))
    (lock,) = [Path(path) for path in opened if path.endswith("/dprl.lock")]
    driver.kill()
    driver.wait()
    assert lock.parent.name.startswith("dprl-ray-")
    assert not out.exists()
    shutil.copytree(tmp_path / "results.run", tmp_path / "again.run")
    for engine, folder in ((command[:-4], out), (command, tmp_path / "again")):
        done = subprocess.run([*engine, "--resume", "--out", str(folder)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
    assert contents(tmp_path / "again") == contents(out)
    assert not lock.parent.exists()  # another's start may have removed it before
