"""The heavy sums of a release on every device that JAX sees, compared with the device's own limits in the same run.

Run ``python -m benchmarks devices``; its worker is ``python -m benchmarks.devices serve SIZE``. The CPU is always
measured. A GPU is measured where JAX sees one, and several devices are also measured together.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from benchmarks.harness import Worker, alternate, figure, serve, table

DISCOUNT, CLIP = 0.99, 0.1
TOLERANCE = 1e-3  # of the largest coordinate of a sum: single precision, in another order
GPOPE, DPTD, DP_PG = "GPOPE", "DPTD", "DP-PG"
COPY, PRODUCT = "copy", "product"
SUM, UPDATE = "sum", "update"


class Size(NamedTuple):
    """Sizes of the problems that are measured.

    Attributes:
        units, length, features: number of GPOPE's trajectories, their steps, and its features.
        transitions, side, hidden: DPTD's transitions, whose states are pictures of ``side x side`` pixels, and the
            hidden units of its network.
        users, inputs, outputs: DP-PG's batch, the components of a context, and hidden units of its policy.
        copied: number of float32 entries of the array that is copied.
        product: rows and columns of the matrices that are multiplied.
        updates: number of updates of one call.
    """

    units: int
    length: int
    features: int
    transitions: int
    side: int
    hidden: int
    users: int
    inputs: int
    outputs: int
    copied: int
    product: int
    updates: int


SIZES = {
    "full": Size(1000, 40, 1024, 1000, 80, 50, 1000, 1000, 995, 1 << 26, 4096, 3),
    "small": Size(20, 8, 16, 40, 4, 3, 30, 5, 4, 1 << 12, 32, 2),
}
REPETITIONS, SECONDS = 7, 240.0


class Work(NamedTuple):
    """One of the heavy sums.

    Attributes:
        sum: computes the sum of one step over all units, ``(dimension,)`` int64.
        update: runs some of a release's updates, with noise from the operating system.
        bytes, flops: fewest bytes that a step must read or write, and fewest operations; the same for every device.
    """

    sum: Callable[[], Any]
    update: Callable[[], int]
    bytes: float
    flops: float


def places() -> dict[str, Any]:
    """Return label -> a device, or None for all devices together."""
    import jax

    cpu = jax.devices("cpu")[0]
    found: dict[str, Any] = {"CPU": cpu}
    devices = jax.local_devices()
    if devices[0].platform != "cpu":
        found[devices[0].device_kind] = devices[0]
    if len(devices) > 1:
        found[f"{len(devices)} of {devices[0].device_kind}"] = None
    return found


@contextlib.contextmanager
def at(device: Any) -> Iterator[None]:
    """Run the block's computations on this device, or on all devices if it is None."""
    import jax

    with contextlib.nullcontext() if device is None else jax.default_device(device):
        yield


def gpope_work(size: Size) -> Work:
    """Return the work of GPOPE's gradient over all units.

    The features of a row and their difference are read once, and each enters two products.
    """
    import numpy as np

    from dprl.bounds import Bounds
    from dprl.engine.layouts import unit_rows
    from dprl.engine.plan import program_at
    from dprl.engine.program import PublicFacts
    from dprl.engine.rows import Rows
    from dprl.evaluation import gpope
    from dprl.value_functions.features import make_features

    rng, rows = np.random.default_rng(0), size.units * size.length
    phi, following = (rng.standard_normal((rows + 1, size.features), np.float32) for _ in range(2))
    phi[-1] = following[-1] = 0.0
    column = lambda low, high: np.append(rng.uniform(low, high, rows), 0.0).astype(np.float32)  # noqa: E731
    weight = np.append(np.full(rows, 1.0 / size.length), 0.0).astype(np.float32)
    delta = phi - np.float32(DISCOUNT) * following
    offsets = np.arange(size.units + 1) * size.length
    columns = {"phi": phi, "delta_phi": delta, "reward": column(-1.0, 1.0), "rho": column(0.0, 2.0), "weight": weight}
    data = unit_rows(Rows(columns, offsets), size.units)
    config = gpope.GPOPE(discount=DISCOUNT, steps=size.updates, step_size=0.1, clip_norm=CLIP)
    bounds = Bounds(units=size.units, horizon=size.length, reward=(0.0, 1.0), observation=((0.0, 1.0),), actions=1)
    features = make_features(f"fourier:{size.features - 1}", bounds.observation)
    program = program_at(config, PublicFacts(bounds, features, DISCOUNT, mu=1.0), 10.0)
    theta, w = (0.1 * rng.standard_normal((2, size.features))).astype(np.float32)
    state = program.start_at(theta)._replace(w=w)
    return _of_program(program, data, state, 8.0 * rows * size.features, 8.0 * rows * size.features)


