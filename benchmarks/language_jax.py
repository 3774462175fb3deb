"""Worker: a private step on prompts by this library. ``python -m benchmarks.language_jax time``, or ``memory NAME``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import SCRATCH, pin, serve
from benchmarks.language_problem import (
    ANSWER,
    CLIP,
    NOISE_MULTIPLIER,
    SIZES,
    STEP_SIZE,
    USERS,
    make,
    path_of,
    peak_of,
)

BLOCK = 4  # users whose layers, or gradients, lie in memory at once


def main(mode: str, name: str = "") -> None:
    pin(1)
    import jax
    import jax.numpy as jnp

    from dprl.mechanisms.gaussian_sum import GaussianSum
    from dprl.mechanisms.ghost_clipping import ghost_sum_of_rows, norms_of
    from dprl.mechanisms.noise import SeededNoise
    from dprl_papers.paper_003_dp_pg.transformer import Transformer

    jax.config.update("jax_compilation_cache_dir", str(SCRATCH / "compiled"))  # compiled once, not in every process
    model = Transformer(**SIZES)
    weights, *given = make()
    start = jnp.concatenate([jnp.asarray(w).reshape(-1) for w in weights])
    tokens, shares = (jnp.asarray(a) for a in given)
    assert start.shape == (model.size,)
    mechanism = GaussianSum(
        parts=((model.size, CLIP),), steps=1, batch=USERS, noise_multiplier=NOISE_MULTIPLIER, relation="zero-out"
    ).in_float()
    everybody, noise = jnp.ones(USERS, bool), SeededNoise.from_seed(0).key

    def objective(theta: Any, tokens: Any, shares: Any) -> Any:
        return shares.reshape(-1) @ model.log_probs(theta, tokens.reshape(-1, tokens.shape[-1]), ANSWER)[0]

    def in_blocks(of: Callable[[Any, Any, Any, Any], tuple[Any, Any]]) -> Callable[[Any], tuple[Any, Any]]:
        """Return a function that adds ``of`` over blocks of users: the clipped sum, and the number of clipped users."""

        def run(theta: Any) -> tuple[Any, Any]:
            rows = jax.tree.map(lambda a: a.reshape(-1, BLOCK, *a.shape[1:]), (tokens, shares, everybody))

            def one(found: Any, rows: Any) -> tuple[Any, None]:
                return jax.tree.map(jnp.add, found, of(theta, *rows)), None

            return jax.lax.scan(one, (jnp.zeros(model.size, jnp.float64), jnp.int64(0)), rows)[0]

        return run

    @in_blocks
    def ghost(theta: Any, tokens: Any, shares: Any, here: Any) -> tuple[Any, Any]:
        layers = model.layers_of(theta, tokens, shares, ANSWER)
        return ghost_sum_of_rows(mechanism, layers, here), jnp.sum(norms_of(layers) > CLIP)

    @in_blocks
    def each(theta: Any, tokens: Any, shares: Any, here: Any) -> tuple[Any, Any]:
        """Return the clipped sum from one gradient per user, and the number of clipped users."""
        vectors = jax.vmap(jax.grad(objective), (None, 0, 0))(theta, tokens, shares)
        return mechanism.clipped_sum(vectors, here), jnp.sum(jnp.linalg.norm(vectors, axis=1) > CLIP)

    def plain(theta: Any) -> Any:
        return jax.grad(objective)(theta, tokens, shares).astype(jnp.float64)

    @jax.jit
    def moved(theta: Any, total: Any, key: Any) -> Any:
        noisy = mechanism.release(total, mechanism.draw(SeededNoise(key), jnp.uint32(0)))
        return theta + np.float32(STEP_SIZE) * noisy.astype(jnp.float32)

    ours = ("dprl, ghost clipping", "dprl, gradient of each user")
    sums = dict(zip((*ours, "JAX, no privacy"), (ghost, each, plain), strict=True))
    compiled = {n: jax.jit(of).lower(start).compile() for n, of in sums.items() if name in ("", n)}
    step = moved.lower(start, jnp.zeros(model.size, jnp.float64), noise).compile()

    def total_of(n: str) -> Any:
        found = compiled[n](start)
        return found[0] if isinstance(found, tuple) else found

    def timed(n: str) -> int:
        jax.block_until_ready(step(start, total_of(n), noise))
        return USERS

    calls = {n: (lambda n=n: timed(n)) for n in compiled}
    if mode == "memory":
        print(json.dumps(peak_of(calls[name])))
        return
    for n in ours:
        np.save(path_of(n), np.asarray(total_of(n)))
    clipped = float(compiled[ours[1]](start)[1]) / USERS
    serve(calls, 1, {"weights": model.size, "clipped": clipped})


if __name__ == "__main__":
    main(*sys.argv[1:])
