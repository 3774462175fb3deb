"""The strongest attacks known on GPOPE and importance sampling: worst-case pairs of logs, scores of what is released.

The algorithms' own code runs on both logs, trials in parallel: all records push one way and the canary's pushes the
other, at full clip norm whatever the iterates are. The score is the summed log-likelihood ratio of what is seen.
``program_attack.py`` attacks every program in the same way, without knowing it.
Everything in here is simulated; nothing is private.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dprl.accounting.budget import Budget
from dprl.audits.attacks.trials import next_power, scores_of_trials
from dprl.config import Mark
from dprl.engine.layouts import SharedTransitions
from dprl.engine.plan import Plan
from dprl.engine.program import run_steps
from dprl.errors import DprlError
from dprl.evaluation import gpope
from dprl.evaluation.gpope import GPOPE
from dprl.evaluation.importance_sampling import ImportanceSampling
from dprl.evaluation.plan import make_plan
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SeededNoise
from dprl.protocols import Bounds, Precondition

_TRIALS_AT_ONCE, _FEWEST_AT_ONCE, _SUMS_AT_ONCE = 1 << 14, 1 << 10, 1 << 22
FAR = 1e6  # times the clip norm: a reward so large that the gradient is clipped whatever the iterates are
_OTHERS = 3


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """A pair of logs, and many runs on either.

    Attributes:
        plan: of the release; its claim is the budget's.
        others: records beside the canary.
        description: of the pair and of what is seen.
        preconditions: of the theorem behind a claim as published.
    """

    plan: Plan
    others: int
    description: str
    preconditions: tuple[Precondition, ...] = ()

    @property
    def epsilon(self) -> float:
        return self.plan.budget.epsilon

    @property
    def delta(self) -> float:
        return self.plan.budget.delta

    @property
    def gaussian(self) -> bool:
        return not self.plan.published and all(s.mechanism.sampling_rate == 1.0 for s in self.plan.stages)

    def scores(
        self, seed: int, trials: int, present: bool, progress: Callable[[int], None] | None = None
    ) -> np.ndarray:
        data, at_once = self._data(present), min(self._at_once, max(next_power(trials), _FEWEST_AT_ONCE))
        return scores_of_trials(lambda keys: self._scores(keys, data), seed, trials, present, at_once, progress)

    @property
    def _at_once(self) -> int:
        """Runs side by side, fewer where each keeps many noised sums."""
        return min(_TRIALS_AT_ONCE, max(64, 1 << (_SUMS_AT_ONCE // max(self.plan.steps, 1)).bit_length() - 1))

    @cached_property
    def _scores(self) -> Callable[[Any, Any], Any]:
        return jax.jit(jax.vmap(self._score, in_axes=(0, None)))

    def _data(self, present: bool) -> tuple[Any, Any]:
        """The two logs: the units' vectors for the values, and their transitions."""
        raise NotImplementedError

    def _score(self, key: Any, data: tuple[Any, Any]) -> Any:
        """Of one run."""
        raise NotImplementedError

    def value_score(self, noise: Any, vectors: Any) -> Any:
        """What the noised vector of the values tells, where every unit's lies in its first coordinate."""
        mechanism = self.plan.value_mechanism
        base = -self.others * mechanism.clip_norm
        seen = noised_sum(mechanism, noise.stream("value"), vectors)[0] - base
        return _log_ratio(seen, mechanism.clip_norm, mechanism.noise_std, 1.0)

    def value_vectors(self, signs: np.ndarray) -> Any:
        """At full clip norm, in the first coordinate."""
        value = self.plan.value_mechanism
        vectors = np.zeros((len(signs), value.dimension))
        vectors[:, 0] = signs * value.clip_norm
        return jnp.asarray(vectors)


@dataclass(frozen=True, kw_only=True)
class EvaluationCanary(Simulation):
    """Values and, with GPOPE, updates, in which every unit's vector is clipped to a known one.

    Attributes:
        released: ``all``, or the ``last`` iterate alone.
    """

    released: str = "all"

    def _data(self, present: bool) -> tuple[Any, Any]:
        """Signs of the units' pushes, as the vectors of the value release and the transitions of GPOPE."""
        # adding and removing are the same thing as a record that is worth nothing: its coins are drawn alike
        canary = 1.0 if present else (-1.0 if self.plan.published else 0.0)
        signs = np.append(np.full(self.others, -1.0), canary)
        vectors = self.value_vectors(signs)
        if not self.plan.stages:
            return vectors, None
        (stage,) = self.plan.stages
        pushes = _wall(signs) if self._at_the_wall else _pushes(signs, stage.mechanism, self.plan.config.discount)
        return vectors, pushes

    @property
    def _at_the_wall(self) -> bool:
        return self.plan.published and self.released == "last"

    def _score(self, key: Any, data: tuple[Any, Any]) -> Any:
        plan, noise = self.plan, SeededNoise(key)
        vectors, transitions = data
        score = jnp.zeros((), dtype=jnp.float64)
        if not plan.published and self.released == "all":
            score += self.value_score(noise, vectors)
        if plan.program is None:
            return score
        (stage,) = plan.stages
        state, sums = run_steps(
            plan.program,
            0,
            stage.mechanism,
            noise.stream(stage.name),
            transitions,
            plan.program.init(),
            batch=min(8, self.others + 1),
            trace=lambda state, noised: noised,
        )
        mechanism, n, clip = stage.mechanism, stage.mechanism.dimension // 2, stage.mechanism.clip_norm
        if self._at_the_wall:
            return state.theta[0].astype(jnp.float64)
        if self.released == "last":
            # w is minus the sum of the noised dual gradients: its likelihood ratio grows with that sum
            return -state.w[0].astype(jnp.float64)
        if plan.published:
            push, rate, base = 2.0 * clip, 1.0 / (self.others + 1), -clip
        else:
            push, rate, base = clip, mechanism.sampling_rate, -self.others * clip
        return score + jnp.sum(_log_ratio(sums[:, n] - base, push, mechanism.noise_std, rate))