def dptd_work(size: Size) -> Work:
    """Return the work of DPTD's gradient over a batch of transitions.

    Each transition has a vector of 2d numbers, which is written and read once, and about 24 operations for each of the
    d weights.
    """
    import numpy as np

    from benchmarks.dptd_problem import frames
    from dprl.accounting.budget import Budget
    from dprl.bounds import Bounds
    from dprl.data.readers import read_log
    from dprl.engine.layouts import unit_rows
    from dprl.engine.rows import rows_of
    from dprl.evaluation import dptd
    from dprl.evaluation.plan import program_for
    from dprl.value_functions.network import MLP

    rng, count, inputs = np.random.default_rng(0), size.transitions, size.side**2
    seen = frames(rng, count + 1)[:, :inputs]
    bounds = Bounds(
        units=count, horizon=1000, reward=(-1.0, 1.0), observation=((0.0, 255.0),) * inputs, actions=3,
        return_range=(-1.25, 1.25),
    )  # fmt: skip
    zeros = np.zeros(count, dtype=np.int64)
    log = read_log(
        {
            "observation": seen[:-1], "next_observation": seen[1:], "reward": rng.choice([-1.0, 0.0, 1.0], count),
            "t": np.arange(count), "episode_id": zeros, "action": zeros, "behavior_prob": np.full(count, 1.0 / 3.0),
            "terminated": rng.random(count) < 0.005, "truncated": zeros.astype(bool),
        },
        bounds=bounds, unit="transition",
    ).load()  # fmt: skip
    features = MLP(bounds.observation, size.hidden)
    config = dptd.DPTD(discount=DISCOUNT, steps=size.updates, start="zero")
    program: Any = program_for(config, bounds, features, Budget(1.0, 1e-5), unit="transition")
    value = bounds.value_interval(DISCOUNT)
    data = unit_rows(rows_of(log, np.ones(count), features, DISCOUNT, value, columns=program.columns), count)
    batch = program.stages[-1].mechanism.sampling_rate * count
    numbers = batch * features.size
    return _of_program(program, data, program.init(), 16.0 * numbers, 24.0 * numbers)


def _of_program(program: Any, data: Any, state: Any, least_bytes: float, least_flops: float) -> Work:
    import jax
    import numpy as np

    from dprl.engine import loop as engine
    from dprl.mechanisms.noise import SecureNoise, SeededNoise

    (stage,) = program.stages
    mechanism = stage.mechanism
    included = np.asarray(mechanism.participation_mask(SeededNoise.from_seed(0), 0, data.units))

    def update() -> int:
        fresh: Any = SecureNoise.fresh()
        jax.block_until_ready(engine.run_steps_on_host(program, 0, mechanism, fresh, data, state))
        return mechanism.steps

    def total() -> Any:
        return np.asarray(engine.sum_of_rows(program, 0, mechanism, state, data, included))

    return Work(total, update, least_bytes, least_flops)


