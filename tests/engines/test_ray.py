"""The engine ray: the bytes of the engine local, whoever dies, and nothing of the rows in what is said."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

import dprl
from dprl.engine import shards
from dprl.protectors.projector import Architecture, HandSchedule
from dprl.release.engines import ray_workers
from dprl.release.engines.ray_workers import RayWorkers
from tests.protectors.small import new_protector

from ..release.in_parts import ALGORITHMS, FAST, PartsTrial, release
from ..release.resumable import fix_key
from ..sample_log import PEOPLE
from .conftest import write_bounds

SHARDS = [
    pytest.param(name, shards, marks=pytest.mark.slow)
    for name in ALGORITHMS
    for shards in ((1, 2, 5) if name in FAST else (5,))
]


class Killer:
    """Watches the workers of a release from where it is made, and kills some in the middle of a step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import ray

        self._ray, self.workers, self.started, self.steps = ray, {}, 0, 0
        start, ask = RayWorkers._started, RayWorkers._ask

        def started(workers, shard):
            worker = start(workers, shard)
            self.started += 1
            self.workers[shard] = (worker, worker.pid.remote())
            return worker

        def asked(workers, method, *arguments):
            if method == "total":
                self.steps += 1
                self.on_step(self.steps)
            return ask(workers, method, *arguments)

        monkeypatch.setattr(RayWorkers, "_started", started)
        monkeypatch.setattr(RayWorkers, "_ask", asked)

    def on_step(self, step: int) -> None:
        """Called as a step begins."""

    def kill(self, shard: int, by_ray: bool = False) -> None:
        worker, pid = self.workers[shard]
        if by_ray:
            self._ray.kill(worker)
        else:
            # it may be dead already, by another kill
            with suppress(ProcessLookupError, self._ray.exceptions.RayError):
                os.kill(self._ray.get(pid), signal.SIGKILL)


def everybody(trial: PartsTrial, policy: str, **changes):
    """A release whose steps each ask every shard once, without keeping anything."""
    options = {"algorithm": dprl.GPOPE(steps=3, sampling_rate=1.0), "target_policy": policy}
    return trial.finish(**options | changes)


def test_a_worker_that_dies_in_the_middle_of_a_step(logs, cluster, policies, tmp_path, monkeypatch):
    """The same bytes from the same key, for one charge; its share is asked for again, and no other one."""
    fix_key(monkeypatch)
    monkeypatch.setattr(shards, "KEPT_BYTES", 0)
    policy = policies(0.4)
    expected = everybody(PartsTrial(tmp_path / "local", logs[1]), policy["even"])
    killer = Killer(monkeypatch)
    killer.on_step = lambda step: threading.Timer(0.2, killer.kill, [0]).start() if step == 2 else None
    trial = PartsTrial(tmp_path / "ray", logs[1])
    assert everybody(trial, policy["even"], engine="ray", shards=2) == expected
    assert killer.started == 3
    (charge,) = trial.ledger.history()
    assert charge.digest is not None
    # by each shard twice in the first pass, for the values and for the ratios, and once in each step; one step again
    assert sorted(policy.asked().values()) == [5, 6]


def test_nothing_of_the_rows_is_said_or_written_down(logs, cluster, policies, tmp_path, capfd):
    trial = PartsTrial(tmp_path / "trial", logs[1])
    policy = policies()["says_what_it_sees"]
    everybody(trial, policy, engine="ray", shards=1)  # what a policy raises on rows is no answer, and no error
    first = dprl.read_log(logs[1], bounds=dprl.read_bounds(write_bounds(tmp_path))).load().observation[0].tolist()
    said = "".join(capfd.readouterr())
    assert str(first[0]) not in said
    time.sleep(1.0)
    # what the policy itself prints is its own affair; the exception's text is nowhere
    written = [path.read_bytes() for path in cluster.rglob("*") if path.is_file()]
    assert sum(b"of a row" in content for content in written) > 0  # these are the workers' logs
    assert not any(b"of a row [" in content for content in written)


@pytest.mark.parametrize(("name", "shards"), SHARDS)
def test_the_bytes_of_any_number_of_shards(logs, cluster, name, shards):
    file, parts = logs
    expected = release(file, ALGORITHMS[name])
    assert release(parts, ALGORITHMS[name], engine="ray", shards=shards) == expected


