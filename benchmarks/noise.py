"""Time of a Gaussian draw: the secure noise of releases, the fast noise of experiments, and the usual generators."""

from __future__ import annotations

import sys
from typing import Any

from benchmarks.harness import Worker, alternate, figure, goal, pin, table

WIDTH, TRIALS, STEPS = 80, 100, 500  # coordinates of a draw; trials and steps of the generators that run inside a scan
STD = 2.0**34 * 1.5
BULK = 200_000
# A whole release by dprl.evaluate: the chain's log, tabular features, GPOPE's defaults.
TRANSITIONS, RELEASE = 20_000, "a release: evaluate, 20,000 transitions, 400 updates"


def serve_candidates() -> None:
    pin(1)
    import jax
    import jax.numpy as jnp
    import numpy as np

    import dprl
    from benchmarks.chain_data import DISCOUNT
    from benchmarks.harness import serve
    from benchmarks.scaling import bounds, chain_columns
    from dprl.mechanisms import threefry
    from dprl.mechanisms.noise import SecureNoise, SeededNoise

    secure, steps = SecureNoise.fresh(), iter(range(2**62))
    rng = np.random.default_rng(0)
    single, double = np.empty((TRIALS, WIDTH), np.float32), np.empty((TRIALS, WIDTH))

    def secure_of(width: int, times: int) -> Any:
        def go() -> int:
            for _ in range(times):
                secure.gaussian(next(steps), width, STD)
            return width * times

        return go

    def block_of(times: int) -> Any:
        def go() -> int:
            for _ in range(times):
                secure.block(next(steps) * 250, 250, WIDTH, STD)
            return 250 * WIDTH * times

        return go

    def scanned(of: Any, keys: Any, zero: Any) -> Any:
        """Return a call that runs ``of(key, step)`` in a scan, over 100 keys, as experiments draw noise."""

        def one(key: Any) -> Any:
            body = lambda total, step: (total + of(key, step), None)  # noqa: E731
            return jax.lax.scan(body, zero, jnp.arange(STEPS, dtype=jnp.uint32))[0]

        every = jax.jit(jax.vmap(one))

        def go() -> int:
            jax.block_until_ready(every(keys))
            return STEPS * TRIALS * WIDTH

        return go

    def numpy_of(out: Any) -> Any:
        def go() -> int:
            for _ in range(STEPS // 5):
                rng.standard_normal(dtype=out.dtype, out=out)
            return STEPS // 5 * out.size

        return go

    def rounded() -> int:
        # the cost without security: this generator is not secure, and its float64 normals leave gaps on the grid
        for _ in range(STEPS // 5):
            np.rint(rng.standard_normal(WIDTH * TRIALS) * STD).astype(np.int64)
        return STEPS // 5 * WIDTH * TRIALS

    columns, units = chain_columns(TRANSITIONS)

    def release(seed: int | None) -> Any:
        def go() -> int:
            dprl.evaluate(
                columns,
                "uniform",
                dprl.Budget(1.0, 1e-5),
                algorithm=dprl.GPOPE(discount=DISCOUNT),
                bounds=bounds(units),
                features="tabular",
                seed=seed,
            )
            return 1

        return go

    seeds = range(TRIALS)
    ours = jnp.stack([SeededNoise.from_seed(i).key for i in seeds])
    theirs = jnp.stack([jax.random.key(i) for i in seeds])
    floats, grid = jnp.zeros(WIDTH, dtype=jnp.float32), jnp.zeros(WIDTH, dtype=jnp.int64)
    serve(
        {
            f"secure, {WIDTH} a step (a release)": secure_of(WIDTH, 200),
            f"secure, {BULK:,} at once": secure_of(BULK, 1),
            f"secure, {WIDTH} a step, in blocks": block_of(TRIALS),
            f"{RELEASE}, secure": release(None),
            f"{RELEASE}, seeded": release(1),
            "seeded, on the grid, in a scan": scanned(
                lambda key, step: SeededNoise(key).gaussian(step, WIDTH, STD), ours, grid
            ),
            "seeded, float32, in a scan": scanned(lambda key, step: threefry.normal(key, step, WIDTH), ours, floats),
            "jax.random.normal, float32, in a scan": scanned(
                lambda key, step: jax.random.normal(jax.random.fold_in(key, step), (WIDTH,), dtype=jnp.float32),
                theirs,
                floats,
            ),
            "NumPy Generator, float32": numpy_of(single),
            "NumPy Generator, float64": numpy_of(double),
            "NumPy Generator, float64 rounded to the grid": rounded,
        },
        1,
    )


def run() -> dict[str, Any]:
    worker = Worker(["-m", "benchmarks.noise"])
    runs = alternate([worker], repetitions=11, seconds=120.0)
    worker.close()
    base = runs["NumPy Generator, float64"]["time"]
    rows = [
        [name, figure(1e9 * r["time"]), figure(r["time"] / base)]
        for name, r in sorted(runs.items(), key=lambda item: item[1]["time"])
        if not name.startswith(RELEASE)
    ]
    in_blocks = runs[f"secure, {WIDTH} a step, in blocks"]["time"] / runs["seeded, on the grid, in a scan"]["time"]
    seeded = runs["seeded, float32, in a scan"]["time"]
    slower = runs[f"secure, {BULK:,} at once"]["time"] / runs["seeded, on the grid, in a scan"]["time"]
    release = runs[f"{RELEASE}, secure"]["time"] / runs[f"{RELEASE}, seeded"]["time"]
    seconds = [runs[f"{RELEASE}, {source}"]["time"] for source in ("secure", "seeded")]
    jax_random = runs["jax.random.normal, float32, in a scan"]["time"] / seeded
    return {
        "title": "Noise",
        "notes": [
            "Nanoseconds a Gaussian draw on one core; medians over alternated rounds. In a scan: "
            f"{WIDTH} draws a step for each of {TRIALS} keys, as experiments draw them.",
            f"A secure draw costs {figure(slower)} times a seeded one on the same grid; drawn in blocks of 250 steps "
            f"{figure(in_blocks)} times.",
            f"One release through the front door ({TRANSITIONS:,} transitions of the chain, tabular features, 400 "
            f"updates), both sources in turns: {figure(seconds[0])} s secure, {figure(seconds[1])} s seeded.",
        ],
        "table": table(["generator", "ns a draw", "over NumPy float64"], rows),
        "goals": [
            goal("jax.random over the seeded generator", jax_random, 2.0, True),
            goal("secure over seeded, one release", release, 2.0, False),
        ],
        "seconds_a_draw": runs,
    }


if __name__ == "__main__":
    sys.exit(serve_candidates())
