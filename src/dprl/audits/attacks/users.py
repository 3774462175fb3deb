"""The strongest attack known on private policy gradient: a canary user in the first batch, all noisy sums seen.

The pair of users goes through the release's own loop, from their answers to the exact sum of each batch; the noise of
the release's own mechanism is added in every trial. Whoever sees all noisy sums, and knows all other users, knows
every policy that was ever shown: whatever is learned from them tells less. Everything in here is simulated.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from dprl.audits.attacks.trials import PlanCanary
from dprl.environment_spec import EnvironmentSpec
from dprl.environments.people import LoggedPeople, People
from dprl.learning.policy_gradient import trainer
from dprl.learning.policy_gradient.estimator import Trajectory
from dprl.learning.policy_gradient.pg_plan import PGPlan, program_of
from dprl.learning.policy_gradient.trainer import PolicyGradient
from dprl.learning.policy_gradient.users import AskedPeople
from dprl.mechanisms.action_coins import ActionCoins
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.grid import grid_step
from dprl.mechanisms.noise import SeededNoise

# --- the pair of users ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pushing(People):
    """All users of the first batch push against the canary, who has the first place; nobody comes afterwards.

    So the sums of later batches do not depend on the policies, and all that the canary moves is known beforehand.
    """

    plan: PGPlan
    present: bool

    def batch(self, first: int, count: int, act: Any) -> Trajectory:
        """Return what a batch of people does; see :class:`~dprl.environments.people.People`."""
        context, action, reward = push(self.plan.facts, self.plan.config.interactions)
        observations, actions, rewards = (np.stack([x] * count) for x in (context, action, -reward))
        length = np.full(rewards.shape[:-1], self.plan.facts.horizon if first == 0 else 0, np.int32)
        if first == 0 and self.present:
            rewards[0] = reward
        elif first == 0 and self.plan.config.relation == "zero-out":
            length[0] = 0
        return Trajectory(observations, actions, rewards, length, np.ones(length.shape, bool))


def push(facts: EnvironmentSpec, interactions: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return context ``(H, d)``, action ``(H,)`` or ``(H, k)`` and reward ``(H,)``, the same in all steps.

    The negative of the reward makes the opposite vector. Of several interactions, which have a leading axis, every
    other one is the opposite action for the opposite reward: else each would be the baseline of the others.
    """
    (low, high), turns = facts.reward_bounds, np.arange(interactions) % 2
    context = np.array([[end for _, end in facts.observation]], np.float32)
    actions = turns[:, None].astype(np.int32)
    if facts.action is not None:
        actions = np.repeat(1.0 - 2.0 * actions[..., None], len(facts.action), axis=2).astype(np.float32)
    rewards = np.where(turns == 0, high, low)[:, None].astype(np.float32)
    found = np.stack([context] * interactions), actions, rewards
    found = tuple(np.repeat(x, facts.horizon, axis=1) for x in found)
    return found if interactions > 1 else tuple(x[0] for x in found)  # type: ignore[return-value]


class _Silence:
    """A noise source that draws nothing and samples nobody, and a journal that keeps the exact sums.

    It is handed to one run: nothing that another release in this process uses is touched.
    """

    secure = False

    def __init__(self) -> None:
        self.totals: list[np.ndarray] = []
        self.count = 0

    def gaussian(self, step: Any, dimension: int, std: float) -> np.ndarray:
        return np.zeros(dimension, np.int64)

    def normals(self, step: Any, dimension: int) -> np.ndarray:
        return np.zeros(dimension)

    def participation_mask(self, step: Any, count: int, rate: float) -> np.ndarray:
        """Nobody's; notes how many have one."""
        self.count = count
        return np.zeros(count, dtype=bool)

    def stream(self, name: str) -> _Silence:
        return self

    def step(self, step: int, count: int, compute: Callable[[], Any]) -> np.ndarray:
        """Return what a step keeps; see :class:`dprl.protocols.Journal`."""
        self.totals.append(np.asarray(compute()))
        return self.totals[-1]


def exact_sums(plan: PGPlan, people: Any) -> np.ndarray:
    """Return ``(T, dimension)``, int64 where verified: each batch's sum before its noise, by the release's own loop."""
    (program, rates), silence = program_of(plan), _Silence()
    asked, coins = AskedPeople(people, program.shape.users), ActionCoins.of_key(random.key(0))
    trainer.run_on_host(program, asked, silence, rates, coins, journal=silence)
    return np.stack(silence.totals)


# --- what is seen of it ---------------------------------------------------------------------------------------------


def canary_of_plan(plan: PGPlan) -> PlanCanary:
    """Return the attack that fits a plan, for a bandit in which a score is longer than the clip norm."""
    if plan.config.poisson:
        return _resampled(plan)
    mechanism = cast(GaussianSum, plan.mechanism)
    answers = "at full clip norm, or not at all"
    if mechanism.relation != "zero-out":
        answers = "at full clip norm one way, or the other way"
    who = "users" if plan.facts.horizon == 1 else "users, who play episodes,"
    kind = mechanism.correlation.name
    kinds = {"independent": "independent noise", "square-root": "noise correlated by the square root"}
    absent, present = (exact_sums(plan, Pushing(plan, there)) for there in (False, True))
    return canary_of_sums(
        plan,
        absent,
        present,
        f"one of {mechanism.batch} {who} in the first of {mechanism.steps} batches answers {answers}, and all others "
        f"push against it; {kinds.get(kind, f'correlated noise, {kind}')}, and all noisy sums are seen",
    )


