"""Laws from which logs are drawn, and the true value of each target policy under them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from dprl.policies.loading import ColumnPolicy


@dataclass(frozen=True)
class Paths:
    """Trajectories as tables ``(N, H)``. Entries after a trajectory's end have no meaning.

    Attributes:
        state: ``(N, H)`` or ``(N, H, d)``, the observation before each decision.
        action: ``(N, H)`` the action taken.
        reward: ``(N, H)`` the reward.
        probability: ``(N, H)`` stated probability of the action under the behaviour policy.
        ratio: target policy -> ``(N, H)`` true target probability divided by the stated behaviour probability.
        length: ``(N,)`` number of steps.
        person: ``(N,)`` number of the person, from 0, in ascending order.
        target: name of a target policy that is a column of the log -> ``(N, H)`` its probability of the action.
        ended: ``(N,)`` whether a trajectory came to its end, rather than being cut at the horizon. :meth:`columns`
            takes the horizon for an end, too.
        lost: ``(N,)`` whether the person was lost in the last step. None where the law loses nobody.
        stays: ``(N, H)`` probability of not being lost in a step, where the log states it.
    """

    state: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    probability: np.ndarray
    ratio: Mapping[str, np.ndarray]
    length: np.ndarray
    person: np.ndarray
    target: Mapping[str, np.ndarray] = field(default_factory=dict)
    ended: np.ndarray | None = None
    lost: np.ndarray | None = None
    stays: np.ndarray | None = None

    def columns(self) -> dict[str, np.ndarray]:
        """Return the log as columns, with everything that ``dprl.read_log`` asks for."""
        trajectories, steps = self.action.shape
        time = np.broadcast_to(np.arange(steps), (trajectories, steps))
        alive = time < self.length[:, None]
        whole = {"action": self.action, "reward": self.reward, "behavior_prob": self.probability, **self.target}
        if self.stays is not None:
            whole["uncensored_prob"] = self.stays
        ends, gone = time == self.length[:, None] - 1, {}
        if self.lost is not None:
            gone = {"censored": (ends & self.lost[:, None])[alive]}
            whole["reward"] = np.where(ends & self.lost[:, None], np.nan, self.reward)  # nobody saw this reward
            ends = ends & ~self.lost[:, None]
        state = self.state if self.state.ndim == 3 else self.state[..., None]
        return {
            "person_id": np.repeat(self.person, self.length),
            "episode_id": np.repeat(np.arange(trajectories), self.length),
            "t": time[alive],
            **{f"observation_{i}": state[alive][:, i].astype(np.float64) for i in range(state.shape[-1])},
            **{name: cells[alive] for name, cells in whole.items()},
            "terminated": ends[alive],
            **gone,
        }


class Domain(Protocol):
    """A law of trajectories whose true values are known."""

    @property
    def policies(self) -> Mapping[str, Any]:
        """Target policies as ``dprl.evaluate`` takes them."""
        ...

    def draw(self, rng: np.random.Generator, people: int) -> Paths: ...

    def value(self, policy: str) -> float:
        """Return the expected discounted return under a target policy, up to the horizon."""
        ...


class TablePolicy:
    """Policy whose probabilities ``(S, A)`` are looked up by the state, the first component of the observation."""

    def __init__(self, table: np.ndarray) -> None:
        self.table = table

    def __call__(self, states: Any, /) -> np.ndarray:
        index = np.clip(np.rint(np.asarray(states)[:, 0]), 0, len(self.table) - 1)
        return self.table[index.astype(np.int64)]


@dataclass(frozen=True)
class Process:
    """A process with finitely many states, actions and rewards; its values follow by dynamic programming.

    Attributes:
        start: ``(S,)`` law of the first state.
        following: ``(S, A, S + 1)`` law of the next state; the last place is the end.
        outcomes: ``(S, A, K)`` law over the possible rewards.
        rewards: ``(K,)`` or ``(S, A, K)`` the possible rewards.
        behavior: ``(S, A)`` behaviour policy.
        targets: name -> ``(S, A)`` target policy.
        horizon: largest number of steps.
        discount: gamma.
        stated: ``(S, A)`` behaviour policy as the log states it. By default the true one.
        visits: ``(S,)`` number of trajectories of a person by the state of the first one; all of them start there. By
            default one.
        observed: ``(S, d)`` observation of each state, by default the state's number. Only for laws whose policies are
            the same in all states.
        hazard: ``(S, A)`` probability that a person is lost in a step. Nobody sees the reward of that step.
        tells_hazard: whether the log states the hazard.
    """

    start: np.ndarray
    following: np.ndarray
    outcomes: np.ndarray
    rewards: np.ndarray
    behavior: np.ndarray
    targets: Mapping[str, np.ndarray]
    horizon: int
    discount: float = 1.0
    stated: np.ndarray | None = None
    visits: np.ndarray | None = None
    observed: np.ndarray | None = None
    hazard: np.ndarray | None = None
    tells_hazard: bool = False

    @property
    def policies(self) -> dict[str, TablePolicy]:
        return {name: TablePolicy(table) for name, table in self.targets.items()}

    def values_by_state(self, policy: str) -> np.ndarray:
        """Return ``(S,)`` the expected return from each state under a target policy."""
        return np.array([replace(self, start=start).value(policy) for start in np.eye(len(self.start))])

    def draw(self, rng: np.random.Generator, people: int) -> Paths:
        states = len(self.start)
        first = _pick(rng, np.broadcast_to(np.cumsum(self.start), (people, states)))
        visits = np.ones(people, np.int64) if self.visits is None else self.visits[first]
        person = np.repeat(np.arange(people), visits)
        return self.follow(rng, self.behavior, first[person], person)

    def follow(self, rng: np.random.Generator, policy: np.ndarray, first: np.ndarray, person: np.ndarray) -> Paths:
        """Return trajectories of ``policy`` that start in the states ``first`` ``(N,)``."""
        count, states = len(first), len(self.start)
        shape = (count, self.horizon)
        state, action, rewards = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape)
        length = np.full(count, self.horizon)
        values = np.broadcast_to(self.rewards, self.outcomes.shape)
        act_edges, outcome_edges, next_edges = (np.cumsum(x, axis=-1) for x in (policy, self.outcomes, self.following))
        now, alive = first.copy(), np.ones(count, bool)
        for t in range(self.horizon):
            act = _pick(rng, act_edges[now])
            state[:, t], action[:, t] = now, act
            rewards[:, t] = values[now, act, _pick(rng, outcome_edges[now, act])]
            after = _pick(rng, next_edges[now, act])
            length[alive & (after == states)] = t + 1
            alive &= after < states
            now = np.where(alive, after, 0)
        stated = self.behavior if self.stated is None else self.stated
        probability = stated[state, action]
        ratio = {name: table[state, action] / probability for name, table in self.targets.items()}
        seen = state if self.observed is None else self.observed[state]
        paths = Paths(seen, action, rewards, probability, ratio, length, person, ended=~alive)
        return paths if self.hazard is None else self._lose(rng, paths, self.hazard[state, action])

    def _lose(self, rng: np.random.Generator, paths: Paths, hazard: np.ndarray) -> Paths:
        """Return the same trajectories, each cut after the step in which the person was lost."""
        gone = (rng.random(hazard.shape) < hazard) & (np.arange(self.horizon) < paths.length[:, None])
        lost = gone.any(axis=1)
        length = np.where(lost, gone.argmax(axis=1) + 1, paths.length)
        ratio = {name: np.where(gone, 0.0, r / (1.0 - hazard)) for name, r in paths.ratio.items()}
        stays = 1.0 - hazard if self.tells_hazard else None
        return replace(paths, ratio=ratio, length=length, lost=lost, stays=stays)

    def value(self, policy: str) -> float:
        return self.value_of(self.targets[policy])

    def value_of(self, policy: np.ndarray) -> float:
        """Return the value of any policy ``(S, A)``."""
        mean = np.sum(self.outcomes * self.rewards, axis=-1)
        ahead = np.zeros(len(self.start) + 1)
        for _ in range(self.horizon):
            ahead[:-1] = np.sum(policy * (mean + self.discount * self.following @ ahead), axis=1)
        return float(self.start @ ahead[:-1])


def _pick(rng: np.random.Generator, edges: np.ndarray) -> np.ndarray:
    """Return ``(N,)`` indices, each drawn from the law whose cumulative sums are that row of ``edges`` ``(N, K)``."""
    draws, out = rng.random(len(edges)), np.zeros(len(edges), np.int64)
    for k in range(edges.shape[1] - 1):
        out += draws >= edges[:, k]
    return out


@dataclass(frozen=True)
class Population:
    """Finitely many recorded trajectories, drawn with replacement. The true value is a mean over all of them.

    Attributes:
        recorded: the trajectories, with the true probabilities of the behaviour policy.
        stated: ``(N, H)`` probabilities that the log states in their place. By default the true ones.
    """

    recorded: Paths
    stated: np.ndarray | None = None

    @property
    def policies(self) -> dict[str, ColumnPolicy]:
        return {name: ColumnPolicy(name) for name in self.recorded.target}

    def draw(self, rng: np.random.Generator, people: int) -> Paths:
        found = self.recorded
        drawn = rng.integers(0, len(found.length), people)
        stated = found.probability if self.stated is None else self.stated
        ratio = {name: table[drawn] / stated[drawn] for name, table in found.target.items()}
        target = {name: table[drawn] for name, table in found.target.items()}
        return Paths(
            found.state[drawn], found.action[drawn], found.reward[drawn], stated[drawn], ratio, found.length[drawn],
            np.arange(people), target,
        )  # fmt: skip

    def value(self, policy: str) -> float:
        found = self.recorded
        alive = np.arange(found.action.shape[1]) < found.length[:, None]
        weight = np.cumprod(np.where(alive, found.ratio[policy], 1.0), axis=1)
        return float(np.where(alive, weight * found.reward, 0.0).sum(axis=1).mean())


@dataclass(frozen=True)
class Arms:
    """A trial: an arm is drawn with equal chances, then an outcome from those that were recorded in that arm.

    Attributes:
        outcomes: recorded outcomes of each arm.
    """

    outcomes: tuple[np.ndarray, ...]

    @property
    def policies(self) -> dict[str, TablePolicy]:
        eye = np.eye(len(self.outcomes))
        return {f"arm_{a}": TablePolicy(eye[a : a + 1]) for a in range(len(eye))}

    def draw(self, rng: np.random.Generator, people: int) -> Paths:
        arms = len(self.outcomes)
        arm, place = rng.integers(0, arms, people), rng.random(people)
        reward = np.zeros(people)
        for a, recorded in enumerate(self.outcomes):
            mine = arm == a
            reward[mine] = recorded[(place[mine] * len(recorded)).astype(np.int64)]
        ratio = {f"arm_{a}": arms * (arm == a)[:, None].astype(np.float64) for a in range(arms)}
        ones, each = np.ones((people, 1)), np.ones(people, np.int64)
        return Paths(0.0 * ones, arm[:, None], reward[:, None], ones / arms, ratio, each, np.arange(people))

    def value(self, policy: str) -> float:
        return float(self.outcomes[int(policy.removeprefix("arm_"))].mean())


@dataclass(frozen=True)
class Lives(Paths):
    """People with one row each, as in a trial of times to an event.

    The reward is the time until which a person was seen, and ``ended`` says whether the event came then.
    """

    def columns(self) -> dict[str, np.ndarray]:
        """Return the log as columns."""
        assert self.ended is not None
        return super().columns() | {"terminated": self.ended}


@dataclass(frozen=True)
class Trial:
    """A trial of times to an event. Some times are not seen, since people leave, independently of their time.

    Attributes:
        scales, shapes: parameters of Weibull's law, which the times in each arm follow.
        leaving: rate at which people leave.
        until: end of the trial.
        chances: probabilities of the arms.
        targets: name -> probabilities of the arms under the target policy.
    """

    scales: tuple[float, ...]
    shapes: tuple[float, ...]
    leaving: float
    until: float
    chances: tuple[float, ...]
    targets: Mapping[str, tuple[float, ...]]

    @property
    def policies(self) -> dict[str, TablePolicy]:
        return {name: TablePolicy(np.array([chances])) for name, chances in self.targets.items()}

    def draw(self, rng: np.random.Generator, people: int) -> Paths:
        arm = rng.choice(len(self.chances), people, p=self.chances)
        time = np.array(self.scales)[arm] * rng.weibull(np.array(self.shapes)[arm])
        left = np.minimum(rng.exponential(1.0 / self.leaving, people), 1.25 * self.until)
        chance = np.array(self.chances)[arm][:, None]
        ratio = {name: np.array(target)[arm][:, None] / chance for name, target in self.targets.items()}
        each, seen = np.ones(people, np.int64), np.minimum(time, left)[:, None]
        return Lives(
            np.zeros((people, 1)), arm[:, None], seen, chance, ratio, each, np.arange(people), ended=time <= left
        )

    def value(self, policy: str) -> float:
        alive = np.exp(-((self.until / np.array(self.scales)) ** np.array(self.shapes)))
        return float(np.dot(self.targets[policy], alive))
