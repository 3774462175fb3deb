"""Plan of learning from people: what it will do and cost, from public facts only. Nobody is asked here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from dprl.accounting import events
from dprl.accounting.budget import Budget
from dprl.accounting.user_relation import CLIPS_MOVED, UserRelation
from dprl.config import DERIVED, filled
from dprl.engine.plan import calibrate
from dprl.entry_points import config_in_calibration
from dprl.learning.policy_gradient.dp_pg import DPPG, NOISE_OF_STEPS, STEPS_TIMES_SIZE, resolve
from dprl.learning.policy_gradient.estimator import Rates, RunShape
from dprl.learning.policy_gradient.trainer import PolicyGradient, policy_of, rates_of, shape_of
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.step_noise import Correlation
from dprl.policies.parametric import Parametric
from dprl.protocols import Claim, EnvironmentSpec


@dataclass(frozen=True)
class PGPlan:
    """Everything about a release that is known before anybody is asked.

    Attributes:
        config: resolved options.
        policy: the policy without its parameters.
        mechanism: the only object that sees people's vectors.
        event: the privacy event of the whole release; None for a claim.
        epsilon_of_event: epsilon of the event at ``delta_of_event``; for a claim the claimed epsilon.
        delta_sampler: what finite precision and the sampler add to delta.
        relation: which sets of people are neighbours, in words.
        claim: claim of a calibration that another distribution brings.
        claimed_run: what such a calibration runs: the shape that is compiled, its numbers, and the object that sees
            people's vectors; None to run what the options say.
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
    claimed_run: tuple[RunShape, Rates, Any] | None = None

    @property
    def name(self) -> str:
        """The algorithm's name."""
        return self.config.algorithm

    @property
    def steps(self) -> int:
        """Number of batches, for a progress bar."""
        return filled(self.config.steps)

    def people_after(self, step: int) -> int:
        """Return what a progress bar shows after ``step`` batches: places, or batches if people are sampled again."""
        return step if self.config.poisson else min(step * filled(self.config.batch), filled(self.config.users))


def make_pg_plan(config: DPPG, facts: EnvironmentSpec, budget: Budget, units: int | None = None) -> PGPlan:
    """Check the options against the facts, and calibrate the noise to the budget.

    Args:
        units: public number of people that the source declares; None if it declares none.

    Raises:
        DprlError: in one sentence: a fact or an option is missing or contradicts another, or the budget cannot be met.
    """
    asked = config_in_calibration(config)
    claimed = asked.claimed(facts, budget, units)
    if claimed is not None:
        return claimed
    config = resolve(asked, facts, units)
    policy = policy_of(config, facts)
    budget.check_units(filled(config.users))
    make = partial(make_mechanism, config, policy.size)
    advice = "a larger delta, fewer steps or a smaller policy"
    mechanism, multiplier, costs = calibrate(make, partial(event_of, config), budget, config.noise_multiplier, advice)
    if asked.step_size is None:
        config = config.replace(DERIVED, step_size=_step_size(config, multiplier))
    return PGPlan(config, facts, budget, policy, mechanism, mechanism.event(), *costs, config.relation_words)


def program_of(plan: PGPlan) -> tuple[PolicyGradient, Rates]:
    """Return the program that a plan runs, and its numbers."""
    if plan.claimed_run is not None:
        shape, rates, mechanism = plan.claimed_run
        return PolicyGradient(shape, mechanism), rates
    assert plan.mechanism is not None
    return PolicyGradient(shape_of(plan.config, plan.facts), plan.mechanism), rates_of(plan.config, plan.facts)


def _step_size(config: DPPG, noise_multiplier: float) -> float:
    """Return the longest step size, which is longer the less noise the sum of all steps has (docs/proofs/dp-pg.md)."""
    steps = filled(config.steps)
    error = 1.0 if config.poisson else Correlation(config.noise).prefix_error(steps)
    clips = 1.0 if config.poisson else CLIPS_MOVED[_relation(config)]
    noise = noise_multiplier * clips * error * math.sqrt(steps)
    return min(STEPS_TIMES_SIZE, NOISE_OF_STEPS * filled(config.users) / noise) / steps


def event_of(config: DPPG, noise_multiplier: float) -> events.DpEvent:
    """Return the privacy event of resolved options: one release for all batches, unless people are sampled again."""
    # one batch of everybody is one release, whichever way it is sampled
    if not config.poisson or (config.batch == config.users and config.steps == 1):
        return events.gaussian(noise_multiplier)
    return events.poisson_gaussian(_rate(config), noise_multiplier, filled(config.steps))


def _rate(config: DPPG) -> float:
    return filled(config.batch) / filled(config.users)


def parts_of(config: DPPG, size: int) -> tuple[tuple[int, float], ...]:
    """Return (dimension, clip norm) of the gradient and of each statistic in use; together they have norm C at most."""
    weights = [weight for weight in (config.baseline_weight, filled(config.scale_weight)) if weight > 0.0]
    rest = math.sqrt(1.0 - sum(weight * weight for weight in weights))
    return tuple((length, config.clip_norm * share) for length, share in [(size, rest), *((1, w) for w in weights)])


def make_mechanism(config: DPPG, size: int, noise_multiplier: float) -> GaussianSum:
    """Return the mechanism that sees people's vectors, from resolved options and a policy with ``size`` parameters."""
    parts, steps = parts_of(config, size), filled(config.steps)
    if config.poisson:
        return GaussianSum(
            parts=((sum(dimension for dimension, _ in parts), config.clip_norm),),
            noise_multiplier=noise_multiplier,
            sampling_rate=_rate(config),
            steps=steps,
        )
    return GaussianSum(
        parts=parts,
        steps=steps,
        batch=config.batch,
        noise_multiplier=noise_multiplier,
        relation=_relation(config),
        correlation=Correlation(config.noise),
    )


def _relation(config: DPPG) -> UserRelation:
    """Return the relation under the name that the mechanism uses."""
    return cast(UserRelation, config.relation.replace("-one", " one"))
