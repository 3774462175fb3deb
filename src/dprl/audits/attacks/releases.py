"""The attack on a whole release in two parts: all that both parts release is seen, and all people but one are known.

Each run releases one of two logs, and then its neighbour with the same coins and along the outputs of the first
release. So the attacker has the exact sums of both logs that enter every mechanism, whatever the mechanism is. The
score is the log-likelihood ratio of all that came out of the mechanisms. A person who is in both parts, or whose rows
are, would be seen twice. The attacker sees the coins, too, because no proof rests on their being secret. Everything is
simulated; nothing is private.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import jax.numpy as jnp
import numpy as np

from dprl.accounting.budget import Budget
from dprl.audits.attacks.programs import FAR, attack_on_all_sums, value_vectors
from dprl.audits.attacks.trials import PlanCanary, check_all_seen
from dprl.audits.record_replay import RecordedRelease, Recorder, ReleaseTrace
from dprl.bounds import Bounds
from dprl.config import Config
from dprl.data.readers import read_log
from dprl.engine.layouts import PaddedUnits
from dprl.engine.plan import Plan
from dprl.engine.sample_split import checked_share
from dprl.errors import DprlError
from dprl.evaluation.fitted_q import FITTED_Q
from dprl.evaluation.importance_sampling import ImportanceSampling
from dprl.evaluation.learned_policy import plan_of_learned, values_of_learned
from dprl.evaluation.learning_question import LearningQuestion
from dprl.evaluation.plan import plan_of_best
from dprl.mechanisms.filtered_sum import FilteredGaussianSum
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SecureNoise, SeededNoise
from dprl.mechanisms.noisy_maximum import NoisyMaximum
from dprl.policies.loading import AlwaysPolicy
from dprl.protocols import NO_JOURNAL, Canary
from dprl.release.private_rows import RowsInMemory, release_values

_ALMOST = 0.98
"""Reward of the person who is in both logs. At 1 no action could be ahead where the canary is there, and a choice
without noise would tell nothing.
"""
_KEPT = 64  # largest number of traces of the other log that are kept


@dataclass(frozen=True, kw_only=True)
class BestAudit(Config):
    """Options of the attack on a choice among policies.

    Attributes:
        choosing_share: share of the people who choose; by default 0.4. With a large share the attack is mainly on the
            choice, with a small one on the values.
    """

    algorithm: ClassVar[str] = "best"

    choosing_share: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_share(self.choosing_share)

    def plan(self, bounds: Bounds, budget: Budget) -> Plan:
        """Return the plan of a release with two candidates."""
        arms = {f"always_{action}": AlwaysPolicy(action, 2) for action in range(2)}
        return plan_of_best(ImportanceSampling(), bounds, budget, arms, share=self.choosing_share)


@dataclass(frozen=True, kw_only=True)
class LearnAudit(BestAudit):
    """Options of the attack on a learned policy.

    Attributes:
        learner: how the policy is learned; ``strata`` stands for a regression for each action in one stratum, where
            behaviour probabilities are estimated.
        part: ``both`` for all that two parts of the people release; ``first`` for every noisy sum of the part from
            which the policy is learned. Then the person's vector is at full clip norm, whatever was released before.
    """

    algorithm: ClassVar[str] = "learn"

    learner: Literal["rules", "fitted-q", "advantage", "strata"] = "rules"
    part: Literal["both", "first"] = "both"

    def plan(self, bounds: Bounds, budget: Budget) -> Plan:
        """Return the plan of a release with the smallest class of rules, or a regression, with one for each action."""
        within = self.learner == "strata"
        how = {"share": self.choosing_share, "learner": FITTED_Q if within else self.learner}
        bounds = replace(bounds, strata=() if within else None)
        return plan_of_learned(values_of_learned(ImportanceSampling(), bounds), bounds, budget, **how)


@dataclass(frozen=True, kw_only=True)
class ReleaseCanary(PlanCanary):
    """A plan in two parts and the ``pair`` of logs on which the plan is attacked, one run after the other."""

    score: Any = None
    gaussian: bool = False
    _others: dict[Any, ReleaseTrace] = field(default_factory=dict, init=False, repr=False, compare=False)

    def traces(self, key: bytes, present: bool) -> tuple[ReleaseTrace, ReleaseTrace]:
        """Return the trace of a run with a ``key`` of 32 bytes, and the other log's trace along the same outputs."""
        noise: Any = SecureNoise(key)
        recorder = Recorder()
        seen = recorder.record(self._releasing(present), noise=noise)
        # the sums of the other log follow from the coins and from all releases but the last
        coins = (np.asarray(self.plan.first.split.in_first(noise, log.units)).tobytes() for log in self.pair)
        *before, _ = (entry.points.tobytes() for entries in seen.entries.values() for entry in entries)
        case = (present, *coins, *before)
        if case not in self._others:
            if len(self._others) == _KEPT:
                self._others.clear()
            self._others[case] = recorder.record(self._releasing(not present), noise=noise)
        return seen, self._others[case]

    def _releasing(self, present: bool) -> Callable[[int], Mapping[str, np.ndarray]]:
        """Return the release of one log, without the results that are made of the noisy sum of the values."""
        rows = RowsInMemory(self.plan, self.pair[present], [])

        def call(seed: int) -> Mapping[str, np.ndarray]:
            noise: Any = SeededNoise.from_seed(seed)
            release_values(rows.after_first(noise, NO_JOURNAL)[1], noise, NO_JOURNAL)
            return {}

        return call

    def scores(
        self, seed: int, trials: int, present: bool, progress: Callable[[int], None] | None = None
    ) -> np.ndarray:
        """Return ``(trials,)`` log-likelihood ratios of runs, each with another key."""
        found = np.zeros(trials)
        for trial in range(trials):
            key = hashlib.blake2b(f"{seed} {present} {trial}".encode(), digest_size=32).digest()
            ratio = log_ratio(*self.traces(key, present))
            found[trial] = -ratio if present else ratio
            if progress is not None and (trial % 1000 == 999 or trial == trials - 1):
                progress(trial + 1)
        return found


