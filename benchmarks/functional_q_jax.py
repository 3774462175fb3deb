"""Worker: functional Q-learning by this library. ``python -m benchmarks.functional_q_jax FOLDER``.

It writes the starting weights and the last weights of a run without noise into FOLDER for the other worker.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.functional_q import (
    BATCH,
    CHECK_MOVES,
    CHECK_START,
    FEW,
    FUNCTIONAL,
    MANY,
    OURS,
    QUIET,
    SAMPLES,
    SEEDS,
    STD,
)
from benchmarks.harness import pin, serve


def main(folder: str) -> None:
    pin(1)
    import jax
    import jax.numpy as jnp
    from jax import lax

    from dprl.accounting.budget import Budget
    from dprl.accounting.reward_relation import DEPTHS
    from dprl.environments.interval_walk import IntervalWalk
    from dprl.learning.functional_q import FunctionalQ, resolve
    from dprl.learning.learning_plan import make_learning_plan
    from dprl.learning.q_learner import rates_of, shape_of
    from dprl.mechanisms.noise import SeededNoise
    from dprl.mechanisms.ornstein_uhlenbeck import unit_path
    from dprl_papers.paper_001_functional_q import published as paper
    from dprl_papers.paper_001_functional_q.compiled_learner import ExactAnswers, run
    from dprl_papers.paper_001_functional_q.published import PublishedQ, initial, published_rates, run_published

    @dataclass(frozen=True, kw_only=True)
    class Scripted(IntervalWalk):
        """The walk with given moves. Its state has the step's number as a second component."""

        def reset(self, key: Any) -> Any:
            return jnp.array([CHECK_START, 0.0])

        def observe(self, state: Any) -> Any:
            return state[:1]

        def step(self, key: Any, state: Any, action: Any) -> Any:
            move = jnp.asarray(CHECK_MOVES)[state[1].astype(jnp.int32)]
            moved = jnp.clip(state[0] + jnp.where(action == 1, move, -move), 0.0, 1.0)
            return jnp.stack([moved, state[1] + 1.0]), 0.5 - jnp.abs(state[0] - 0.5), jnp.zeros((), bool)

    walk = IntervalWalk()
    facts = walk.facts
    keys = jax.random.split(jax.random.key(0), SEEDS)
    nodes = stacked([SeededNoise.from_seed(i).nodes() for i in range(SEEDS)])
    published = paper.resolve(PublishedQ(batch=BATCH, published_std=STD), facts)
    rates = published_rates(published, facts)
    silent = published_rates(published.replace(published_std=1e-9), facts)

    algorithm_1 = jax.jit(jax.vmap(lambda r, n, k: run_published(published, walk, r, n, k)[0], (None, 0, 0)))
    # the comparison draws a path of size 1e-9, which moves no weight by more than that
    first = initial(str(published.network), jax.random.key(1), facts.actions)
    check = jax.jit(lambda r, n, start: run_published(published, Scripted(), r, n, keys[0], start)[0])
    last = check(silent, SeededNoise.from_seed(0).nodes(), first)
    arrays = {"first": first, "last": last}
    flat: dict[str, Any] = {
        f"{when}.{name}": np.asarray(w) for when, weights in arrays.items() for name, w in weights.items()
    }
    np.savez(Path(folder) / "check.npz", **flat)

    config = resolve(FunctionalQ(variant="functional", reward_radius=0.005), facts)
    mechanism: Any = make_learning_plan(config, facts, Budget(0.9, 1e-4)).mechanism
    answers = stacked([mechanism.bind(SeededNoise.from_seed(i)) for i in range(SEEDS)])
    shape, learning = shape_of(config, facts), rates_of(config, facts, mechanism)
    functional = jax.jit(jax.vmap(lambda a, k: run(shape, walk, learning, a, k)[0].average, (0, 0)))

    path = mechanism.bind(SeededNoise.from_seed(0))

    def one_by_one(count: int) -> Callable[[], Any]:
        @jax.jit
        def ask(noise: Any, p: Any) -> Any:
            def query(total: Any, i: Any) -> Any:
                place = (i * 7919 + (total > 0)) % 2 ** DEPTHS[1]  # the next question depends on the answer
                return total + unit_path(noise, p, place[None, None], jnp.zeros(1, jnp.int64))[0], None

            return lax.scan(query, jnp.float64(0.0), jnp.arange(count))[0]

        return lambda: ask(path.noise, path.parameters)

    @jax.jit
    def at_once(noise: Any, p: Any, places: Any) -> Any:
        return unit_path(noise, p, places[:, None], jnp.zeros(len(places), jnp.int64))

    def timed(call: Callable[[], Any], amount: int) -> Callable[[], int]:
        def go() -> int:
            jax.block_until_ready(call())
            return amount

        return go

    exact, places = ExactAnswers(), jnp.arange(FEW) * 97
    candidates = {
        OURS: timed(lambda: algorithm_1(rates, nodes, keys), SAMPLES * SEEDS),
        FUNCTIONAL: timed(lambda: functional(answers, keys), SAMPLES * SEEDS),
        QUIET: timed(lambda: functional(exact, keys), SAMPLES * SEEDS),
        f"dprl, {FEW:,} queries at once": timed(lambda: at_once(path.noise, path.parameters, places), FEW),
        **{f"dprl, {n:,} queries one by one": timed(one_by_one(n), n) for n in (FEW, MANY)},
    }
    serve(candidates, 1)


def stacked(trees: list[Any]) -> Any:
    import jax
    import jax.numpy as jnp

    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *trees)


if __name__ == "__main__":
    main(sys.argv[1])
