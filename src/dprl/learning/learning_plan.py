"""Plan of a learning release: what it will do and cost, from public facts only. No reward is asked for here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dprl.accounting import events
from dprl.accounting.accountant import epsilon_of
from dprl.accounting.budget import Budget
from dprl.accounting.reward_relation import RewardRelation, default_decay
from dprl.config import DERIVED, filled
from dprl.engine.plan import calibrate
from dprl.entry_points import config_in_calibration
from dprl.errors import DprlError
from dprl.learning import planned_q
from dprl.learning.functional_q import FunctionalQ, relation, resolve
from dprl.mechanisms.function_noise import FunctionNoise
from dprl.mechanisms.reward_noise import MemoisedAnswers, RewardGradient, RewardNoise
from dprl.protocols import Claim, EnvironmentSpec
from dprl.value_functions.q_function import weight_shapes

Mechanism = FunctionNoise | RewardNoise | RewardGradient
_TRIES = 20


@dataclass(frozen=True)
class LearningPlan:
    """Everything about a learning release that is known before a reward is asked for.

    Attributes:
        config: resolved options.
        mechanism: the only object that sees rewards; None for a claim.
        event: the privacy event of the whole release; None for a claim.
        epsilon_of_event: epsilon of the event at ``delta_of_event``; for a claim the claimed epsilon.
        delta_sampler: what finite precision or the sampler adds to delta.
        relation: which reward functions are neighbours.
        claim: claim of a calibration that another distribution brings; its options learn by themselves.
        model: ``(A, N, N)`` public transition matrix on :data:`planned_q.POINTS` (variant output).
    """

    config: FunctionalQ
    facts: EnvironmentSpec
    budget: Budget
    mechanism: Mechanism | None
    event: events.DpEvent | None
    epsilon_of_event: float
    delta_of_event: float
    delta_sampler: float
    relation: RewardRelation
    claim: Claim | None = None
    model: np.ndarray | None = None

    @property
    def name(self) -> str:
        """The algorithm's name."""
        return self.config.algorithm

    @property
    def steps(self) -> int:
        """Number of samples, for a progress bar."""
        return self.config.samples


def make_learning_plan(
    config: FunctionalQ, facts: EnvironmentSpec, budget: Budget, model: np.ndarray | None = None
) -> LearningPlan:
    """Check the options against the facts, and calibrate the noise to the budget.

    Args:
        model: ``(A, N, N)`` transition matrix of a public environment on the points :data:`planned_q.POINTS`; needed
            only by the variant output.

    Raises:
        DprlError: in one sentence: a fact or an option is missing or contradicts another, the variant has no proof for
            this environment, or the budget cannot be met.
    """
    config = config_in_calibration(config)
    claimed = config.claimed(facts, budget)
    if claimed is not None:
        return claimed
    config = resolve(config, facts)
    if config.people is not None:
        budget.check_units(config.people)
    if config.variant == "output":
        if model is None:
            raise DprlError("output: this environment has no public transition matrix; use functional.")
        config = _with_output_decay(config, facts, model)
    make = partial(make_mechanism, config, facts, model=model)
    trial = make(1.0)
    releases = None if isinstance(trial, FunctionNoise) else trial.steps
    advice = "a larger delta or fewer samples"
    mechanism, _, costs = calibrate(make, partial(_event, releases), budget, config.noise_multiplier, advice)
    event = mechanism.event()
    return LearningPlan(config, facts, budget, mechanism, event, *costs, relation(config), model=model)


def make_mechanism(
    config: FunctionalQ, facts: EnvironmentSpec, noise_multiplier: float, model: np.ndarray | None = None
) -> Mechanism:
    """Return the mechanism that sees the rewards, from resolved options."""
    radius, z = filled(config.reward_radius), noise_multiplier
    match config.variant:
        case "observed-reward":
            finite = facts.finite if config.memoise else None
            return RewardNoise(
                radius=radius,
                steps=config.samples if finite is None else min(config.samples, math.prod(finite)),
                batch=config.round,
                rounds=None if finite is None else config.rounds,
                reward_bounds=facts.reward_bounds,
                noise_multiplier=z,
            )
        case "gradient":
            shapes = weight_shapes(filled(config.network), facts.dimensions, facts.actions)
            return RewardGradient(
                radius=radius,
                clip_norm=config.clip_norm,
                dimension=sum(int(np.prod(shape)) for shape in shapes.values()),
                steps=config.rounds,
                batch=config.round,
                reward_bounds=facts.reward_bounds,
                noise_multiplier=z,
            )
    decay = filled(config.decay)
    if config.variant == "output":
        assert model is not None
        sup, lipschitz = planned_q.q_sensitivity(config, facts, model)
        low, high = facts.reward_bounds
        scale = 1.0 / (1.0 - float(config.discount or 0.0))
        return FunctionNoise(
            sup=sup,
            lipschitz=lipschitz,
            decay=decay,
            paths=facts.actions,
            answers=facts.actions * len(planned_q.POINTS),
            reward_bounds=(low * scale, high * scale),
            noise_multiplier=z,
        )
    return FunctionNoise(
        sup=radius,
        lipschitz=filled(config.reward_lipschitz),
        decay=decay,
        paths=1 if config.shared_path else facts.actions,
        dimensions=facts.dimensions,
        on_grid=facts.on_grid,
        mixed_derivatives=config.mixed_derivatives,
        answers=config.samples,
        reward_bounds=facts.reward_bounds,
        noise_multiplier=z,
    )


def epsilon_at(mechanism: Mechanism, delta: float) -> tuple[float, float]:
    """Return the epsilon of a mechanism at ``delta``, and the part of delta at which its event has this epsilon.

    The rest of delta covers the mechanism's finite precision.

    Raises:
        DprlError: the mechanism gives no guarantee at this delta.
    """
    event, precision = mechanism.event(), 0.0
    for _ in range(_TRIES):
        epsilon = epsilon_of(event, delta - precision)
        needed = mechanism.delta(epsilon)
        if needed <= precision:
            return epsilon, delta - precision
        precision = mechanism.delta(epsilon + 0.01)
        if not precision < delta / 2.0:
            break
    raise DprlError("This noise multiplier is too small to give any guarantee at this delta.")


def bound_answers(plan: LearningPlan, noise: Any) -> Any:
    """Return the answers that the learner asks on the host: the mechanism with ``noise``, which nothing else may use.

    In the variant functional a memo wraps the path. Off the path's grid the first observation of a cell answers for the
    whole cell. On the grid a position that is asked again enters with its first reward.
    """
    mechanism = filled(plan.mechanism)
    answers = mechanism.bind(noise)
    if isinstance(mechanism, FunctionNoise) and plan.config.variant == "functional":
        return MemoisedAnswers(answers, mechanism.answers, shared=mechanism.paths == 1 and not mechanism.on_grid)
    return answers


def _event(releases: int | None, noise_multiplier: float) -> events.DpEvent:
    """Return the event of so many Gaussian releases; None stands for the single release of a path."""
    if releases is None:
        return events.gaussian(noise_multiplier)
    return events.poisson_gaussian(1.0, noise_multiplier, releases)


def _with_output_decay(config: FunctionalQ, facts: EnvironmentSpec, model: Any) -> FunctionalQ:
    """Return the options with the decay that fits the optimal Q rather than the reward."""
    if config.decay is not None:
        return config
    return config.replace(DERIVED, decay=default_decay(*planned_q.q_sensitivity(config, facts, model)))
