"""What a method is given: the logs of some trials of a domain, at a size and a budget, in the forms it may ask for.

One log of the largest size is simulated a trial. All methods see that one log, and a smaller log is its beginning.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from dprl.accounting.budget import Budget
from dprl.data.trajectories import Trajectories
from dprl.experiments.domain import Domain
from dprl.protocols import Bounds
from dprl.value_functions.features import Features, Tabular, make_features

MAX_SHARED = 128
"""States up to which the logs of a tabular domain are rewritten over their finite set of transitions."""
_OF_UNITS = ("weight", "weight_rho", "weight_rho_reward")  # of the shared layout; its `extra` has further ones


@dataclass(frozen=True, kw_only=True, eq=False)
class Setting:
    """The public facts of a cell.

    Attributes:
        domain: simulated, hence public.
        units: trajectories in the log; declared, and true.
        budget: what a private method may spend.
        tuned: the number (a step size, a ridge) of a method that has no rule of its own for it, or None.
        factor: of it, or of the step size that a method chooses.
        epochs: of the run whose errors are drawn along the way; 0 where the answer alone is measured.
    """

    domain: Domain
    units: int
    budget: Budget
    tuned: float | None = None
    factor: float = 1.0
    epochs: int = 0

    @cached_property
    def bounds(self) -> Bounds:
        return self.domain.bounds(self.units)

    @cached_property
    def features(self) -> Features:
        return make_features(self.domain.features, self.bounds.observation)

    @property
    def value(self) -> tuple[float, float]:
        """The public value range."""
        return self.bounds.value_interval(self.domain.discount)


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """One trial of a setting.

    Attributes:
        setting: public facts.
        log: the trajectories.
        rows: the same as rows of features in public units (:class:`dprl.engine.unit_data.Rows`), with
            every further column that they can have.
        seed: of the trial.
    """

    setting: Setting
    log: Trajectories = field(repr=False)
    seed: int
    _logs: Logs = field(repr=False)
    _index: int

    @property
    def domain(self) -> Domain:
        return self.setting.domain

    @property
    def features(self) -> Features:
        return self.setting.features

    @property
    def budget(self) -> Budget:
        return self.setting.budget

    @cached_property
    def rows(self) -> Any:
        return self._logs.rows(self._index, self.setting.units)

    @property
    def layout(self) -> Any:
        """The trial's units as a program of :mod:`dprl.engine.program` runs on them, all columns there.

        :class:`~dprl.engine.unit_data.SharedTransitions` or ``PaddedUnits``.
        """
        return self._logs.layout(self._index, self.setting.units)

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """What ``make`` gives, made once for all methods that ask for ``name`` on this log."""
        return self._logs.once(self._index, self.setting.units, name, make)

    @property
    def ratios(self) -> np.ndarray:
        """``(N,)`` importance ratios of the steps."""
        return self._logs.ratios(self._index)[: len(self.log.reward)]


@dataclass(frozen=True, kw_only=True, eq=False)
class Trials:
    """Several trials of a setting, for methods that run them all at once.

    Attributes:
        setting: public facts.
        seeds: one a trial.
        logs: where they come from.
    """

    setting: Setting
    seeds: tuple[int, ...]
    logs: Logs = field(repr=False)

    def __len__(self) -> int:
        return len(self.seeds)

    def __iter__(self) -> Iterator[Problem]:
        for i, seed in enumerate(self.seeds):
            log = prefix(self.logs.full(i), self.setting.bounds)
            yield Problem(setting=self.setting, log=log, seed=seed, _logs=self.logs, _index=i)

    @property
    def shared(self) -> bool:
        """Whether :meth:`shared_layout` is there: a tabular domain of few states."""
        return self.logs.shared

    def shared_layout(self) -> Any:
        """All trials over one finite set of transitions, with every column that rows can have.

        A :class:`dprl.engine.unit_data.SharedTransitions` whose arrays of units have a leading axis of
        trials.
        """
        return self.logs.shared_layout(self.setting.units)

    def padded(self) -> Iterator[Any]:
        """Each trial's rows, padded to one length (:class:`dprl.engine.unit_data.PaddedUnits`)."""
        for i in range(len(self.seeds)):
            yield self.logs.padded(i, self.setting.units)


