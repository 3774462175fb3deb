"""Faults in programs, and in the loop that runs their stages."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from dprl.accounting import events
from dprl.audits.attacks import programs as program_attack
from dprl.audits.conformance import evaluation as conformance
from dprl.engine import program as engine
from dprl.engine import rows as log_rows
from dprl.evaluation import adassp
from dprl.mechanisms.gaussian_sum import GaussianSum

from .planting import Planting, fault, go_on_without_noise

# --- accounting -----------------------------------------------------------------------------------------------------


@fault("a stage whose event is not composed", "the event is what ran")
def _(planting: Planting) -> None:
    def forgetting(original: Callable[..., Any]) -> Callable[..., Any]:
        def planned(*args: Any, **options: Any) -> Any:
            plan = original(*args, **options)
            parts = [plan.value_mechanism, *(stage.mechanism for stage in plan.stages[1:])]
            return replace(plan, event=events.compose([part.event() for part in parts]))

        return planned

    planting.replace(conformance, "make_plan", forgetting)


@fault("a share of mu^2 spent twice: each stage draws as if the budget were its own", "the event is what ran")
def _(planting: Planting) -> None:
    def greedy(original: Callable[..., Any]) -> Callable[..., Any]:
        def steps(program: Any, stage: int, mechanism: Any, *more: Any, **options: Any) -> Any:
            # what draws, beneath the recorder
            less = replace(mechanism.inner, noise_multiplier=math.sqrt(0.5) * mechanism.noise_multiplier)
            return original(program, stage, replace(mechanism, inner=less), *more, **options)

        return steps

    planting.replace(engine, "run_steps_on_host", greedy)


# --- a unit's vector ------------------------------------------------------------------------------------------------


@fault("a contribution that looks at the other units", "contributions add up", traced=True)
def _(planting: Planting) -> None:
    def centred(original: Callable[..., Any]) -> Callable[..., Any]:
        def contribution(self: Any, stage: int, state: Any, block: Any) -> Any:
            vectors = original(self, stage, state, block)
            return vectors - jnp.mean(vectors, axis=0)

        return contribution

    planting.replace(adassp.AdaSSPProgram, "contribution", centred)


@fault("weights over the number of units that there are", "contributions add up")
def _(planting: Planting) -> None:
    def averaged(original: Callable[..., Any]) -> Callable[..., Any]:
        def units(rows: Any, declared: int) -> Any:
            present = max(len(rows.offsets) - 1, 1)
            return original(rows.with_columns(weight=(rows.weight / present).astype(rows.weight.dtype)), declared)

        return units

    planting.replace(conformance, "unit_rows", averaged)


@fault("returns that are summed beyond the end of a trajectory", "contributions add up")
def _(planting: Planting) -> None:
    def running(inputs: Any) -> Any:
        planting.ran += 1
        total = np.cumsum((inputs.ratios * inputs.log.reward)[::-1])[::-1]
        return np.clip(total / 20.0, -1.0, 1.0)

    returns = replace(log_rows.COLUMNS["returns"], compute=running)
    planting.constant(log_rows, "COLUMNS", {**log_rows.COLUMNS, "returns": returns})


# --- what is made of a noised sum -----------------------------------------------------------------------------------


@fault("one stage goes on with the sum before its noise", "neighbours in stages")
def _(planting: Planting) -> None:
    go_on_without_noise(planting, from_stage=1)


@fault("post-processing that reads the rows", "neighbours in stages")
def _(planting: Planting) -> None:
    """The answer is kept within the rewards that occurred."""

    def reading(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(program: Any, noise: Any, data: Any, **options: Any) -> Any:
            state, theta = original(program, noise, data, **options)
            return state, theta * jnp.max(jnp.abs(data.reward), initial=0.0)

        return run

    planting.replace(engine, "run_on_host", reading)


@fault("a value function at the states that occurred alone", "neighbours in stages", traced=True)
def _(planting: Planting) -> None:
    """The first stage's finish looks at the sum of the second one's rows, which are there already."""
    seen: dict[str, Any] = {}

    def accumulate(original: Callable[..., Any]) -> Callable[..., Any]:
        def noted(program: Any, stage: int, mechanism: Any, state: Any, arrays: Any, *more: Any) -> Any:
            seen["occupancy"] = jnp.sum(arrays[4][:, None] * arrays[0], axis=0).astype(jnp.float64)
            return original(program, stage, mechanism, state, arrays, *more)

        return noted

    def finish(original: Callable[..., Any]) -> Callable[..., Any]:
        def weighed(program: Any, stage: int, state: Any) -> Any:
            state = original(program, stage, state)
            return state._replace(theta=state.theta + 0.1 * seen.get("occupancy", 0.0))

        return weighed

    planting.replace(engine, "_accumulate", accumulate)
    planting.replace(engine, "_finish", finish)


# --- noise ----------------------------------------------------------------------------------------------------------


@fault("a stage's noise drawn from another stage's stream", "the event is what ran")
def _(planting: Planting) -> None:
    def same(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(program: Any, noise: Any, data: Any, **options: Any) -> Any:
            name = program.stages[0].name
            stages = tuple(replace(stage, name=name) for stage in program.stages)
            return original(replace(program, stages=stages), noise, data, **options)

        return run

    planting.replace(engine, "run_on_host", same)


@fault("an occupancy released without noise", "noise is as declared")
def _(planting: Planting) -> None:
    """Half of a stage's coordinates are left as they are."""

    def half(original: Callable[..., Any]) -> Callable[..., Any]:
        def drawn(self: Any, noise: Any, step: Any, *width: Any) -> Any:
            draw = original(self, noise, step, *width)
            return jnp.where(jnp.arange(len(draw)) < max(self.dimension // 2, 1), draw, 0)

        return drawn

    planting.replace(GaussianSum, "draw", half)


@fault("half of the stages' noise in the compiled loop", "the canary of a program stays below the claim", traced=True)
def _(planting: Planting) -> None:
    def less(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(program: Any, noise: Any, data: Any, **options: Any) -> Any:
            half = [replace(s.mechanism, noise_multiplier=s.mechanism.noise_multiplier / 2.0) for s in program.stages]
            return original(program, noise, data, mechanisms=half, **options)

        return run

    planting.replace(program_attack, "run", less)
