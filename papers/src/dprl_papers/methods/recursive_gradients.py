"""DP-SRGD: Algorithm 1 of the paper that paper 000 cites for DP-SRM; the cited version has no momentum.

Wang, Jayaraman, Evans and Gu (2019), arXiv 1910.13659, first version::

    v_t = mean of g_i(x_t) + N(0, sigma_1^2)                                      every l steps, of all records
    v_t = v_{t-1} + mean of [g_i(x_t) - g_i(x_{t-1})] + N(0, sigma_2^2)           else, of b records
    x_{t+1} = x_t - min(zeta/(L |v_t|), 1/(2 L)) v_t

in the primal-dual form of paper 000, section 6.2, with ``x = (theta, w)`` and transitions as records. The choices that
it leaves open (L, zeta, b and l) are ours, and so are the box and the clip at G = 1, which every method here has. Noise
is drawn from public seeds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dprl.accounting import events
from dprl.accounting.accountant import epsilon_of
from dprl.engine.layouts import PaddedUnits
from dprl.engine.program import PublicFacts
from dprl.evaluation.primal_dual import PrimalDualProgram
from dprl.evaluation.td_gradients import unit_gradients
from dprl_papers.baselines.primal_dual_sgd import DPSGDA
from dprl_papers.harness.method import Guarantee, Method
from dprl_papers.harness.problem import Setting, Trials
from dprl_papers.methods.primal_dual import EPOCHS, function_of, logs_of, measured, single_stage, transitions
from dprl_papers.one_unit import SENSITIVITY_IN_CLIPS
from dprl_papers.paper_000_dptd.published import noise_multiplier

SMOOTHNESS, ACCURACY = 5.0, 0.1
"""L and zeta: a step is a tenth of v, and at most .02 long."""


@dataclass(frozen=True)
class RecursiveGradientRun:
    """A run of Algorithm 1, with all public facts filled in.

    Attributes:
        program: gives facts, start and box.
        steps: number of steps T.
        of_all, of_some: noise sigma_1 of a gradient of all records, and sigma_2 of a difference on some records.
    """

    program: PrimalDualProgram
    steps: int
    of_all: float
    of_some: float

    @property
    def period(self) -> int:
        """Period l and batch size b, which are both the root of the number of records."""
        return period_of(self.program.facts.units)


class Iterate(NamedTuple):
    """Iterate of a run: primal and dual weights."""

    theta: np.ndarray
    w: np.ndarray


def period_of(units: int) -> int:
    """Return l and b, balanced as by Fang et al. (2018): both are the root of the number of records."""
    return math.ceil(math.sqrt(units))


def steps_of(units: int, epochs: int) -> int:
    """Return T: as many whole periods as look at each record ``epochs`` times; a difference looks at it twice."""
    length = period_of(units)
    return length * max(1, round(epochs * units / (units + 2 * length * (length - 1))))


def noise_of(steps: int, units: int, epsilon: float, delta: float) -> tuple[float, float]:
    """Return sigma_1 for G = 1, and sigma_2, with the beta for which both are smallest.

    Where Theorem 5.1 of paper 000 has 14, sigma_1 has 2 and sigma_2 has 20.
    """
    theirs = noise_multiplier(steps, units, epsilon, delta) / math.sqrt(14.0)
    return math.sqrt(2.0) * theirs, math.sqrt(20.0) * ACCURACY * theirs


@partial(jax.jit, static_argnums=0)
def iterates(
    run: RecursiveGradientRun, log: PaddedUnits, start: Float[Array, " dim"], key: Any
) -> tuple[Float[Array, "steps+1 dim"], Float[Array, "steps dim"]]:
    """Return x_0 to x_T and v_0 to v_{T-1} of one trial."""
    facts = run.program.facts

    def mean(x: Any, units: Any) -> jax.Array:
        theta, w = jnp.split(x, 2)
        gradients = unit_gradients(facts.features, facts.discount, theta, w, log.block(units))
        lengths = jnp.linalg.norm(gradients, axis=1, keepdims=True)
        return jnp.mean(gradients / jnp.maximum(lengths, 1.0), axis=0)

    def step(carry: Any, number: Any) -> Any:
        x, before, v = carry
        chosen, drawn = jax.random.split(jax.random.fold_in(key, number))

        def of_some() -> jax.Array:
            units = jax.random.choice(chosen, facts.units, (run.period,), replace=False)
            return v + mean(x, units) - mean(before, units)

        every = number % run.period == 0
        v = jax.lax.cond(every, lambda: mean(x, slice(None)), of_some)
        v = v + jnp.where(every, run.of_all, run.of_some) * jax.random.normal(drawn, v.shape, v.dtype)
        size = jnp.minimum(ACCURACY / (SMOOTHNESS * jnp.linalg.norm(v)), 0.5 / SMOOTHNESS)
        return (run.program.project(x - size * v), x, v), (x, v)

    first = (start, start, jnp.zeros_like(start))
    (last, *_), (visited, directions) = jax.lax.scan(step, first, jnp.arange(run.steps))
    return jnp.concatenate([visited, last[None]]), directions


def curves(trials: Trials, keys: Any, epochs: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Return errors along a run; without epochs, the errors of a uniformly drawn iterate among x_0 to x_{T-1}."""
    setting, features = trials.setting, function_of(trials.setting)
    logs, bounds = logs_of(trials, features, "transition", None)
    facts = PublicFacts(bounds, features, setting.domain.discount, 1.0, "transition")
    start: Any = "mid-range" if features.linear else "random"
    config = DPSGDA(discount=facts.discount, start=start, primal_step=1.0, dual_step=1.0, average="last", steps=1)
    program: Any = config.program(facts, single_stage(facts, 1, setting.budget))
    steps = steps_of(facts.units, max((*epochs, 1)) if epochs else EPOCHS)
    budget = setting.budget
    run = RecursiveGradientRun(program, steps, *noise_of(steps, facts.units, budget.epsilon, budget.delta))
    seeded = (replace(program, config=program.config.replace(seed=seed)) for seed in trials.seeds)
    each = zip(jnp.asarray(keys), [one.parameters_of(one.init()) for one in seeded], range(len(trials)), strict=True)
    found = np.stack([iterates(run, jax.tree.map(lambda x, i=i: x[i], logs), x, key)[0] for key, x, i in each])
    if epochs:
        at = np.tile([round(steps * epoch / epochs[-1]) for epoch in epochs], (len(found), 1))
    else:
        at = np.array([[np.random.default_rng(seed).integers(steps)] for seed in trials.seeds])
    chosen = np.take_along_axis(found, at[:, :, None], axis=1)
    states = tuple(Iterate(*np.split(chosen[:, place], 2, axis=-1)) for place in range(at.shape[1]))
    return measured(trials, program, states, False, True, clamp=False)


def promise(setting: Setting) -> Guarantee:
    """Return the guarantee of the gradients of all records, exact if one record moves each of them by 2 G."""
    count, budget = transitions(setting), setting.budget
    steps = steps_of(count, setting.epochs or EPOCHS)
    sigma, _ = noise_of(steps, count, budget.epsilon, budget.delta)
    alone = events.gaussian(sigma * count / SENSITIVITY_IN_CLIPS / math.sqrt(steps / period_of(count)))
    words = f"of one of {count} transitions; a lower bound; the steps' constants are ours"
    true = epsilon_of(alone, budget.delta)
    return Guarantee(status="as published", claimed=budget.epsilon, true=true, delta=budget.delta, words=words)


METHODS = (
    Method(
        name="srgd-published",
        label="DP-SRGD as published",
        guarantee="as published",
        curves=curves,
        promise=promise,
        options={"smoothness": SMOOTHNESS, "accuracy": ACCURACY},
        clamp=False,
    ),
)
