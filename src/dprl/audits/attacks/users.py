"""The strongest attack known on private policy gradient: a canary user in the first batch, all noisy sums seen.

Both sets of users go through the release's own loop, from their answers to the exact sum of each batch. In every trial
the release's own mechanism adds its noise. An attacker who sees all noisy sums, and knows all other users, knows every
policy that was ever shown. Whatever is learned from the sums tells no more. Everything in here is simulated.
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
from dprl.environments.people import LoggedPeople, People
from dprl.learning.policy_gradient import trainer
from dprl.learning.policy_gradient.estimator import Trajectory
from dprl.learning.policy_gradient.people_sources import PeopleOnHost
from dprl.learning.policy_gradient.pg_plan import PGPlan, program_of
from dprl.learning.policy_gradient.trainer import PolicyGradient
from dprl.mechanisms.action_coins import ActionCoins
from dprl.mechanisms.arithmetic import grid_step
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SeededNoise
from dprl.protocols import EnvironmentSpec

# --- the pair of users ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class UsersAgainstCanary(People):
    """Users who, in the first batch, all push against the canary in the first place; nobody comes afterwards.

    So the sums of later batches do not depend on the policies, and all that the canary moves is known beforehand.

    Attributes:
        plan: plan of the release.
        present: whether the canary is in its place.
    """

    plan: PGPlan
    present: bool

    def batch(self, first: int, count: int, act: Any) -> Trajectory:
        """Return the answers of a batch of people; see :class:`~dprl.environments.people.People`."""
        context, action, reward = canary_answers(self.plan.facts, self.plan.config.interactions)
        observations, actions, rewards = (np.stack([x] * count) for x in (context, action, -reward))
        length = np.full(rewards.shape[:-1], self.plan.facts.horizon if first == 0 else 0, np.int32)
        if first == 0 and self.present:
            rewards[0] = reward
        elif first == 0 and self.plan.config.relation == "zero-out":
            length[0] = 0
        return Trajectory(observations, actions, rewards, length, np.ones(length.shape, bool))


def canary_answers(facts: EnvironmentSpec, interactions: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the canary's context ``(H, d)``, action ``(H,)`` or ``(H, k)`` and reward ``(H,)``, the same in all steps.

    The negative of the reward makes the opposite vector. Several interactions are on a leading axis. Every second one
    has the opposite action and the opposite reward, because otherwise each would be the baseline of the others.
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


class _SumRecorder:
    """A noise source that draws nothing and samples nobody, and also a journal that keeps the exact sums.

    It is handed to one run, so that nothing changes for another release in this process.
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
        """Return a mask without anybody, and note how many people have a coin."""
        self.count = count
        return np.zeros(count, dtype=bool)

    def stream(self, name: str) -> _SumRecorder:
        return self

    def step(self, step: int, count: int, compute: Callable[[], Any]) -> np.ndarray:
        """Compute the exact sum of a step, keep it and return it; see :class:`dprl.protocols.Journal`."""
        self.totals.append(np.asarray(compute()))
        return self.totals[-1]


def exact_sums(plan: PGPlan, people: Any) -> np.ndarray:
    """Return ``(T, dimension)`` sums of the batches before noise, as the release's own loop makes them.

    They are int64 where the calibration is verified.
    """
    (program, rates), recorder = program_of(plan), _SumRecorder()
    asked, coins = PeopleOnHost(people, program.shape.places), ActionCoins.from_jax_key(random.key(0))
    trainer.run_on_host(program, asked, recorder, rates, coins, journal=recorder)
    return np.stack(recorder.totals)


# --- what is seen of it ---------------------------------------------------------------------------------------------


def canary_of_plan(plan: PGPlan) -> PlanCanary:
    """Return the attack that fits a plan, for a bandit in which a user's gradient is longer than the clip norm."""
    if plan.config.poisson:
        return _resampled(plan)
    mechanism = cast(GaussianSum, plan.mechanism)
    answers = "at full clip norm, or not at all"
    if mechanism.relation != "zero-out":
        answers = "at full clip norm one way, or the other way"
    who = "users" if plan.facts.horizon == 1 else "users, who play episodes,"
    kind = mechanism.correlation.name
    kinds = {"independent": "independent noise", "square-root": "noise correlated by the square root"}
    absent, present = (exact_sums(plan, UsersAgainstCanary(plan, there)) for there in (False, True))
    return canary_of_sums(
        plan,
        absent,
        present,
        f"one of {mechanism.batch} {who} in the first of {mechanism.steps} batches answers {answers}, and all others "
        f"push against it; {kinds.get(kind, f'correlated noise, {kind}')}, and all noisy sums are seen",
    )


