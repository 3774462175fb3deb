"""Protocols that the rooms share. A leaf: it imports only NumPy and other leaves.

Shapes: ``N`` transitions (rows), ``d`` observation components, ``A`` actions, ``n`` features.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from dprl.config import range_in_words, within
from dprl.errors import DprlError, require
from dprl.fill import ESTIMATE, by_number, check_fill, check_hazard

Interval = tuple[float, float]

# Beyond these limits products of bounds, and with them a noisy sum, leave the range of floating-point numbers.
_LARGEST = 1e50
_FINITE, _RATIO, _COUNT = f"[-{_LARGEST}, {_LARGEST}]", f"[1, {_LARGEST}]", "1..1000000000000"


@runtime_checkable
class Policy(Protocol):
    """A function of a batch of states ``(N, d)`` that gives action probabilities ``(N, A)``, row by row.

    Arguments and results are NumPy arrays, so that a two-line function can wrap a PyTorch, scikit-learn or d3rlpy
    model.
    """

    def __call__(self, states: np.ndarray, /) -> np.ndarray:
        """Return action probabilities ``(N, A)`` of ``states`` ``(N, d)``."""
        ...


class NoiseSource(Protocol):
    """Source of every coin and every Gaussian of a mechanism; no function has a default for it.

    A draw is a function of run key, stream and step only: asking for the same step twice gives the same draw.
    """

    secure: bool
    """True only for noise that may stand behind a private release."""
    total_variation_per_draw: float
    """Bound on the distance of one Gaussian coordinate from round(N(0, std^2))."""

    def describe(self) -> str:
        """Return a description of the source, for the certificate."""
        ...

    def stream(self, name: str) -> NoiseSource:
        """Return the noise source of one mechanism; its draws are independent of those under any other name."""
        ...

    def participation_mask(self, step: Any, count: int, rate: float) -> Any:
        """Return ``(count,)`` booleans, each true with probability ``rate`` (never more)."""
        ...

    def gaussian(self, step: Any, dimension: int, std: float) -> Any:
        """Return ``(dimension,)`` int64, each distributed as round(N(0, std^2)); ``std`` in grid points."""
        ...


class Journal(Protocol):
    """Record of the noisy steps of a release, so that no step is ever drawn twice.

    An algorithm passes every noisy step through :meth:`step`, and goes on with the result of :meth:`step` only.
    """

    def stream(self, name: str) -> Journal:
        """Return the journal of one mechanism, under the name of its noise stream."""
        ...

    def step(self, step: int, dimension: int, compute: Callable[[], Any]) -> Any:
        """Return the ``(dimension,)`` int64 grid points of ``step``, which the journal holds or ``compute`` makes.

        ``compute`` is called only for a step that the journal does not hold; its points are kept before they are
        returned.
        """
        ...


class NoJournal:
    """Journal that keeps nothing: every step is computed."""

    def stream(self, name: str) -> NoJournal:
        """Return this journal, which keeps nothing of any mechanism."""
        del name
        return self

    def step(self, step: int, dimension: int, compute: Callable[[], Any]) -> Any:
        """Return what ``compute`` returns."""
        del step, dimension
        return compute()


NO_JOURNAL = NoJournal()


class Environment(Protocol):
    """A simulator as pure functions of a JAX key; ``state`` is any pytree. Everything in it is public."""

    @property
    def observation_bounds(self) -> tuple[Interval, ...]:
        """Smallest and largest value of each component of an observation."""
        ...

    @property
    def reward_bounds(self) -> Interval:
        """Smallest and largest reward of a step."""
        ...

    @property
    def actions(self) -> int:
        """Number of actions."""
        ...

    @property
    def horizon(self) -> int:
        """Longest trajectory, in transitions."""
        ...

    @property
    def discount(self) -> float:
        """Discount factor of a step."""
        ...

    def reset(self, key: Any) -> Any:
        """Return the first state of a trajectory."""
        ...

    def observe(self, state: Any) -> Any:
        """Return the observation of a state."""
        ...

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, Any, Any]:
        """Return the next state, the reward of this transition, and whether the next state is terminal."""
        ...


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Everything that is assumed public about a log; usually read from ``bounds.toml``.

    Rows are clamped to these bounds, never the other way round.

    Attributes:
        units: number of privacy units (people or trajectories) the curator declares.
        horizon: longest trajectory, in transitions; longer ones are cut.
        reward: smallest and largest reward of one transition.
        observation: smallest and largest value of each observation component.
        actions: number of discrete actions, or None where actions are continuous.
        action: bounds of each action component, or None where actions are discrete.
        max_importance_ratio: largest ratio of target to behaviour probability of one step.
        max_cumulative_ratio: larger products of ratios along a trajectory are cut; see :attr:`cumulative_ratio`.
        return_range: smallest and largest discounted return, where known more tightly than from ``reward``.
        observation_names: name of each observation component in the report.
        action_names: name of each discrete action, which ``always:NAME`` accepts.
        strata: observation components within whose cells propensities are estimated, in place of behaviour
            probabilities; see :class:`~dprl.evaluation.strata.Strata`. If one of them is ``NAME:linear``, propensities
            come from a regression on all of them; see :class:`~dprl.evaluation.propensity_regression.RegressionTerms`.
        fill: the value that replaces a missing value of each observation component; None for a component that must not
            be missing.
        flag_missing: numbers of the components that are flagged. For each of them a state has one more component, after
            all others: 1 where the value is missing and 0 elsewhere.
        censoring_hazard: probability with which a person is censored in a step, for a log that does not state it per
            row; or ``estimate``, to estimate it within ``strata``, for each action, beside propensities.
    """

    units: int
    horizon: int
    reward: Interval
    observation: tuple[Interval, ...]
    actions: int | None = None
    action: tuple[Interval, ...] | None = None
    max_importance_ratio: float = 1.0
    max_cumulative_ratio: float | None = None
    return_range: Interval | None = None
    observation_names: tuple[str, ...] | None = None
    action_names: tuple[str, ...] | None = None
    strata: tuple[str, ...] | None = None
    fill: tuple[float | None, ...] | None = None
    flag_missing: tuple[int, ...] | None = None
    censoring_hazard: float | Literal["estimate"] | None = None

    def __post_init__(self) -> None:
        def interval(name: str, value: Any) -> None:
            ends = isinstance(value, tuple) and len(value) == 2 and all(within(end, _FINITE) for end in value)
            said = f"must be [low, high], two finite numbers with low <= high (at most {_LARGEST:g})."
            require(ends and value[0] <= value[1], f"bounds: {name} {said}")

        either = "bounds: give either actions (a number of discrete actions) or action = [[low, high], ...]."
        require((self.actions is None) != (self.action is None), either)
        for name in ("units", "horizon", *(["actions"] if self.action is None else [])):
            whole = f"bounds: {name} must be {range_in_words(_COUNT)}."
            require(within(getattr(self, name), _COUNT), whole)
        interval("reward", self.reward)
        for name in ("observation", *(["action"] if self.actions is None else [])):
            listed = getattr(self, name)
            require(isinstance(listed, tuple) and listed, f"bounds: {name} must list [low, high] for each component.")
            for i, pair in enumerate(listed):
                interval(f"{name} component {i}", pair)
        for name in ("max_importance_ratio", "max_cumulative_ratio"):
            ratio = getattr(self, name)
            allowed = within(ratio, _RATIO) or (ratio is None and name == "max_cumulative_ratio")
            require(allowed, f"bounds: {name} must be a finite number of at least 1 (at most {_LARGEST:g}).")
        if self.return_range is not None:
            interval("return_range", self.return_range)
        names, called, strata = self.observation_names, self.action_names, self.strata
        named = names is None or (_are_texts(names) and len(names) == len(self.observation))
        require(named, "bounds: observation_names must be one text for each observation component.")
        named = called is None or (_are_texts(called) and len(set(called)) == len(called) == self.actions)
        require(named, "bounds: action_names must be one text for each discrete action, and no two the same.")
        listed = strata is None or _are_texts(strata)
        require(listed, 'bounds: strata must be a list of texts, such as ["site", "age:30,50"].')
        check_fill(self.fill, self.flag_missing, self.observation)
        check_hazard(self.censoring_hazard, self.max_importance_ratio, strata is not None)

    @property
    def kinds(self) -> int:
        """Number of outcomes of a step: the actions and, if the hazard is estimated, being lost from the log."""
        return (self.actions or 1) + (self.censoring_hazard == ESTIMATE)

    @property
    def state(self) -> tuple[Interval, ...]:
        """Bounds of each component of a state: those of the observation, and of a flag for each of ``flag_missing``."""
        return (*self.observation, *((0.0, 1.0) for _ in self.flag_missing or ()))

    @property
    def state_names(self) -> tuple[str, ...]:
        """Name of each component of a state."""
        names = self.observation_names or tuple(f"observation_{i}" for i in range(len(self.observation)))
        return (*names, *(f"{names[i]} is missing" for i in self.flag_missing or ()))

    @property
    def largest_product(self) -> float:
        """Largest product of ratios along a trajectory if the declared facts are true."""
        large = self.horizon * math.log(self.max_importance_ratio) > 690.0
        return 1e300 if large else float(self.max_importance_ratio) ** self.horizon

    @property
    def cumulative_ratio(self) -> float:
        """Bound on a trajectory's importance ratio: the declared one, or one derived from the other bounds.

        The derived bound is the largest at which a mean has a standard error of at most a tenth of the range, and at
        most half the root of ``units``, because the two bounds on what was cut have twice the noise. Where a bound
        three times as large, with the whole root in place of half of it, would cut nothing, nothing is cut.
        """
        if self.max_cumulative_ratio is not None:
            return min(float(self.max_cumulative_ratio), self.largest_product)
        precise, root = self.units / 100.0, math.sqrt(self.units)
        if self.largest_product <= 3.0 * max(self.max_importance_ratio, min(precise, root)):
            return self.largest_product
        return float(max(self.max_importance_ratio, min(precise, root / 2.0)))

    @property
    def derives_cumulative_ratio(self) -> bool:
        """Whether :attr:`cumulative_ratio` is derived from other bounds besides the ratio of one step."""
        return self.max_cumulative_ratio is None and self.largest_product > self.max_importance_ratio

    @property
    def cuts_products(self) -> bool:
        """Whether products of ratios that the declared facts allow are cut."""
        return self.cumulative_ratio < self.largest_product * (1.0 - 1e-9)

    def value_interval(self, discount: float) -> Interval:
        """Return the range of discounted returns of a trajectory that may end at any step up to the horizon."""
        if self.return_range is not None:
            return self.return_range
        longest = self.horizon if discount == 1.0 else (1.0 - discount**self.horizon) / (1.0 - discount)
        low, high = self.reward
        return (low * (longest if low < 0 else 1.0), high * (longest if high > 0 else 1.0))

    def as_dict(self) -> dict[str, Any]:
        """Return the bounds that were given, as plain data."""
        return {k: v for k, v in asdict(self).items() if v is not None}

    def of_one_transition(self) -> Bounds:
        """Return the same bounds where every transition is a trajectory of its own, whose return is its reward."""
        return replace(self, horizon=1, return_range=None, max_cumulative_ratio=None)

    def in_force(self) -> dict[str, Any]:
        """Return plain data for a certificate: the given bounds, and also a derived bound on a trajectory's ratio."""
        return self.as_dict() | ({"max_cumulative_ratio": self.cumulative_ratio} if self.horizon > 1 else {})

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Bounds:
        """Return bounds from parsed TOML or JSON; unknown and missing names are refused."""
        if "return_range" not in mapping and "value" in mapping:  # its name before 0.2.0
            mapping = {"return_range" if name == "value" else name: x for name, x in mapping.items()}
        mapping = by_number(mapping)
        known = sorted(cls.__dataclass_fields__)
        for name in sorted(mapping.keys() - known):
            raise DprlError(f"bounds: unknown name {name!r}; known are {', '.join(known)}.")
        ratio = () if "strata" in mapping else ("max_importance_ratio",)
        for name in ("units", "horizon", "reward", "observation", *ratio):
            missing = f"bounds: {name} is missing; bounds are public facts and are never inferred from the rows."
            require(name in mapping, missing)

        def freeze(value: Any) -> Any:
            return tuple(freeze(v) for v in value) if isinstance(value, list | tuple) else value

        return cls(**{k: freeze(v) for k, v in mapping.items()})


