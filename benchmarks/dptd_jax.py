"""Worker: DPTD by this library and by NumPy. ``python -m benchmarks.dptd_jax PROBLEM FOLDER CORES``.

On one core it writes the problem and the weights after the check into FOLDER for the other workers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.dptd_problem import (
    BOX,
    CHECK_STEPS,
    DISCOUNT,
    HIDDEN,
    SEEDS,
    STEPS,
    TRANSITIONS,
    VERIFIED,
    Problem,
    frames,
    load,
    problem_path,
    reference_path,
    save,
)
from benchmarks.harness import pin, serve

UNITS = 1000  # trajectories of the log on which the verified form is run


def columns(name: str) -> tuple[Any, Any]:
    """Return bounds and columns of a log.

    Cart Pole is played by its domain's behaviour policy. For Pong there are only random pictures and rewards, since
    values make no difference to the time.
    """
    from dataclasses import replace

    if name == "pong":
        from dprl.environments.atari import atari_bounds

        bounds = replace(atari_bounds(TRANSITIONS, observation="80x80"), return_range=(-1.25, 1.25))
        rng = np.random.default_rng(0)
        seen = frames(rng, TRANSITIONS + 1)
        reward = rng.choice([-1.0, 0.0, 1.0], TRANSITIONS, p=[0.02, 0.96, 0.02])
        log = {"observation": seen[:-1], "next_observation": seen[1:], "reward": reward, "t": np.arange(TRANSITIONS)}
        none = np.zeros(TRANSITIONS, dtype=np.int64)
        third = np.full(TRANSITIONS, 1.0 / 3.0)
        ends = {"terminated": rng.random(TRANSITIONS) < 0.005, "truncated": none.astype(bool)}
        return bounds, {**log, **ends, "episode_id": none, "action": none, "behavior_prob": third}
    import jax

    from dprl.environments.rollout import rollout
    from dprl_papers.domains.cart_pole import CART, DOMAIN

    log = rollout(CART, DOMAIN.behavior, jax.random.key(1), UNITS, batch=UNITS)
    return DOMAIN.bounds(UNITS), log


def main(name: str, folder: str, cores: int) -> None:
    pin(cores)
    from dataclasses import replace

    import jax
    import jax.numpy as jnp

    from benchmarks import dptd_numpy
    from dprl.accounting.budget import Budget
    from dprl.data.readers import read_log
    from dprl.engine.layouts import padded_units, unit_rows
    from dprl.engine.loop import run_on_host, run_steps
    from dprl.engine.rows import rows_of
    from dprl.evaluation.dptd import DPTD
    from dprl.evaluation.plan import program_for
    from dprl.mechanisms.gaussian_sum import GaussianSum
    from dprl.mechanisms.noise import SecureNoise, SeededNoise
    from dprl.value_functions.network import MLP
    from dprl_papers.harness.neural import run_curves

    def silence(self: GaussianSum, noise: Any, step: Any, width: int | None = None) -> Any:
        return jnp.zeros(self.dimension if width is None else width, dtype=self.dtype)

    class Drawn(SeededNoise):
        """Noise source of the check: the key holds the transitions that the seed draws."""

        def uniform_index(self, step: Any, count: int) -> Any:
            return self.key[step].astype(jnp.int32)

    def quiet(mechanism: GaussianSum) -> GaussianSum:
        """Return the same sum, which clips but draws no noise. Works for either relation of neighbours."""
        return type("Quiet", (type(mechanism),), {"draw": silence})(**vars(mechanism))

    seeds, (steps, few_steps) = SEEDS[name], STEPS[name]
    width = f"{seeds} seeds" if seeds > 1 else "1 seed"
    several = "" if cores == 1 else f", {cores} cores"
    bounds, log = columns(name)
    features, budget = MLP(bounds.observation, HIDDEN), Budget(1.0, 1e-5)
    keys = jnp.stack([SeededNoise.from_seed(i).key for i in range(seeds)])
    candidates: dict[str, Callable[[], int]] = {}

    def rows(program: Any, asked: Any, columns: Any, unit: str) -> Any:
        trajectories = read_log(columns, bounds=asked, unit=unit).load()
        ratios = np.ones(len(trajectories.reward))
        value = asked.value_interval(DISCOUNT)
        most = None if unit == "transition" else program.config.max_rows_per_unit
        return rows_of(trajectories, ratios, features, DISCOUNT, value, columns=program.columns, most=most)

    def timed(call: Callable[[Any], Any], amount: int) -> Callable[[], int]:
        def go() -> int:
            jax.block_until_ready(call(keys))
            return amount

        return go

    # --- as published: one transition a step ------------------------------------------------------------------------

    public = replace(bounds, units=TRANSITIONS)
    config = DPTD(discount=DISCOUNT, calibration="as-published", steps=max(steps, CHECK_STEPS))
    program: Any = program_for(config, public, features, budget, unit="transition")
    some = rows(program, public, {k: x[:TRANSITIONS] for k, x in log.items()}, "transition")
    data, exact = padded_units(some), program.stages[0].mechanism

    def run(mechanism: Any, noise: type[SeededNoise], count: int, number: int = seeds) -> Callable[[Any], Any]:
        def of_seed(key: Any, log: Any) -> Any:
            return run_steps(program, 0, mechanism, noise(key), log, program.init(), steps=(0, count))[0]

        call = jax.jit(jax.vmap(of_seed, in_axes=(0, None)))
        return lambda k: call(k[:number], data)

    ours = {
        f"dprl, {width}": exact.in_float(),
        f"dprl, {width}, without noise": quiet(exact.in_float()),
        f"dprl, {width}, neither noise nor clip": exact.plain(),
        f"dprl, {width}, on the grid": exact,
        f"dprl, {width}, on the grid, without noise": quiet(exact),
    }
    candidates |= {
        label + several: timed(run(mechanism, SeededNoise, steps), steps * seeds) for label, mechanism in ours.items()
    }
    if seeds > 1:
        candidates["dprl, 1 seed" + several] = timed(run(exact.in_float(), SeededNoise, steps, 1), steps)
    if cores > 1:
        serve(candidates, cores)
        return

    def inputs(states: np.ndarray) -> np.ndarray:
        scaled = 2.0 * features.unit_scale(states.astype(np.float64), np) - 1.0
        return np.ascontiguousarray(features.gain * scaled, dtype=np.float32)

    start = program.init()
    assert program.config.parameter_bound == program.theta_box == BOX
    assert np.all(some.weight[:-1] == 1.0)
    states, following, alive = (x[:-1] for x in (some.states, some.next_states, some.alive))
    chosen = np.random.default_rng(3).integers(0, TRANSITIONS, (CHECK_STEPS, seeds))
    discounts, both = np.float32(DISCOUNT) * alive, np.concatenate([start.theta, start.w])
    std = np.asarray(exact.noise_std)
    save(
        Problem(inputs(states), inputs(following), discounts, some.reward[:-1], both, chosen, std), problem_path(folder)
    )
    problem = load(problem_path(folder))
    given = jnp.asarray(chosen.T.astype(np.uint32))
    checks = {"dprl": quiet(exact.in_float()), "dprl, on the grid": quiet(exact)}
    ends = {label: run(mechanism, Drawn, CHECK_STEPS)(given) for label, mechanism in checks.items()}
    found = {label: np.concatenate([s.theta, s.w], axis=1) for label, s in ends.items()}
    reference = found.pop("dprl")
    np.save(reference_path(folder), reference)
    found["NumPy"] = dptd_numpy.batched(problem, CHECK_STEPS, chosen)

    def numpy() -> int:
        dptd_numpy.batched(problem, few_steps)
        return few_steps * seeds

    candidates[f"NumPy over {width}, by hand"] = numpy

    # --- verified, with the library's defaults: batches of units, each clipped --------------------------------------

    unit, count = VERIFIED[name]
    asked = bounds if unit == "trajectory" else public
    default: Any = program_for(DPTD(discount=DISCOUNT, steps=count), asked, features, budget, unit=unit)
    mechanisms = tuple(stage.mechanism for stage in default.stages)
    many = rows(default, asked, log, unit)
    release = unit_rows(many, asked.units)
    trials = jax.tree.map(lambda x: jnp.broadcast_to(x, (seeds, *x.shape)), padded_units(many))

    def on_host(mechanisms: Any) -> Callable[[Any], Any]:
        def call(_: Any) -> Any:
            fresh: Any = SecureNoise.fresh()
            return run_on_host(default, fresh, release, mechanisms=mechanisms)

        return call

    def curves(mechanisms: Any) -> Callable[[Any], Any]:
        return lambda keys: run_curves(default, mechanisms, keys, trials, (count,))

    silent = tuple(quiet(m.in_float()) for m in mechanisms)
    candidates |= {
        f"verified defaults, dprl, {width}": timed(curves(None), count * seeds),
        f"verified defaults, dprl, {width}, without noise": timed(curves(silent), count * seeds),
        "verified defaults, a release, secure noise": timed(on_host(None), count),
        "verified defaults, a release, without noise": timed(on_host(tuple(quiet(m) for m in mechanisms)), count),
    }
    facts = {
        "errors": {label: float(np.abs(v - reference).max()) for label, v in found.items()},
        "largest": float(np.abs(reference).max()),
        "weights": features.size,
        "batch": mechanisms[-1].sampling_rate * asked.units,
        "rows": (len(many.reward) - 1) / release.units,
    }
    serve(candidates, cores, facts)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
