"""How the conformance suite runs the evaluation algorithms on small simulated logs; nothing in here is private.

The attacks themselves are in :mod:`dprl.audits.attacks.evaluation` and
:mod:`dprl.audits.attacks.programs`; which of them are published is said here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, cast

import numpy as np

from dprl.accounting import events
from dprl.accounting.budget import Budget
from dprl.audits.attacks.evaluation import noised_sum
from dprl.audits.attacks.programs import program_canary
from dprl.audits.attacks.units import unit_canary, values_of_nothing_known
from dprl.data.trajectories import Trajectories
from dprl.engine import program as engine
from dprl.engine.program import ValueFunctionConfig
from dprl.engine.ratios import step_ratios
from dprl.engine.unit_data import padded_units, rows_of, unit_rows
from dprl.errors import DprlError
from dprl.evaluation import estimators
from dprl.evaluation import importance_sampling as importance
from dprl.evaluation.plan import Algorithm, Plan, make_plan
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SeededNoise
from dprl.protocols import Attack, Bounds, Canary, NoiseSource


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
    """The evaluation algorithms: they share the plan, the log, the value vector and the loop of a program.

    Attributes:
        features: of the settings that do not take ``columns``.
        through_columns: whether it is attacked by each privacy unit too, through the columns of a log.
        facts: changes of the public bounds, for the settings that are made for others; none may widen them.
    """

    name: str
    configs: Mapping[str, Algorithm]
    attack: Callable[..., Canary] = field(repr=False)
    attacks: tuple[Attack, ...]
    features: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    bounds: Bounds = _BOUNDS
    through_columns: bool = True

    @property
    def settings(self) -> tuple[str, ...]:
        return tuple(self.configs)

    @property
    def policies(self) -> tuple[Any, ...]:
        """The target policies: one that looks at the state, and one that does not."""
        return _POLICIES

    @property
    def budget(self) -> Budget:
        return _BUDGET

    def config(self, setting: str) -> Algorithm:
        return self.configs[setting]

    def plan(self, setting: str) -> Plan:
        bounds = replace(self.bounds, **self.facts.get(setting, {}))
        return _plan(self.config(setting), bounds, self.features.get(setting, "columns"))

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
            baseline = estimators.baseline_of(plan.query, function)
            vectors = estimators.unit_vectors(plan.query, log, _POLICIES, None, baseline)
            noised = importance.release_vector(wrap(plan.value_mechanism), streams.stream("value"), vectors)
            estimates = estimators.decode(plan.query, plan.value_mechanism, noised, baseline)
            return {
                "value vector": noised,
                "values": np.array([e.value for e in estimates]),
                "intervals": np.array([e.interval for e in estimates]),
            }

        released = {} if plan.around_function else values_around(None)
        if plan.program is not None:
            mechanisms = [wrap(stage.mechanism) for stage in plan.stages]
            units = unit_rows(_rows(plan, log), plan.bounds.units)
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
        return (vectors, None if plan.program is None else padded_units(_rows(plan, log)))

    def compute(self, setting: str, key: Any, arrays: Any) -> Any:
        plan, (vectors, units), noise = self.plan(setting), arrays, SeededNoise(key)
        if plan.around_function:  # values are made on the host, after it
            assert plan.program is not None
            return None, engine.run(plan.program, noise, units, batch=8)[1]
        value = noised_sum(plan.value_mechanism, noise.stream("value"), vectors)
        if plan.program is None:
            return value, None
        return value, engine.run(plan.program, noise, units, batch=8)[1]

    def canary(
        self,
        *,
        units: int,
        epsilon: float,
        delta: float,
        released: str = "all",
        unit: str | None = None,
        **options: Any,
    ) -> Canary:
        if released not in ("all", "last"):
            raise DprlError("An audit looks at all that is released, or at the last iterate: say 'all' or 'last'.")
        asked = {"units": units, "budget": Budget(epsilon, delta), **options}
        if unit is None:
            attack = self.attack
            if options.get("optimizer") is not None:
                # what its noise is, and how many steps there are, is not the algorithm's: the attack on any program
                attack = partial(program_canary, cast(Any, type(next(iter(self.configs.values())))))
            return attack(released=released, **asked)
        if released != "all" or not self.through_columns:
            raise DprlError(
                f"Through columns {self.name} is attacked in its verified calibration, on all that it releases: leave "
                "out unit, or the others."
            )
        return unit_canary(type(next(iter(self.configs.values()))), unit, **asked)


@lru_cache(maxsize=64)
def _plan(config: Algorithm, bounds: Bounds, features: str) -> Plan:
    return make_plan(config, bounds, _BUDGET, list(_POLICIES), features, total_variation=2.0**-49)


def _rows(plan: Plan, log: Trajectories) -> Any:
    assert plan.features is not None
    assert plan.program is not None
    ratios, discount = step_ratios(_POLICIES[0], log), plan.config.discount
    value, columns = plan.bounds.value_interval(discount), plan.program.columns
    return rows_of(log, ratios, plan.features, discount, value, plan.weighting, columns=columns, most=plan.rows)


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


def conformance_of(
    kind: type[ValueFunctionConfig],
    configs: Mapping[str, ValueFunctionConfig],
    attacks: tuple[Attack, ...] = (Attack(), Attack(epsilon=4.0, trials=100_000)),
    attack: Callable[..., Canary] | None = None,
    **options: Any,
) -> EvaluationConformance:
    """Of a program's configuration: what is particular to it, and the attack that fits all where it has no other."""
    attack = partial(program_canary, kind) if attack is None else attack
    return EvaluationConformance(kind.algorithm, configs, attack, attacks, **options)
