"""Input of a method: the logs of some trials of a domain, at a size and a budget, in several forms.

Each trial simulates one log of the largest size. All methods see that one log, and a smaller log is its beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from dprl.accounting.budget import Budget
from dprl.bounds import Bounds
from dprl.data.trajectories import Trajectories
from dprl.value_functions.features import Features, Tabular, make_features
from dprl_papers.harness.domain import Domain

MAX_SHARED = 128
"""States up to which the logs of a tabular domain are rewritten over their finite set of transitions."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Setting:
    """The public facts of a cell.

    Attributes:
        domain: the domain, which is simulated and therefore public.
        units: number of trajectories in the log; the declared number is the true one.
        budget: the budget that a private method may spend.
        tuned: the tuned number (a step size, a ridge) of a method that has no rule for it, else None.
        factor: multiplies the tuned number, or the step size that a method chooses.
        epochs: length of the run whose errors are measured along the way; 0 where only the answer is measured.
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
        rows: the log as rows of features in public units (:class:`dprl.engine.rows.Rows`), with every further column
            that they can have.
        seed: seed of the trial.
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
        """The trial's units in the form on which a program runs, see :mod:`dprl.engine.loop`, with all columns.

        The form is :class:`~dprl.engine.layouts.SharedTransitions` or ``PaddedUnits``.
        """
        return self._logs.layout(self._index, self.setting.units)

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return the result of ``make``, which runs once for all methods that ask for ``name`` on this log."""
        return self._logs.once(self._index, self.setting.units, name, make)

    @property
    def ratios(self) -> np.ndarray:
        """Importance ratios of the steps, ``(N,)``."""
        return self._logs.ratios(self._index)[: len(self.log.reward)]


@dataclass(frozen=True, kw_only=True, eq=False)
class Trials:
    """Several trials of a setting, for methods that run them all at once.

    Attributes:
        setting: public facts.
        seeds: one seed per trial.
        logs: source of the trials' logs.
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
        """Whether :meth:`shared_layout` is available: only for a tabular domain of few states."""
        return self.logs.shared

    def shared_layout(self) -> Any:
        """Return all trials over one finite set of transitions, with every column that rows can have.

        The result is a :class:`dprl.engine.layouts.SharedTransitions` whose arrays of units have a leading axis of
        trials.
        """
        return self.logs.shared_layout(self.setting.units)


class Logs:
    """Logs of some trials of a domain, in all their forms; each form is made once, when it is first asked for."""

    def __init__(self, domain: Domain, units: int, seeds: tuple[int, ...]) -> None:
        self.domain, self.units, self.seeds = domain, units, seeds
        self.features = make_features(domain.features, domain.bounds(units).observation)
        self._made: dict[Any, Any] = {}
        self._of_size: tuple[int, dict[Any, Any]] = (0, {})

    @property
    def shared(self) -> bool:
        return isinstance(self.features, Tabular) and self.features.size <= MAX_SHARED

    def full(self, trial: int) -> Trajectories:
        return _once(self._made, ("log", trial), lambda: self.domain.log(self.units, self.seeds[trial]))

    def ratios(self, trial: int) -> np.ndarray:
        return _once(self._made, ("ratios", trial), lambda: self.domain.ratios(self.full(trial)))

    def once(self, trial: int, units: int, name: str, make: Callable[[], Any]) -> Any:
        """Return the result of ``make`` for the first ``units`` trajectories.

        It is kept until another number of units is asked for.
        """
        if self._of_size[0] != units:  # cells come in order of size, so results of another size are not needed again
            self._of_size = (units, {})
        return _once(self._of_size[1], (trial, name), make)

    def rows(self, trial: int, units: int) -> Any:
        """Return the rows of the first ``units`` trajectories."""
        from dprl.engine.rows import Rows

        rows = _once(self._made, ("rows", trial), lambda: self._rows_of(trial, self.features))
        offsets = rows.offsets[: units + 1]
        n = int(offsets[-1])
        if n == int(rows.offsets[-1]):
            return rows
        return Rows(rows.mapped(lambda x: np.concatenate([x[:n], x[-1:]])), offsets)

    def padded(self, trial: int, units: int) -> Any:
        """Return the rows of the first ``units`` trajectories, padded to one length."""
        from jax import device_get

        from dprl.engine.layouts import padded_units

        def make() -> Any:
            # one length for all logs, so that one compiled program serves them
            longest = max(int(self.full(i).lengths().max(initial=1)) for i in range(len(self.seeds)))
            length = min(-(-longest // 64) * 64, self.full(0).bounds.horizon)
            return device_get(padded_units(self.rows(trial, units), length))

        return self.once(trial, units, "padded", make)

    def _rows_of(self, trial: int, features: Features) -> Any:
        from dprl.engine.columns import COLUMNS
        from dprl.engine.rows import rows_of

        log = self.full(trial)
        columns = [c for c in COLUMNS if c != "first" or isinstance(features, Tabular)]
        value = self.domain.bounds(self.units).value_interval(self.domain.discount)
        return rows_of(log, self.ratios(trial), features, self.domain.discount, value, columns=columns)

    def shared_layout(self, units: int) -> Any:
        """Return the first ``units`` trajectories of all the logs over one finite set of transitions."""
        from jax import device_put

        every = _once(self._made, "shared", self._make_shared)
        return self.once(-1, units, "shared", lambda: device_put(every.of_units(lambda x: x[:, :units])))

    def layout(self, trial: int, units: int) -> Any:
        """Return the first ``units`` trajectories of one log, in the layout for this domain."""
        if not self.shared:
            return self.padded(trial, units)
        return self.shared_layout(units).of_units(lambda x: x[trial])

    def _make_shared(self) -> Any:
        import jax

        from dprl_papers.harness.transitions import shared_transitions

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
        together = jax.tree.map(lambda *x: np.stack(x), *layouts)
        return together.of_units(lambda x: x, lambda x: x[0])

    def _cells(self, log: Trajectories) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the unit, source state and target state (-1 for terminal) of each transition."""
        assert isinstance(self.features, Tabular)
        unit = log.unit_of_episode()[log.episode_of()]
        target = np.where(log.terminated, -1, self.features.index(log.next_observation))
        return unit, self.features.index(log.observation), target


def _once(made: dict[Any, Any], key: Any, make: Callable[[], Any]) -> Any:
    if key not in made:
        made[key] = make()
    return made[key]


class _Thin(Tabular):
    """Tabular features that skip computing the vectors; only their number and the state indices are needed."""

    def __call__(self, states: Any, xp: Any = np) -> Any:
        return xp.broadcast_to(xp.zeros((), dtype=states.dtype), (states.shape[0], self.size))


def prefix(log: Trajectories, bounds: Bounds) -> Trajectories:
    """Return the first ``bounds.units`` units of a log."""
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


def _grid(features: Tabular) -> np.ndarray:
    """Return the ``(S, d)`` states, in the order of their indices."""
    axes = [np.arange(low, high + 1.0) for low, high in features.bounds]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(features.size, len(features.bounds))
