"""Programs, which :mod:`dprl.engine.loop` runs, and what is public before a run: facts, queries, stages, options."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
from jaxtyping import Array, Float, Int, Num

from dprl.accounting.budget import Budget
from dprl.arrays import Mask, Step
from dprl.bounds import Bounds, Interval
from dprl.config import DERIVED, Config
from dprl.engine.columns import scale_of
from dprl.engine.value_query import ValueQuery
from dprl.errors import DprlError
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.protocols import Claim
from dprl.value_functions.features import Features
from dprl.value_functions.value_function import ValueFunction

State = Any


class Learned(Protocol):
    """Something that a release gives besides values: a value function, propensities, or projections.

    Attributes:
        file: name of the file that it is written to.
        kind: name under which ``estimate.json`` describes it.
    """

    file: ClassVar[str]
    kind: ClassVar[str]

    @property
    def theta(self) -> np.ndarray:
        """Released numbers from which it is made."""
        ...

    def described(self, targets: Sequence[str], names: Sequence[str] | None) -> dict[str, Any]:
        """Return what ``estimate.json`` says about it.

        Args:
            targets: names of the target policies.
            names: names of the observation's components, if they have names.
        """
        ...

    def to_bytes(self) -> bytes:
        """Return the bytes of its file."""
        ...


@dataclass(frozen=True)
class PublicFacts:
    """Public facts on which the choices of an algorithm may depend.

    Attributes:
        mu: Gaussian privacy parameter that is available for the value function (one release of sensitivity one would
            have noise of standard deviation ``1 / mu``).
        unit: the privacy unit; if it is ``transition``, every row is a trajectory of its own.
    """

    bounds: Bounds
    features: Features
    discount: float
    mu: float
    unit: str = "trajectory"

    @property
    def value(self) -> Interval:
        """Smallest and largest value, public."""
        return self.bounds.value_interval(self.discount)

    @property
    def centre(self) -> float:
        """Middle of the value range; see :func:`~dprl.engine.columns.scale_of`."""
        return scale_of(self.value)[0]

    @property
    def half(self) -> float:
        """Half-width of the value range; see :func:`~dprl.engine.columns.scale_of`."""
        return scale_of(self.value)[1]

    @property
    def units(self) -> int:
        """Declared number of privacy units."""
        return self.bounds.units

    @property
    def horizon(self) -> int:
        """Largest number of steps of a trajectory."""
        return self.bounds.horizon

    @property
    def ratio(self) -> float:
        """Largest importance ratio of a unit: of a trajectory, or of one decision if the unit is a transition."""
        return self.bounds.max_importance_ratio if self.unit == "transition" else self.bounds.cumulative_ratio

    @property
    def strength(self) -> float:
        """Signal to noise, ``n0 = units mu / ratio``: half the value range over the noise in the mean return."""
        return self.units * self.mu / self.ratio

    @property
    def box(self) -> float:
        """Largest absolute coordinate of theta for which V is in the value range, for indicators; else 1e9."""
        return 1.0 / math.sqrt(self.features.size) if self.features.name == "tabular" else 1e9

    @property
    def ball(self) -> float:
        """Largest norm of theta for which V is in the value range in mean square; 1e9 for indicators."""
        return 1e9 if self.features.name == "tabular" else 1.0


@dataclass(frozen=True)
class Adaptive:
    """Noise that is chosen step by step from what was released, within a Renyi filter.

    Both attributes are relative to the constant noise with which the budget lasts until the stage's last step.

    Attributes:
        levels: noise levels of the sum, from which every step chooses; at most 64.
        norm: noise of the norm that is released with each sum.
    """

    levels: tuple[float, ...]
    norm: float


@dataclass(frozen=True)
class Query:
    """A sum that a stage asks for, before its noise is calibrated.

    Attributes:
        name: name of the stage in noise, journal and certificate.
        dimension: length of a unit's vector.
        clip_norm: largest L2 norm of a unit's vector, in the vector's own units; a longer one is shortened to it.
        steps: how many noisy sums are released.
        sampling_rate: probability with which a unit takes part in a step; 1 for everybody.
        share: share of the query in mu^2; the shares of all queries add up to one.
        profile: relative noise of each step, a public schedule of at most 16 values
            (:func:`~dprl.evaluation.protected.to_levels`); None for constant noise. Only for the last stage.
        adaptive: adaptive noise in place of a profile; then the stage is the program's only one.
    """

    name: str
    dimension: int
    clip_norm: float
    steps: int = 1
    sampling_rate: float = 1.0
    share: float = 1.0
    profile: tuple[float, ...] | None = None
    adaptive: Adaptive | None = None


@dataclass(frozen=True)
class Stage:
    """A stage with its calibrated mechanism."""

    name: str
    mechanism: GaussianSum


@dataclass(frozen=True)
class Claimed:
    """Mechanisms that come with the options, in place of those that dprl calibrates to the budget.

    Attributes:
        stages: stages of the program.
        claim: what the options claim about the mechanisms.
        value: function that turns dprl's mechanism for values and intervals into the one for the claim's relation.
    """

    stages: tuple[Stage, ...]
    claim: Claim
    value: Callable[[GaussianSum], GaussianSum]


class Program(Protocol):
    """An algorithm, made from public facts only. It is frozen, and programs with equal facts are equal.

    ``update`` and ``finish`` see noisy sums, and nothing else that comes from the rows.
    """

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The calibrated stages, in the order in which they run."""
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """Further columns of the rows that :meth:`contribution` needs."""
        ...

    @property
    def init(self) -> Callable[..., State]:
        """Function that gives the state before the first step; it may take public numbers and its own coins."""
        ...

    def contribution(self, stage: int, state: State, block: Any) -> Float[Array, "units dim"]:
        """Return each unit's vector before it is clipped, made from that unit's rows only."""
        ...

    def update(self, stage: int, state: State, noisy: Float[Array, " dim"], step: Step) -> State:
        """Return the next state, of the same structure, from the step's noisy sum."""
        ...

    def finish(self, stage: int, state: State) -> State:
        """Return the state after the stage's last step. Called once; the structure may change."""
        ...

    def answer(self, state: State) -> Float[Array, " n"]:
        """Return the released weights over the features."""
        ...