def _are_texts(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(text, str) for text in value)


@dataclass(frozen=True)
class Precondition:
    """Assumption of a theorem, with the numbers of a case filled in, and whether it holds in this case."""

    statement: str
    holds: bool


@dataclass(frozen=True)
class Claim:
    """Claim that a calibration of another distribution makes; a release with it writes a statement, no certificate.

    Attributes:
        relation: neighbour relation that the claim is about.
        conditions: assumptions of the theorem behind the claim.
        released: what is released, in the statement's words, where dprl has no words for it.
    """

    relation: str
    conditions: tuple[Precondition, ...] = ()
    released: str = ""

    @property
    def preconditions(self) -> list[dict[str, Any]]:
        """The conditions as plain data."""
        return [{"statement": condition.statement, "holds": condition.holds} for condition in self.conditions]


@dataclass(frozen=True, kw_only=True)
class Attack:
    """A standard attack on an algorithm: the arguments of the ``canary`` of its suite, and the number of trials.

    Attributes:
        options: options of the algorithm's configuration, and ``unit``; all other options have their defaults.
        trials: number of held-out runs on each data set in the published table.
    """

    released: str = "all"
    units: int = 200
    epsilon: float = 1.0
    delta: float = 1e-5
    options: Mapping[str, Any] = field(default_factory=dict)
    trials: int = 1_000_000


class Canary(Protocol):
    """A worst-case pair of neighbouring data sets and the attack that tells them apart, for an audit.

    The algorithm's own code runs on both data sets; the attack sees only what it releases.
    """

    @property
    def epsilon(self) -> float:
        """Epsilon claimed at :attr:`delta`, which an audit must not exceed where the calibration is verified."""
        ...

    @property
    def delta(self) -> float:
        """Claimed delta."""
        ...

    @property
    def description(self) -> str:
        """The pair of data sets and what the attack sees of it, in words."""
        ...

    @property
    def gaussian(self) -> bool:
        """True where the scores are Gaussian with one variance on both data sets, so that a bound on mu applies."""
        ...

    @property
    def preconditions(self) -> tuple[Precondition, ...]:
        """Assumptions of the theorem behind the claim; empty where the claim is the accountant's."""
        ...

    def scores(
        self, seed: int, trials: int, present: bool, progress: Callable[[int], None] | None = None
    ) -> np.ndarray:
        """Return ``(trials,)`` scores of independent runs, larger where the canary looks present.

        Args:
            seed: seed of the runs' noise; the two data sets never share a noise key.
            trials: number of runs.
            present: whether the canary's record is in the log.
            progress: called with the number of runs done.
        """
        ...
