"""Several devices: the bytes of one, whichever device computes which units.

The number of devices is fixed when JAX starts, so other numbers than one are seen by a process of their own: this
file, run as a script.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks import devices

import dprl
from dprl.engine import layouts, unit_source
from dprl.engine import loop as engine
from dprl.engine.layouts import unit_rows
from dprl.engine.rows import Rows
from dprl.environments.people import LoggedPeople, People
from dprl.learning.policy_gradient import trainer
from dprl.learning.policy_gradient.estimator import Rates, RunShape, Trajectory
from dprl.learning.policy_gradient.people_sources import PeopleOnHost
from dprl.learning.policy_gradient.trainer import PolicyGradient
from dprl.mechanisms.gaussian_sum import ALTERS_ONE_PLACE, GaussianSum
from dprl.mechanisms.noise import SecureNoise, SeededNoise
from dprl.policies.parametric import Parametric

from . import helpers, one_shot

ROOT = Path(__file__).parents[2]
PEOPLE, BUDGET = 300, dprl.Budget(1.0, 1e-5)
# small blocks of several slices: many units for the size of a test
CHUNK_ROWS, SUMMANDS = 1 << 9, 1 << 9
ALGORITHMS: dict[str, Any] = {
    "gpope": dprl.GPOPE(discount=0.9, steps=3, sampling_rate=0.7, step_size=0.3),
    "dptd": dprl.DPTD(discount=0.9, steps=2, sampling_rate=0.6, start="zero"),
    "importance-sampling": dprl.ImportanceSampling(discount=0.9),
}
FEATURES = {"gpope": "tabular", "dptd": "mlp:5"}
COINS = SecureNoise(bytes(range(32))).actions()
RATES = Rates(*map(np.float32, (0.5, 1.0, 1.0, 0.0, 1.0, 1.0, 0.2, 0.3, 0.0, 1.0)))
POLICY = Parametric("mlp:8", ((0.0, 1.0),) * 2, actions=3)


def released(name: str) -> dict[str, bytes]:
    """The files of a release that hold numbers."""
    log = dprl.read_log(helpers.stepped_log(PEOPLE, 5), bounds=helpers.stepped_bounds(PEOPLE))
    options: dict[str, Any] = {"features": FEATURES[name]} if name in FEATURES else {}
    made = dprl.evaluate(log, helpers.stepped_policy, BUDGET, algorithm=ALGORITHMS[name], seed=1, **options)
    with tempfile.TemporaryDirectory() as folder:
        made.save(Path(folder, "out"))
        kept = ("estimate.json", "value_function.safetensors")
        return {path.name: path.read_bytes() for path in Path(folder, "out").iterdir() if path.name in kept}


class Chosen(People):
    """Users of one step, who do what the policy says."""

    def batch(self, first: int, count: int, act: Any) -> Trajectory:
        seen = np.random.default_rng(first).random((count, 1, 2), np.float32)
        action = act(seen[:, 0], np.arange(first, first + count), np.zeros(count, int))[:, None]
        ones = np.ones(count, np.int32)
        return Trajectory(seen, action, np.cos(7.0 * seen[..., 0] + action), ones, ones > 0)


class Standing(LoggedPeople):
    """The same users in a log: each is asked alone, and some are nobody."""

    def answers(self, places: np.ndarray, act: Any) -> Trajectory:
        seen = np.where(places < 0, 0.0, np.cos(np.arange(2)[:, None] + 0.3 * places)).T[:, None].astype(np.float32)
        action = act(seen[:, 0], places, np.zeros(len(places), int))[:, None]
        ones = (places >= 0).astype(np.int32)
        return Trajectory(seen, action, np.cos(7.0 * seen[..., 0] + action), ones, ones >= 0)


class Drawn:
    """The same users in compiled code."""

    units, stability = 135, ALTERS_ONE_PLACE

    def block(self, units: Any, state: Any) -> Trajectory:
        drawn = state.coins.for_batch(state.step).uniforms(units[0], len(units), 0, 3)
        action = POLICY.draw(state.theta, drawn[:2].T, drawn[2])[:, None]
        seen = drawn[:2].T[:, None]
        ones = jnp.ones(len(units), jnp.int32)
        return Trajectory(seen, action, jnp.cos(7.0 * seen[..., 0] + action), ones, ones > 0)


jax.tree_util.register_static(Drawn)


def learned(users: Any) -> bytes:
    """All iterates of a policy gradient: 70 users a batch, in blocks of 16 and of 35."""
    # another number of users, for what is compiled already is not seen to be shared
    count = 139 if isinstance(users, Standing) else 135
    shape = RunShape(
        policy=POLICY, places=count, batch=70, steps=2, horizon=1, bootstrap="none", block=16, baseline=True,
    )  # fmt: skip
    parts = tuple(zip(shape.parts, (0.98, 0.2), strict=True))
    mechanism = GaussianSum(parts=parts, steps=2, batch=70, noise_multiplier=0.01, relation="zero-out")
    compiled = isinstance(users, Drawn)
    run: Any = trainer.run_compiled if compiled else trainer.run_on_host
    people = users if compiled else PeopleOnHost(users, count)
    given = PolicyGradient(shape, mechanism), people, SeededNoise.from_seed(2), RATES, COINS
    return np.asarray(run(*given)[1]).tobytes()


def prepared(name: str, people: int) -> tuple[Any, Any]:
    """The program, and the rows as it sees them."""
    log, policy = one_shot.stepped(people, 5), helpers.stepped_policy
    program, rows, _ = one_shot.made(ALGORITHMS[name], log, FEATURES[name], policy, dtype=np.float32)
    return program, unit_rows(rows, people)


def exact_sum(name: str) -> bytes:
    """Of one step, for two of three people, from weights at random."""
    program, data = prepared(name, PEOPLE)
    rng = np.random.default_rng(0)
    state = jax.tree.map(
        lambda x: x if x.ndim == 0 else np.asarray(x) + rng.normal(0.0, 0.3, x.shape).astype(x.dtype), program.init()
    )
    included = np.arange(PEOPLE) % 3 > 0
    return np.asarray(engine.sum_of_rows(program, 0, program.stages[0].mechanism, state, data, included)).tobytes()


SUM: dict[str, Callable[[], dict[str, bytes]]] = {"gpope": lambda: {"sum": exact_sum("gpope")}}
RELEASES: dict[str, Callable[[], dict[str, bytes]]] = {
    **{name: lambda name=name: released(name) for name in ALGORITHMS},
    "dp-pg": lambda: {"iterates": learned(Drawn())},
    "dp-pg on the host": lambda: {"iterates": learned(Chosen())},
    "dp-pg of a log": lambda: {"iterates": learned(Standing())},
}


def seen_by(which: str, replace: Callable[[Any, str, Any], None]) -> dict[str, Any]:
    """What is computed with the devices of this process, every exact sum below it, and who shared one between them."""
    found: dict[str, bytes] = {}
    shared: set[str] = set()
    where = ""

    def recorded(*arguments: Any) -> Any:
        total = sum_of_rows(*arguments)
        found[f"sum {len(found)}"] = np.asarray(total).tobytes()
        return total

    def noted(mesh: Any, *arguments: Any) -> Any:
        assert mesh == unit_source.unit_mesh()
        shared.add(where)
        return all_reduced(mesh, *arguments)

    sum_of_rows, all_reduced = engine.sum_of_rows, unit_source.all_reduced
    replace(engine, "sum_of_rows", recorded)
    for module in (engine, unit_source):
        replace(module, "all_reduced", noted)
    replace(layouts, "_CHUNK_ROWS", CHUNK_ROWS)
    replace(engine, "SUMMANDS", SUMMANDS)
    replace(trainer, "GHOST_BLOCK", 35)
    for where, compute in {"sum": SUM, "releases": RELEASES}[which].items():
        found |= {f"{where}, {name}": content for name, content in compute().items()}
    with jax.default_device(jax.devices()[0]):
        alone = unit_source.unit_mesh() is None
    texts = {name: base64.b64encode(content).decode() for name, content in found.items()}
    return {"found": texts, "shared": sorted(shared), "devices": jax.device_count(), "a default is alone": alone}


def of_devices(count: int, *arguments: str) -> Any:
    """What Python with these arguments prints last, where JAX sees so many devices."""
    # first: what stands behind a word without dashes, which the papers' harness sets, is not read
    flags = f"--xla_force_host_platform_device_count={count} {os.environ.get('XLA_FLAGS', '')}".strip()
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    script = [sys.executable, *arguments]
    done = subprocess.run(script, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def check(which: str, counts: tuple[int, ...], shared: set[str]) -> dict[str, str]:
    with pytest.MonkeyPatch.context() as patch:
        of_one = seen_by(which, patch.setattr)
    assert of_one["devices"] == 1
    assert of_one["shared"] == []
    for count in counts:
        of_several = of_devices(count, "-m", "tests.evaluation.test_devices", which)
        assert of_several["devices"] == count
        assert set(of_several["shared"]) == shared
        assert of_several["a default is alone"]
        assert of_several["found"] == of_one["found"]
    return of_one["found"]


def test_a_sum_of_one_device() -> None:
    if jax.default_backend() != "cpu":
        pytest.skip("several devices are made of the processor, whose bytes are not those of a GPU")
    found = check("sum", (4,), set(SUM))
    for name in SUM:
        assert np.frombuffer(base64.b64decode(found[f"{name}, sum"]), np.int64).all()


@pytest.mark.slow
def test_the_releases_of_one_device() -> None:
    found = check("releases", (2, 3, 4), set(RELEASES) - {"importance-sampling"})
    assert {"gpope, estimate.json", "dptd, value_function.safetensors", "sum 0"} <= set(found)


@pytest.mark.slow
def test_the_benchmark_of_devices_runs() -> None:
    found = devices.run("small")
    timed = {line.split("|")[1].strip() for line in found["table"].splitlines()[2:]}
    assert timed == {f"{work}, {kind}" for work in devices.WORKS for kind in (devices.SUM, devices.UPDATE)}
    assert max(found["errors"].values()) <= devices.TOLERANCE


@pytest.mark.parametrize("count", [2, 3, 4, 64])
@pytest.mark.parametrize("declared", [20, 10_000])
def test_blocks_are_cut_between_slices_and_by_public_facts(count: int, declared: int) -> None:
    """Whoever is there: the units are those of the log, and a device's share is whole slices of one size."""
    rng = np.random.default_rng(0)
    lengths = np.repeat([2, 8], 700)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    flat = np.zeros(offsets[-1] + 1, np.float32)
    data = unit_rows(Rows({"weight": flat}, offsets), declared)
    width = lambda length: 256 // length  # noqa: E731
    sizes: dict[int, set[tuple[int, bool]]] = {}
    for people in (1, 5, 300, 700, 1400):
        included = np.zeros(1400, dtype=bool)
        included[rng.permutation(1400)[:people]] = True
        wanted = np.sort(np.concatenate([i[live][:, 0] for i, live in data.chunks(included)]))
        found = []
        for index, live, spread in unit_source._grouped(data.chunks(included), count, width, declared, len(flat) - 1):
            units, length = index.shape
            sizes.setdefault(length, set()).add((units, spread))
            assert (index[~live] == len(flat) - 1).all()
            found.append(index[live][:, 0])
            if spread:
                assert units % count == 0
                assert (units // count) % min(width(length), layouts._CHUNK_ROWS // length, units // count) == 0
        np.testing.assert_array_equal(np.sort(np.concatenate(found)), wanted)
    assert all(len(each) == 1 for each in sizes.values())
    assert {spread for each in sizes.values() for _, spread in each} == ({False} if declared == 20 else {True})


def products(jaxpr: Any) -> list[Any]:
    """Of a program and of all inside of it: the precision of every product of float32."""
    found = []
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general" and equation.invars[0].aval.dtype == np.float32:
            found.append(equation.params["precision"])
        for inner in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")
        ):
            while hasattr(inner, "jaxpr"):
                inner = inner.jaxpr
            found += products(inner) if hasattr(inner, "eqns") else []
    return found