@pytest.mark.slow
def test_more_shards_than_units(logs, cluster, tmp_path):
    """Shards without a unit, of a log with fewer people than workers."""
    from dprl.data.partition import partition

    from ..sample_log import columns, write_parquet

    (tmp_path / "in_parts").mkdir()
    file = write_parquet(columns(2), tmp_path / "log.parquet")
    partition(file, "person_id", 2, tmp_path / "in_parts" / "log.parquet")
    expected = release(file, ALGORITHMS["gpope"])
    found = release(tmp_path / "in_parts" / "log.parquet", ALGORITHMS["gpope"], engine="ray", shards=5)
    assert found == expected
    assert PEOPLE > 5


@pytest.mark.slow
def test_fifty_random_kills(logs, cluster, policies, tmp_path, monkeypatch):
    fix_key(monkeypatch)
    monkeypatch.setattr(shards, "KEPT_BYTES", 0)
    policy, algorithm = policies(0.3), dprl.GPOPE(steps=60, sampling_rate=0.7)
    expected = everybody(PartsTrial(tmp_path / "local", logs[1]), policy["even"], algorithm=algorithm)
    killer, chance, kills = Killer(monkeypatch), random.Random(0), []

    def kill() -> None:
        shard = chance.randrange(3)
        kills.append(shard)
        killer.kill(shard, by_ray=chance.random() < 0.5)

    def on_step(step: int) -> None:
        if step <= 50:
            threading.Timer(chance.uniform(0.0, 0.35), kill).start()

    killer.on_step = on_step
    trial = PartsTrial(tmp_path / "ray", logs[1])
    found = everybody(trial, policy["even"], algorithm=algorithm, engine="ray", shards=3)
    assert len(kills) == 50
    assert killer.started > 3 + 25  # two kills may meet in one worker
    assert found == expected
    (charge,) = trial.ledger.history()
    assert charge.digest is not None


def test_what_cannot_be_done_is_refused_before_the_charge(logs, cluster, policies, tmp_path):
    trial = PartsTrial(tmp_path / "trial", logs[1])
    lock = threading.Lock()

    def holding(states):
        with lock:
            return np.full((len(states), 2), 0.5)

    for options, words in (
        ({"shards": 99}, "has 5 processors"),
        ({"address": "10.0.0.1:6379"}, "connected to a Ray cluster already"),
        ({"shards": 1, "target_policy": holding}, "cannot be sent to the workers"),
    ):
        with pytest.raises(dprl.DprlError, match=words):
            trial.evaluate(engine="ray", **options)
    assert trial.ledger.history() == []
    assert not trial.run.exists()


@pytest.mark.slow
def test_a_worker_of_another_kind_is_refused(logs, cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(ray_workers, "machine_facts", lambda: {"numpy": "0.1"} | {})
    trial = PartsTrial(tmp_path / "trial", logs[1])
    with pytest.raises(dprl.DprlError, match="another machine than this one, or has other libraries"):
        trial.evaluate(engine="ray", shards=1)
    assert trial.ledger.history() == []


@pytest.mark.slow
def test_a_worker_that_always_dies_is_given_up(logs, cluster, policies, tmp_path, monkeypatch):
    monkeypatch.setattr(ray_workers, "ATTEMPTS", 2)
    path = tmp_path / "deadly.py"
    path.write_text(
        "import os, signal, sys\nimport numpy as np\n\ndef even(states):\n"
        "    if 'default_worker' in sys.argv[0]:\n        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return np.full((len(states), 2), 0.5)\n"
    )
    trial = PartsTrial(tmp_path / "trial", logs[1])
    with pytest.raises(dprl.DprlError, match="ended 2 times over the same share"):
        trial.evaluate(engine="ray", shards=1, target_policy=f"{path}:even")
    assert len(trial.ledger.history()) == 1
    assert trial.run.exists()


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["uniform", "public", "adaptive"])
def test_a_protector_steers_the_sums_of_workers(logs, cluster, tmp_path, scheduler):
    """It stays with the driver: workers see the state that it made, and nothing of its folder."""
    rng = np.random.default_rng(0)
    hand = HandSchedule(steps=6, sampling_rate=0.5, clip_norm=0.2, step_sizes=(0.4, 0.4), tail=0.5)
    protector = new_protector(
        Architecture(hidden=2, layers=1, scheduler=scheduler), hand, algorithm="gpope",
        provenance={"public": True, "tasks": "bowl"},
    )  # fmt: skip
    weights = {name: 0.5 * rng.normal(size=w.shape) for name, w in protector.weights.items()}
    folder = replace(protector, weights=weights).save(tmp_path / "p")
    algorithm = dprl.GPOPE(optimizer=str(folder))
    file, parts = logs
    expected = release(file, algorithm)
    assert release(parts, algorithm) == expected
    assert release(parts, algorithm, engine="ray", shards=2) == expected