def is_compiled(program: Any) -> bool:
    """Tell whether XLA compiles the steps of a release.

    A program with a single short step has ``compiled = False``: NumPy is done long before XLA would have compiled it.
    """
    return getattr(program, "compiled", True)


@runtime_checkable
class QuickProgram(Protocol):
    """A program that computes the clipped sum of a block faster than from contributions, in a way that is proved."""

    def clipped_sum(
        self, stage: int, mechanism: GaussianSum, state: State, block: Any, included: Mask
    ) -> Num[Array, " dim"]:
        """Return the sum of the clipped contributions of the ``included`` units. Private."""
        ...


@runtime_checkable
class AdaptiveProgram(Protocol):
    """A program that chooses each step's noise from what was released, under a Renyi filter."""

    def level(self, stage: int, state: State, step: Step) -> Int[Array, ""]:
        """Return the step's level among those of the mechanism, before noise is drawn.

        The level is a proposal. The filter admits it or ends the stage, and the loop keeps account of what was spent.
        """
        ...


@dataclass(frozen=True)
class PublicProgram:
    """Base of most programs, which consist of their options, their stages and the public facts.

    Attributes:
        config: options, in which everything that follows from the facts and the noise is filled in.
        stages: calibrated stages.
        facts: public facts.
    """

    config: Any
    stages: tuple[Stage, ...]
    facts: PublicFacts

    columns = ()
    compiled: ClassVar[bool] = True

    def normaliser(self, stage: int) -> float:
        """Return the divisor of a noisy sum: the public expected number of units, never the realised number."""
        return self.stages[stage].mechanism.expected(self.facts.units)

    def finish(self, stage: int, state: State) -> State:
        """Return the state unchanged: nothing follows the stage's last step."""
        del stage
        return state


