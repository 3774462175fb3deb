"""Faults in programs, and in the loop that runs their stages."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from dprl.accounting import events
from dprl.audits.attacks import programs as program_attack
from dprl.audits.conformance import evaluation as conformance
from dprl.engine import loop as engine
from dprl.engine import rows as log_rows
from dprl.evaluation import adassp
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.release import private_rows

from .planting import Planting, fault, go_on_without_noise

# --- accounting -----------------------------------------------------------------------------------------------------


@fault("a stage whose event is not composed", "the event is what ran", (conformance, "make_plan"))
def _(original: Any, *args: Any, **options: Any) -> Any:
    plan = original(*args, **options)
    parts = [plan.value_mechanism, *(stage.mechanism for stage in plan.stages[1:])]
    return replace(plan, event=events.compose([part.event() for part in parts]))


@fault(
    "a share of mu^2 spent twice: each stage draws as if the budget were its own",
    "the event is what ran",
    (engine, "run_steps_on_host"),
)
def _(original: Any, program: Any, stage: int, mechanism: Any, *more: Any, **options: Any) -> Any:
    less = replace(mechanism, noise_multiplier=math.sqrt(0.5) * mechanism.noise_multiplier)
    return original(program, stage, less, *more, **options)


# --- a unit's vector ------------------------------------------------------------------------------------------------


@fault(
    "a contribution that looks at the other units",
    "contributions add up",
    (adassp.AdaSSPProgram, "vectors"),
    traced=True,
)
def _(original: Any, self: Any, state: Any, block: Any) -> Any:
    vectors = original(self, state, block)
    return vectors - jnp.mean(vectors, axis=0)


@fault("weights over the number of units that there are", "contributions add up", (private_rows, "unit_rows"))
def _(original: Any, rows: Any, declared: int) -> Any:
    present = max(len(rows.offsets) - 1, 1)
    weight = (rows.weight / present).astype(rows.weight.dtype)
    return original(replace(rows, columns={**rows.columns, "weight": weight}), declared)


@fault("returns that are summed beyond the end of a trajectory", "contributions add up")
def _(planting: Planting) -> None:
    def running(inputs: Any) -> Any:
        planting.ran += 1
        total = np.cumsum((inputs.ratios * inputs.log.reward)[::-1])[::-1]
        return np.clip(total / 20.0, -1.0, 1.0)

    returns = replace(log_rows.COLUMNS["returns"], compute=running)
    planting.constant(log_rows, "COLUMNS", {**log_rows.COLUMNS, "returns": returns})


# --- what is made of a noisy sum -----------------------------------------------------------------------------------


fault("one stage goes on with the sum before its noise", "neighbours in stages")(
    partial(go_on_without_noise, from_stage=1)
)


@fault("post-processing that reads the rows", "neighbours in stages", (private_rows, "run_on_host"))
def _(original: Any, program: Any, noise: Any, data: Any, **options: Any) -> Any:
    """The answer is kept within the rewards that occurred."""
    state, theta = original(program, noise, data, **options)
    return state, theta * jnp.max(jnp.abs(data.reward), initial=0.0)


@fault("a value function at the states that occurred alone", "neighbours in stages", traced=True)
def _(planting: Planting) -> None:
    """The first stage's finish looks at the sum of the second one's rows, which are there already."""
    seen: dict[str, Any] = {}

    def accumulate(original: Callable[..., Any]) -> Callable[..., Any]:
        def noted(program: Any, stage: int, mechanism: Any, state: Any, arrays: Any, *more: Any) -> Any:
            seen["occupancy"] = jnp.sum(arrays["weight"][:, None] * arrays["phi"], axis=0).astype(jnp.float64)
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


@fault("a stage's noise drawn from another stage's stream", "the event is what ran", (private_rows, "run_on_host"))
def _(original: Any, program: Any, noise: Any, data: Any, **options: Any) -> Any:
    name = program.stages[0].name
    stages = tuple(replace(stage, name=name) for stage in program.stages)
    return original(replace(program, stages=stages), noise, data, **options)


@fault("an occupancy released without noise", "noise is as declared", (GaussianSum, "draw"))
def _(original: Any, self: Any, noise: Any, step: Any, *width: Any) -> Any:
    """Half of a stage's coordinates are left as they are."""
    draw = original(self, noise, step, *width)
    return jnp.where(jnp.arange(len(draw)) < max(self.dimension // 2, 1), draw, 0)


@fault(
    "half of the stages' noise in the compiled loop",
    "the canary of a program stays below the claim",
    (program_attack, "run"),
    traced=True,
)
def _(original: Any, program: Any, noise: Any, data: Any, **options: Any) -> Any:
    half = [replace(s.mechanism, noise_multiplier=s.mechanism.noise_multiplier / 2.0) for s in program.stages]
    return original(program, noise, data, mechanisms=half, **options)
