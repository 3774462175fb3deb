"""Strata: declared cells of states, within which everybody had the same chances of each action.

Everything here is public: names and cut points come from the bounds, and policies are evaluated at public states.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from dprl.bounds import Bounds
from dprl.data.preparation import is_lagged
from dprl.errors import DprlError
from dprl.evaluation.least_noise import UnknownPolicy
from dprl.policies.loading import ColumnPolicy, LoggedPolicy, policy_probabilities

MOST_CELLS = 2_000
"""Most cells, which are strata times actions."""
_STATES_PER_STRATUM = 64
_TOLERANCE = 1e-6


class Axis(NamedTuple):
    """Component of the states that tells strata apart, with its cells.

    Attributes:
        component: place of the component; for a category, the first of its places.
        name: name of the component.
        edges: smallest values of all cells but the first, in ascending order.
        codes: whether the component is a whole number with a cell for each value.
        values: values of a category, by the place of the component that is one for the value and zero otherwise.
        none: whether a state may have none of a category's values, because the value is missing or because a lagged
            value has nothing before it.
    """

    component: int
    name: str
    edges: tuple[float, ...]
    codes: bool
    values: Mapping[int, str] = MappingProxyType({})
    none: bool = False

    @property
    def size(self) -> int:
        """Number of cells."""
        return len(self.values) + self.none if self.values else len(self.edges) + 1

    def labels(self) -> list[str]:
        """Return the name of each cell."""
        if self.values:
            return [f"{self.name} {value}" for value in self.values.values()] + [f"no {self.name}"] * self.none
        if self.codes:
            return [f"{self.name} {edge - 0.5:g}" for edge in (*self.edges, self.edges[-1] + 1.0)]
        inside = [f"{low:g} <= {self.name} < {high:g}" for low, high in itertools.pairwise(self.edges)]
        return [f"{self.name} < {self.edges[0]:g}", *inside, f"{self.name} >= {self.edges[-1]:g}"]

    def cuts(self) -> list[tuple[int, float]]:
        """Return the components and values whose comparison tells cells apart."""
        if self.values:
            return [(place, 0.5) for place in self.values]
        return [(self.component, edge) for edge in self.edges]

    def cells(self, states: Any, xp: Any = np) -> Any:
        """Return ``(...)`` cell numbers of ``states`` ``(..., d)``, which do not depend on the states' precision."""
        if self.values:
            own = states[..., list(self.values)]
            none = self.none & (own.max(axis=-1) <= 0.5)
            return xp.where(none, len(self.values), xp.argmax(own, axis=-1)).astype(np.int32)
        component = states[..., self.component].astype(np.float32)
        return (component[..., None] >= xp.asarray(self.edges, dtype=np.float32)).sum(axis=-1).astype(np.int32)


def read_axes(declared: Sequence[str], bounds: Bounds, where: str = "bounds: strata") -> tuple[Axis, ...]:
    """Return the axes that a list of declarations names; see :func:`read_axis`.

    Raises:
        DprlError: ``declared`` is not a list of strings, an entry names no axis, or two entries name the same one.
    """
    if isinstance(declared, str | Mapping) or not all(isinstance(one, str) for one in declared):
        raise DprlError(f'{where} must be a list of texts, such as ["site", "age:30,50"].')
    axes = tuple(read_axis(one, bounds, where) for one in declared)
    check_distinct_axes(axes, where)
    return axes


def read_axis(declared: str, bounds: Bounds, where: str = "bounds: strata") -> Axis:
    """Return the axis that ``NAME`` or ``NAME:30,50`` declares; ``where`` begins the error message."""
    name, colon, cuts = (part.strip() for part in declared.partition(":"))
    observed = enumerate(bounds.observation_names or ())  # without the flags of missing values
    values = {place: one.removeprefix(f"{name} = ") for place, one in observed if one.startswith(f"{name} = ")}
    if len(values) > 1 and not colon and name not in _places(bounds):
        filled = bounds.fill is not None and any(bounds.fill[place] is not None for place in values)
        return Axis(min(values), name, (), codes=True, values=values, none=filled or is_lagged(name))
    if values and colon and name not in _places(bounds):
        raise DprlError(f"{where}: {name} is a category, with a cell for each value: write {name} without cut points.")
    component = place_of(name, bounds, where)
    low, high = bounds.state[component]
    if colon:
        try:
            edges = tuple(float(cut) for cut in cuts.split(","))
        except ValueError:
            edges = ()
        if not edges or not all(low < cut <= high for cut in edges) or sorted(set(edges)) != list(edges):
            raise DprlError(
                f"{where}: {declared!r} must have ascending cut points above {low:g} and up to {high:g}, such "
                f"as {name}:{(low + high) / 2.0:g}."
            )
        return Axis(component, name, edges, codes=False)
    if low != int(low) or high != int(high) or not 1 <= high - low < MOST_CELLS:
        raise DprlError(
            f"{where}: {name} is not a whole number with a few values; write cut points, such as "
            f"{name}:{(low + high) / 2.0:g}."
        )
    return Axis(component, name, tuple(low + 0.5 + i for i in range(int(high - low))), codes=True)