class Logs:
    """The logs of some trials of a domain, and their forms; each is made once, when it is asked for."""

    def __init__(self, domain: Domain, units: int, seeds: tuple[int, ...]) -> None:
        self.domain, self.units, self.seeds = domain, units, seeds
        self.features = make_features(domain.features, domain.bounds(units).observation)
        self._full: dict[int, Trajectories] = {}
        self._ratios: dict[int, np.ndarray] = {}
        self._rows: dict[int, Any] = {}
        self._shared: Any = None
        self._padded: dict[tuple[int, int], Any] = {}
        self._once: dict[tuple[int, int, str], Any] = {}
        self._slice: tuple[int, Any] | None = None
        self._lock = threading.RLock()

    @property
    def shared(self) -> bool:
        return isinstance(self.features, Tabular) and self.features.size <= MAX_SHARED

    def full(self, trial: int) -> Trajectories:
        with self._lock:
            if trial not in self._full:
                self._full[trial] = self.domain.log(self.units, self.seeds[trial])
            return self._full[trial]

    def ratios(self, trial: int) -> np.ndarray:
        with self._lock:
            if trial not in self._ratios:
                self._ratios[trial] = self.domain.ratios(self.full(trial))
            return self._ratios[trial]

    def once(self, trial: int, units: int, name: str, make: Callable[[], Any]) -> Any:
        key = (trial, units, name)
        with self._lock:
            if key not in self._once:
                self._once[key] = make()
            return self._once[key]

    def rows(self, trial: int, units: int) -> Any:
        """Rows of the first ``units`` trajectories."""
        return first_rows(self._all_rows(trial), units)

    def padded(self, trial: int, units: int) -> Any:
        """Rows of the first ``units`` trajectories, padded to one length."""
        from dprl.engine.unit_data import PaddedUnits

        with self._lock:
            if any(key[1] != units for key in self._padded):
                self._padded.clear()  # cells come in order of size: the others are not needed again
            if (trial, units) not in self._padded:
                rows = self._all_rows(trial)
                index = self._padding(rows, units)
                extra = {name: x[index] for name, x in rows.extra.items()}
                self._padded[trial, units] = PaddedUnits(*(x[index] for x in rows[:5]), extra=extra)
            return self._padded[trial, units]

    def _padding(self, rows: Any, units: int) -> np.ndarray:
        """``(units, L)`` rows of each unit; the length is the same for all the logs, so that one program fits."""
        longest = max(int(self.full(i).lengths().max(initial=1)) for i in range(len(self.seeds)))
        columns = np.arange(min(-(-longest // 64) * 64, self.full(0).bounds.horizon))
        lengths = np.diff(rows.offsets[: units + 1])
        index = rows.offsets[:units, None] + columns
        return np.where(columns < lengths[:, None], index, len(rows.reward) - 1)

    def _all_rows(self, trial: int) -> Any:
        with self._lock:
            if trial not in self._rows:
                self._rows[trial] = self._rows_of(trial, self.features)
            return self._rows[trial]

    def _rows_of(self, trial: int, features: Features) -> Any:
        from dprl.engine.row_columns import COLUMNS
        from dprl.engine.unit_data import rows_of

        log = self.full(trial)
        columns = [c for c in COLUMNS if c != "visits" or isinstance(features, Tabular)]
        value = self.domain.bounds(self.units).value_interval(self.domain.discount)
        return rows_of(log, self.ratios(trial), features, self.domain.discount, value, columns=columns)

    def shared_layout(self, units: int) -> Any:
        """The first ``units`` trajectories of all the logs over one finite set of transitions."""
        from jax import device_put

        from dprl.engine.unit_blocks import SHARED

        with self._lock:
            if self._shared is None:
                self._shared = self._make_shared()
            if self._slice is None or self._slice[0] != units:
                layout = self._shared
                extra = {name: x if name in SHARED else x[:, :units] for name, x in layout.extra.items()}
                arrays = {name: getattr(layout, name)[:, :units] for name in _OF_UNITS}
                self._slice = (units, device_put(replace(layout, **arrays, extra=extra)))
            return self._slice[1]

    def layout(self, trial: int, units: int) -> Any:
        """The first ``units`` trajectories of one log, in the layout that this domain has."""
        if not self.shared:
            return self.padded(trial, units)
        from dprl.engine.unit_blocks import SHARED

        whole = self.shared_layout(units)
        extra = {name: x if name in SHARED else x[trial] for name, x in whole.extra.items()}
        return replace(whole, **{name: getattr(whole, name)[trial] for name in _OF_UNITS}, extra=extra)

    def _make_shared(self) -> Any:
        from dprl.engine.unit_blocks import SHARED
        from dprl.engine.unit_data import SharedTransitions, shared_transitions

        features = self.features
        assert isinstance(features, Tabular)
        thin = _Thin(features.bounds)
        cells = [self._cells(self.full(i)) for i in range(len(self.seeds))]
        base = features.size + 1
        met = np.flatnonzero(
            sum(np.bincount(source * base + target + 1, minlength=base**2) for _, source, target in cells)
        )
        pairs = np.column_stack([met // base, met % base - 1])
        states = _grid(features)
        table = np.eye(features.size) * np.sqrt(features.size)
        layouts = [
            shared_transitions(*cells[i], self._rows_of(i, thin), pairs, table, self.domain.discount, states)
            for i in range(len(self.seeds))
        ]
        one = layouts[0]
        stack = lambda parts: np.stack([np.asarray(x) for x in parts])  # noqa: E731
        arrays = {name: stack(getattr(layout, name) for layout in layouts) for name in _OF_UNITS}
        extra = {
            name: x if name in SHARED else stack(layout.extra[name] for layout in layouts)
            for name, x in one.extra.items()
        }
        return SharedTransitions(one.phi, one.delta_phi, **arrays, bands=one.bands, extra=extra)

    def _cells(self, log: Trajectories) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Unit, source and target (-1 where it is terminal) of each transition."""
        assert isinstance(self.features, Tabular)
        unit = log.unit_of_episode()[log.episode_of()]
        target = np.where(log.terminated, -1, self.features.index(log.next_observation))
        return unit, self.features.index(log.observation), target


class _Thin(Tabular):
    """Tabular features whose vectors are never needed, only their number and the cells: they are not computed."""

    def __call__(self, states: Any, xp: Any = np) -> Any:
        return xp.broadcast_to(xp.zeros((), dtype=states.dtype), (states.shape[0], self.size))


def prefix(log: Trajectories, bounds: Bounds) -> Trajectories:
    """The first ``bounds.units`` units of a log."""
    episodes = int(log.unit_offsets[min(bounds.units, log.units)])
    rows = int(log.episode_offsets[episodes])
    per_row = ("observation", "next_observation", "action", "reward", "behavior_prob", "terminated", "has_next")
    return replace(
        log,
        **{name: getattr(log, name)[:rows] for name in per_row},
        target_prob={name: x[:rows] for name, x in log.target_prob.items()},
        episode_offsets=log.episode_offsets[: episodes + 1],
        unit_offsets=log.unit_offsets[: bounds.units + 1],
        valid=log.valid[:episodes],
        bounds=bounds,
    )


def first_rows(rows: Any, units: int) -> Any:
    """Rows of the first ``units`` units, with their padding row."""
    offsets = rows.offsets[: units + 1]
    n = int(offsets[-1])
    if n == int(rows.offsets[-1]):
        return rows
    cut = lambda x: np.concatenate([x[:n], x[-1:]])  # noqa: E731  (the last row is the padding)
    extra = {name: cut(x) for name, x in rows.extra.items()}
    return type(rows)(*(cut(x) for x in rows[:5]), offsets, extra)


def _grid(features: Tabular) -> np.ndarray:
    """``(S, d)`` the states, in the order of their indices."""
    axes = [np.arange(low, high + 1.0) for low, high in features.bounds]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(features.size, len(features.bounds))
