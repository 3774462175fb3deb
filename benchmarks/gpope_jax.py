"""Worker: GPOPE by this library and by NumPy, and only the noise. ``python -m benchmarks.gpope_jax DATA CORES``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.chain_data import (
    CHECK_STEPS,
    CLIP,
    DISCOUNT,
    NOISE_MULTIPLIER,
    STATES,
    STEP_SIZE,
    TRAJECTORIES,
    TRIALS,
    clip_norm,
)
from benchmarks.harness import pin, serve

STEPS = 2000


def main(path: str, cores: int) -> None:
    pin(cores)
    import jax
    import jax.numpy as jnp

    from benchmarks import gpope_numpy
    from dprl.bounds import Bounds
    from dprl.engine.layouts import SharedTransitions
    from dprl.engine.loop import run_steps
    from dprl.engine.plan import program_at
    from dprl.engine.program import PublicFacts
    from dprl.evaluation import gpope
    from dprl.mechanisms import threefry
    from dprl.mechanisms.noise import SeededNoise
    from dprl.value_functions.features import make_features
    from dprl_papers.harness.transitions import find_bands, slots_of
    from dprl_papers.one_unit import OneUnit

    class Drawn(SeededNoise):
        """Noise source of the check: it draws no noise, and the key holds the trajectories that the trial draws."""

        def uniform_index(self, step: Any, count: int) -> Any:
            return self.key[step].astype(jnp.int32)

        def gaussian(self, step: Any, dimension: int, std: float) -> Any:
            return jnp.zeros(dimension, dtype=jnp.int64)

    data = dict(np.load(path))
    weight, weight_reward = jnp.asarray(data["weight"]), jnp.asarray(data["weight_reward"])
    bands = find_bands(data["pairs"], data["table"].astype(np.float64), DISCOUNT)
    assert bands is not None
    assert np.array_equal(slots_of(bands), data["pairs"])
    columns = {name: jnp.asarray(data[name]) for name in ("phi", "delta_phi")}
    columns |= {"weight": weight, "weight_rho": weight, "weight_rho_reward": weight_reward}
    layouts = {
        form: SharedTransitions(columns, form_bands) for form, form_bands in (("", bands), (", dense products", None))
    }
    keys = jnp.stack([SeededNoise.from_seed(i).key for i in range(TRIALS)])

    def gpope_of(layout: SharedTransitions, steps: int, noise: type[SeededNoise]) -> Callable[[Any], Any]:
        config = gpope.GPOPE(
            discount=DISCOUNT,
            steps=steps,
            step_size=STEP_SIZE,
            clip_norm=CLIP,
            sampling_rate=1.0 / TRAJECTORIES,
            average="all",
            project=False,
        )
        bounds = Bounds(units=TRAJECTORIES, horizon=1, reward=(0.0, 1.0), observation=((0.0, STATES - 1.0),), actions=1)
        facts = PublicFacts(bounds, make_features("tabular", bounds.observation), DISCOUNT, mu=1.0)
        program = program_at(config, facts, NOISE_MULTIPLIER)
        mechanism = OneUnit.with_noise_of(program.stages[0].mechanism)
        assert abs(mechanism.clip_norm - clip_norm()) < 1e-12

        def one(key: Any, log: SharedTransitions) -> Any:
            start = jnp.zeros(STATES, dtype=jnp.float32)
            return program.answer(run_steps(program, 0, mechanism, noise(key), log, program.start_at(start))[0])

        axes = layout.of_units(lambda _: 0, lambda _: None)
        every = jax.jit(jax.vmap(one, in_axes=(0, axes)))
        return lambda k: every(k, layout)

    def alone(of: Callable[[Any, Any], Any], zero: Any) -> Callable[[Any], Any]:
        def one(key: Any) -> Any:
            def body(total: Any, step: Any) -> tuple[Any, None]:
                return total + of(key, step), None

            return jax.lax.scan(body, zero, jnp.arange(STEPS, dtype=jnp.uint32))[0]

        return jax.jit(jax.vmap(one))

    width = -(-2 * STATES // 16) * 16  # the library draws whole vectors of 16
    noise = alone(lambda key, step: threefry.normal(key, step, width), jnp.zeros(width, dtype=jnp.float32))

    def timed(call: Callable[[Any], Any]) -> Callable[[], int]:
        def go() -> int:
            jax.block_until_ready(call(keys))
            return STEPS * TRIALS

        return go

    def numpy(call: Callable[..., Any], steps: int, trials: int) -> Callable[[], int]:
        def go() -> int:
            call(data, steps)
            return steps * trials

        return go

    def normals() -> int:
        rng, out = np.random.default_rng(0), np.empty((TRIALS, 2 * STATES), dtype=np.float32)
        for _ in range(500):
            rng.standard_normal(dtype=np.float32, out=out)
        return 500 * TRIALS

    ours = {
        f"dprl, JAX over 100 trials{form}": gpope_of(layout, STEPS, SeededNoise) for form, layout in layouts.items()
    }
    several = "" if cores == 1 else f", {cores} cores"
    candidates: Mapping[str, Callable[[], int]] = {
        **{name + several: timed(call) for name, call in ours.items()},
        "the noise alone, dprl" + several: timed(noise),
        "NumPy over 100 trials" + several: numpy(gpope_numpy.batched, 500, TRIALS),
        "NumPy over 100 trials, banded by hand" + several: numpy(gpope_numpy.banded, 500, TRIALS),
    }
    facts = {}
    if cores == 1:
        candidates = {
            **candidates,
            "the noise alone, NumPy": normals,
            "NumPy loop, 1 trial": numpy(gpope_numpy.loop, 5000, 1),
        }
        chosen = data["chosen"]
        draws = jnp.asarray(chosen.T.astype(np.uint32))
        results = {
            f"dprl{form}": np.asarray(gpope_of(layout, CHECK_STEPS, Drawn)(draws)) for form, layout in layouts.items()
        }
        results |= {f.__name__: f(data, CHECK_STEPS, chosen) for f in (gpope_numpy.batched, gpope_numpy.banded)}
        results["loop"] = np.broadcast_to(gpope_numpy.loop(data, CHECK_STEPS, chosen), (1, STATES))
        reference = results["dprl"]
        np.save(path + ".reference.npy", reference)
        facts = {
            "largest": float(np.abs(reference).max()),
            "share_clipped": gpope_numpy.share_clipped(data, chosen),
            "errors": {k: float(np.abs(v - reference[: len(v)]).max()) for k, v in results.items() if k != "dprl"},
        }
    serve(candidates, cores, facts)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
