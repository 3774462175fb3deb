"""Faults in the primal-dual algorithms, and in the unit transition."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from dprl.accounting import events
from dprl.data import trajectories
from dprl.engine import loop as engine
from dprl.engine import rows as log_rows
from dprl.mechanisms import arithmetic
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.release import private_rows

from .faults_in_mechanisms import halves_apart
from .planting import Planting, fault, go_on_without_noise

# --- what is made of a noisy sum -----------------------------------------------------------------------------------


fault("momentum that is fed with the sum before its noise", "neighbours of a network")(
    functools.partial(go_on_without_noise, from_stage=1)
)


@fault("a mean over the batch that was drawn", "neighbours of algorithm 1")
def _(planting: Planting) -> None:
    """In place of the public expected number of units."""
    drawn: list[int] = []

    def accumulate(original: Callable[..., Any]) -> Callable[..., Any]:
        def counted(program: Any, stage: int, mechanism: Any, state: Any, arrays: Any, index: Any, live: Any) -> Any:
            drawn.append(int(np.sum(live)))
            return original(program, stage, mechanism, state, arrays, index, live)

        return counted

    def advance(original: Callable[..., Any]) -> Callable[..., Any]:
        def divided(program: Any, stage: int, mechanism: Any, state: Any, points: Any, step: Any) -> Any:
            realised = max(sum(drawn), 1)
            drawn.clear()
            expected = mechanism.sampling_rate * program.facts.units
            return original(program, stage, mechanism, state, jnp.round(points * (expected / realised)), step)

        return divided

    planting.replace(engine, "_accumulate", accumulate)
    planting.replace(engine, "_advance", advance)


@fault("a random iterate that the rows choose", "neighbours of algorithm 1")
def _(planting: Planting) -> None:
    """Which one follows from the number of units that there are."""
    present: list[int] = []

    def run(original: Callable[..., Any]) -> Callable[..., Any]:
        def counted(program: Any, noise: Any, data: Any, **options: Any) -> Any:
            present.append(data.units)
            return original(program, noise, data, **options)

        return counted

    def advance(original: Callable[..., Any]) -> Callable[..., Any]:
        def chosen(program: Any, stage: int, mechanism: Any, state: Any, points: Any, step: Any) -> Any:
            moved = original(program, stage, mechanism, state, points, step)
            keep = int(step) == present[-1] % mechanism.steps
            return moved._replace(kept=moved.theta if keep else state.kept)

        return chosen

    planting.replace(private_rows, "run_on_host", run)
    planting.replace(engine, "_advance", advance)


# --- what enters the mechanisms -------------------------------------------------------------------------------------


fault(
    "the two halves of a network's gradient clipped apart",
    "neighbours of random weights",
    (arithmetic, "clip_to_grid"),
    traced=True,
)(halves_apart)


@fault(
    "differences clipped at the clip of gradients",
    "neighbours of recursive momentum",
    (arithmetic, "clip_to_grid"),
    traced=True,
)
def _(original: Any, vectors: Any, *clip: Any) -> Any:
    """Three times what is accounted for, on the same grid."""
    return 3 * original(vectors / 3.0, *clip)


@fault(
    "rows thinned to the shortest trajectory of the log",
    "contributions to a network add up",
    (log_rows, "subsample_rows"),
)
def _(original: Any, log: Any, most: Any) -> Any:
    return original(log, int(log.lengths.min(initial=1 << 20)))


# --- accounting and noise -------------------------------------------------------------------------------------------


@fault(
    "an initial gradient that is not counted",
    "the event of algorithm 1 is what ran",
    (GaussianSum, "event"),
    traced=True,
)
def _(original: Any, self: Any) -> Any:
    if self.steps == 1:
        return original(self)
    return events.poisson_gaussian(self.sampling_rate, self.noise_multiplier, self.steps - 1)


@fault(
    "the momentum's weight on the noise before it is accounted for",
    "noise in front of momentum is as declared",
    (GaussianSum, "draw"),
)
def _(original: Any, self: Any, noise: Any, step: Any, *width: Any) -> Any:
    """Algorithm 1 with noise behind its weight alpha nu, and the accountant of noise in front of it."""
    draw = original(self, noise, step, *width)
    weight = 1.0 if step == 0 else 3.0 * 0.25 / np.sqrt(step + 2.0)
    return jnp.round(weight * draw).astype(jnp.int64)


# --- the unit transition --------------------------------------------------------------------------------------------


@fault(
    "the next state of a transition from the next row",
    "a transition stands for itself",
    (trajectories, "next_in_the_row"),
)
def _(original: Any, columns: Any, rows: Any, bounds: Any) -> Any:
    return original({"next_observation": np.roll(columns["observation"], -1, axis=0)}, rows, bounds)


@fault("transitions in the order of the file", "the order of a file tells nothing", (trajectories, "_canonical_order"))
def _(original: Any, log: Any) -> Any:
    return np.arange(log.units)
