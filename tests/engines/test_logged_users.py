"""A policy that is learned from the users of a log is the same, to the byte, wherever they are asked."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import pytest

import dprl
from dprl.accounting.ledger import Ledger
from dprl.mechanisms.noise import SecureNoise
from dprl.release.engines.ray_workers import RayWorkers

from ..environments.visits import bounds, file_and_parts, visits
from ..release.in_parts import contents

PEOPLE = 150
BUDGET = dprl.Budget(1.0, 1e-5)
SETTINGS: dict[str, tuple[dprl.DPPG, int]] = {
    "linear": (dprl.DPPG(steps=4, batch=40), 1),
    "network": (dprl.DPPG(steps=2, batch=80, policy="mlp:6"), 1),
    "several visits": (dprl.DPPG(steps=2, batch=80, noise="independent"), 3),
    "sampled again": (dprl.DPPG(steps=3, batch=70, sampling="poisson"), 1),
}


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return file_and_parts(tmp_path_factory.mktemp("visits"), visits(400, PEOPLE))


@pytest.fixture
def small(monkeypatch):
    """Blocks of few users, of which some are read together: several of each in a batch of this size."""
    from dprl.environments import bandit_parts
    from dprl.learning.policy_gradient import trainer
    from dprl.learning.policy_gradient.estimator import RunShape

    monkeypatch.setattr(trainer, "GHOST_BLOCK", 16)
    monkeypatch.setattr(trainer, "_BLOCK_PEOPLE", 0)
    made = RunShape.__init__
    monkeypatch.setattr(RunShape, "__init__", lambda self, **given: made(self, **{"block": 16} | given))
    monkeypatch.setattr(bandit_parts, "_VISITS", 40)


def learned(path: Path, name: str, **options: Any) -> dict[str, Any]:
    algorithm, horizon = SETTINGS[name]
    given = {"bounds": bounds(PEOPLE, horizon), "algorithm": algorithm, "seed": 3} | options
    made = dprl.train(f"bandit:{path}", BUDGET, **given)
    with tempfile.TemporaryDirectory() as folder:
        made.save(Path(folder, "out"))
        return contents(Path(folder, "out"))


@pytest.mark.parametrize("name", SETTINGS)
def test_parts_in_this_process(paths, small, name):
    file, parts = paths
    assert learned(parts, name) == learned(file, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("shards", [1, 2, 5])
def test_any_number_of_workers(paths, cluster, small, name, shards):
    file, parts = paths
    assert learned(parts, name, engine="ray", shards=shards) == learned(file, name)


def test_a_worker_that_dies_costs_nothing(paths, cluster, small, tmp_path, monkeypatch):
    """The same bytes from the same key, for one charge: one of two dies of the second batch, and both of the third."""
    monkeypatch.setattr(SecureNoise, "fresh", lambda: SecureNoise(bytes(range(32))))
    expected = learned(paths[0], "linear", seed=None)
    ask, steps, started = RayWorkers._ask, [], []
    start = RayWorkers._started
    monkeypatch.setattr(RayWorkers, "_started", lambda self, shard: started.append(shard) or start(self, shard))

    def asked(workers: Any, method: str, *rest: Any) -> Any:
        if method == "total":
            steps.append(method)
            for shard in {2: (0,), 3: (0, 1)}.get(len(steps), ()):
                os.kill(workers._ray.get(workers._workers[shard].pid.remote()), signal.SIGKILL)
        return ask(workers, method, *rest)

    monkeypatch.setattr(RayWorkers, "_ask", asked)
    ledger = Ledger.create(tmp_path / "l.db", "shop", dprl.Budget(9.0, 9e-5), "person", "zero out one")
    found = learned(paths[1], "linear", seed=None, engine="ray", shards=2, ledger=ledger, dataset="shop")
    assert len(steps) == 4
    assert sorted(started) == [0, 0, 0, 1, 1]
    (charge,) = ledger.history()
    assert charge.digest is not None
    assert found.pop("ledger") == {"dataset": "shop", "charge": 1, "epsilon": 1.0, "delta": 1e-5}
    expected.pop("ledger")
    assert found == expected


def test_what_the_engine_cannot_do_is_refused_before_the_charge(paths, cluster, tmp_path):
    file, parts = paths
    ledger = Ledger.create(tmp_path / "l.db", "shop", dprl.Budget(9.0, 9e-5), "person", "zero out one")
    known = {"ledger": ledger, "dataset": "shop", "seed": None}
    for path, options, words in (
        (file, {"engine": "ray"}, "needs users of a log in parts: make one with `dprl data partition FILE"),
        (parts, {"engine": "spark"}, "engine must be one of local, ray"),
        (parts, {"shards": 2}, "shards and address are those of the engine ray"),
        (parts, {"engine": "ray", "shards": 99}, "ask for as many --shards at most"),
        (
            parts,
            {"engine": "ray", "algorithm": dprl.DPPG(calibration="as-published"), "bounds": bounds(5000)},
            "adds up in floating point",
        ),
    ):
        with pytest.raises(dprl.DprlError, match=words):
            learned(path, "linear", **known | options)
    with pytest.raises(dprl.DprlError, match="are for people of a log in parts"):
        dprl.train("interval-walk", BUDGET, algorithm=dprl.FunctionalQ(reward_radius=0.1), engine="ray")
    assert ledger.history() == []


def test_parts_that_were_changed_are_refused(tmp_path):
    _, parts = file_and_parts(tmp_path, visits(60, 20))
    came = parts / "came-00000.npy"
    came.write_bytes(bytes(came.stat().st_size))
    with pytest.raises(dprl.DprlError, match="is damaged"):
        learned(parts, "linear")