def canary_of_sums(plan: PGPlan, absent: np.ndarray, present: np.ndarray, description: str) -> PlanCanary:
    """Return the attack that tells two neighbours apart, with exact sums ``(T, dimension)`` each, by all noisy sums."""
    mechanism = program_of(plan)[0].mechanism
    scale, whitened = mechanism.grid_step if mechanism.certifies else 1.0, mechanism.correlation.whitened
    signal = whitened((present - absent) * scale)
    # the product of the whitened sums and the signal is that of the sums and the signal times the transposed strategy,
    # which is whitening in reversed time
    template, length = whitened(signal[::-1])[::-1].copy(), float(np.sum(signal**2))

    def score(key: Any, sums: Any) -> Any:
        noise = mechanism.bind(SeededNoise(key).stream(trainer.STREAM))
        seen = mechanism.release(sums, jax.vmap(noise.draw)(jnp.arange(mechanism.steps))) - absent * scale
        return (jnp.sum(template * seen) - length / 2.0) / mechanism.noise_std**2

    return PlanCanary(plan=plan, description=description, score=score, pair=(absent, present), draws=mechanism.draws)


@dataclass(frozen=True)
class OverfullLog(LoggedPeople):
    """A log in which the canary, if present, comes first and ``units`` other people follow: with it, one too many.

    All see the same and take the same action, whatever the policy.

    Attributes:
        facts: public facts of the environment.
        units: declared number of people.
        present: whether the canary is in the log.
        last: reward of the last person, as a multiple of the canary's reward; all people between are paid nothing.
    """

    facts: EnvironmentSpec
    units: int = field()
    present: bool
    last: float

    def count(self) -> int:
        """Return the number of people in the log."""
        return self.units + self.present

    def answers(self, places: np.ndarray, act: Any) -> Trajectory:
        """Return the answers of the people at ``places``."""
        context, action, reward = canary_answers(self.facts)
        first, last = (places == 0) & self.present, places == self.units - 1 + self.present
        observations, actions, rewards = (np.stack([x] * len(places)) for x in (context, action, reward))
        rewards *= np.where(first, 1.0, np.where(last, self.last, 0.0))[:, None]
        length = ((places >= 0) & (places < self.units + self.present)).astype(np.int32)
        return Trajectory(observations, actions, rewards, length, np.ones(len(places), bool))


def vectors_of(plan: PGPlan, people: Any) -> np.ndarray:
    """Return ``(count, dimension)`` int64: what each person who has a coin adds to a batch under the first policy.

    The release's own loop computes the vectors.
    """
    (program, rates), recorder = program_of(plan), _SumRecorder()
    asked, coins, mechanism = PeopleOnHost(people, None), ActionCoins.from_jax_key(random.key(0)), program.mechanism
    once = PolicyGradient(replace(program.shape, steps=1), replace(mechanism, steps=1))
    trainer.run_on_host(once, asked, recorder, rates, coins)
    state, places = program.init(rates, coins), np.arange(recorder.count)
    return np.stack([asked.total(program, 0, mechanism, state, places == place) for place in places])


def _resampled(plan: PGPlan) -> PlanCanary:
    """Return the attack for sampled people, on the one of two pairs of logs whose sums lie further apart.

    In one pair the last person adds nothing, in the other the last person pushes against the canary. The latter is
    chosen where the canary pushes the last person out of the log.
    """
    users = int(plan.config.users or 1)
    pairs = [
        [vectors_of(plan, OverfullLog(plan.facts, users, there, last)) for there in (False, True)] for last in (0, -1)
    ]
    apart = [float(np.linalg.norm(present.sum(axis=0) - absent.sum(axis=0))) for absent, present in pairs]
    return canary_of_vectors(plan, *pairs[int(apart[1] > 1.01 * apart[0])])


def canary_of_vectors(plan: PGPlan, absent: np.ndarray, present: np.ndarray) -> PlanCanary:
    """Return the attack that tells two neighbouring logs apart by all noisy sums of sampled people.

    Who is in a batch is secret, and only the sampling probability is known. The attacker computes the likelihood of
    either log.

    Args:
        plan: plan of the release.
        absent: vectors of the log without the canary, of :func:`vectors_of`.
        present: vectors of the log with the canary.
    """
    mechanism = cast(GaussianSum, plan.mechanism)
    users, rate, std = int(plan.config.users or 1), mechanism.sampling_rate, mechanism.noise_std

    def likelihood(y: Any, rows: np.ndarray) -> Any:
        # people whose vectors are not zero, and all subsets of them that may be drawn
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
