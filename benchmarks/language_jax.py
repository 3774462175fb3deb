"""Worker: a private step on prompts by this library. ``python -m benchmarks.language_jax time``, or ``memory NAME``."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from benchmarks.harness import pin, serve
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

BLOCK = 4  # users whose gradients lie in memory at once, where there is one of each


def main(mode: str, name: str = "") -> None:
    pin(1)
    import jax
    import jax.numpy as jnp

    from dprl.mechanisms.gaussian_sum import GaussianSum
    from dprl.mechanisms.ghost_rows import ghost_sum_of_rows
    from dprl.mechanisms.noise import SeededNoise
    from dprl_papers.paper_003_dp_pg.transformer import Transformer

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

    def ghost(theta: Any) -> Any:
        return ghost_sum_of_rows(mechanism, model.layers_of(theta, tokens, shares, ANSWER), everybody)

    def each(theta: Any) -> Any:
        """A gradient of each user, in blocks."""
        rows = jax.tree.map(lambda a: a.reshape(-1, BLOCK, *a.shape[1:]), (tokens, shares, everybody))

        def one(total: Any, rows: Any) -> tuple[Any, None]:
            vectors = jax.vmap(jax.grad(objective), (None, 0, 0))(theta, *rows[:2])
            return total + mechanism.clipped_sum(vectors, rows[2]), None

        return jax.lax.scan(one, jnp.zeros(model.size, jnp.float64), rows)[0]

    def plain(theta: Any) -> Any:
        return jax.grad(objective)(theta, tokens, shares)

    def step(of: Any) -> Any:
        def run(theta: Any, key: Any) -> Any:
            noisy = mechanism.release(of(theta), mechanism.draw(SeededNoise(key), jnp.uint32(0)))
            return theta + np.float32(STEP_SIZE) * noisy.astype(jnp.float32)

        return jax.jit(run)

    ours = ("dprl, ghost clipping", "dprl, gradient of each user in blocks of 4")
    sums = dict(zip((*ours, "JAX, no privacy"), (ghost, each, plain), strict=True))
    compiled = {n: step(of).lower(start, noise).compile() for n, of in sums.items() if name in ("", n)}
    timed = lambda call: (jax.block_until_ready(call(start, noise)), USERS)[1]  # noqa: E731
    calls = {n: (lambda call=call: timed(call)) for n, call in compiled.items()}
    if mode == "memory":
        print(json.dumps(peak_of(calls[name])))
        return
    for n in ours:
        np.save(path_of(n), np.asarray(jax.jit(sums[n])(start)))
    norms = jax.jit(jax.vmap(lambda t, s: jnp.linalg.norm(jax.grad(objective)(start, t, s))))(tokens, shares)
    clipped = float(jnp.mean(norms > CLIP))
    serve(calls, 1, {"weights": model.size, "clipped": clipped})


if __name__ == "__main__":
    main(*sys.argv[1:])
