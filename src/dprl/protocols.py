"""Protocols and public values that the rooms share. A leaf: it imports only NumPy and other leaves.

Shapes: ``N`` transitions (rows), ``d`` observation components, ``A`` actions, ``n`` features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from dprl.bounds import Interval

RewardOf = Literal["state", "state-action"]


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
class EnvironmentSpec:
    """Public facts about an environment in which a policy is learned: everything except the rewards.

    Attributes:
        name: name by which a user asks for the environment.
        observation: smallest and largest value of each observation component; scaled components go from 0 to 1.
        actions: number of discrete actions; 0 where they are continuous.
        action: smallest and largest value of each component of continuous actions.
        names: names of the observation components, for readers of a report.
        horizon: longest episode, in transitions.
        discount: discount factor of the returns.
        reward_bounds: smallest and largest reward of one transition.
        on_grid: whether every scaled component is a multiple of the grid on which rewards are answered.
        reward_of: what a reward is a function of: the ``state`` in which the action is taken, or that state and the
            action (``state-action``). None where nothing is declared: a reward may then depend on the next state, on
            chance or on time.
        reward_lipschitz: Lipschitz constant of one person's reward function over the scaled observation, if known.
        finite: number of states and number of actions, where both are finite and a reward is a function of the two.
    """

    name: str
    observation: tuple[Interval, ...]
    actions: int
    horizon: int
    discount: float
    reward_bounds: Interval
    on_grid: bool = False
    reward_of: RewardOf | None = None
    reward_lipschitz: float | None = None
    finite: tuple[int, int] | None = None
    action: tuple[Interval, ...] | None = None
    names: tuple[str, ...] | None = None

    @property
    def dimensions(self) -> int:
        """Number of observation components."""
        return len(self.observation)

    @property
    def reward_ignores_action(self) -> bool:
        """Whether it is declared that a reward depends on the state only."""
        return self.reward_of == "state"

    def name_of(self, component: int) -> str:
        """Return the name of an observation component in a report."""
        return f"observation_{component}" if self.names is None else self.names[component]

    @property
    def reward_range(self) -> float:
        """Difference of the largest and the smallest reward."""
        return self.reward_bounds[1] - self.reward_bounds[0]


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
        trials: number of held-out runs on each dataset in the published table.
    """

    released: str = "all"
    units: int = 200
    epsilon: float = 1.0
    delta: float = 1e-5
    options: Mapping[str, Any] = field(default_factory=dict)
    trials: int = 1_000_000


class Canary(Protocol):
    """A worst-case pair of neighbouring datasets and the attack that tells them apart, for an audit.

    The algorithm's own code runs on both datasets; the attack sees only what it releases.
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
        """The pair of datasets and what the attack sees of it, in words."""
        ...

    @property
    def gaussian(self) -> bool:
        """True where the scores are Gaussian with one variance on both datasets, so that a bound on mu applies."""
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
            seed: seed of the runs' noise; the two datasets never share a noise key.
            trials: number of runs.
            present: whether the canary's record is in the log.
            progress: called with the number of runs done.
        """
        ...
