"""How the conformance suite runs the evaluation algorithms on small simulated logs; nothing in here is private.

The attacks themselves are in :mod:`dprl.audits.attacks.evaluation` and
:mod:`dprl.audits.attacks.programs`; which of them are published is said here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

import numpy as np

from dprl.accounting import events
from dprl.accounting.budget import Budget
from dprl.audits.attacks.evaluation import noised_sum
from dprl.audits.attacks.units import unit_canary, values_of_nothing_known
from dprl.audits.conformance.suite import Suite, load
from dprl.data.trajectories import Trajectories
from dprl.engine import program as engine
from dprl.engine.algorithm import Algorithm
from dprl.engine.layouts import padded_units, unit_rows
from dprl.engine.plan import Plan
from dprl.engine.ratios import step_ratios
from dprl.engine.value_query import release_vector
from dprl.errors import DprlError
from dprl.evaluation.plan import make_plan
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SeededNoise
from dprl.protocols import Bounds, Canary, NoiseSource


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
class EvaluationConformance(Suite):
    """The audits of an evaluation algorithm: all share the plan, the log, the value vector and a program's loop."""

    bounds: Bounds = _BOUNDS

    @property
    def policies(self) -> tuple[Any, ...]:
        """The target policies: one that looks at the state, and one that does not."""
        return _POLICIES

    @property
    def budget(self) -> Budget:
        return _BUDGET

    def plan(self, setting: str) -> Plan:
        chosen = self.algorithm.settings[setting]
        return _plan(chosen.config, replace(self.bounds, **chosen.facts), chosen.features)

    def mechanisms(self, setting: str) -> dict[str, GaussianSum]:
        plan = self.plan(setting)
        return {"value": plan.value_mechanism, **{stage.name: stage.mechanism for stage in plan.stages}}

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
        streams, log = cast(Any, noise), within(log, plan.bounds)

        def values_around(function: Any) -> dict[str, np.ndarray]:
            query = plan.query.around(function)
            vectors = query.unit_vectors(log, _POLICIES)
            noised = release_vector(wrap(plan.value_mechanism), streams.stream("value"), vectors)
            estimates = query.decode(plan.value_mechanism, noised)
            return {
                "value vector": noised,
                "values": np.array([e.value for e in estimates]),
                "intervals": np.array([e.interval for e in estimates]),
            }

        released = {} if plan.around_function else values_around(None)
        if plan.program is not None:
            mechanisms = [wrap(stage.mechanism) for stage in plan.stages]
            units = unit_rows(plan.rows(log, step_ratios(_POLICIES[0], log)), plan.bounds.units)
            released["value function"] = np.asarray(
                engine.run_on_host(plan.program, streams, units, mechanisms=mechanisms)[1]
            )
        if plan.around_function:
            released |= values_around(plan.function_of(released["value function"]))
        return released

    def arrays(self, setting: str, log: Trajectories) -> Any:
        plan = self.plan(setting)
        log = within(log, plan.bounds)
        vectors = values_of_nothing_known(plan, log, _POLICIES)
        return (vectors, None if plan.program is None else padded_units(plan.rows(log, step_ratios(_POLICIES[0], log))))

    def compute(self, setting: str, key: Any, arrays: Any) -> Any:
        plan, (vectors, units), noise = self.plan(setting), arrays, SeededNoise(key)
        if plan.around_function:  # values are made on the host, after it
            assert plan.program is not None
            return None, engine.run(plan.program, noise, units, batch=8)[1]
        value = noised_sum(plan.value_mechanism, noise.stream("value"), vectors)
        if plan.program is None:
            return value, None
        return value, engine.run(plan.program, noise, units, batch=8)[1]

    def attack(self, asked: dict[str, Any]) -> Canary:
        unit = asked.pop("unit")
        if unit is None:
            # an optimizer has noise and steps of its own: the attack on any program
            target = Algorithm.canary if asked.get("optimizer") is not None else self.algorithm.canary
            return load(target)(self.algorithm.config, **asked)
        if not self.verified or asked.pop("released") != "all":
            raise DprlError(
                f"Through columns {self.name} is attacked in its verified calibration, on all that it releases: leave "
                "out unit, or the others."
            )
        return unit_canary(self.algorithm.config, unit, **asked)


@lru_cache(maxsize=64)
def _plan(config: Any, bounds: Bounds, features: str) -> Plan:
    return make_plan(config, bounds, _BUDGET, list(_POLICIES), features, total_variation=2.0**-49)


def within(log: Trajectories, bounds: Bounds) -> Trajectories:
    """The log as it is read under tighter ``bounds``, of which only horizon, ratios and units may differ."""
    if log.bounds == bounds:
        return log
    kept = log.time() < bounds.horizon
    lengths = np.minimum(log.lengths(), bounds.horizon)
    rows = ("observation", "next_observation", "action", "reward", "behavior_prob", "terminated", "has_next")
    return replace(
        log,
        **{name: getattr(log, name)[kept] for name in rows},
        target_prob={name: values[kept] for name, values in log.target_prob.items()},
        episode_offsets=np.append(0, np.cumsum(lengths)),
        bounds=bounds,
    )
