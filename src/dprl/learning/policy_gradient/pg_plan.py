"""What learning from users will do and what it will cost, from public facts alone: no user is asked here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from dprl.accounting import events
from dprl.accounting.accountant import epsilon_of
from dprl.accounting.budget import Budget
from dprl.accounting.calibration import noise_multiplier_for
from dprl.accounting.user_relation import CLIPS, Relation
from dprl.added import in_calibration
from dprl.config import DERIVED
from dprl.errors import DprlError
from dprl.learning.policy_gradient.dp_pg import DPPG, NOISE_OF_STEPS, STEPS_TIMES_SIZE, act_once, resolve
from dprl.learning.policy_gradient.estimator import Rates, Shape
from dprl.learning.policy_gradient.trainer import policy_of, rates_of, shape_of
from dprl.learning_facts import LearningFacts
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.strategy import prefix_error
from dprl.mechanisms.user_sum import UserSum
from dprl.policies.parametric import Parametric
from dprl.protocols import Claim

Mechanism = UserSum | GaussianSum
_TRIES = 20


@dataclass(frozen=True)
class PGPlan:
    """Everything about a release that is known before a user is asked.

    Attributes:
        config: resolved options.
        policy: the policy but for its parameters.
        mechanism: what alone sees users' vectors.
        event: the privacy event of the whole release; None of a claim.
        epsilon_of_event: its epsilon at ``delta_of_event``; of a claim what is claimed.
        delta_sampler: what finite precision and the sampler add to delta.
        relation: which sets of users are neighbours, in words.
        claim: of a calibration that another distribution brings.
        runs: what such a calibration runs, as :attr:`learner` says; None for what the options say.
    """

    config: DPPG
    facts: LearningFacts
    budget: Budget
    policy: Parametric
    mechanism: Mechanism | None
    event: events.DpEvent | None
    epsilon_of_event: float
    delta_of_event: float
    delta_sampler: float
    relation: str
    claim: Claim | None = None
    runs: tuple[Shape, Rates, Any] | None = None

    @property
    def name(self) -> str:
        return self.config.algorithm

    @property
    def learner(self) -> tuple[Shape, Rates, Any]:
        """What the loop is called with: what is compiled, its numbers, and what sees users' vectors."""
        return self.runs or (shape_of(self.config, self.facts), rates_of(self.config, self.facts), self.mechanism)

    @property
    def steps(self) -> int:
        """Batches: for a progress bar."""
        assert self.config.steps is not None
        return self.config.steps


def make_pg_plan(config: DPPG, facts: LearningFacts, budget: Budget, units: int | None = None) -> PGPlan:
    """Check the options against the facts, and calibrate the noise to the budget.

    Args:
        units: public number of users that the source declares, if it does.

    Raises:
        DprlError: one sentence: a fact or an option is missing or contradicts another, or the budget cannot be met.
    """
    asked = in_calibration(config)
    claimed = asked.claimed(facts, budget, units)
    if claimed is not None:
        return claimed
    config = resolve(asked, facts, units)
    policy = policy_of(config, facts)
    assert config.users is not None
    budget.check_units(config.users)
    sampler, mechanism = 0.0, None
    for _ in range(_TRIES):
        if sampler >= 0.5 * budget.delta:
            raise DprlError(
                "delta is too small for the precision of so many draws of noise: take a larger delta, fewer steps or a "
                "smaller policy."
            )
        inner = Budget(budget.epsilon, budget.delta - sampler)
        multiplier = config.noise_multiplier
        if multiplier is None:
            multiplier = noise_multiplier_for(partial(event_of, config), inner)
        mechanism = make_mechanism(config, policy.size, multiplier)
        needed = mechanism.delta(budget.epsilon)
        if needed <= sampler:
            break
        sampler = needed
    else:
        raise DprlError("The precision of the noise is not enough for this delta: take a larger one.")
    assert mechanism is not None
    event = mechanism.event()
    if event != event_of(config, multiplier):  # a mistake of ours, and no certificate may come of it
        raise RuntimeError("The mechanism is not the one that was calibrated.")
    epsilon = epsilon_of(event, inner.delta)
    if epsilon > budget.epsilon:
        raise DprlError(
            f"A noise multiplier of {multiplier:g} costs epsilon = {epsilon:.4g} at this delta, more than the budget "
            f"of {budget.epsilon:g}: raise it, or leave it out."
        )
    if asked.step_size is None and act_once(facts):
        config = config.replace(DERIVED, step_size=_step_size(config, multiplier))
    costs = (epsilon, inner.delta, sampler)
    return PGPlan(config, facts, budget, policy, mechanism, event, *costs, config.relation_words)


def _step_size(config: DPPG, noise_multiplier: float) -> float:
    """For people who act once: the longer, the less noise there is in the sum of all steps (docs/papers/003.md)."""
    assert config.users is not None
    assert config.steps is not None
    error = 1.0 if config.poisson else prefix_error(config.noise, config.steps)
    clips = 1.0 if config.poisson else CLIPS[_relation(config)]
    noise = noise_multiplier * clips * error * math.sqrt(config.steps)
    return min(STEPS_TIMES_SIZE, NOISE_OF_STEPS * config.users / noise) / config.steps


def event_of(config: DPPG, noise_multiplier: float) -> events.DpEvent:
    """The privacy event of resolved options: one release however many batches, unless users come more than once."""
    # one batch of everybody is one release, whichever way it is sampled
    if not config.poisson or (config.batch == config.users and config.steps == 1):
        return events.gaussian(noise_multiplier)
    assert config.users is not None
    assert config.batch is not None
    assert config.steps is not None
    return events.poisson_gaussian(config.batch / config.users, noise_multiplier, config.steps)


def parts_of(config: DPPG, size: int) -> tuple[tuple[int, float], ...]:
    """(dimension, clip) of the gradient and of the statistic for the baseline; together they have norm C at most."""
    clip, weight = config.clip_norm, config.baseline_weight
    if weight == 0.0:
        return ((size, clip),)
    return ((size, clip * math.sqrt(1.0 - weight * weight)), (1, clip * weight))


def make_mechanism(config: DPPG, size: int, noise_multiplier: float) -> Mechanism:
    """What sees users' vectors, of resolved options and a policy with ``size`` parameters."""
    assert config.users is not None
    assert config.batch is not None
    assert config.steps is not None
    parts = parts_of(config, size)
    if config.poisson:
        return GaussianSum(
            clip_norm=config.clip_norm,
            noise_multiplier=noise_multiplier,
            dimension=sum(dimension for dimension, _ in parts),
            sampling_rate=config.batch / config.users,
            steps=config.steps,
        )
    return UserSum(
        parts=parts,
        steps=config.steps,
        batch=config.batch,
        noise_multiplier=noise_multiplier,
        relation=_relation(config),
        noise=config.noise,
    )


def _relation(config: DPPG) -> Relation:
    """As the mechanism calls it."""
    return cast(Relation, config.relation.replace("-one", " one"))
