"""The generic attack on a program: a record at full clip norm is added, and every noisy sum is seen.

The attack knows nothing of the program. The program's own code makes the vectors, from coefficients far beyond what
rows can have. Or the pair of logs is written as columns, and the library's own readers read them under the privacy unit
that is audited. A reader that made two units of one, or let one unit's rows reach another unit's vector, would then
reveal more than the claim allows. Everything in here is simulated; nothing is private.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from dprl.accounting.budget import Budget
from dprl.audits.attacks.trials import PlanCanary, check_all_seen
from dprl.bounds import Bounds
from dprl.data.readers import UNITS, read_log
from dprl.data.trajectories import Trajectories
from dprl.engine.columns import COEFFICIENTS
from dprl.engine.layouts import PaddedUnits, SharedTransitions, padded_units
from dprl.engine.loop import run
from dprl.engine.plan import Plan
from dprl.engine.program import Program, ValueFunctionConfig
from dprl.engine.ratios import step_ratios
from dprl.errors import DprlError, require
from dprl.evaluation.importance_sampling import ImportanceSampling
from dprl.evaluation.plan import make_plan
from dprl.mechanisms.arithmetic import grid_step
from dprl.mechanisms.filtered_sum import FilteredGaussianSum
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SeededNoise

FAR = 1e6
"""Factor over the clip norm at which a reward is so large that the gradient is clipped whatever the iterates are."""
ONE_STEP = Bounds(units=1, horizon=1, reward=(-1.0, 1.0), observation=((0.0, 0.0),), actions=1)
"""Bounds of logs with one state, one action and one step; the number of units is filled in later."""
HORIZON, TRAJECTORIES = 4, 3
_LOW, _HIGH = 0.0, 2.0
_THREE_STATES = replace(ONE_STEP, horizon=HORIZON, observation=((_LOW, _HIGH),))
_OTHERS = 3
_SIGNED = {"reward", "returns", "raw_reward"}
"""Factors of columns that may be negative; all others are weights."""


def attack_on_all_sums(plan: Plan, pair: tuple[Any, Any], canary: int, description: str) -> PlanCanary:
    """Return the attack that sees the values and every stage of a plan, and knows all units but the canary.

    The canary's vector is the one that the program's own code makes of the canary's rows, at the state that the
    releases so far have led to.

    Args:
        plan: plan of the release.
        pair: the log without the canary and the log with it. Each is a pair of the units' vectors for the values, as an
            array, and the units' rows.
        canary: place of the canary among the units of the second log.
        description: the pair and what is seen of it.
    """
    mechanism, (known, rows) = plan.value_mechanism, pair[1]

    def score(key: Any, data: tuple[Any, Any]) -> Any:
        noise, (vectors, units) = SeededNoise(key), data
        # what the noisy vector of the values tells, whatever the direction of the canary's vector
        alone = jnp.arange(len(known)) == canary
        push, base = (mechanism.scaled(mechanism.clipped_sum(known, some)) for some in (alone, ~alone))
        noisy = noisy_sum(mechanism, noise.stream("value"), vectors)
        told = (jnp.sum(push * (noisy - base)) - jnp.sum(push * push) / 2.0) / mechanism.noise_std**2
        if plan.program is None:
            return told
        scored: Any = ScoredProgram(plan.program, rows, canary)
        return told + run(scored, noise, units, batch=len(known))[0][1]

    return PlanCanary(
        plan=plan,
        description=description,
        score=score,
        pair=pair,
        draws=plan.steps,
        gaussian=all(stage.mechanism.sampling_rate == 1.0 for stage in plan.stages),
    )


@dataclass(frozen=True, eq=False)
class ScoredProgram:
    """A program whose state also holds what its noisy sums have told about one unit of ``log``.

    Attributes:
        inner: the program that is attacked.
        log: log with the canary in it.
        canary: place of the canary among the units of the log.
    """

    inner: Program
    log: SharedTransitions | PaddedUnits
    canary: int

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of the inner program, such as its stages."""
        return getattr(self.inner, name)

    def init(self) -> tuple[Any, Any]:
        """Return the inner program's first state, and 0 for the log-likelihood ratio."""
        return self.inner.init(), jnp.zeros((), dtype=jnp.float64)

    def contribution(self, stage: int, state: Any, block: Any) -> Any:
        """Return what the inner program makes of each unit."""
        return self.inner.contribution(stage, state[0], block)

    def level(self, stage: int, state: Any, step: Any) -> Any:
        """Return the level of an adaptive program."""
        return self.inner.level(stage, state[0], step)  # type: ignore[attr-defined]

    def update(self, stage: int, state: Any, noisy: Any, step: Any) -> Any:
        """Update the inner state, and add what the noisy sum tells about the canary."""
        inner, score = state
        mechanism = self.stages[stage].mechanism
        vectors = self.inner.contribution(stage, inner, self.log.block(slice(None)))
        alone = jnp.arange(self.log.units) == self.canary
        own, others = (jnp.asarray(mechanism.clipped_sum(vectors, units)) for units in (alone, ~alone))
        base, there = others, others + own
        if isinstance(mechanism, FilteredGaussianSum):
            # the norm of the sum is seen too; each coordinate is in units of its own noise
            base, there = mechanism.answer(base), mechanism.answer(there)
            multiplier = jnp.asarray(mechanism.levels, dtype=jnp.float64)[self.level(stage, state, step)]
            std = jnp.full(mechanism.released, mechanism.on_grid(multiplier))
            std = std.at[-1].set(mechanism.on_grid(mechanism.norm_multiplier))
        else:
            std = mechanism.on_grid_at(step)
        push = (there - base) / std
        seen = (noisy / grid_step(mechanism.clip_norm) - base) / std
        score = score + mixed(jnp.sum(push * (seen - push / 2.0)), mechanism.sampling_rate)
        return self.inner.update(stage, inner, noisy, step), score

    def finish(self, stage: int, state: Any) -> Any:
        """Finish a stage of the inner program."""
        return self.inner.finish(stage, state[0]), state[1]

    def answer(self, state: Any) -> Any:
        """Return the answer of the inner program."""
        return self.inner.answer(state[0])


