"""The generic attack through real columns: what a privacy unit is, from the rows of a log to its noisy sums.

Two logs are written as columns, of which one holds a unit more, and are read by the library's own readers under the
unit that is audited: a transition, a trajectory, or a person with three trajectories. Whatever of them makes two units
of one, or lets one unit's rows reach another's vector, tells more than the claim. Everything is simulated; nothing is
private.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from dprl.accounting.budget import Budget
from dprl.audits.attacks.evaluation import addition, always
from dprl.audits.attacks.programs import ProgramCanary
from dprl.data.readers import UNITS, read_log
from dprl.data.trajectories import Trajectories
from dprl.engine.layouts import PaddedUnits, padded_units
from dprl.engine.plan import Plan
from dprl.engine.program import ValueFunctionConfig
from dprl.engine.ratios import step_ratios
from dprl.errors import DprlError
from dprl.evaluation.importance_sampling import ImportanceSampling
from dprl.evaluation.plan import make_plan
from dprl.protocols import Bounds

HORIZON, TRAJECTORIES = 4, 3
_LOW, _HIGH = 0.0, 2.0


def unit_canary(
    kind: type[ValueFunctionConfig | ImportanceSampling],
    unit: str,
    *,
    units: int,
    budget: Budget,
    features: str | None = None,
    **options: Any,
) -> ProgramCanary:
    """Return the attack on a program with options of ``kind``, by the privacy unit ``unit``, on policy.

    ``features`` are a small network where the algorithm learns one, and else columns.

    Raises:
        DprlError: the algorithm has no statement for this unit, or an option is not its own.
    """
    if unit not in UNITS:
        raise DprlError(f"unit must be one of {', '.join(UNITS)}.")
    if not issubclass(kind, ValueFunctionConfig):
        raise DprlError(f"Through columns an algorithm with a value function is attacked: {kind.algorithm} has none.")
    config = kind.from_mapping(options, "options")
    bounds = Bounds(units=units, horizon=HORIZON, reward=(-1.0, 1.0), observation=((_LOW, _HIGH),), actions=1)
    features = features or ("mlp:2" if kind.neural else "columns")
    plan = make_plan(config, bounds, budget, [always], features, unit=unit)
    others, _ = addition(units, plan)
    # in place of nobody, somebody whose cells are broken: a record that counts for nothing is there all the same
    known = [-1.0] * others or [np.nan]
    middle = len(known) // 2
    columns = _columns([*known[:middle], 1.0, *known[middle:]], unit)
    fewer = {name: values[columns["who"] != middle] for name, values in columns.items()}
    logs = [read_log(rows, bounds=bounds, unit=unit).load() for rows in (fewer, columns)]
    rewards = logs[1].reward[logs[1].episode_offsets[logs[1].unit_offsets[:-1]]]
    whose = f"person with {TRAJECTORIES} trajectories" if unit == "person" else unit
    where = f"a log of {others}" if others else "a log of one whose cells are broken"
    return ProgramCanary(
        plan=plan,
        description=f"a {whose}, as far out as the bounds allow, is added to {where}, both read as columns by the "
        f"unit {unit}; every noisy sum is seen",
        without=_arrays(plan, logs[0]),
        with_canary=_arrays(plan, logs[1]),
        canary=int(np.argmax(rewards)),
    )


def _columns(rewards: list[float], unit: str) -> dict[str, np.ndarray]:
    """Return a log with a unit for each of ``rewards``, which is that of all its rows; ``who`` says whose a row is.

    Transitions are those of one trajectory, in order, so that without one of them its trajectory has a gap.
    """
    rows_of_one = {"transition": 1, "trajectory": HORIZON, "person": TRAJECTORIES * HORIZON}[unit]
    who = np.repeat(np.arange(len(rewards)), rows_of_one)
    row = np.arange(len(who))
    reward = np.asarray(rewards)[who]
    state = np.where(reward > 0.0, _LOW, _HIGH)
    return {
        "who": who,
        "person_id": who,
        "episode_id": np.zeros_like(row) if unit == "transition" else row // HORIZON,
        "t": row if unit == "transition" else row % HORIZON,
        "observation": state,
        "next_observation": state,
        "action": np.zeros_like(row),
        "reward": reward,
        "behavior_prob": np.ones(len(row)),
        "terminated": np.zeros(len(row), dtype=bool),
    }


def _arrays(plan: Plan, log: Trajectories) -> tuple[Any, PaddedUnits]:
    """Return what a release makes of the log, as arrays of the compiled loop."""
    rows = plan.rows(log, step_ratios(always, log))
    # around a function, if any, that is the middle everywhere
    function = None if plan.features is None else plan.function_of(np.zeros(plan.features.size))
    vectors = plan.query.around(function).unit_vectors(log, [always])
    return jnp.asarray(vectors), padded_units(rows)
