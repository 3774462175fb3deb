"""Public facts about a log, declared by its owner: sizes, ranges, largest ratios, and what is missing or censored.

A leaf: it imports only other leaves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from dprl.config import range_in_words, within
from dprl.errors import DprlError, require

Interval = tuple[float, float]

# Beyond these limits products of bounds, and with them a noisy sum, leave the range of floating-point numbers.
_LARGEST = 1e50
_FINITE, _RATIO, _COUNT = f"[-{_LARGEST}, {_LARGEST}]", f"[1, {_LARGEST}]", "1..1000000000000"

ESTIMATE = "estimate"
"""Stands in place of a hazard that is to be estimated, within the declared strata."""


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
        _check_fill(self.fill, self.flag_missing, self.observation)
        _check_hazard(self.censoring_hazard, self.max_importance_ratio, strata is not None)

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
        mapping = _components_by_number(mapping)
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


def _check_fill(fill: Any, flagged: Any, observation: Sequence[tuple[float, float]]) -> None:
    """Refuse values outside of the declared bounds, and flags of components that are not filled.

    Args:
        fill: a number or None for each observation component; None where no component is filled.
        flagged: numbers of the components whose missing values are flagged; None for no component.
        observation: bounds of each component.
    """
    if fill is None and flagged is None:
        return
    size = len(observation)
    if not isinstance(fill, tuple) or len(fill) != size:
        raise DprlError(f"bounds: fill must have one value, or none, for each of the {size} observation components.")
    for i, (value, (low, high)) in enumerate(zip(fill, observation, strict=True)):
        sound = value is None or within(value, f"[{low}, {high}]")
        require(sound, f"bounds: fill of observation component {i} must be a number from {low:g} to {high:g}.")
    if flagged is not None:
        known = isinstance(flagged, tuple) and all(within(i, f"0..{size - 1}") and fill[i] is not None for i in flagged)
        require(known, "bounds: flag_missing must list components that have a fill.")
        require(len(set(flagged)) == len(flagged), "bounds: flag_missing lists a component twice.")


def _check_hazard(hazard: Any, max_importance_ratio: float, in_strata: bool) -> None:
    """Refuse a value that is no hazard of being censored, and bounds that would cut the weights of people who stay.

    Args:
        hazard: a number; :data:`ESTIMATE`; or None.
        max_importance_ratio: largest importance ratio of the bounds.
        in_strata: whether the bounds declare strata.
    """
    if hazard is None:
        return
    if hazard == ESTIMATE:
        where = 'bounds: censoring_hazard = "estimate" needs strata, within which it is estimated beside propensities.'
        require(in_strata, where)
        return
    require(within(hazard, "[0, 1)"), 'bounds: censoring_hazard must be at least 0 and below 1, or "estimate".')
    require(
        max_importance_ratio * (1.0 - hazard) >= 1.0 - 1e-9,
        f"bounds: max_importance_ratio must be at least {1.0 / (1.0 - hazard):.6g}, one over the chance of staying "
        "in a step: it bounds the ratio of target to behaviour probability over that chance.",
    )


def _components_by_number(bounds: Mapping[str, Any]) -> dict[str, Any]:
    """Return parsed bounds in which ``fill`` and ``flag_missing`` refer to components by number, not by name.

    A component's name is its entry in ``observation_names``, or its number from 0. All other values stay unchanged; the
    checks judge them.

    Raises:
        DprlError: a name is that of no component, or the fill of a named component is no number.
    """
    out = dict(bounds)
    observation, names = bounds.get("observation"), bounds.get("observation_names")
    size = len(observation) if isinstance(observation, Sequence) else 0
    named = list(names) if isinstance(names, Sequence) and not isinstance(names, str) else []

    def place(what: str, name: object) -> int:
        if name in named:
            return named.index(name)
        if str(name) in {str(i) for i in range(size)} and not isinstance(name, bool):
            return int(str(name))
        known = ", ".join(map(str, named)) if named else f"0 to {size - 1}"
        raise DprlError(f"bounds: {what} names no observation component {name!r}; there are {known}.")

    fill, flagged = out.get("fill"), out.get("flag_missing")
    if isinstance(fill, Mapping):
        filled: list[Any] = [None] * size
        for name, value in fill.items():
            if value is None or (isinstance(value, float) and math.isnan(value)):
                raise DprlError(f"bounds: fill of {name!r} must be a number.")
            filled[place("fill", name)] = value
        out["fill"] = filled
    if isinstance(flagged, list | tuple):
        out["flag_missing"] = [place("flag_missing", name) for name in flagged]
    return out
