"""A protector in place of an algorithm's own steps: the vectors are the algorithm's, the updates are the protector's.

Paper: 002. Privacy unit, relation and release are those of the algorithm: a protector is public, and whatever it
computes from noisy sums is post-processing. With a public schedule the noise differs from step to step, and is rounded
to few levels (docs/proofs/scheduled-noise.md). With an adaptive schedule the noise is chosen within a Renyi filter
(docs/proofs/renyi-filter.md).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from dprl.arrays import AnyArray
from dprl.config import Provenance
from dprl.engine.program import Adaptive, PublicFacts, Query, Stage, ValueFunctionConfig
from dprl.errors import DprlError
from dprl.mechanisms.filtered_sum import FilteredGaussianSum
from dprl.protectors.projector import ProtectorState
from dprl.protectors.protector import Protector

C = TypeVar("C", bound=ValueFunctionConfig)
FROM_PROTECTOR = Provenance("from the protector (stated public)")
_DECIDED_BY_PROTECTOR = (
    "steps", "sampling_rate", "clip_norm", "step_size", "schedule", "offset", "average", "primal_step", "dual_step",
    "step_scale", "alpha", "beta", "kappa", "eta", "nu", "direction", "noise_multiplier",
)  # fmt: skip


def protector_facts(facts: PublicFacts) -> dict[str, float]:
    """Return the public facts of a log that are checked against a protector's ranges.

    ``strength`` is ``units mu / ratio``: one over the noise in a mean return, in half-widths of the value range.
    """
    return {
        "units": float(facts.units),
        "strength": facts.strength,
        "horizon": float(facts.horizon),
        "features": float(facts.features.size),
        "ratio": facts.ratio,
        "discount": facts.discount,
        "dimension": 2.0 * facts.features.size,
    }


class ProtectorChoice(NamedTuple):
    """Choices that follow from an ``optimizer`` option.

    Attributes:
        plain: the algorithm's options, with the hand schedule's numbers filled in.
        protector: the protector, or its hand schedule.
        reason: why the hand schedule is in force; None where the protector itself is.
    """

    plain: Any
    protector: Protector
    reason: str | None


def check_options(config: Any) -> None:
    """Refuse options that are set although the protector decides them."""
    if config.optimizer is None:
        return
    defaults = {f.name: f.default for f in dataclasses.fields(config)}
    for name in _DECIDED_BY_PROTECTOR:
        if (
            name in defaults
            and getattr(config, name) != defaults[name]
            and config.provenance.get(name) != FROM_PROTECTOR
        ):
            raise DprlError(f"{config.algorithm}: {name} is the optimizer's to decide: leave one of them out.")


def with_loaded_protector(config: C) -> C:
    """Return ``config`` with the loaded protector in place of its folder, which a release thus reads only once."""
    folder = getattr(config, "optimizer", None)
    if not isinstance(folder, str):
        return config
    return dataclasses.replace(config, optimizer=Protector.load(folder))  # type: ignore[call-arg]


def choose_protector(config: Any, facts: PublicFacts) -> ProtectorChoice:
    """Load the protector of ``config.optimizer``, and choose the protector or its hand schedule by public facts.

    Raises:
        DprlError: there is no protector, it belongs to another algorithm, or nothing says that it was learned on public
            tasks.
    """
    protector = config.optimizer if isinstance(config.optimizer, Protector) else Protector.load(config.optimizer)
    protector.check_provenance()
    if protector.algorithm != config.algorithm:
        whom = protector.algorithm or "tasks that are no policy evaluation"
        raise DprlError(f"The protector was learned for {whom}, and the algorithm is {config.algorithm}.")
    reason = protector.reason_not_to_serve(protector_facts(facts), facts.features.name)
    if reason is not None:
        protector = protector.fallback()
    hand = protector.hand
    names = {"last": 0.0, "tail": 0.5, "all": 1.0}
    numbers: dict[str, Any] = {
        "steps": hand.steps, "sampling_rate": hand.sampling_rate, "clip_norm": protector.clip_norm,
        "step_size": hand.step_sizes[0], "primal_step": hand.step_sizes[0], "dual_step": hand.step_sizes[-1],
        "average": next((name for name, share in names.items() if share == hand.tail), "tail"),
    }  # fmt: skip
    own = config.options()
    changes = {name: value for name, value in numbers.items() if name in own and value != 0.0}
    return ProtectorChoice(config.replace(FROM_PROTECTOR, **changes), protector, reason)


def protected_queries(config: Any, facts: PublicFacts) -> tuple[Query, ...]:
    """Return the queries of the algorithm's stages; the last one has the protector's noise."""
    plain, protector, _ = choose_protector(config, facts)
    *first, last = dataclasses.replace(plain, optimizer=None).queries(facts)
    if protector.adaptive:
        if first:
            raise DprlError(
                f"{config.algorithm}: adaptive noise needs a public start, and this one is released: add "
                "start = 'mid-range'."
            )
        last = dataclasses.replace(last, adaptive=Adaptive(protector.levels, protector.architecture.norm))
    elif protector.profile is not None:
        last = dataclasses.replace(last, profile=to_levels(protector.profile))
    return (*first, last)


def to_levels(profile: Sequence[float], levels: int = 8) -> tuple[float, ...]:
    """Round a public profile of noise to at most ``levels`` distinct values w, scaled so that 1/w^2 has mean one.

    The values are rounded on a logarithmic grid between the smallest and the largest, then scaled. The profile is
    public and the accountant sees the rounded one, so rounding costs no privacy. The time to calibrate is in proportion
    to the number of levels.

    >>> to_levels([2.0, 2.0, 2.0])
    (1.0, 1.0, 1.0)
    >>> [round(w, 3) for w in to_levels([1.0, 1.01, 4.0, 3.97], 2)]
    [0.729, 0.729, 2.915, 2.915]
    """
    values = np.asarray(profile, dtype=np.float64)
    if values.ndim != 1 or not values.size or not np.all((values > 0.0) & np.isfinite(values)):
        raise DprlError("A noise profile consists of positive finite numbers.")
    logs = np.log(values)
    distinct = np.unique(logs)
    if len(distinct) > levels:
        grid = np.linspace(distinct[0], distinct[-1], levels)
        logs = grid[np.argmin(np.abs(logs[:, None] - grid), axis=1)]
    scale = 0.5 * math.log(float(np.mean(np.exp(-2.0 * logs))))
    # equal levels give equal floats, whatever the order of the steps
    return tuple(float(w) for w in np.exp(logs + scale))


def protected_program(config: Any, facts: PublicFacts, stages: tuple[Stage, ...]) -> Protected:
    """Return the algorithm's program under the protector."""
    plain, protector, reason = choose_protector(config, facts)
    base = dataclasses.replace(plain, optimizer=None).program(facts, stages)
    return Protected(base, protector, plain, reason)


