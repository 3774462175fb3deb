"""Sweeps: the same bytes wherever they are computed, whoever dies; and what goes wrong is one sentence."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from papers.tests.controlled import Controlled, contents, is_running

from dprl.errors import DprlError
from dprl_papers.harness.reproduce import RESULTS, reproduce
from dprl_papers.harness.runner import Cell, Runner
from dprl_papers.harness.store import Store
from dprl_papers.harness.sweep import Kept, Task, Tasks, recipe_of
from dprl_papers.harness.sweep_worker import CELL, FAILED, OPEN, REFUSED, Actor, StoreOverLine, Worker, machine_facts

ROOT = Path(__file__).parents[2]
SEEDS = {(units, seed): 1 for units in (10, 40) for seed in (0, 1)}


@pytest.fixture
def plugin(tmp_path):
    return Controlled(tmp_path / "plugin")


@pytest.fixture(scope="module")
def cluster():
    """A Ray cluster of two processors, that this process is connected to."""
    from dprl import cluster

    ray = cluster.import_ray()
    with cluster.cluster(ray, 2, None):
        yield


@pytest.fixture
def interruptible():
    """Ctrl-C is heard, also where the tests run in the background of a shell that ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(params=["local", pytest.param("ray", marks=pytest.mark.slow)])
def engine(request):
    if request.param == "ray":
        request.getfixturevalue("cluster")
    return request.param


def test_a_worker_that_dies_costs_one_cell(plugin, tmp_path, engine):
    """The bytes of one process, of two workers of which one dies; all but its cell are computed once."""
    expected = reproduce(plugin.request(), tmp_path / "one", workers=1)
    assert plugin.asked() == SEEDS
    plugin.tell("die once")
    done: list[int] = []
    found = reproduce(plugin.request(), tmp_path / "two", lambda n, *_: done.append(n), 2, engine)
    assert found == expected
    assert contents(tmp_path / "two") == contents(tmp_path / "one")
    assert os.getpid() not in plugin.processes()
    asked = plugin.asked()
    assert set(asked) == set(SEEDS)
    assert sum(asked.values()) == 5  # it died at the first trial of a cell
    assert done == list(range(11))
    assert (tmp_path / "two" / "seconds.json").is_file()
    # and nothing is computed again
    reproduce(plugin.request(), tmp_path / "two", None, 2, engine)
    assert not plugin.asked()


def test_ctrl_c_ends_all_of_it_and_the_same_command_goes_on(plugin, tmp_path, engine, interruptible):
    reproduce(plugin.request(), tmp_path / "whole", workers=1)
    everything, cells = set(plugin.asked()), len(list((tmp_path / "whole").glob("cells/*.json")))
    plugin.tell("wait")

    def interrupt() -> None:
        # one worker waits in a cell, and the other has written all the rest
        while len(list((tmp_path / "killed").glob("cells/*.json"))) < cells - 1:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        reproduce(plugin.request(), tmp_path / "killed", None, 2, engine)
    thread.join()
    while any(map(is_running, plugin.processes())):  # a process that never ends shows as a test that never does
        time.sleep(0.05)
    whole, killed = contents(tmp_path / "whole"), contents(tmp_path / "killed")
    assert RESULTS not in killed
    assert 1 < len(killed) < len(whole)
    assert killed.items() <= whole.items()  # nothing half-written
    (plugin.folder / "told").unlink()
    plugin.asked()
    reproduce(plugin.request(), tmp_path / "killed", None, 2, engine)
    assert contents(tmp_path / "killed") == whole
    # what waited, and of the rest what was not done
    asked = set(plugin.asked())
    assert {(40, 0), (40, 1)} <= asked
    assert asked < everything


@pytest.mark.slow
def test_workers_end_with_the_process_that_is_killed(plugin, tmp_path):
    plugin.tell("wait")
    script = (
        "from pathlib import Path\n"
        "from dprl_papers.harness.reproduce import reproduce\n"
        "from papers.tests.controlled import Controlled\n"
        f"plugin, out = Controlled(Path({str(plugin.folder)!r})), Path({str(tmp_path / 'out')!r})\n"
        "reproduce(plugin.request(), out, None, 2, 'local')"
    )
    process = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT)
    while not any(units == 40 for _, units, _ in plugin.lines()):
        assert process.poll() is None
        time.sleep(0.05)
    assert all(map(is_running, plugin.processes()))
    process.kill()
    process.wait()
    end = time.monotonic() + 5.0
    while any(map(is_running, plugin.processes())) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(is_running, plugin.processes()))


