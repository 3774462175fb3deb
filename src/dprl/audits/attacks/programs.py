"""The generic attack on a program: a record at full clip norm is added, and every noised sum is seen.

It knows nothing of the program: the vectors are those that the program's own code makes of coefficients far beyond
what rows can have. Everything in here is simulated; nothing is private.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dprl.accounting.budget import Budget
from dprl.audits.attacks.evaluation import FAR, LogCanary, addition, always, mixed
from dprl.engine.layouts import PaddedUnits, SharedTransitions
from dprl.engine.plan import Plan
from dprl.engine.program import Program, Stage, ValueFunctionConfig, run
from dprl.engine.rows import COEFFICIENTS
from dprl.errors import DprlError
from dprl.evaluation.plan import make_plan
from dprl.mechanisms.filtered_sum import FilteredGaussianSum
from dprl.mechanisms.grid import grid_step
from dprl.mechanisms.noise import SeededNoise
from dprl.protocols import Bounds

# columns that programs may ask for: weights, and weights times rewards or returns
_SIGNED = {"reward", "returns", "raw_reward", "to_end"}
"""Columns that are negative as well."""


@dataclass(frozen=True, kw_only=True)
class ProgramCanary(LogCanary):
    """The values and every stage of a program, whatever it does, seen by one who knows all but the canary.

    The canary's vector is the one that the program's own code makes of its rows at the state that was released up to
    then; its coefficients are so large that the clip binds wherever the vector is not zero.
    """

    def _data(self, present: bool) -> tuple[Any, Any]:
        signs = np.append(np.full(self.others, -1.0), 1.0 if present else 0.0)
        return self.value_vectors(signs), _saturating(self.plan, signs)

    def _score(self, key: Any, data: tuple[Any, Any]) -> Any:
        noise, (vectors, transitions) = SeededNoise(key), data
        (_, score, _), _ = run(self._watched(), noise, transitions, batch=min(8, self.others + 1))
        return self.value_score(noise, vectors) + score

    def _watched(self) -> Watched:
        assert self.plan.program is not None
        return Watched(self.plan.program, self._data(True)[1], self.others)

    def nearness(self, trials: int = 64) -> float:
        """Smallest norm of the canary's clipped vector over the clip norm, over all steps of some runs with it."""
        watched, (_, transitions) = self._watched(), self._data(True)

        def least(key: Any) -> Any:
            (_, _, least), _ = run(watched, SeededNoise(key), transitions, batch=min(8, self.others + 1))
            return least

        keys = jnp.stack([jnp.arange(trials, dtype=jnp.uint32), jnp.zeros(trials, dtype=jnp.uint32)], axis=1)
        return float(jnp.min(jax.jit(jax.vmap(least))(keys)))