class ProtectedState(NamedTuple):
    """State of a protected descent between steps, computed from noisy sums and public facts only."""

    parameters: Float[Array, " dim"]  # float32
    protector: ProtectorState
    level: Int[Array, ""]  # int32, noise level of the coming step, where noise is adaptive


@dataclass(frozen=True)
class Protected:
    """A program whose contributions are the algorithm's and whose updates are the protector's.

    Attributes:
        base: the algorithm's own program. Its iterates are one vector: primal parameters, then as many dual parameters.
            It also has ``normaliser``, ``parameters_of``, ``state_at`` and ``project``.
        protector: the learned protector, or its hand schedule.
        config: the algorithm's options, with the protector's numbers filled in.
        reason: why the hand schedule is in force, in words; None where the learned protector is.
    """

    base: Any
    protector: Protector
    config: ValueFunctionConfig
    reason: str | None = None

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The calibrated stages, in order."""
        return self.base.stages

    @property
    def columns(self) -> tuple[str, ...]:
        """Further columns of the rows that the program reads."""
        return self.base.columns

    @property
    def described(self) -> dict[str, Any]:
        """Description of the protector for a certificate."""
        in_force = "learned protector" if self.reason is None else f"its hand schedule: {self.reason}"
        return {
            "fingerprint": self.protector.fingerprint,
            "in_force": in_force,
            "scheduler": self.protector.architecture.scheduler if self.reason is None else "uniform",
            "provenance": dict(self.protector.provenance),
        }

    @cached_property
    def _last(self) -> int:
        return len(self.stages) - 1

    @property
    def _mechanism(self) -> Any:
        return self.stages[self._last].mechanism

    @property
    def _blocks(self) -> tuple[int, ...]:
        size = self._mechanism.dimension // 2
        return (0,) * size + (1,) * size

    def init(self) -> Any:
        """Return the state before the first step."""
        state = self.base.init()
        return self._begin(state) if self._last == 0 else state

    def contribution(self, stage: int, state: Any, block: Any) -> Float[Array, "units dim"]:
        """Return each unit's vector, ``(B, dimension)``."""
        inner = state if stage < self._last else self.base.state_at(state.parameters)
        return self.base.contribution(stage, inner, block)

    def update(self, stage: int, state: Any, noisy: Float[AnyArray, " dim"], step: Any) -> Any:
        """Return the state after a step, from its noisy sum."""
        if stage < self._last:
            return self.base.update(stage, state, noisy, step)
        mechanism, size = self._mechanism, state.parameters.shape[0]
        unit = self.base.normaliser(stage) * mechanism.clip_norm
        mean = (noisy[:size] / unit).astype(jnp.float32)
        inner = state.protector
        moved, parameters = self.protector.update(
            inner, state.parameters, mean, self._noise(state.level, step), step, self._blocks, mechanism.clip_norm,
            self.base.project,
        )  # fmt: skip
        if not isinstance(mechanism, FilteredGaussianSum):
            return ProtectedState(parameters, moved, state.level)
        spent = jnp.asarray(mechanism.costs, dtype=jnp.float32)[state.level] / 2.0**40
        moved = moved._replace(norm=(noisy[size] / unit).astype(jnp.float32), spent=moved.spent + spent)
        return self._with_level(ProtectedState(parameters, moved, state.level), step + 1)

    def level(self, stage: int, state: Any, step: Any) -> Int[Array, ""]:
        """Return the noise level of the coming step, chosen after the previous step from what was released by then."""
        del stage, step
        return state.level

    def finish(self, stage: int, state: Any) -> Any:
        """Return the state after the stage's last step."""
        return self._begin(self.base.finish(stage, state)) if stage < self._last else state

    def answer(self, state: Any) -> Float[Array, " n"]:
        """Return the released ``(n,)`` weights: the primal half of the average that the hand schedule asks for."""
        return state.protector.kept[: state.parameters.shape[0] // 2].astype(jnp.float64)

    def _begin(self, state: Any) -> ProtectedState:
        inner, parameters = self.protector.start(self.base.parameters_of(state))
        begun = ProtectedState(parameters, inner, jnp.zeros((), dtype=jnp.int32))
        return self._with_level(begun, 0) if isinstance(self._mechanism, FilteredGaussianSum) else begun

    def _with_level(self, state: ProtectedState, step: Any) -> ProtectedState:
        uniform = self._mechanism.noise_multiplier / self.base.normaliser(self._last)
        inner, level = self.protector.next_level(state.protector, uniform, step)
        return state._replace(protector=inner, level=level)

    def _noise(self, level: Any, step: Any) -> Any:
        """Return the noise's standard deviation in a coordinate of the step's mean, in units of the clip norm."""
        mechanism = self._mechanism
        if isinstance(mechanism, FilteredGaussianSum):
            multiplier = jnp.asarray(mechanism.levels, dtype=jnp.float64)[level]
        else:
            multiplier = mechanism.multiplier_at(step)
        return multiplier / self.base.normaliser(self._last)