# --- options ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig(Config):
    """Base of the options of evaluation algorithms, which refuses numbers outside of their ranges."""

    algorithm: ClassVar[str] = ""
    """Name of the algorithm in the registry."""

    units_served: ClassVar[tuple[str, ...]] = ("trajectory", "person")
    """Privacy units that the algorithm's privacy statement covers."""

    estimates_propensities: ClassVar[bool] = False
    """Whether the algorithm serves logs without behaviour probabilities, whose bounds declare strata."""

    needs_events: ClassVar[bool] = False
    """Whether a log must say for each trajectory if an event ended it."""

    @property
    def quantity(self) -> str | None:
        """Quantity that a value measures, in words; None if it is the usual quantity of a log's values."""

    def for_bounds(self, bounds: Bounds) -> Self:
        """Return the same options, adapted to these public bounds."""
        del bounds
        return self

    def _check(self, sentence: str, holds: bool) -> None:
        if not holds:
            raise DprlError(f"{self.algorithm or type(self).__name__}: {sentence}.")


class ValuesConfig(EvaluationConfig):
    """Base of the options of algorithms that give only values and intervals, from one noisy sum."""

    discount: Any
    confidence: Any
    noise_multiplier: Any

    def value_query(self, bounds: Bounds, policies: Sequence[Any], contrasts: Sequence[tuple[int, int]]) -> ValueQuery:
        """Return the query for the values of ``policies``, and for their differences at ``contrasts``."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class ValueFunctionConfig(EvaluationConfig):
    """Options that every algorithm with a value function has.

    Attributes:
        discount: gamma, in [0, 1].
        value_budget_fraction: share of mu^2 (the squared Gaussian privacy parameter) that pays for value and interval;
            the rest pays for the value function.
        confidence: nominal coverage of the intervals.
    """

    discount: float = 0.99
    value_budget_fraction: float = 0.85
    confidence: float = 0.95

    ranges: ClassVar[Mapping[str, str]] = {
        "discount": "[0, 1]",
        "value_budget_fraction": "(0, 1)",
        "confidence": "(0.5, 1)",
    }

    around_function: ClassVar[bool] = False
    """Whether values are taken around the released value function, and therefore after it."""

    learns: ClassVar[str] = "value function"
    """Name of what is released besides values, in words."""

    blends_value_function: ClassVar[bool] = False
    """Whether values follow the released value function where products of ratios are cut."""

    neural: ClassVar[bool] = False
    """Whether the algorithm learns any differentiable value function, not only one that is linear in its features."""

    def value_query(
        self, bounds: Bounds, features: Features, policies: Sequence[Any], contrasts: Sequence[tuple[int, int]]
    ) -> ValueQuery | None:
        """Return the query for values, if the algorithm has an estimator of its own; None for importance sampling.

        Args:
            contrasts: pairs of places in ``policies`` whose differences are asked for.
        """
        del bounds, features, policies, contrasts

    def function(
        self, theta: Float[np.ndarray, " n"], features: Features, bounds: Bounds, stages: tuple[Stage, ...]
    ) -> Learned:
        """Return what the released weights ``theta`` ``(n,)`` stand for: by default a value function."""
        del stages
        return ValueFunction(theta, features, bounds.value_interval(self.discount))

    def queries(self, facts: PublicFacts) -> tuple[Query, ...]:
        """Return the sums to ask for, whose shares add up to one; refuse facts that the algorithm cannot serve."""
        raise NotImplementedError

    def defaults(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> dict[str, Any]:
        """Return the values that :meth:`resolve` fills in for options that are None, from the facts and the noise."""
        del facts, stages
        return {}

    def resolve(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> Self:
        """Return the same options with everything filled in, from public facts and the calibrated ``stages``."""
        found = self.defaults(facts, stages).items()
        missing = {name: value for name, value in found if getattr(self, name) is None}
        return self.replace(DERIVED, **missing) if missing else self

    def program(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> Program:
        """Return the algorithm with these calibrated ``stages``, which are those of :meth:`queries`."""
        raise NotImplementedError

    def claimed(self, facts: PublicFacts, queries: Sequence[Query], budget: Budget) -> Claimed | None:
        """Return mechanisms for ``queries``; None where dprl calibrates them.

        Only options of other distributions return some, such as those of dprl-papers with a paper's own noise.
        """
        del facts, queries, budget
        return None