def canary_of_sums(plan: PGPlan, absent: np.ndarray, present: np.ndarray, description: str) -> PlanCanary:
    """Return the attack that tells exact sums ``(T, dimension)`` from those of neighbours, by all that is released."""
    mechanism = program_of(plan)[0].mechanism
    scale, whitened = mechanism.grid_step if mechanism.certifies else 1.0, mechanism.correlation.whitened
    signal = whitened((present - absent) * scale)
    # whitened sums times the signal are the sums times its transpose, which is the mirror image in time
    template, length = whitened(signal[::-1])[::-1].copy(), float(np.sum(signal**2))

    def score(key: Any, sums: Any) -> Any:
        noise = mechanism.bind(SeededNoise(key).stream(trainer.STREAM))
        seen = mechanism.release(sums, jax.vmap(noise.draw)(jnp.arange(mechanism.steps))) - absent * scale
        return (jnp.sum(template * seen) - length / 2.0) / mechanism.noise_std**2

    return PlanCanary(plan=plan, description=description, score=score, pair=(absent, present), draws=mechanism.draws)


@dataclass(frozen=True)
class Crowded(LoggedPeople):
    """A log of more people than are declared: the canary first, if present, and ``units`` who come after.

    All see the same and take the same action, whatever the policy.

    Attributes:
        last: what the last of them is paid, times the canary's reward; all others between are paid nothing.
    """

    facts: EnvironmentSpec
    units: int = field()
    present: bool
    last: float

    def count(self) -> int:
        """Return how many people there are."""
        return self.units + self.present

    def answers(self, places: np.ndarray, act: Any) -> Trajectory:
        """Return what the people at ``places`` answer."""
        context, action, reward = push(self.facts)
        first, last = (places == 0) & self.present, places == self.units - 1 + self.present
        observations, actions, rewards = (np.stack([x] * len(places)) for x in (context, action, reward))
        rewards *= np.where(first, 1.0, np.where(last, self.last, 0.0))[:, None]
        length = ((places >= 0) & (places < self.units + self.present)).astype(np.int32)
        return Trajectory(observations, actions, rewards, length, np.ones(len(places), bool))


def vectors_of(plan: PGPlan, people: Any) -> np.ndarray:
    """Return ``(count, dimension)`` int64: what each of those who have a coin adds to a batch under the first policy.

    It runs by the release's own loop.
    """
    (program, rates), silence = program_of(plan), _Silence()
    asked, coins, mechanism = AskedPeople(people, None), ActionCoins.of_key(random.key(0)), program.mechanism
    once = PolicyGradient(replace(program.shape, steps=1), replace(mechanism, steps=1))
    trainer.run_on_host(once, asked, silence, rates, coins)
    state, places = program.init(rates, coins), np.arange(silence.count)
    return np.stack([asked.total(program, 0, mechanism, state, places == place) for place in places])


def _resampled(plan: PGPlan) -> PlanCanary:
    """Return the attack on that of two pairs of logs which is further apart.

    Where the canary pushes the last person out, it is the one in which this person pushes against the canary.
    """
    users = int(plan.config.users or 1)
    pairs = [[vectors_of(plan, Crowded(plan.facts, users, there, last)) for there in (False, True)] for last in (0, -1)]
    apart = [float(np.linalg.norm(present.sum(axis=0) - absent.sum(axis=0))) for absent, present in pairs]
    return canary_of_vectors(plan, *pairs[int(apart[1] > 1.01 * apart[0])])


def canary_of_vectors(plan: PGPlan, absent: np.ndarray, present: np.ndarray) -> PlanCanary:
    """Return the attack that tells :func:`vectors_of` a log from its neighbour's, by all sums of sampled people.

    Who is in a batch is secret: only probabilities are known. The attacker computes the likelihood of either log.
    """
    mechanism = cast(GaussianSum, plan.mechanism)
    users, rate, std = int(plan.config.users or 1), mechanism.sampling_rate, mechanism.noise_std

    def likelihood(y: Any, rows: np.ndarray) -> Any:
        # those who add something, and all ways in which they may be drawn together
        vectors = rows[np.any(rows, axis=1)]
        ways = np.array(list(itertools.product([0.0, 1.0], repeat=len(vectors))))
        weights = (np.log(rate) * ways + np.log1p(-rate) * (1.0 - ways)).sum(axis=1)
        sums = ways @ vectors * grid_step(mechanism.clip_norm)
        return jax.nn.logsumexp((sums @ y - np.sum(sums**2, axis=1) / 2.0) / std**2 + weights)

    def score(key: Any, rows: Any) -> Any:
        noise = SeededNoise(key).stream(trainer.STREAM)

        def seen(step: Any) -> Any:
            included = mechanism.participation_mask(noise, step, len(rows))
            y = mechanism.release(included.astype(rows.dtype) @ rows, mechanism.draw(noise, step))
            return likelihood(y, present) - likelihood(y, absent)

        return jnp.sum(jax.vmap(seen)(jnp.arange(mechanism.steps, dtype=jnp.uint32)))

    return PlanCanary(
        plan=plan,
        score=score,
        pair=(absent, present),
        draws=mechanism.steps * (mechanism.dimension + users),
        gaussian=False,
        description=f"the first of {users + 1} people, in a log of {users} declared ones, answers at full clip norm "
        f"whenever they are sampled (with probability {rate:g} in each of {mechanism.steps} batches), or is not there; "
        "all noisy sums are seen",
    )
