"""How the conformance suite runs the evaluation algorithms on small simulated logs, and how it attacks them.

The canaries are worst-case pairs on which the algorithms' own code runs, trials in parallel: all records push one way
and the canary's pushes the other, at full clip norm whatever the iterates are. The score is the summed
log-likelihood ratio of all that is released. Everything in here is simulated; nothing is private.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Literal, cast

import jax
import jax.numpy as jnp
import numpy as np

from dprl.accounting import events
from dprl.accounting.budget import Budget
from dprl.algorithms.evaluation import gpope
from dprl.algorithms.evaluation import importance_sampling as importance
from dprl.algorithms.evaluation.gpope import GPOPE
from dprl.algorithms.evaluation.importance_sampling import ImportanceSampling
from dprl.algorithms.evaluation.plan import Algorithm, Plan, make_plan
from dprl.algorithms.evaluation.ratios import step_ratios
from dprl.algorithms.evaluation.unit_data import SharedTransitions, padded_units, rows_of, unit_rows
from dprl.data.trajectories import Trajectories
from dprl.errors import DprlError
from dprl.mechanisms.clipped_sum import ClippedGaussianSum
from dprl.mechanisms.noise import SeededNoise
from dprl.protocols import Bounds, Canary, NoiseSource

_TRIALS_AT_ONCE = 1 << 14
_FAR = 1e6  # times the clip norm: a reward so large that the gradient is clipped whatever the iterates are


def _policy(states: np.ndarray) -> np.ndarray:
    second = 0.2 + 0.3 * states[:, 0]
    return np.column_stack([1.0 - second, second])


def _other_policy(states: np.ndarray) -> np.ndarray:
    return np.tile([0.3, 0.7], (len(states), 1))


_POLICIES = (_policy, _other_policy)
_BOUNDS = Bounds(
    units=60,
    horizon=4,
    reward=(0.0, 1.0),
    observation=((0.0, 2.0),),
    actions=2,
    max_importance_ratio=1.6,
    max_cumulative_ratio=4.0,
)
_BUDGET = Budget(2.0, 1e-4)


@dataclass(frozen=True)
class EvaluationConformance:
    """Both evaluation algorithms: they share the plan, the log and the value vector."""

    name: str
    configs: Mapping[str, Algorithm]
    calibrations: tuple[str, ...]
    attack: Callable[..., Canary] = field(repr=False)
    features: Mapping[str, str] = field(default_factory=dict)
    bounds: Bounds = _BOUNDS

    @property
    def settings(self) -> tuple[str, ...]:
        return tuple(self.configs)

    def config(self, setting: str) -> Algorithm:
        return self.configs[setting]

    def plan(self, setting: str) -> Plan:
        return _plan(self.configs[setting], self.features.get(setting, "columns"))

    def mechanisms(self, setting: str) -> dict[str, ClippedGaussianSum]:
        plan = self.plan(setting)
        found = {"value": plan.value_mechanism}
        return found if plan.function_mechanism is None else {**found, "value function": plan.function_mechanism}

    def event(self, setting: str) -> events.DpEvent:
        return self.plan(setting).event

    def columns(self, units: int, seed: int) -> dict[str, np.ndarray]:
        """Walks around three states, of lengths from 1 to the horizon."""
        rng = np.random.default_rng(seed)
        rows: dict[str, list[Any]] = {
            name: [] for name in ("episode_id", "t", "observation", "action", "reward", "behavior_prob", "terminated")
        }
        for unit in range(units):
            state, length = int(rng.integers(0, 3)), int(rng.integers(1, self.bounds.horizon + 1))
            for t in range(length):
                action = int(rng.integers(0, 2))
                last = t == length - 1
                row = (
                    unit,
                    t,
                    min(max(state + 0.8 * rng.random() - 0.4, 0.0), 2.0),
                    action,
                    float(rng.random() < 0.2 + 0.3 * action),
                    0.5,
                    last,
                )
                for values, value in zip(rows.values(), row, strict=True):
                    values.append(value)
                state = min(max(state + 2 * action - 1, 0), 2)
        kinds = {"episode_id": np.int64, "t": np.int64, "action": np.int64, "terminated": bool}
        return {name: np.array(values, dtype=kinds.get(name, np.float64)) for name, values in rows.items()}

    def run(
        self, setting: str, log: Trajectories, noise: NoiseSource, wrap: Callable[[Any], Any] | None = None
    ) -> dict[str, np.ndarray]:
        plan, wrap = self.plan(setting), wrap or (lambda mechanism: mechanism)
        streams = cast(Any, noise)
        vectors = importance.unit_vectors(plan.query, log, _POLICIES)
        noised = importance.release_vector(wrap(plan.value_mechanism), streams.stream("value"), vectors)
        estimates = importance.decode(plan.query, plan.value_mechanism, noised)
        released = {
            "value vector": noised,
            "values": np.array([e.value for e in estimates]),
            "intervals": np.array([e.interval for e in estimates]),
        }
        if plan.function_mechanism is not None:
            assert isinstance(plan.config, GPOPE)
            _, theta = gpope.run_on_host(
                plan.config,
                wrap(plan.function_mechanism),
                streams.stream("value function"),
                unit_rows(_rows(plan, log), plan.bounds.units),
                plan.start,
                units=plan.bounds.units,
                projection=plan.projection,
            )
            released["value function"] = np.asarray(theta)
        return released

    def arrays(self, setting: str, log: Trajectories) -> Any:
        plan = self.plan(setting)
        vectors = jnp.asarray(importance.unit_vectors(plan.query, log, _POLICIES))
        return (vectors, None if plan.features is None else padded_units(_rows(plan, log)))

    def compute(self, setting: str, key: Any, arrays: Any) -> Any:
        plan, (vectors, units), noise = self.plan(setting), arrays, SeededNoise(key)
        value = _noised_sum(plan.value_mechanism, noise.stream("value"), vectors)
        if plan.function_mechanism is None:
            return value, None
        assert isinstance(plan.config, GPOPE)
        _, theta = gpope.run(
            plan.config,
            plan.function_mechanism,
            noise.stream("value function"),
            units,
            jnp.asarray(plan.start, dtype=jnp.float32),
            units=plan.bounds.units,
            projection=plan.projection,
            batch=8,
        )
        return value, theta

    def canary(
        self,
        calibration: str = "verified",
        *,
        units: int,
        steps: int,
        epsilon: float,
        delta: float,
        sampling_rate: float = 1.0,
        released: str = "all",
    ) -> Canary:
        if calibration not in self.calibrations:
            raise DprlError(f"{self.name} has no calibration {calibration!r}; it has {', '.join(self.calibrations)}.")
        if released not in ("all", "last"):
            raise DprlError("An audit looks at all that is released, or at the last iterate: say 'all' or 'last'.")
        return self.attack(calibration, units, steps, Budget(epsilon, delta), sampling_rate, released)


@lru_cache(maxsize=32)
def _plan(config: Algorithm, features: str) -> Plan:
    return make_plan(config, _BOUNDS, _BUDGET, list(_POLICIES), features, total_variation=2.0**-49)


def _rows(plan: Plan, log: Trajectories) -> Any:
    assert isinstance(plan.config, GPOPE)
    assert plan.features is not None
    value = plan.bounds.value_interval(plan.config.discount)
    return rows_of(
        log, step_ratios(_POLICIES[0], log), plan.features, plan.config.discount, value, plan.config.weighting
    )


def _noised_sum(mechanism: ClippedGaussianSum, noise: Any, vectors: Any) -> Any:
    """:func:`importance_sampling.release_vector` for traced values."""
    total = mechanism.clipped_sum(vectors, jnp.ones(len(vectors), dtype=bool))
    return mechanism.release(total, mechanism.draw(noise, 0))


# --- the attacks ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EvaluationCanary:
    """A pair of logs on which every unit's vector is clipped to a known one, and the log-likelihood ratio of it.

    Attributes:
        plan: of the release; its claim is the budget's.
        calibration: as published, the canary's record replaces another; verified, it is added.
        released: ``all``, or the ``last`` iterate alone.
        others: records beside the canary.
    """

    plan: Plan
    calibration: Literal["verified", "as-published"]
    released: str
    others: int
    description: str

    @property
    def epsilon(self) -> float:
        return self.plan.budget.epsilon

    @property
    def delta(self) -> float:
        return self.plan.budget.delta

    @property
    def gaussian(self) -> bool:
        mechanism = self.plan.function_mechanism
        return self.calibration == "verified" and (mechanism is None or mechanism.sampling_rate == 1.0)

    def scores(self, seed: int, trials: int, present: bool) -> np.ndarray:
        parts = []
        for start in range(0, trials, _TRIALS_AT_ONCE):
            trial = jnp.arange(start, start + _TRIALS_AT_ONCE, dtype=jnp.uint32)
            key = jnp.full_like(trial, 2 * (seed % 2**31) + int(present))
            parts.append(np.asarray(self._scores(jnp.stack([key, trial], axis=1), self._data(present))))
        return np.concatenate(parts)[:trials] if parts else np.zeros(0)

    def _data(self, present: bool) -> tuple[Any, Any]:
        """Signs of the units' pushes, as the vectors of the value release and the transitions of GPOPE."""
        published = self.calibration == "as-published"
        # adding and removing are the same thing as a record that is worth nothing: its coins are drawn alike
        canary = 1.0 if present else (-1.0 if published else 0.0)
        signs = np.append(np.full(self.others, -1.0), canary)
        value = self.plan.value_mechanism
        vectors = np.zeros((len(signs), value.dimension))
        vectors[:, 0] = signs * value.clip_norm
        function = self.plan.function_mechanism
        if function is None:
            return jnp.asarray(vectors), None
        return jnp.asarray(vectors), _wall(signs) if self._at_the_wall else _pushes(signs, function)

    @property
    def _at_the_wall(self) -> bool:
        return self.calibration == "as-published" and self.released == "last"

    @cached_property
    def _scores(self) -> Callable[[Any, Any], Any]:
        return jax.jit(jax.vmap(self._score, in_axes=(0, None)))

    def _score(self, key: Any, data: tuple[Any, Any]) -> Any:
        plan, noise = self.plan, SeededNoise(key)
        vectors, transitions = data
        score = jnp.zeros((), dtype=jnp.float64)
        if self.calibration == "verified" and self.released == "all":
            noised = _noised_sum(plan.value_mechanism, noise.stream("value"), vectors)
            base = -self.others * plan.value_mechanism.clip_norm
            score += _log_ratio(noised[0] - base, plan.value_mechanism.clip_norm, plan.value_mechanism.noise_std, 1.0)
        mechanism = plan.function_mechanism
        if mechanism is None:
            return score
        assert isinstance(plan.config, GPOPE)
        state, sums = gpope.run_traced(
            plan.config,
            mechanism,
            noise.stream("value function"),
            transitions,
            jnp.asarray(plan.start, dtype=jnp.float32),
            units=plan.bounds.units,
            projection=plan.projection,
            batch=8,
        )
        n, clip = mechanism.dimension // 2, mechanism.clip_norm
        if self._at_the_wall:
            return state.theta[0].astype(jnp.float64)
        if self.released == "last":
            # w is minus the sum of the noised dual gradients: its likelihood ratio grows with that sum
            return -state.w[0].astype(jnp.float64)
        if self.calibration == "as-published":
            push, rate, base = 2.0 * clip, 1.0 / (self.others + 1), -clip
        else:
            push, rate, base = clip, mechanism.sampling_rate, -self.others * clip
        return score + jnp.sum(_log_ratio(sums[:, n] - base, push, mechanism.noise_std, rate))