@pytest.mark.parametrize("name", ["gpope", "dptd", "dp-pg"])
def test_what_is_clipped_has_all_digits(name: str) -> None:
    """No product on the way to the clip has a GPU's faster, shorter arithmetic."""
    if name == "dp-pg":
        shape = RunShape(policy=POLICY, places=8, batch=8, steps=1, horizon=2, bootstrap="none")
        mechanism = GaussianSum(parts=((shape.dimension, 1.0),), batch=8, noise_multiplier=1.0, relation="zero-out")
        program = PolicyGradient(shape, mechanism)
        state = program.init(RATES, COINS)
        ones = np.ones(8, np.int32)
        rows = Trajectory(
            np.zeros((8, 2, 2), np.float32), np.zeros((8, 2), int), np.zeros((8, 2), np.float32), ones, ones > 0
        )
        traced = jax.make_jaxpr(lambda *x: program.clipped_sum(0, mechanism, *x))(state, rows, ones > 0)
    else:
        program, data = prepared(name, 20)
        (index, live), *_ = data.chunks(np.ones(20, dtype=bool))
        options = (program, len(program.stages) - 1, program.stages[-1].mechanism)
        traced = jax.make_jaxpr(lambda *x: engine._accumulate(*options, *x))(program.init(), data.columns, index, live)
    found = products(traced.jaxpr)
    assert found
    assert set(found) == {(jax.lax.Precision.HIGHEST,) * 2}


@pytest.mark.slow
def test_the_benchmark_runs() -> None:
    script = "import json; from benchmarks import devices; print(json.dumps(devices.run('small')))"
    result = of_devices(2, "-c", script)
    assert {"CPU; GPOPE", "CPU; DPTD", "CPU; DP-PG", "2 of cpu; GPOPE"} <= set(result["errors"])
    assert max(result["errors"].values()) == 0.0
    assert result["table"].count("\n") == 1 + 3 * 2 + 2 * 2


if __name__ == "__main__":
    print(json.dumps(seen_by(sys.argv[1], setattr)))