def program_canary(
    kind: Any,
    *,
    units: int,
    budget: Budget,
    released: str,
    bounds: Bounds = _THREE_STATES,
    features: str = "tabular",
    **options: Any,
) -> PlanCanary:
    """Return the attack on a release that values the policy with one action: a record at full clip norm is added.

    Args:
        kind: the class of the algorithm's configuration.
        units: declared number of units.
        budget: the epsilon and delta that the algorithm claims.
        released: must be ``all``; the attack always looks at all that is released.
        bounds: bounds of the log; their number of units is replaced by ``units``.
        features: features of the value function, where one is learned.
        options: options of the configuration.
    """
    check_all_seen(kind.algorithm, released)
    bounds = replace(bounds, units=units)
    return canary_of_plan(make_plan(kind.from_mapping(options, "options"), bounds, budget, [always], features))


importance_canary = partial(program_canary, bounds=ONE_STEP, features="columns")
"""The attack on one release of a sum over everybody."""
stratified_canary = partial(importance_canary, bounds=replace(ONE_STEP, strata=()))
"""The attack on counts, outcomes and residuals, in one stratum."""


def saturating_rows(plan: Plan, signs: np.ndarray) -> SharedTransitions:
    """Return units of one transition each with coefficients far beyond what rows can have: their vectors are clipped.

    Rewards and returns are larger again by the same factor. So where they are added to products with the program's
    state, the vector's direction is known whatever that state is. Units of negative sign stand at another state of the
    log than the canary.
    """
    assert plan.features is not None
    low, high = (np.array(ends) for ends in zip(*plan.bounds.state, strict=True))
    states = np.stack([low, high])
    phi = plan.features(states)
    row = np.where(signs > 0, 0, 1)[:, None] == np.arange(2)
    large = jnp.asarray(row * np.abs(signs)[:, None] * FAR, dtype=jnp.float32)
    huge = jnp.asarray(row * signs[:, None] * FAR**2, dtype=jnp.float32)
    sums = {name: huge if _SIGNED & set(factors) else large for name, factors in COEFFICIENTS.items()}
    # columns that all units share: every transition leads back to its own state
    shared = {"phi": phi, "delta_phi": phi * (1.0 - plan.config.discount), "states": states, "next_states": states}
    shared |= {"alive": np.ones(2), "actions": np.zeros(2)}
    shared = {name: jnp.asarray(x, dtype=jnp.float32) for name, x in shared.items()}
    return SharedTransitions(shared | sums)


def canary_of_plan(
    plan: Plan, rows_of: Callable[[Plan, np.ndarray], SharedTransitions] = saturating_rows
) -> PlanCanary:
    """Return the attack on a plan, under the plan's own bounds and calibration: a record at full clip norm is added.

    Args:
        plan: plan of the release.
        rows_of: function that makes the units' rows from their signs: 1 for the canary, -1 for other units, which push
            against the canary, and 0 for a unit whose vector is zero.
    """
    others, relation = addition(plan.bounds.units, plan)
    filtered = any(isinstance(stage.mechanism, FilteredGaussianSum) for stage in plan.stages)
    seen = "every noisy sum and its noisy norm are seen" if filtered else "every noisy sum is seen"

    def log(sign: float) -> tuple[Any, Any]:
        # instead of a record that is not there, one whose vector is zero: its coins are drawn in both logs
        signs = np.append(np.full(others, -1.0), sign)
        return value_vectors(plan.value_mechanism, signs), None if plan.program is None else rows_of(plan, signs)

    return attack_on_all_sums(plan, (log(0.0), log(1.0)), others, f"{relation}; {seen}")


