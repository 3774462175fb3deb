"""Worker: meta-gradients by this library. ``python -m benchmarks.l2p_jax [NAME STEPS]``.

With arguments it measures only memory.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.harness import pin, serve
from benchmarks.l2p_problem import (
    BATCHES,
    CHECKED,
    CLIP,
    DIMENSION,
    FREE,
    HIDDEN,
    NOISE,
    RECORDS,
    STEP_SIZE,
    STEPS,
    TABLE,
    make,
    peak_bytes,
)

OURS, FULL = "dprl, exact", "JAX, full unrolling"


def main(arguments: list[str]) -> None:
    pin(1)
    import jax
    import jax.numpy as jnp

    from dprl.protectors.projector import Architecture, HandSchedule
    from dprl.protectors.simulation import Simulation, first_carry, step_body, unroll

    problem = make()
    task = tuple(jnp.asarray(a) for a in (problem.x, problem.y, np.linalg.norm(problem.x, axis=1)))
    weights = {name: jnp.asarray(value) for name, value in problem.weights.items()}

    @dataclass(frozen=True)
    class Regression:
        """The single task as a family of tasks. All records take part in every step."""

        steps: int

        name, algorithm, dimension, units, blocks = "regression", "", DIMENSION, RECORDS, (0,) * DIMENSION

        @property
        def hand(self) -> HandSchedule:
            return HandSchedule(steps=self.steps, sampling_rate=1.0, clip_norm=CLIP, step_sizes=(STEP_SIZE,), tail=0.0)

        def initial(self, task: Any) -> Any:
            return jnp.zeros(DIMENSION, jnp.float32)

        def natural_clip(self, clip_norm: float) -> float:
            return clip_norm

        def mean_gradient(self, task: Any, theta: Any, key: Any, clip: Any) -> Any:
            x, y, lengths = task
            residual = jax.nn.sigmoid(x @ theta) - y
            factor = jnp.minimum(1.0, clip / jnp.maximum(jnp.abs(residual) * lengths, 1e-30))
            return (factor * residual) @ x / (RECORDS * clip)

        def project(self, theta: Any) -> Any:
            return theta

        def loss(self, task: Any, theta: Any) -> Any:
            x, y, _ = task
            scores = x @ theta
            return jnp.mean(jax.nn.softplus(scores) - y * scores)

        def reference(self, task: Any) -> Any:
            return self.loss(task, self.initial(task))

    def simulation(steps: int) -> Simulation:
        architecture = Architecture(hidden=HIDDEN, layers=2, free=FREE)
        return Simulation(family=Regression(steps), architecture=architecture, std=NOISE)

    def exact(steps: int, full: bool = False) -> Callable[..., Any]:
        s = simulation(steps)
        if not full:
            return jax.jit(jax.grad(lambda w, key, factor: unroll(s, w, task, key, factor).final))

        def final(w: Any, key: Any, factor: Any) -> Any:
            body = step_body(s, w, task, key, factor)
            (state, _), _ = jax.lax.scan(body, first_carry(s, w, task), jnp.arange(steps, dtype=jnp.int32))
            return s.family.loss(task, state.kept) / s.family.reference(task)

        return jax.jit(jax.grad(final))

    def truncated(steps: int, batch: int) -> Callable[..., Any]:
        """Return the truncated meta-gradient of B.5: the loss after each batch is differentiated through that batch."""
        s = simulation(steps)

        def all_of_it(w: Any, key: Any, factor: Any) -> Any:
            def part(w: Any, carry: Any, numbers: Any) -> Any:
                carry, _ = jax.lax.scan(step_body(s, w, task, key, factor), carry, numbers)
                return s.family.loss(task, carry[0].kept) / s.family.reference(task), carry

            def one(both: Any, numbers: Any) -> Any:
                total, carry = both
                slope, carry = jax.grad(part, has_aux=True)(w, carry, numbers)
                return (jax.tree.map(jnp.add, total, slope), jax.lax.stop_gradient(carry)), None

            start = (jax.tree.map(jnp.zeros_like, w), first_carry(s, w, task))
            return jax.lax.scan(one, start, jnp.arange(steps, dtype=jnp.int32).reshape(-1, batch))[0][0]

        return jax.jit(all_of_it)

    kinds: dict[str, Callable[[int], Callable[..., Any]]] = {
        OURS: exact,
        FULL: lambda steps: exact(steps, full=True),
        **{f"dprl, truncated at {b}": lambda steps, b=b: truncated(steps, b) for b in BATCHES},
    }
    key = jax.random.key(0)

    def compiled(name: str, steps: int) -> Any:
        return kinds[name](steps).lower(weights, key, jnp.float32(1.0)).compile()

    if arguments:
        call, few = (compiled(arguments[0], steps) for steps in (int(arguments[1]), max(BATCHES)))
        jax.block_until_ready(few(weights, key, jnp.float32(1.0)))
        go = lambda: jax.block_until_ready(call(weights, key, jnp.float32(1.0)))  # noqa: E731
        temporary = int(call.memory_analysis().temp_size_in_bytes)
        print(json.dumps({"bytes": peak_bytes(go), "temporary_bytes": temporary}))
        return

    def timed(name: str, steps: int) -> Callable[[], int]:
        calls: list[Any] = []

        def go() -> int:
            if not calls:
                calls.append(compiled(name, steps))
            jax.block_until_ready(calls[0](weights, key, jnp.float32(1.0)))
            return 1

        return go

    candidates = {name: timed(name, STEPS) for name in kinds}
    for name in (OURS, "dprl, truncated at 20"):
        candidates |= {f"{name}, {steps} steps": timed(name, steps) for steps in TABLE if steps != STEPS}
    checked = {
        name: {k: np.asarray(v).tolist() for k, v in exact(CHECKED, full)(weights, key, jnp.float32(0.0)).items()}
        for name, full in ((OURS, False), (FULL, True))
    }
    serve(candidates, 1, {"gradients": checked})


if __name__ == "__main__":
    main(sys.argv[1:])