def log_ratio(seen: ReleaseTrace, other: ReleaseTrace) -> float:
    """Return the logarithm of how much likelier the other log makes what was seen, from the exact sums of both logs."""
    return sum(
        _log_ratio(mechanism, step, one, two)
        for place, mechanism in enumerate(seen.mechanisms)
        for step, (one, two) in enumerate(zip(seen.entries[place], other.entries[place], strict=True))
    )


def _log_ratio(mechanism: Any, step: int, seen: RecordedRelease, other: RecordedRelease) -> float:
    base, there = np.array(seen.total), np.array(other.total)
    if isinstance(mechanism, NoisyMaximum):
        one, two = (odds(mechanism, total)[int(seen.points[0])] for total in (base, there))
        return float(np.log(two) - np.log(one))
    plain = isinstance(mechanism, GaussianSum) and not isinstance(mechanism, FilteredGaussianSum)
    if not plain or mechanism.sampling_rate != 1.0:
        raise DprlError("A release in two parts is attacked where its sums are over everybody in a part.")
    push = (there - base).astype(np.float64)
    return float(np.sum(push * (seen.points - base - push / 2.0)) / float(mechanism.on_grid_at(step)) ** 2)


def odds(mechanism: NoisyMaximum, total: np.ndarray) -> np.ndarray:
    """Return the ``(K,)`` probability of each candidate to win a noisy maximum with these sums of scores."""
    heads = np.exp(-mechanism.rate * (total.max() - total).astype(np.float64))

    def chance(own: int) -> float:
        others = np.ones(1)  # probability of each number of other candidates whose coin shows heads
        for head in np.delete(heads, own):
            others = np.convolve(others, [1.0 - head, head])
        return heads[own] * float(np.sum(others / np.arange(1, len(others) + 1)))

    return np.array([chance(own) for own in range(len(heads))])


def release_canary(kind: type[BestAudit], *, units: int, budget: Budget, released: str, **options: Any) -> Canary:
    """Return the attack on a release in two parts: a person is added who moves every sum as far as a person may.

    This person has two trajectories with the last action, at the largest ratio and reward. Another person is in both
    logs and has the first action, which is ahead without the added person. The lead is almost as large as what the
    added person can make the last action gain.
    """
    check_all_seen(kind.algorithm, released)
    bounds = Bounds(
        units=units, horizon=1, reward=(-1.0, 1.0), observation=((0.0, 0.0),), actions=2, max_importance_ratio=2.0
    )
    config = kind.from_mapping(options, "options")
    if isinstance(config, LearnAudit) and config.part == "first":
        return _learner_canary(config.plan(replace(bounds, horizon=4), budget))
    who = np.array([0, 1, 1])
    columns = {
        "person_id": who, "episode_id": np.arange(3), "t": np.zeros(3, int), "observation": np.zeros(3), "action": who,
        "reward": np.where(who == 1, 1.0, _ALMOST), "behavior_prob": np.full(3, 0.5), "terminated": np.ones(3, bool),
    }  # fmt: skip
    fewer = {name: values[who == 0] for name, values in columns.items()}
    plan = config.plan(bounds, budget)
    bounds = replace(bounds, strata=plan.bounds.strata)
    absent, present = (read_log(rows, bounds=bounds, unit="person").load() for rows in (fewer, columns))
    return ReleaseCanary(
        plan=plan,
        pair=(absent, present),
        description="a person with two trajectories, as far out as the bounds allow, is added to a log of one; the "
        "coins, which policy was chosen and its noisy values are seen",
    )


def _learner_canary(plan: Plan) -> PlanCanary:
    """Return the attack on the sums from which a policy is learned: three others push against one person.

    Their rows lie far beyond what real rows can have.
    """
    if not isinstance(plan.first, LearningQuestion):
        raise DprlError("learn: rules are chosen once: attack them with part = both and a choosing_share of 0.95.")

    def log(sign: float) -> tuple[Any, Any]:
        signs = np.array([-1.0, -1.0, -1.0, sign], np.float32)[:, None]
        one, nothing = np.ones_like(signs), np.zeros_like(signs)
        rows = {"weight": one, "step": FAR * np.abs(signs), "raw_reward": signs, "logged_return": signs, "rho": one}
        rows |= {"actions": one, "alive": nothing, "states": nothing[..., None], "next_states": nothing[..., None]}
        # people from whom a policy is learned have no part in the values, so these tell nothing about them
        vectors = value_vectors(plan.value_mechanism, np.zeros(len(signs)))
        return vectors, PaddedUnits({name: jnp.asarray(x) for name, x in rows.items()})

    description = "of those who teach one at full clip norm is added to a log of 3; every noisy sum is seen"
    return attack_on_all_sums(
        replace(plan, program=plan.first.program, first=None), (log(0.0), log(1.0)), 3, description
    )