def dp_pg_work(size: Size) -> Work:
    """Return the work of one step of DP-PG by ghost clipping.

    The layer's sums are one product, and the sum of all gradients is another one.
    """
    import jax
    import numpy as np

    from dprl.learning.policy_gradient.estimator import policy_layers
    from dprl.mechanisms.gaussian_sum import GaussianSum
    from dprl.mechanisms.ghost_clipping import ghost_sum
    from dprl.mechanisms.noise import SecureNoise
    from dprl.policies.parametric import Parametric

    rng, users = np.random.default_rng(0), size.users
    policy = Parametric(f"mlp:{size.outputs}", ((-1.0, 1.0),) * size.inputs, 4)
    mechanism = GaussianSum(
        parts=((policy.size, 1.0),), steps=size.updates, batch=users, noise_multiplier=4.0, relation="zero-out"
    )
    rows = (
        jax.device_put(rng.uniform(-1.0, 1.0, (users, size.inputs)).astype(np.float32)),
        jax.device_put(rng.integers(0, 4, users)),
        jax.device_put(rng.uniform(-1.0, 1.0, users).astype(np.float32)),
    )
    theta = jax.device_put(0.1 * rng.standard_normal(policy.size, np.float32))
    everybody = np.ones(users, dtype=bool)

    @jax.jit
    def exact(theta: Any, rows: Any) -> Any:
        with jax.default_matmul_precision("highest"):
            return ghost_sum(mechanism, policy_layers(policy, theta, *rows), everybody)

    moved = jax.jit(lambda theta, noisy: theta + np.float32(1e-3) * noisy.astype(np.float32))

    def update() -> int:
        fresh, here = mechanism.in_order(SecureNoise.fresh()), theta
        for t in range(size.updates):
            here = moved(here, mechanism.release(exact(here, rows), fresh.draw(t)))
        jax.block_until_ready(here)
        return size.updates

    least_bytes = 12.0 * policy.size + 4.0 * users * size.inputs
    return Work(lambda: np.asarray(exact(theta, rows)), update, least_bytes, 4.0 * users * policy.size)


WORKS = {GPOPE: gpope_work, DPTD: dptd_work, DP_PG: dp_pg_work}


def limits(size: Size) -> dict[str, Callable[[], float]]:
    """Return calls that measure the device's limits.

    One call returns the bytes that a copy reads and writes, the other the operations of a product of matrices in single
    precision.
    """
    import jax
    import numpy as np

    array = jax.device_put(np.ones(size.copied, np.float32))
    matrix = jax.device_put(np.random.default_rng(0).standard_normal((size.product, size.product), np.float32))
    # XLA would leave out a copy that changes nothing
    copied = jax.jit(lambda x: x + np.float32(1.0))
    multiplied = jax.jit(lambda a: jax.lax.dot(a, a, precision=jax.lax.Precision.HIGHEST))

    def copy() -> float:
        jax.block_until_ready(copied(array))
        return 8.0 * size.copied

    def product() -> float:
        jax.block_until_ready(multiplied(matrix))
        return 2.0 * size.product**3

    return {COPY: copy, PRODUCT: product}


def candidates(size: Size) -> tuple[dict[str, Callable[[], Any]], dict[str, Any]]:
    """Return name, as of :func:`name_of` -> the call that is timed, and the worker's facts.

    Raises:
        SystemExit: the sums of two devices differ by more than rounding.
    """
    import numpy as np

    found: dict[str, Callable[[], Any]] = {}
    least: dict[str, list[float]] = {}
    sums: dict[str, Any] = {}
    errors: dict[str, float] = {}

    def placed(device: Any, call: Callable[[], Any], amount: int | None = None) -> Callable[[], Any]:
        def go() -> Any:
            with at(device):
                answer = call()
            return answer if amount is None else amount

        return go

    for label, device in places().items():
        with at(device):
            if device is not None:
                found |= {name_of(label, kind): placed(device, call) for kind, call in limits(size).items()}
            for name, make in WORKS.items():
                if device is None and name == DP_PG:  # its users are one block, which a single device takes
                    continue
                work = make(size)
                total = work.sum().astype(np.float64)
                first = sums.setdefault(name, total)
                errors[name_of(label, name)] = float(np.abs(total - first).max() / np.abs(first).max())
                found[name_of(label, name, SUM)] = placed(device, work.sum, 1)
                found[name_of(label, name, UPDATE)] = placed(device, work.update)
                least[name] = [work.bytes, work.flops]
    if wrong := [name for name, error in errors.items() if not error <= TOLERANCE]:
        raise SystemExit(f"devices: {', '.join(wrong)} is not the CPU's sum: {errors}")
    return found, {"places": list(places()), "least": least, "errors": errors}