def gpope_canary(
    kind: type[GPOPE], calibration: str, *, units: int, budget: Budget, released: str, **options: Any
) -> EvaluationCanary:
    """GPOPE at full clip norm: a record is added (verified), or replaced among ``units`` (as published)."""
    config = kind.from_mapping({**options, "calibration": calibration}, "options")
    if calibration == "as-published":
        if config.sampling_rate != GPOPE().sampling_rate:
            raise DprlError("As published, gpope takes one trajectory a step: sampling_rate means nothing there.")
        if released == "last" and config.step_size is None:
            # three updates at full clip norm are half of theta's range: it comes to lie at the wall, and can leave it
            config = config.replace(Mark("chosen by the attack"), step_size=1.0 / (3.0 * gpope.clip_norm(config, 1, 1)))
    plan = make_plan(config, _attack_bounds(units), budget, [always], "tabular")
    conditions: tuple[Precondition, ...] = ()
    if calibration == "as-published":
        others = units - 1
        relation = f"all of {units} records push one way, and one of them is replaced by one that pushes the other way"
        sigma = plan.stages[0].mechanism.noise_multiplier
        conditions = gpope.theorem_1_conditions(sigma, config.steps, units, budget.epsilon)
    else:
        others, relation = addition(units, plan)
    what = "every noised sum" if released == "all" else "the last iterate"
    description = f"{relation}; {what} is seen"
    return EvaluationCanary(
        plan=plan, others=others, description=description, preconditions=conditions, released=released
    )


def importance_canary(
    kind: type[ImportanceSampling], calibration: str, *, units: int, budget: Budget, released: str, **options: Any
) -> EvaluationCanary:
    """One release of everybody, with a record at full clip norm added."""
    del calibration
    if released != "all":
        raise DprlError("importance-sampling has no iterates, of which the last could be seen: leave out released.")
    config = kind.from_mapping(options, "options")
    plan = make_plan(config, _attack_bounds(units), budget, [always])
    others, relation = addition(units, plan)
    return EvaluationCanary(plan=plan, others=others, description=f"{relation}; the noised vector is seen")


def addition(units: int, plan: Plan) -> tuple[int, str]:
    """How many others there are in the worst log to which a record is added, and the pair of logs in words."""
    # in a random batch the others' number would only hide the canary: the worst log has nobody else in it
    full = all(stage.mechanism.sampling_rate == 1.0 for stage in plan.stages)
    others = min(_OTHERS, units - 1) if full else 0
    return others, f"one record at full clip norm is added to {f'a log of {others}' if others else 'an empty log'}"


def noised_sum(mechanism: GaussianSum, noise: Any, vectors: Any) -> Any:
    """:func:`~dprl.engine.value_query.release_vector` for traced values."""
    total = mechanism.clipped_sum(vectors, jnp.ones(len(vectors), dtype=bool))
    return mechanism.release(total, mechanism.draw(noise, 0))


def _pushes(signs: np.ndarray, mechanism: GaussianSum, discount: float) -> SharedTransitions:
    """Units whose dual gradient is plus or minus the clip norm, or zero, whatever the iterates are.

    One state that leads to itself: the temporal difference is the reward, which is huge, and next to nothing else.
    """
    phi = jnp.eye(1, mechanism.dimension // 2, dtype=jnp.float32)
    weight = jnp.asarray(np.abs(signs)[:, None], dtype=jnp.float32)
    reward = jnp.asarray(-signs[:, None] * mechanism.clip_norm * FAR, dtype=jnp.float32)
    columns = {"phi": phi, "delta_phi": phi * jnp.float32(1.0 - discount), "weight_rho_reward": reward}
    return SharedTransitions({**columns, "weight": weight, "weight_rho": weight})


def _wall(signs: np.ndarray) -> SharedTransitions:
    """Units that press theta against the lower end of its range, and those of positive sign that pull it away.

    There theta forgets: what it is after the last update is that update alone. Two transitions of opposite temporal
    difference; the reward makes w grow, until the primal gradients are nearly all of the clipped ones.
    """
    phi = jnp.ones((2, 1), dtype=jnp.float32)
    delta = jnp.array([[-1.0], [1.0]], dtype=jnp.float32)
    weight = jnp.asarray(np.stack([signs < 0, signs > 0], axis=1) * FAR, dtype=jnp.float32)
    sums = {"weight": jnp.zeros_like(weight), "weight_rho": weight, "weight_rho_reward": 2.0 * weight}
    return SharedTransitions({"phi": phi, "delta_phi": delta, **sums})


def _log_ratio(z: Any, push: float, std: float, rate: float) -> Any:
    """log of (1 - rate) N(0, std^2) + rate N(push, std^2) over N(0, std^2), at ``z``."""
    return mixed(push * (z - push / 2.0) / std**2, rate)


def mixed(ratio: Any, rate: float) -> Any:
    """The log-likelihood ratio where what has ``ratio`` happens with probability ``rate``."""
    return ratio if rate == 1.0 else jnp.logaddexp(math.log1p(-rate), math.log(rate) + ratio)


def _attack_bounds(units: int) -> Bounds:
    return Bounds(units=units, horizon=1, reward=(-1.0, 1.0), observation=((0.0, 0.0),), actions=1)


def always(states: np.ndarray) -> np.ndarray:
    """The policy with one action."""
    return np.ones((len(states), 1))
