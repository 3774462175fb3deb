"""Workers: the same bytes wherever they are computed; and what goes wrong is one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import cloudpickle
import jax
import jax.numpy as jnp
import pytest
from papers.tests.controlled import Controlled, contents

from dprl.errors import DprlError
from dprl_papers.harness.reproduce import PROVENANCE, RESULTS, make_request, reproduce
from dprl_papers.harness.runner import Runner, Task
from dprl_papers.harness.spec import load_paper
from dprl_papers.harness.store import Store
from dprl_papers.harness.versions import machine_facts
from dprl_papers.harness.workers import compute_in_worker, forget_compiled

SEEDS = {(units, seed): 1 for units in (10, 40) for seed in (0, 1)}


@pytest.fixture
def plugin(tmp_path):
    return Controlled(tmp_path / "plugin")


@pytest.fixture(scope="module")
def cluster():
    """A Ray cluster of two processors, that this process is connected to."""
    from dprl.release.engines import cluster

    ray = cluster.import_ray()
    with cluster.cluster(ray, 2, None):
        yield


@pytest.fixture(params=["local", pytest.param("ray", marks=pytest.mark.slow)])
def engine(request):
    if request.param == "ray":
        request.getfixturevalue("cluster")
    return request.param


def test_two_workers_give_the_bytes_of_one_process(plugin, tmp_path, engine):
    reproduce(plugin.request(), tmp_path / "one")
    assert plugin.processes() == {os.getpid()}
    assert plugin.asked() == SEEDS
    done: list[int] = []
    reproduce(plugin.request(), tmp_path / "two", lambda n, *_: done.append(n), 2, engine)
    assert contents(tmp_path / "two") == contents(tmp_path / "one")
    assert os.getpid() not in plugin.processes()
    assert plugin.asked() == SEEDS
    assert done == list(range(11))
    assert (tmp_path / "two" / PROVENANCE).is_file()
    # and nothing is computed again
    reproduce(plugin.request(), tmp_path / "two", None, 2, engine)
    assert not plugin.asked()


def test_an_interrupted_run_goes_on(plugin, tmp_path, engine):
    """Ctrl-C after three tasks: what has come is whole, and the same command computes only what is missing."""
    reproduce(plugin.request(), tmp_path / "whole")
    plugin.asked()

    def interrupt(done: int, *_: object) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduce(plugin.request(), tmp_path / "out", interrupt, 2, engine)
    whole, stopped = contents(tmp_path / "whole"), contents(tmp_path / "out")
    assert RESULTS not in stopped
    assert len([name for name in stopped if name.startswith("cells/")]) == 3
    assert stopped.items() <= whole.items()
    reproduce(plugin.request(), tmp_path / "out", None, 2, engine)
    assert contents(tmp_path / "out") == whole


# loky's own thread may raise where its workers are ended early; it is heard of nowhere else
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    ("told", "error", "sentence"),
    [
        ("refuse", DprlError, "^The log has no rewards.$"),
        pytest.param("fail", KeyError, "^'reward'", marks=pytest.mark.slow),
        pytest.param("die", DprlError, "^A worker has ended, as when memory is short: ", marks=pytest.mark.slow),
    ],
)
def test_what_goes_wrong_in_a_worker(plugin, tmp_path, told, error, sentence):
    plugin.tell(told)
    with pytest.raises(error, match=sentence) as caught:
        reproduce(plugin.request(), tmp_path / "out", None, 2)
    assert caught.type is error
    assert RESULTS not in contents(tmp_path / "out")
    if told == "fail":
        assert 'raise KeyError("reward")' in str(caught.value.__cause__)


def test_a_worker_of_another_kind_is_refused(plugin, tmp_path):
    content, facts = cloudpickle.dumps(Runner(plugin.request(), Store(tmp_path / "out", "004"))), machine_facts()
    with pytest.raises(DprlError, match=r"another machine than this one, or has other libraries \(numpy, processor\)"):
        compute_in_worker(content, facts | {"numpy": "1.0", "processor": "8086"}, Task())


@pytest.mark.slow
def test_programmed_figures_are_spread(tmp_path, engine):
    request = make_request(load_paper("003"), quick=True)
    request = replace(request, figures=tuple(f for f in request.figures if f.name in ("theorem1", "batch")))
    expected = reproduce(request, tmp_path / "one")
    assert reproduce(request, tmp_path / "two", None, 2, engine) == expected
    assert contents(tmp_path / "two") == contents(tmp_path / "one")


@pytest.mark.slow
def test_a_figure_of_a_paper_from_the_command_line(tmp_path):
    """Mountain Car, where every worker compiles: the same digits from one and from two."""
    command = [sys.executable, "-m", "dprl", "reproduce", "004", "--quick", "--figure", "2b", "--json"]
    found = [
        subprocess.run(
            [*command, "--workers", n, "--out", str(tmp_path / n)], capture_output=True, text=True, check=True
        )
        for n in ("1", "2")
    ]
    assert found[0].stdout == found[1].stdout
    assert found[1].stderr == ""
    assert contents(tmp_path / "1") == contents(tmp_path / "2")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux counts memory maps")
def test_compiled_programs_are_forgotten_before_their_maps_run_out():
    maps = lambda: Path("/proc/self/maps").read_bytes().count(b"\n")  # noqa: E731
    programs = [jax.jit(lambda x, i=i: i * jnp.cumsum(x)) for i in range(50)]
    for program in programs:
        program(jnp.arange(3.0))
    many = maps()
    forget_compiled()
    assert maps() >= many - 10  # far from the limit nothing is compiled again
    forget_compiled(share=0.0)
    assert maps() < many - 100
    assert programs[2](jnp.arange(3.0)).tolist() == [0.0, 2.0, 6.0]