def _pushes(signs: np.ndarray, mechanism: ClippedGaussianSum) -> SharedTransitions:
    """Units whose dual gradient is plus or minus the clip norm, or zero, whatever the iterates are.

    One state that leads to itself, undiscounted: the temporal difference is the reward alone, and that is huge.
    """
    phi = jnp.eye(1, mechanism.dimension // 2, dtype=jnp.float32)
    weight = jnp.asarray(np.abs(signs)[:, None], dtype=jnp.float32)
    reward = jnp.asarray(-signs[:, None] * mechanism.clip_norm * _FAR, dtype=jnp.float32)
    return SharedTransitions(phi, jnp.zeros_like(phi), weight, weight, reward)


def _wall(signs: np.ndarray) -> SharedTransitions:
    """Units that press theta against the lower end of its range, and those of positive sign that pull it away.

    There theta forgets: what it is after the last update is that update alone. Two transitions of opposite temporal
    difference; the reward makes w grow, until the primal gradients are nearly all of the clipped ones.
    """
    phi = jnp.ones((2, 1), dtype=jnp.float32)
    delta = jnp.array([[-1.0], [1.0]], dtype=jnp.float32)
    weight = jnp.asarray(np.stack([signs < 0, signs > 0], axis=1) * _FAR, dtype=jnp.float32)
    return SharedTransitions(phi, delta, jnp.zeros_like(weight), weight, 2.0 * weight)


def _log_ratio(z: Any, push: float, std: float, rate: float) -> Any:
    """log of (1 - rate) N(0, std^2) + rate N(push, std^2) over N(0, std^2), at ``z``."""
    ratio = push * (z - push / 2.0) / std**2
    return ratio if rate == 1.0 else jnp.logaddexp(math.log1p(-rate), math.log(rate) + ratio)


def _attack_bounds(units: int) -> Bounds:
    return Bounds(units=units, horizon=1, reward=(-1.0, 1.0), observation=((0.0, 0.0),), actions=1)


def _always(states: np.ndarray) -> np.ndarray:
    return np.ones((len(states), 1))


def _gpope_canary(
    calibration: str, units: int, steps: int, budget: Budget, sampling_rate: float, released: str
) -> Canary:
    verified = calibration == "verified"
    config = GPOPE(
        discount=1.0,
        calibration=cast(Any, calibration),
        steps=steps,
        sampling_rate=sampling_rate if verified else 1.0,
        average="last",
        # three updates at full clip norm are half of theta's range: it comes to lie at the wall, and can leave it
        step_size=None if verified else 1.0 / (3.0 * gpope.clip_norm(GPOPE(), 1, 1)),
    )
    plan = make_plan(config, _attack_bounds(units), budget, [_always], "tabular")
    if verified:
        # in a random batch the others' number would only hide the canary: the worst log has nobody else in it
        others = 3 if sampling_rate == 1.0 else 0
        relation = "one record at full clip norm is added"
    else:
        others = units - 1
        relation = f"all of {units} records push one way, and one of them is replaced by one that pushes the other way"
    what = "every noised sum" if released == "all" else "the last iterate"
    return EvaluationCanary(plan, cast(Any, calibration), released, others, f"{relation}; {what} is seen")


def _importance_canary(
    calibration: str, units: int, steps: int, budget: Budget, sampling_rate: float, released: str
) -> Canary:
    del steps, sampling_rate, released  # one release of everybody
    plan = make_plan(ImportanceSampling(), _attack_bounds(units), budget, [_always])
    return EvaluationCanary(
        plan, cast(Any, calibration), "all", 3, "one record at full clip norm is added; the noised vector is seen"
    )


GPOPE_CONFORMANCE = EvaluationConformance(
    "gpope",
    {
        "full batches": GPOPE(steps=4, discount=0.9),
        "Poisson batches": GPOPE(steps=5, discount=0.9, sampling_rate=0.5, schedule="diminishing", average="all"),
        "many features": GPOPE(steps=3, discount=0.9, average="last"),
    },
    ("verified", "as-published"),
    _gpope_canary,
    {"many features": "fourier:11"},
)
IMPORTANCE_CONFORMANCE = EvaluationConformance(
    "importance-sampling",
    {
        "trajectory": ImportanceSampling(discount=0.9, estimator="trajectory"),
        "per decision": ImportanceSampling(discount=0.9, estimator="per-decision"),
        "self-normalised": ImportanceSampling(discount=0.9, estimator="self-normalised"),
    },
    ("verified",),
    _importance_canary,
)