def addition(units: int, plan: Plan) -> tuple[int, str]:
    """Return how many units the worst log has before the canary is added, and the pair of logs in words."""
    # in a random batch the number of others would only hide the canary, so the worst log has nobody else in it
    full = all(stage.mechanism.sampling_rate == 1.0 for stage in plan.stages)
    others = min(_OTHERS, units - 1) if full else 0
    return others, f"one record at full clip norm is added to {f'a log of {others}' if others else 'an empty log'}"


def always(states: np.ndarray) -> np.ndarray:
    """Return probabilities ``(N, 1)`` of the policy with one action."""
    return np.ones((len(states), 1))


def value_vectors(mechanism: GaussianSum, signs: np.ndarray) -> Any:
    """Return vectors ``(U, dimension)`` for the values, at full clip norm in the first coordinate."""
    vectors = np.zeros((len(signs), mechanism.dimension))
    vectors[:, 0] = signs * mechanism.clip_norm
    return jnp.asarray(vectors)


def noisy_sum(mechanism: GaussianSum, noise: Any, vectors: Any) -> Any:
    """Return the noisy sum of ``vectors``: :func:`~dprl.engine.value_query.release_vector` for traced values."""
    total = mechanism.clipped_sum(vectors, jnp.ones(len(vectors), dtype=bool))
    return mechanism.release(total, mechanism.draw(noise, 0))


def mixed(ratio: Any, rate: float) -> Any:
    """Return the log-likelihood ratio of a mixture: ``ratio`` with probability ``rate``, and 0 otherwise."""
    return ratio if rate == 1.0 else jnp.logaddexp(math.log1p(-rate), math.log(rate) + ratio)


# --- through columns ------------------------------------------------------------------------------------------------


def unit_canary(
    kind: type[ValueFunctionConfig | ImportanceSampling],
    unit: str,
    *,
    units: int,
    budget: Budget,
    **options: Any,
) -> PlanCanary:
    """Return the attack through columns on a program with options of ``kind``, for the privacy unit ``unit``.

    Target and behaviour policy are the same. The features are a small network where the algorithm learns a network, and
    otherwise the columns.

    Raises:
        DprlError: the algorithm learns no value function, it has no statement for this unit, or an option does not
            belong to it.
    """
    require(unit in UNITS, f"unit must be one of {', '.join(UNITS)}.")
    if not issubclass(kind, ValueFunctionConfig):
        raise DprlError(f"Through columns an algorithm with a value function is attacked: {kind.algorithm} has none.")
    config = kind.from_mapping(options, "options")
    bounds = replace(_THREE_STATES, units=units)
    features = "mlp:2" if kind.neural else "columns"
    plan = make_plan(config, bounds, budget, [always], features, unit=unit)
    others, _ = addition(units, plan)
    # instead of nobody, the log has one unit whose cells are broken: its record is there, but counts for nothing
    known = [-1.0] * others or [np.nan]
    middle = len(known) // 2
    columns = _columns([*known[:middle], 1.0, *known[middle:]], unit)
    fewer = {name: values[columns["who"] != middle] for name, values in columns.items()}
    logs = [read_log(rows, bounds=bounds, unit=unit).load() for rows in (fewer, columns)]
    rewards = logs[1].reward[logs[1].episode_offsets[logs[1].unit_offsets[:-1]]]
    whose = f"person with {TRAJECTORIES} trajectories" if unit == "person" else unit
    where = f"a log of {others}" if others else "a log of one whose cells are broken"
    return attack_on_all_sums(
        plan,
        (_arrays(plan, logs[0]), _arrays(plan, logs[1])),
        int(np.argmax(rewards)),
        f"a {whose}, as far out as the bounds allow, is added to {where}, both read as columns by the unit {unit}; "
        "every noisy sum is seen",
    )


def _columns(rewards: list[float], unit: str) -> dict[str, np.ndarray]:
    """Return a log with one unit for each of ``rewards``, the reward of all its rows; ``who`` is the unit of each row.

    If the unit is a transition, all transitions belong to one trajectory, in order. Without one of them the trajectory
    has a gap.
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
    """Return the units' vectors for the values, and the units' rows, that a release makes of the log."""
    rows = plan.rows(log, step_ratios(always, log))
    # values that are taken around a value function are taken around the mid-range value everywhere
    function = None if plan.features is None else plan.function_of(np.zeros(plan.features.size))
    vectors = plan.query.around(function).unit_vectors(log, [always])
    return jnp.asarray(vectors), padded_units(rows)
