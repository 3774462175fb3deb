"""Worker: a private step of policy gradient by this library. ``python -m benchmarks.dp_pg_jax SIZE CORES``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.dp_pg_problem import ACTIONS, CLIP, NOISE_MULTIPLIER, STEPS, USERS, error, make, reference
from benchmarks.harness import pin, serve

STEP_SIZE, GRID = 1e-2, "grid"
BLOCK = 64  # users whose gradients lie in memory at once, where every user's gradient is formed


def main(size: str, cores: int) -> None:
    pin(cores)
    import jax
    import jax.numpy as jnp

    from dprl.learning.policy_gradient.estimator import policy_layers, weighted_score
    from dprl.mechanisms.gaussian_sum import GaussianSum
    from dprl.mechanisms.ghost_clipping import ghost_sum, ghost_sum_in_float, reduced_clip_norm
    from dprl.mechanisms.noise import SecureNoise, SeededNoise
    from dprl.policies import parametric
    from dprl.policies.parametric import Parametric

    problem, steps = make(size), STEPS[size]
    hidden, inputs = problem.W.shape
    parametric.CONSTANT = 1.0  # the constant input of the biases, as in the peers' networks
    policy = Parametric(f"mlp:{hidden}", ((-1.0, 1.0),) * inputs, ACTIONS)
    assert policy.size == problem.size
    start = policy_row(problem)
    mechanism = GaussianSum(
        parts=((policy.size, CLIP),), steps=steps, batch=USERS, noise_multiplier=NOISE_MULTIPLIER, relation="zero-out"
    )
    users = tuple(jnp.asarray(a) for a in (problem.x, problem.action, problem.weight))
    floats, everybody = mechanism.in_float(), jnp.ones(USERS, bool)

    def exact(theta: Any, users: Any) -> Any:
        return ghost_sum(mechanism, policy_layers(policy, theta, *users), everybody)

    def ghost(theta: Any, users: Any) -> Any:
        return ghost_sum_in_float(floats, policy_layers(policy, theta, *users), everybody, None)

    def each(theta: Any, users: Any) -> Any:
        """Return the clipped sum from one gradient per user, in blocks of users."""
        blocks = -(-USERS // BLOCK)
        rows = jax.tree.map(
            lambda a: jnp.pad(a, [(0, blocks * BLOCK - USERS)] + [(0, 0)] * (a.ndim - 1)).reshape(
                blocks, BLOCK, *a.shape[1:]
            ),
            (*users, everybody),
        )

        def one(total: Any, rows: Any) -> tuple[Any, None]:
            x, action, weight, here = rows
            score = lambda x, a, w: weighted_score(policy, theta, x[None], a[None], w[None])  # noqa: E731
            return total + mechanism.clipped_sum(jax.vmap(score)(x, action, weight), here), None

        return jax.lax.scan(one, jnp.zeros(policy.size, jnp.int64), rows)[0]

    def plain(theta: Any, users: Any) -> Any:
        """Return the sum of the gradients without clipping."""
        x, action, weight = users
        return jax.grad(lambda theta: jnp.sum(weight * policy.log_prob(theta, x, action)))(theta)

    def moved(theta: Any, noisy: Any) -> Any:
        return theta + np.float32(STEP_SIZE) * noisy.astype(jnp.float32)

    def run(of: Callable[[Any, Any], Any], by: GaussianSum, noise: bool) -> Any:
        """Return a compiled scan of steps on the ``(d,)`` sums of ``of``. It draws noise inside, as the trainer does.

        ``by`` is the mechanism that scales the sums and draws their noise.
        """

        def all_of_it(bound: Any, theta: Any, users: Any) -> Any:
            def step(theta: Any, t: Any) -> tuple[Any, None]:
                total = of(theta, users)
                return moved(theta, by.release(total, bound.draw(t)) if noise else by.scaled(total)), None

            return jax.lax.scan(step, theta, jnp.arange(steps, dtype=jnp.uint32))[0]

        return jax.jit(all_of_it)

    theta, key = jnp.asarray(start), SeededNoise.from_seed(0).key
    ours, limit = "dprl, ghost clipping", "JAX, no privacy"
    sources = {
        name: jax.jit(lambda key, of=of: of.bind(SeededNoise(key))) for name, of in (("", floats), (GRID, mechanism))
    }
    drawn = {name: draw(key) for name, draw in sources.items()}
    # name -> key of the noise source, program, whether noise is drawn
    programs = {
        ours: ("", run(ghost, floats, True), True),
        f"{ours}, without noise": ("", run(ghost, floats, False), False),
        f"{ours}, on the grid": (GRID, run(exact, mechanism, True), True),
        f"{ours}, on the grid, without noise": (GRID, run(exact, mechanism, False), False),
        f"{limit}, noise added": ("", run(plain, floats, True), True),
        limit: ("", run(plain, floats, False), False),
    }
    if size != "1e6":
        programs["dprl, gradient of each user in blocks, on the grid"] = (GRID, run(each, mechanism, True), True)
    compiled = {name: call.lower(drawn[which], theta, users).compile() for name, (which, call, _) in programs.items()}

    def timed(call: Callable[[], Any]) -> Callable[[], int]:
        def go() -> int:
            jax.block_until_ready(call())
            return steps * USERS

        return go

    several = "" if cores == 1 else f", {cores} cores"

    def whole(name: str) -> Callable[[], Any]:
        which, _, noise = programs[name]
        call, draw, before = compiled[name], sources[which], drawn[which]
        return lambda: call(draw(key) if noise else before, theta, users)

    candidates = {name + several: timed(whole(name)) for name in programs}

    # --- a release: secure noise, drawn on the host -----------------------------------------------------------------

    exact_of, plain_of, step_of = jax.jit(exact), jax.jit(plain), jax.jit(moved)

    def release() -> Any:
        fresh, here = mechanism.in_order(SecureNoise.fresh()), theta
        for t in range(steps):
            here = step_of(here, mechanism.release(exact_of(here, users), fresh.draw(t)))
        return here

    def unprotected() -> Any:
        fresh, here, std = SecureNoise.fresh(), theta, mechanism.noise_on_grid
        for t in range(steps):
            draw = fresh.gaussian(t, policy.size, std).astype(np.float64) * mechanism.grid_step
            here = step_of(here, np.asarray(plain_of(here, users)) + draw)
        return here

    candidates[f"dprl, ghost clipping, a release, secure noise{several}"] = timed(release)
    candidates[f"JAX, no privacy, secure noise added{several}"] = timed(unprotected)
    facts: dict[str, Any] = {}
    if cores == 1:
        # on the grid, ghost clipping clips to a slightly smaller norm
        clip = reduced_clip_norm(mechanism, policy_layers(policy, theta, *users))
        sums = {"dprl ghost": (ghost, 1.0, CLIP), "dprl ghost, grid": (exact, mechanism.grid_step, clip)}
        sums |= {"dprl each": (each, mechanism.grid_step, CLIP)} if size != "1e6" else {}
        facts = {
            "errors": {
                name: error(
                    by_layer(problem, np.asarray(jax.jit(call)(theta, users)) * scale), reference(problem, clip)
                )
                for name, (call, scale, clip) in sums.items()
            },
            "temporary_bytes": {
                name: int(call.memory_analysis().temp_size_in_bytes) for name, call in compiled.items()
            },
            "weights": policy.size,
        }
    serve(candidates, cores, facts)


def policy_row(problem: Any) -> np.ndarray:
    """Return ``(d,)`` weights in the order of :class:`dprl.policies.parametric.Parametric`.

    There, the biases of the hidden units are weights of a constant input.
    """
    inner = np.concatenate([problem.b[:, None], problem.W], axis=1)
    return np.concatenate([inner.reshape(-1), problem.V.reshape(-1), problem.c])


def by_layer(problem: Any, row: np.ndarray) -> dict[str, np.ndarray]:
    """Return any ``(d,)`` row by layer: the inverse of :func:`policy_row`."""
    hidden, inputs = problem.W.shape
    first = hidden * (inputs + 1)
    inner, rest = row[:first].reshape(hidden, inputs + 1), row[first:]
    V, c = rest[: problem.V.size], rest[problem.V.size :]
    return {"W": inner[:, 1:], "b": inner[:, 0], "V": V.reshape(problem.V.shape), "c": c}


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