@pytest.mark.slow
def test_a_figure_of_a_paper_from_the_command_line(tmp_path):
    """Mountain Car, where every worker compiles: the same digits from one and from two."""
    command = [sys.executable, "-m", "dprl.cli", "reproduce", "004", "--quick", "--figure", "2b", "--json"]
    found = [
        subprocess.run(
            [*command, "--workers", n, "--out", str(tmp_path / n)], capture_output=True, text=True, check=True
        )
        for n in ("1", "2")
    ]
    assert found[0].stdout == found[1].stdout
    assert found[1].stderr == ""
    assert contents(tmp_path / "1") == contents(tmp_path / "2")


@pytest.mark.parametrize(
    ("told", "error", "sentence"),
    [
        ("refuse", DprlError, "^The log has no rewards.$"),
        pytest.param("fail", KeyError, "^'reward'", marks=pytest.mark.slow),
        pytest.param(
            "die",
            DprlError,
            "^A worker ended 3 times over tiny, [14]0 trajectories: mean-reward, as it does when memory is short: ",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_goes_wrong_in_a_worker(plugin, tmp_path, engine, told, error, sentence):
    plugin.tell(told)
    with pytest.raises(error, match=sentence) as caught:
        reproduce(plugin.request(), tmp_path / "out", None, 2, engine)
    assert caught.type is error
    if told == "fail":
        (note,) = caught.value.__notes__
        assert 'raise KeyError("reward")' in note
    assert RESULTS not in contents(tmp_path / "out")


@pytest.mark.slow
def test_a_plugin_that_changes_meanwhile(plugin, tmp_path):
    def change(*_: Any) -> None:
        plugin.path.write_text(plugin.path.read_text() + "\n")

    with pytest.raises(DprlError, match=r"^A worker has another plugin file or other code of dprl than"):
        reproduce(plugin.request(), tmp_path / "out", change, 2, "local")


@pytest.mark.slow
def test_figures_without_cells_are_spread(tmp_path, engine):
    """Formulas, and what is learned."""
    from dprl_papers.harness.reproduce import make_request
    from dprl_papers.harness.spec import load_paper

    request = make_request(load_paper("003"), quick=True)
    request = replace(request, figures=tuple(f for f in request.figures if f.name in ("theorem1", "batch")))
    expected = reproduce(request, tmp_path / "one", workers=1)
    assert reproduce(request, tmp_path / "two", None, 2, engine) == expected
    assert contents(tmp_path / "two") == contents(tmp_path / "one")


def test_one_worker_is_this_process(plugin, tmp_path):
    reproduce(plugin.request(), tmp_path / "out", None, 1, "local")
    assert plugin.processes() == {os.getpid()}


def test_methods_without_a_file_are_refused(plugin, tmp_path):
    request = plugin.request()
    mine = replace(request.methods["mine"], label="another")
    with pytest.raises(DprlError, match="put them into a plugin file"):
        recipe_of(replace(request, methods={**request.methods, "mine": mine}), Store(tmp_path / "out", "004"))


# --- parts of it ------------------------------------------------------------------------------------------------------


def task(method: str, chunk: tuple[int, int], factor: float = 1.0) -> Task:
    cell = Cell("chain", 10, method, factor, None)
    return Task(f"{method} {chunk[0]}", (CELL, cell, chunk), {}, cell, chunk)


def test_every_worker_has_its_own_logs_while_there_are_some():
    waiting = [task(name, chunk) for name in "abc" for chunk in ((0, 5), (5, 10))]
    tasks = Tasks([*waiting, Task("figure", (), {})])
    assert tasks.next(1).words == "figure"
    assert [tasks.next(worker).words for worker in (1, 2, 1)] == ["a 0", "a 5", "b 0"]
    assert tasks.next(3).words == "b 5"  # helps where most is left
    lost = tasks.next(1)
    assert lost.words == "c 0"
    tasks.forget(1)
    tasks.back(lost)
    assert len(tasks) == 2
    assert tasks.next(2).words == "c 5"
    assert tasks.next(3) is lost
    assert len(tasks) == 0


def test_workers_on_the_same_logs_share_what_is_to_be_compiled():
    """One factor of a step size or another is one program."""
    tasks = Tasks([task("a", (0, 5)), task("a", (0, 5), 2.0), task("b", (0, 5)), task("b", (0, 5), 2.0)])
    found = [tasks.next(worker) for worker in (1, 2, 2, 1)]
    assert [one.words[0] for one in found] == ["a", "b", "b", "a"]


class Asked:
    """A crew whose workers ask for what is kept, each in a thread of its own."""

    size = 2

    def __init__(self) -> None:
        self.answers: dict[int, list[Any]] = {1: [], 2: []}

    def send(self, worker: int, message: Any) -> None:
        self.answers[worker].append(message)


def test_what_one_computes_others_wait_for(tmp_path):
    crew = Asked()
    kept = Kept(Store(tmp_path, "004"), crew)  # type: ignore[arg-type]
    key, other = {"point": 1}, {"point": 2}
    kept.read(1, key)
    kept.read(2, key)
    kept.read(1, other)
    assert crew.answers == {1: [(None,), (None,)], 2: []}
    kept.save(1, key, {"values": [0.5]})
    assert crew.answers[2] == [({"values": [0.5]},)]
    assert crew.answers[1][2:] == [(None,)]
    # one that dies leaves it to the next
    kept.read(2, other)
    assert len(crew.answers[2]) == 1
    kept.forget(1)
    assert crew.answers[2][1:] == [(None,)]


class Memory:
    """A line to a store at hand."""

    def __init__(self, store: Store) -> None:
        self.store, self.answer = store, (None,)

    def send(self, message: Any) -> None:
        kind, *about = message
        self.answer = (getattr(self.store, kind)(*about),)

    def receive(self) -> Any:
        return self.answer


def test_a_store_over_a_line(tmp_path):
    store = StoreOverLine(Memory(Store(tmp_path, "004")), Path("elsewhere"))
    assert store.read({"a": 1}) is None
    store.save({"a": 1}, {"values": [0.1]})
    assert store.read({"a": 1}) == {"values": [0.1]} == Store(tmp_path, "004").read({"a": 1})
    assert not Path("elsewhere").exists()


def test_a_worker_of_another_kind_is_refused(plugin, tmp_path):
    recipe = pickle.dumps(recipe_of(plugin.request(), Store(tmp_path / "out", "004")))
    worker = Worker(Memory(Store(tmp_path / "out", "004")))
    facts = machine_facts()
    assert worker.answer((OPEN, recipe, facts)) == ("ready",)
    kind, sentence = worker.answer((OPEN, recipe, facts | {"numpy": "1.0", "processor": "8086"}))
    assert kind == REFUSED
    assert "another machine than this one, or has other libraries (numpy, processor)" in sentence


def test_whatever_goes_wrong_is_an_answer():
    """Also what no worker should be asked; a sweep would wait for it for ever."""
    actor = Actor()
    kind, pickled, words, trace = pickle.loads(actor.exchange(pickle.dumps(("dance",))))
    assert (kind, words) == (FAILED, "KeyError: 'dance'")
    assert isinstance(pickle.loads(pickled), KeyError)
    assert "Traceback" in trace


def test_a_request_made_again(plugin, tmp_path):
    """As a worker makes it: the same cells, under the same names."""
    request = plugin.request(trials=3, quick=True)
    recipe = pickle.loads(pickle.dumps(recipe_of(request, Store(tmp_path / "out", "004"))))
    found, expected = (Runner(r, Store(tmp_path / "out", "004")) for r in (recipe.request(), request))
    assert list(found.parts()) == list(expected.parts())
    for cell, chunk in expected.parts():
        assert found.key(cell, chunk) == expected.key(cell, chunk)