@dataclass(frozen=True, eq=False)
class Watched:
    """A program whose state also holds what its noised sums have told of one unit of ``log``.

    Attributes:
        log: with the canary in it.
        canary: which unit it is.
    """

    inner: Program
    log: SharedTransitions | PaddedUnits
    canary: int

    @property
    def stages(self) -> tuple[Stage, ...]:
        return self.inner.stages

    @property
    def columns(self) -> tuple[str, ...]:
        return self.inner.columns

    def init(self) -> tuple[Any, Any, Any]:
        """State, log-likelihood ratio, and how near the canary's vector came to the clip norm."""
        return self.inner.init(), jnp.zeros((), dtype=jnp.float64), jnp.ones((), dtype=jnp.float64)

    def contribution(self, stage: int, state: Any, block: Any) -> Any:
        return self.inner.contribution(stage, state[0], block)

    def level(self, stage: int, state: Any, step: Any) -> Any:
        """Of an adaptive program."""
        return self.inner.level(stage, state[0], step)  # type: ignore[attr-defined]

    def update(self, stage: int, state: Any, noised: Any, step: Any) -> Any:
        inner, score, least = state
        mechanism = self.stages[stage].mechanism
        vectors = self.inner.contribution(stage, inner, self.log.block(slice(None)))
        alone = jnp.arange(self.log.units) == self.canary
        own, others = (mechanism.clipped_sum(vectors, units) for units in (alone, ~alone))
        base, there = others, others + own
        if isinstance(mechanism, FilteredGaussianSum):
            # the norm of the sum is seen beside it; each in units of its own noise
            base, there = mechanism.answer(base), mechanism.answer(there)
            multiplier = jnp.asarray(mechanism.levels, dtype=jnp.float64)[self.level(stage, state, step)]
            std = jnp.full(mechanism.released, mechanism.on_grid(multiplier))
            std = std.at[-1].set(mechanism.on_grid(mechanism.norm_multiplier))
        else:
            std = mechanism.on_grid_at(step)
        push = (there - base) / std
        seen = (noised / grid_step(mechanism.clip_norm) - base) / std
        score = score + mixed(jnp.sum(push * (seen - push / 2.0)), mechanism.sampling_rate)
        own = mechanism.scaled(own)
        least = jnp.minimum(least, jnp.sqrt(jnp.sum(own * own)) / mechanism.clip_norm)
        return self.inner.update(stage, inner, noised, step), score, least

    def finish(self, stage: int, state: Any) -> Any:
        return self.inner.finish(stage, state[0]), *state[1:]

    def answer(self, state: Any) -> Any:
        return self.inner.answer(state[0])


def program_canary(
    kind: type[ValueFunctionConfig],
    *,
    units: int,
    budget: Budget,
    released: str,
    features: str = "tabular",
    **options: Any,
) -> ProgramCanary:
    """Any program with options of its configuration ``kind``, on policy in three states; see :func:`canary_of_plan`."""
    if released != "all":
        raise DprlError(f"{kind.algorithm} is audited on all that it releases: leave out released.")
    config = kind.from_mapping(options, "options")
    bounds = Bounds(units=units, horizon=4, reward=(-1.0, 1.0), observation=((0.0, 2.0),), actions=1)
    return canary_of_plan(make_plan(config, bounds, budget, [always], features))


def canary_of_plan(plan: Plan) -> ProgramCanary:
    """The attack on a plan as it is: its bounds, features and calibration; a record at full clip norm is added."""
    others, relation = addition(plan.bounds.units, plan)
    filtered = any(isinstance(stage.mechanism, FilteredGaussianSum) for stage in plan.stages)
    seen = "every noised sum and its noised norm are seen" if filtered else "every noised sum is seen"
    return ProgramCanary(plan=plan, others=others, description=f"{relation}; {seen}")


def _saturating(plan: Plan, signs: np.ndarray) -> SharedTransitions:
    """Units of one transition each with coefficients far beyond what rows can have: their vectors are clipped.

    Rewards and returns are as many times larger again, so that where they are added to products with the state the
    vector's direction is known whatever the state is. Those of negative sign stand at another state than the canary.
    """
    assert plan.features is not None
    low, high = (np.array(ends) for ends in zip(*plan.bounds.observation, strict=True))
    states = np.stack([low, high])
    phi = plan.features(states)
    row = np.where(signs > 0, 0, 1)[:, None] == np.arange(2)
    large = jnp.asarray(row * np.abs(signs)[:, None] * FAR, dtype=jnp.float32)
    huge = jnp.asarray(row * signs[:, None] * FAR**2, dtype=jnp.float32)
    sums = {name: huge if _SIGNED & set(factors) else large for name, factors in COEFFICIENTS.items()}
    # what is shared: every transition leads to itself
    shared = {"phi": phi, "delta_phi": phi * (1.0 - plan.config.discount), "states": states, "next_states": states}
    shared = {name: jnp.asarray(x, dtype=jnp.float32) for name, x in {**shared, "alive": np.ones(2)}.items()}
    return SharedTransitions(shared | sums)