def place_of(name: str, bounds: Bounds, where: str) -> int:
    """Return the place of the component ``name``; ``where`` begins the error message for an unknown name."""
    if name not in _places(bounds):
        raise DprlError(f"{where}: there is no component {name!r}; there are {', '.join(bounds.state_names)}.")
    return _places(bounds)[name]


def _places(bounds: Bounds) -> dict[str, int]:
    places = {f"observation_{i}": i for i in range(len(bounds.observation))}
    # if two components have the same name, the first is meant
    return places | {name: i for i, name in reversed([*enumerate(bounds.state_names)])}


def check_distinct_axes(axes: Sequence[Axis], where: str) -> None:
    """Refuse axes of which two have a component in common; ``where`` begins the error message."""
    components = [place for axis in axes for place in (axis.values or (axis.component,))]
    if len(set(components)) < len(components):
        raise DprlError(f"{where} name a component twice; put all of its cut points into one.")


@dataclass(frozen=True)
class Strata:
    """Strata of the states: all combinations of the declared components' cells, or one stratum without declarations.

    Attributes:
        bounds: public bounds, whose ``strata`` name components: ``NAME`` for whole numbers with a cell for each value,
            ``NAME:30,50`` for cut points. NAME is one of ``state_names``, or ``observation_0``, ``observation_1``, ...

    Raises:
        DprlError: a declaration names no component, or no cut points within its bounds; or there are too many strata.
    """

    bounds: Bounds

    def __post_init__(self) -> None:
        cells = self.count * (self.bounds.actions or 1)
        if cells > MOST_CELLS:
            raise DprlError(
                f"bounds: strata make {cells} pairs of a stratum and an action; at most {MOST_CELLS} are counted."
            )

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """The components that tell strata apart."""
        return read_axes(self.bounds.strata or (), self.bounds)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of cells along each component."""
        return tuple(axis.size for axis in self.axes)

    @property
    def count(self) -> int:
        """Number of strata."""
        return math.prod(self.shape)

    @property
    def labels(self) -> list[str]:
        """Names of the strata, in the order of their numbers."""
        return [", ".join(parts) or "everybody" for parts in itertools.product(*(axis.labels() for axis in self.axes))]

    def cells(self, states: Any, xp: Any = np) -> Any:
        """Return ``(...)`` stratum numbers of ``states`` ``(..., d)``, which do not depend on the states' precision."""
        out = xp.zeros(states.shape[:-1], dtype=np.int32)
        for axis in self.axes:
            out = out * np.int32(axis.size) + axis.cells(states, xp)
        return out

    def table(self, policies: Sequence[Any]) -> Float[np.ndarray, "policies strata actions"]:
        """Return the policies' action probabilities in each stratum.

        The logged policy has zeros, because its probabilities are not known yet. A policy that is not known yet has
        ones, because it may do anything.

        Raises:
            DprlError: a policy is a column of the log, or differs within a stratum; or the logged policy is asked for
                where hazards of being lost are estimated.
        """
        actions = self.bounds.actions
        if actions is None or any(isinstance(policy, ColumnPolicy) for policy in policies):
            raise DprlError("Within strata policies are functions of states: a column of the log is none.")
        if self.bounds.kinds > actions and any(isinstance(policy, LoggedPolicy) for policy in policies):
            raise DprlError(
                "Where hazards of being lost are estimated, what was done cannot be valued: the outcomes of those who "
                "were lost are unknown. Leave the policy logged out."
            )
        states = self._states()
        out = []
        for number, policy in enumerate(policies, start=1):
            if isinstance(policy, LoggedPolicy | UnknownPolicy):
                out.append(np.full((self.count, actions), float(isinstance(policy, UnknownPolicy))))
                continue
            found = policy_probabilities(policy, states.reshape(-1, states.shape[-1]), actions)
            found = found.reshape(self.count, _STATES_PER_STRATUM, actions)
            if float(np.ptp(found, axis=1).max()) > _TOLERANCE:
                raise DprlError(
                    f"Target policy {number} differs within a stratum: declare in the bounds' strata also what this "
                    "policy looks at, with its cut points."
                )
            out.append(found.mean(axis=1))
        return np.stack(out)

    def _states(self) -> Float[np.ndarray, "strata points d"]:
        """Return public states of each stratum; half of them are whole numbers, like codes and counts."""
        low, high = np.array(self.bounds.state, dtype=np.float64).T
        places = np.random.default_rng(0).random((self.count, _STATES_PER_STRATUM, len(low)))  # noqa: TID251 (public)
        bottom, top = np.tile(low, (self.count, 1)), np.tile(high, (self.count, 1))
        for axis, place in zip(self.axes, np.unravel_index(np.arange(self.count), self.shape or (1,)), strict=False):
            if axis.values:
                own = list(axis.values)
                bottom[:, own] = top[:, own] = place[:, None] == np.arange(len(own))
                continue
            ends = np.array([low[axis.component], *axis.edges, high[axis.component]])
            bottom[:, axis.component], top[:, axis.component] = ends[place], ends[place + 1]
            if axis.codes:
                bottom[:, axis.component] = top[:, axis.component] = low[axis.component] + place
        states = bottom[:, None] + places * (top - bottom)[:, None]
        whole = np.floor(states[:, ::2])
        states[:, ::2] = np.where(whole >= bottom[:, None], whole, states[:, ::2])
        return states
