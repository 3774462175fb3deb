"""Public facts about an environment for learning. A leaf, as :mod:`dprl.protocols` is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dprl.protocols import Interval

RewardOf = Literal["state", "state-action"]


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
