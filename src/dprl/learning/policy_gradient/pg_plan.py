"""What learning from users will do and what it will cost, from public facts alone: no user is asked here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from dprl.accounting import events
from dprl.accounting.budget import Budget
from dprl.accounting.user_relation import CLIPS, Relation
from dprl.added import in_calibration
from dprl.config import DERIVED
from dprl.engine.plan import calibrate
from dprl.environment_spec import EnvironmentSpec
from dprl.learning.policy_gradient.dp_pg import DPPG, NOISE_OF_STEPS, STEPS_TIMES_SIZE, resolve
from dprl.learning.policy_gradient.estimator import Rates, RunShape
from dprl.learning.policy_gradient.trainer import PolicyGradient, policy_of, rates_of, shape_of
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.strategy import Correlation
from dprl.policies.parametric import Parametric
from dprl.protocols import Claim


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
        runs: what such a calibration runs, what is compiled, its numbers, and what sees users' vectors; None for
            what the options say.
    """

    config: DPPG
    facts: EnvironmentSpec
    budget: Budget
    policy: Parametric
    mechanism: GaussianSum | None
    event: events.DpEvent | None
    epsilon_of_event: float
    delta_of_event: float
    delta_sampler: float
    relation: str
    claim: Claim | None = None
    runs: tuple[RunShape, Rates, Any] | None = None

    @property
    def name(self) -> str:
        """The algorithm's name."""
        return self.config.algorithm

    @property
    def steps(self) -> int:
        """Batches: for a progress bar."""
        assert self.config.steps is not None
        return self.config.steps

    def people_after(self, step: int) -> int:
        """Return what a progress bar shows after so many batches: places of people, or batches of who is sampled
        again.
        """
        assert self.config.users is not None
        assert self.config.batch is not None
        return step if self.config.poisson else min(step * self.config.batch, self.config.users)


def make_pg_plan(config: DPPG, facts: EnvironmentSpec, budget: Budget, units: int | None = None) -> PGPlan:
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
    make = partial(make_mechanism, config, policy.size)
    advice = "a larger delta, fewer steps or a smaller policy"
    mechanism, multiplier, costs = calibrate(make, partial(event_of, config), budget, config.noise_multiplier, advice)
    if asked.step_size is None:
        config = config.replace(DERIVED, step_size=_step_size(config, multiplier))
    return PGPlan(config, facts, budget, policy, mechanism, mechanism.event(), *costs, config.relation_words)


def program_of(plan: PGPlan) -> tuple[PolicyGradient, Rates]:
    """Return the program that a plan runs, and its numbers."""
    if plan.runs is not None:
        shape, rates, mechanism = plan.runs
        return PolicyGradient(shape, mechanism), rates
    assert plan.mechanism is not None
    return PolicyGradient(shape_of(plan.config, plan.facts), plan.mechanism), rates_of(plan.config, plan.facts)


def _step_size(config: DPPG, noise_multiplier: float) -> float:
    """Return the longest step: the longer, the less noise there is in the sum of all steps (docs/proofs/dp-pg.md)."""
    assert config.users is not None
    assert config.steps is not None
    error = 1.0 if config.poisson else Correlation(config.noise).prefix_error(config.steps)
    clips = 1.0 if config.poisson else CLIPS[_relation(config)]
    noise = noise_multiplier * clips * error * math.sqrt(config.steps)
    return min(STEPS_TIMES_SIZE, NOISE_OF_STEPS * config.users / noise) / config.steps


def event_of(config: DPPG, noise_multiplier: float) -> events.DpEvent:
    """Return the privacy event of resolved options: one release however many batches, unless users come more than
    once.
    """
    # one batch of everybody is one release, whichever way it is sampled
    if not config.poisson or (config.batch == config.users and config.steps == 1):
        return events.gaussian(noise_multiplier)
    assert config.users is not None
    assert config.batch is not None
    assert config.steps is not None
    return events.poisson_gaussian(config.batch / config.users, noise_multiplier, config.steps)


def parts_of(config: DPPG, size: int) -> tuple[tuple[int, float], ...]:
    """Return (dimension, clip) of the gradient and of the statistic for the baseline; together they have norm C at
    most.
    """
    clip, weight = config.clip_norm, config.baseline_weight
    if weight == 0.0:
        return ((size, clip),)
    return ((size, clip * math.sqrt(1.0 - weight * weight)), (1, clip * weight))


def make_mechanism(config: DPPG, size: int, noise_multiplier: float) -> GaussianSum:
    """Return what sees users' vectors, of resolved options and a policy with ``size`` parameters."""
    assert config.users is not None
    assert config.batch is not None
    assert config.steps is not None
    parts = parts_of(config, size)
    if config.poisson:
        return GaussianSum(
            parts=((sum(dimension for dimension, _ in parts), config.clip_norm),),
            noise_multiplier=noise_multiplier,
            sampling_rate=config.batch / config.users,
            steps=config.steps,
        )
    return GaussianSum(
        parts=parts,
        steps=config.steps,
        batch=config.batch,
        noise_multiplier=noise_multiplier,
        relation=_relation(config),
        correlation=Correlation(config.noise),
    )


def _relation(config: DPPG) -> Relation:
    """Return the relation as the mechanism calls it."""
    return cast(Relation, config.relation.replace("-one", " one"))
