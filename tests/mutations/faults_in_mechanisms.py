"""Faults in what the mechanisms do: clipping, batches, noise, and what is carried from step to step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dprl.engine import loop as engine
from dprl.engine.layouts import UnitRows
from dprl.mechanisms import arithmetic
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SecureNoise, SeededNoise
from dprl.release import private_rows

from .planting import Planting, fault, go_on_without_noise

# --- clipping -------------------------------------------------------------------------------------------------------


def _kept(vectors: Any, included: Any) -> Any:
    return jnp.where(included[:, None] & jnp.isfinite(vectors), vectors.astype(jnp.float64), 0.0)


@fault("clip after the sum", "contributions add up", (GaussianSum, "clipped_sum"), traced=True)
def _(original: Any, self: Any, vectors: Any, included: Any) -> Any:
    return arithmetic.clip_to_grid(jnp.sum(_kept(vectors, included), axis=0)[None], self.clip_norm)[0]


@fault(
    "clip the average, then scale it by the number of units",
    "neighbours in full batches",
    (GaussianSum, "clipped_sum"),
    traced=True,
)
def _(original: Any, self: Any, vectors: Any, included: Any) -> Any:
    count = jnp.maximum(jnp.sum(included), 1)
    mean = jnp.sum(_kept(vectors, included), axis=0) / count
    return count * arithmetic.clip_to_grid(mean[None], self.clip_norm)[0]


@fault("primal and dual clipped apart", "neighbours in full batches", (arithmetic, "clip_to_grid"), traced=True)
def halves_apart(original: Any, vectors: Any, *clip: float) -> Any:
    size = vectors.shape[1]
    if size < 4 or size % 2:
        return original(vectors, *clip)
    return jnp.concatenate([original(half, *clip) for half in jnp.split(vectors, 2, axis=1)], axis=1)


@fault("clipped coordinate by coordinate", "a vector is clipped", (arithmetic, "clip_to_grid"))
def _(original: Any, vectors: Any, clip_norm: float, *step: float) -> Any:
    bounded = jnp.clip(jnp.nan_to_num(vectors.astype(jnp.float64)), -clip_norm, clip_norm)
    return jnp.trunc(bounded / arithmetic.grid_step(clip_norm)).astype(jnp.int64)


@fault("vectors of infinite norm are not clipped", "a vector is clipped", (arithmetic, "clip_to_grid"))
def _(original: Any, vectors: Any, clip_norm: float, *step: float) -> Any:
    infinite = ~jnp.isfinite(jnp.sum(vectors**2, axis=-1, keepdims=True))
    clipped = original(vectors, clip_norm, *step)
    return jnp.where(infinite, jnp.trunc(vectors / arithmetic.grid_step(clip_norm)), clipped).astype(jnp.int64)


@fault("not a number passed through the clip", "a vector is clipped", (arithmetic, "clip_to_grid"))
def _(original: Any, vectors: Any, clip_norm: float, *step: float) -> Any:
    x = vectors.astype(jnp.float64)
    length = jnp.sqrt(jnp.sum(x * x, axis=-1, keepdims=True))
    # a comparison with NaN is false: the vector's other coordinates pass as they are
    factor = jnp.where(length > clip_norm * arithmetic._SLACK, clip_norm * arithmetic._SLACK / length, 1.0)
    return jnp.trunc(jnp.nan_to_num(x) * factor / arithmetic.grid_step(clip_norm)).astype(jnp.int64)


@fault("rounded to the nearest grid point, not toward zero", "a vector is clipped", (arithmetic, "clip_to_grid"))
def _(original: Any, vectors: Any, clip_norm: float, *step: float) -> Any:
    x = vectors.astype(jnp.float64)
    length = jnp.sqrt(jnp.sum(x * x, axis=-1, keepdims=True))
    finite = jnp.isfinite(length)
    factor = jnp.minimum(1.0, clip_norm * arithmetic._SLACK / length) / arithmetic.grid_step(clip_norm)
    return jnp.round(jnp.where(finite, x, 0.0) * jnp.where(finite, factor, 0.0)).astype(jnp.int64)


@fault(
    "sensitivity off by two: twice the clip norm gets through",
    "neighbours in full batches",
    (arithmetic, "clip_to_grid"),
    traced=True,
)
def _(original: Any, vectors: Any, *clip: Any) -> Any:
    return 2 * original(vectors, *clip)


@fault(
    "a release that moves twice as far as is accounted for",
    "the canary stays below the claim",
    (GaussianSum, "clipped_sum"),
    traced=True,
)
def _(original: Any, self: Any, vectors: Any, included: Any) -> Any:
    return 2 * original(self, vectors, included)


# --- batches --------------------------------------------------------------------------------------------------------


@fault("mean over the batch that was drawn", "neighbours in poisson batches", (GaussianSum, "clipped_sum"), traced=True)
def _(original: Any, self: Any, vectors: Any, included: Any) -> Any:
    return original(self, vectors, included) * 30 // jnp.maximum(jnp.sum(included), 1)


@fault("number of units in the log as the denominator", "neighbours in poisson batches", (private_rows, "run_on_host"))
def _(original: Any, program: Any, noise: Any, data: Any, **options: Any) -> Any:
    bounds = replace(program.facts.bounds, units=max(data.units, 1))
    return original(replace(program, facts=replace(program.facts, bounds=bounds)), noise, data, **options)


@fault(
    "shuffled batches of fixed size under Poisson accounting",
    "coins are as declared",
    (SecureNoise, "participation_mask"),
    (SeededNoise, "participation_mask"),
)
def _(original: Any, self: Any, step: Any, count: int, rate: float) -> Any:
    order = np.argsort(np.asarray(self.gaussian(10_000 + int(step), count, 2.0**30)))
    return np.isin(np.arange(count), order[: round(rate * count)])


@fault(
    "one pass over the log in batches of fixed size",
    "neighbours in poisson batches",
    (SecureNoise, "participation_mask"),
)
def _(original: Any, self: Any, step: Any, count: Any, rate: Any) -> Any:
    return (np.arange(count) * max(round(1.0 / rate), 1) + step) % max(count, 1) < rate * count


@fault("coins at twice the rate that is accounted for", "the event is what ran", (GaussianSum, "participation_mask"))
def _(original: Any, self: Any, noise: Any, step: Any, units: Any) -> Any:
    return noise.participation_mask(step, units, min(2.0 * self.sampling_rate, 0.99))


@fault("coins that fall more often than they say", "coins are as declared", (SecureNoise, "participation_mask"))
def _(original: Any, self: Any, step: Any, count: Any, rate: Any) -> Any:
    return original(self, step, count, min(1.2 * rate, 1.0))


@fault("last block of a batch skipped", "contributions add up", (UnitRows, "chunks"))
def _(original: Any, self: Any, included: Any, rate: Any = 1.0) -> Any:
    return list(original(self, included, rate))[:-1]


@fault(
    "last block of a Poisson batch skipped in the compiled loop",
    "compiled and host loop agree",
    (jax.lax, "while_loop"),
)
def _(original: Any, more: Any, body: Any, start: Any) -> Any:
    if more.__module__ != engine.__name__:
        return original(more, body, start)
    return original(lambda carry: more((carry[0] + 1, *carry[1:])), body, start)


# --- noise ----------------------------------------------------------------------------------------------------------


@fault("noise once instead of every step", "noise is as declared", (GaussianSum, "draw"))
def _(original: Any, self: Any, noise: Any, step: Any, *width: Any) -> Any:
    return original(self, noise, step, *width) * (jnp.asarray(step) == 0).astype(jnp.int64)


@fault("the same noise at every step", "the event is what ran", (GaussianSum, "draw"))
def _(original: Any, self: Any, noise: Any, step: Any, *width: Any) -> Any:
    return original(self, noise, step * 0, *width)


@fault("the same noise for every counter", "noise is as declared", (SecureNoise, "gaussian"))
def _(original: Any, self: Any, step: Any, dimension: Any, std: Any) -> Any:
    return original(self, 0, dimension, std)


@fault("the same noise in every stream", "noise is as declared")
def _(planting: Planting) -> None:
    planting.replace(SecureNoise, "stream", lambda original: lambda self, name: self)
    # with the second guard down as well: streams of different scale would differ by it
    planting.replace(SecureNoise, "_subkey", lambda original: lambda self, purpose, of=b"": original(self, purpose))


@fault("the same noise in every release", "two releases share no noise", (SecureNoise, "fresh"))
def _(original: Any, cls: Any) -> Any:
    return cls(bytes(32))


@fault("an empty batch skips its draw", "neighbours in poisson batches")
def _(planting: Planting) -> None:
    last = {"empty": False}

    def coins(original: Callable[..., Any]) -> Callable[..., Any]:
        def drawn(self: Any, noise: Any, step: Any, units: int) -> Any:
            included = original(self, noise, step, units)
            last["empty"] = not np.asarray(included).any()
            return included

        return drawn

    def draw(original: Callable[..., Any]) -> Callable[..., Any]:
        def drawn(self: Any, noise: Any, step: Any, *width: Any) -> Any:
            if last["empty"] and self.steps > 1:
                return np.zeros(self.dimension, dtype=np.int64)
            return original(self, noise, step, *width)

        return drawn

    planting.replace(GaussianSum, "participation_mask", coins)
    planting.replace(GaussianSum, "draw", draw)


@fault("noise smaller by sqrt(2)", "the event is what ran", (GaussianSum, "on_grid"), traced=True)
def _(original: Any, self: Any, z: Any) -> Any:
    return original(self, z) / math.sqrt(2.0)


@fault("a sampler whose noise is smaller by sqrt(2)", "noise is as declared", (SecureNoise, "gaussian"))
def _(original: Any, self: Any, step: Any, dimension: Any, std: Any) -> Any:
    return original(self, step, dimension, std / math.sqrt(2.0))


@fault(
    "seeded noise smaller by two in the audit's own runs", "the canary stays below the claim", (SeededNoise, "gaussian")
)
def _(original: Any, self: Any, step: Any, dimension: Any, std: Any) -> Any:
    return original(self, step, dimension, std / 2.0)


@fault("the norm's noise spread over the coordinates", "noise is as declared", (SecureNoise, "gaussian"))
def _(original: Any, self: Any, step: Any, dimension: Any, std: Any) -> Any:
    return original(self, step, dimension, std / math.sqrt(max(dimension, 1)))


@fault(
    "floating-point noise instead of the grid", "scale is accepted and another is rejected", (SecureNoise, "gaussian")
)
def _(original: Any, self: Any, step: Any, dimension: Any, std: Any) -> Any:
    return np.random.default_rng([*self._key, int(step)]).normal(size=dimension) * std


@fault("single-precision noise that skips integers", "no residue is rarer than another", (SecureNoise, "gaussian"))
def _(original: Any, self: Any, step: Any, dimension: Any, std: Any) -> Any:
    return np.round(
        np.random.default_rng([*self._key, int(step)]).normal(size=dimension).astype(np.float32) * np.float32(std)
    ).astype(np.int64)


# --- what is carried on ---------------------------------------------------------------------------------------------


BEFORE: dict[str, Any] = {"log": None, "total": 0}


@fault("momentum over sums without noise", "neighbours in full batches", (engine, "_accumulate"))
def _(original: Any, program: Any, stage: int, mechanism: Any, state: Any, arrays: Any, *chunk: Any) -> Any:
    """The total of the step before is kept as it was before its noise."""
    if BEFORE["log"] is not arrays["phi"]:
        BEFORE.update(log=arrays["phi"], total=0)
    BEFORE["total"] = original(program, stage, mechanism, state, arrays, *chunk) + BEFORE["total"] // 2
    return BEFORE["total"]


fault("un-noised sum carried into the next step", "neighbours in full batches")(go_on_without_noise)


@fault("steps until the log has been seen often enough", "neighbours in full batches", (engine, "run_steps_on_host"))
def _(original: Any, program: Any, stage: int, mechanism: Any, noise: Any, data: Any, *more: Any) -> Any:
    fewer = replace(mechanism, steps=max(1, min(mechanism.steps, data.units - 2)))
    return original(program, stage, fewer, noise, data, *more)