def name_of(*parts: str) -> str:
    """Return a candidate's name from its ``parts``."""
    return "; ".join(parts)


def cores() -> int:
    """Return the number of usable cores, but at least two.

    With two or more, :func:`benchmarks.harness.alternate` takes the clock: a GPU's time is not a core's time.
    """
    return max(2, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2)


def run(size: str = "full") -> dict[str, Any]:
    worker = Worker(["-m", "benchmarks.devices", "serve", size])
    facts = worker.facts
    runs = alternate([worker], REPETITIONS, SECONDS)
    worker.close()
    wanted, rows = SIZES[size], []
    seconds = {name: r["wall"] for name, r in runs.items()}
    for name, (least_bytes, least_flops) in facts["least"].items():
        for kind in (SUM, UPDATE):
            for label in facts["places"]:
                if (mine := seconds.get(name_of(label, name, kind))) is None:
                    continue
                limit = "-"
                if name_of(label, COPY) in seconds:
                    moved, computed = (
                        least * seconds[name_of(label, which)]
                        for least, which in ((least_bytes, COPY), (least_flops, PRODUCT))
                    )
                    limit = f"{figure(mine / max(moved, computed))} ({'bytes' if moved >= computed else 'FLOPs'})"
                cpu = seconds[name_of("CPU", name, kind)] / mine
                rows.append([f"{name}, {kind}", label, figure(1e3 * mine), limit, figure(cpu)])
    able = [
        f"{label}: {figure(1e-9 / seconds[name_of(label, COPY)])} GB/s copied, "
        f"{figure(1e-9 / seconds[name_of(label, PRODUCT)])} GFLOP/s in a product of single precision"
        for label in facts["places"]
        if name_of(label, COPY) in seconds
    ]
    return {
        "title": "Devices: the sums of a release on what JAX sees",
        "notes": [
            "Milliseconds by the clock; medians over alternated rounds, in one process. A sum is that of everybody's "
            "clipped vectors, exact; an update adds the noise of a release, drawn on the host, and the step on it.",
            f"GPOPE: {wanted.units:,} trajectories of {wanted.length} steps, n = {wanted.features:,}. DPTD: a batch of "
            f"transitions of {wanted.side} x {wanted.side} pixels, a network of {wanted.hidden} hidden units. DP-PG: "
            f"{wanted.users:,} users of one step, {wanted.inputs:,} inputs and {wanted.outputs:,} hidden units.",
            "The limit is the longer of the bytes that a step must move and of the operations that it must do, at the "
            f"speed of a copy and of a product in the same run. {'. '.join(able)}.",
            "All products are in single precision in full (no TF32). The sums of all devices agree with the CPU's to "
            f"{max(facts['errors'].values()):.1e} of the largest coordinate.",
        ],
        "table": table(["work", "device", "ms", "over the limit", "CPU over it"], rows),
        "goals": [],
        "seconds": runs,
        "least": facts["least"],
        "errors": facts["errors"],
    }


def serve_candidates(size: str) -> None:
    calls, facts = candidates(SIZES[size])
    serve(calls, cores(), facts)


if __name__ == "__main__":
    sys.exit(serve_candidates(sys.argv[2]))
