"""Algorithm 1 of paper 003 as printed, with Theorem 1's sigma, Theorem 2's batch and step size. It certifies nothing.

The gradient is the mean of raw score times return, without clipping: Theorem 1 assumes that a user's vector is at most
Rmax G long. Its noise is that of the classical Gaussian mechanism for replacing one user, which is proved for epsilon
below 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from dprl.accounting.budget import Budget
from dprl.accounting.user_relation import RELATION_WORDS
from dprl.cli.calibrate import rounded_up
from dprl.config import DERIVED
from dprl.engine.algorithm import Algorithm
from dprl.errors import DprlError
from dprl.learning.policy_gradient.dp_pg import DPPG, resolve
from dprl.learning.policy_gradient.estimator import Rates, RunShape
from dprl.learning.policy_gradient.pg_plan import PGPlan
from dprl.learning.policy_gradient.trainer import policy_of
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.policies.parametric import CONSTANT, Parametric
from dprl.protocols import Attack, Claim, EnvironmentSpec, Precondition

_REPAIRS = (
    "relation", "noise", "sampling", "clip_norm", "decay", "discount", "estimator", "baseline_weight", "bootstrap",
    "regularisation", "natural", "interactions", "sharpness", "scale_weight",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PublishedPG(DPPG):
    """Options of Algorithm 1 with the noise of Theorem 1; options for dprl's repairs are refused."""

    calibration: Literal["verified", "as-published"] = "as-published"

    def claimed(self, facts: EnvironmentSpec, budget: Budget, units: int | None) -> PGPlan:
        """Return the plan of a release that claims the budget and has no event.

        Raises:
            DprlError: an option contradicts the paper, or a fact is missing.
        """
        self._check()
        config = resolve(self, facts, units)
        policy = policy_of(config, facts)
        assert config.users is not None
        budget.check_units(config.users)
        asked = replace(self, users=config.users)
        settings = asked.settings(policy, facts, budget)
        config = config.replace(
            DERIVED,
            batch=settings.batch,
            steps=settings.steps,
            step_size=settings.step_size,
            clip_norm=settings.largest_return * settings.score_bound,
            relation="replace-one",
            noise="independent",
            decay="constant",
            discount=1.0,
            estimator="reinforce",
            baseline_weight=0.0,
            scale_weight=0.0,
            bootstrap="none",
            regularisation=0.0,
            sharpness=1.0,
        )
        return PGPlan(
            config,
            facts,
            budget,
            policy,
            mechanism=None,
            event=None,
            epsilon_of_event=budget.epsilon,
            delta_of_event=budget.delta,
            delta_sampler=0.0,
            relation=config.relation_words,
            claim=Claim(config.relation_words, conditions(budget)),
            claimed_run=published_run(settings, policy, facts.horizon),
        )

    def _check(self) -> None:
        if self.noise_multiplier is not None:
            raise DprlError(
                "dp-pg: noise_multiplier contradicts calibration = 'as-published', which has the paper's own: leave "
                "one out."
            )
        for name in _REPAIRS:
            if getattr(self, name) != getattr(DPPG, name):
                raise DprlError(f"dp-pg: Algorithm 1 as published has no {name}: leave it out.")

    def settings(self, policy: Parametric, facts: EnvironmentSpec, budget: Budget) -> Settings:
        """Return Algorithm 1's numbers for the given number of users."""
        largest = facts.horizon * max(abs(end) for end in facts.reward_bounds)
        if not largest > 0.0:
            raise DprlError("dp-pg: the reward's bounds are zero: there is nothing to learn.")
        assert self.users is not None
        given = {"batch": self.batch, "step_size": self.step_size}
        return published_settings(policy, self.users, largest, facts.horizon, budget, **given)

    def noise_in_words(self, budget: Budget, **public: Any) -> tuple[dict[str, Any], str]:
        """Return what ``dprl calibrate`` says: Theorem 1's noise beside the noise that the same claim needs."""
        del public
        stds = noise_multipliers(budget)
        relation, assumed = RELATION_WORDS["replace one"], conditions(budget)
        made = {
            "std_in_bounds": stds.pop("as published"),
            "needed": stds,
            "epsilon": budget.epsilon,
            "delta": budget.delta,
            "relation": relation,
            "preconditions": Claim(relation, assumed).preconditions,
        }
        needed = "; ".join(f"{words}: {rounded_up(std)}" for words, std in stds.items())
        lines = [
            f"as published: noise standard deviation {rounded_up(made['std_in_bounds'])} times the bound Rmax G on "
            f"a user's vector, {relation}",
            f"claimed: epsilon {budget.epsilon:g}, delta {budget.delta:g}; this certifies nothing",
            *(f"{c.statement}: this {'holds' if c.holds else 'does not hold'} here" for c in assumed),
            f"the exact Gaussian mechanism needs, {needed}",
        ]
        return made, "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Algorithm 1's numbers.

    Attributes:
        users, batch, steps: numbers N, m and T.
        largest_return: bound Rmax on a return.
        score_bound, curvature_bound: G and F of Assumption 1, for a whole interaction.
        std: sigma, the standard deviation of the noise in each coordinate of the *mean* gradient.
        step_size: step size eta.
    """

    users: int
    batch: int
    steps: int
    largest_return: float
    score_bound: float
    curvature_bound: float
    std: float
    step_size: float


def score_bounds(policy: Parametric, horizon: int) -> tuple[float, float]:
    """Return G and F of Assumption 1 for an interaction of ``horizon`` steps and a policy linear in its features.

    A softmax's score is (1_a - pi) phi. Its norm is at most sqrt(2) |phi| (docs/papers/003.md, E1), and that of its
    Hessian is at most |phi|^2/2. A Gaussian's score is unbounded; its value at 4 standard deviations stands for its
    largest.
    """
    if policy.hidden:
        raise DprlError("Algorithm 1 as published needs a bound of the score; there is one for linear policies.")
    # largest |phi|^2: the constant, and components in [-1, 1]
    square = 1.0 if policy.kind == "tabular" else policy.features - 1.0 + CONSTANT**2
    if policy.gaussian:
        return horizon * 4.0 * math.sqrt(square * policy.outputs) / policy.std, horizon * square / policy.std**2
    return horizon * math.sqrt(2.0 * square), horizon * square / 2.0


def published_std(largest_return: float, score_bound: float, batch: int, budget: Budget) -> float:
    """Return Theorem 1's sigma: sqrt(8 ln(1.25/delta)) Rmax G/(m epsilon).

    >>> round(published_std(1.0, 1.0, 1, Budget(1.0, 1e-6)), 1)
    10.6
    """
    return math.sqrt(8.0 * math.log(1.25 / budget.delta)) * largest_return * score_bound / (batch * budget.epsilon)


def published_batch(users: int, dimension: int, epsilon: float) -> int:
    """Return Theorem 2's m = (1/epsilon)^(2/3) (N d)^(1/3) (appendix A.2), rounded; between 1 and N.

    >>> published_batch(10**6, 1, 1.0)
    100
    """
    return int(min(max(1, round((1.0 / epsilon) ** (2.0 / 3.0) * (users * dimension) ** (1.0 / 3.0))), users))


def published_step_size(
    largest_return: float, score_bound: float, curvature_bound: float, gap: float, batch: int, steps: int, noise: float
) -> float:
    """Return Theorem 2's eta = min(1/(L B), sqrt(2 delta_0)/sqrt(T L C)) (appendix A.2).

    Args:
        gap: delta_0 = J* - J(theta_0), or a bound on it.
        noise: d sigma^2, the expected squared norm of the noise.
    """
    smooth = largest_return * (score_bound**2 + curvature_bound)
    factor = max(1.0 - 1.0 / batch, 1e-12)
    variance = largest_return**2 * score_bound**2 / batch + noise
    return min(1.0 / (smooth * factor), math.sqrt(2.0 * gap) / math.sqrt(steps * smooth * variance))


def published_settings(
    policy: Parametric,
    users: int,
    largest_return: float,
    horizon: int,
    budget: Budget,
    batch: int | None = None,
    step_size: float | None = None,
) -> Settings:
    """Return Algorithm 1's numbers by the theorems, where delta_0 is bounded by 2 Rmax."""
    score, curvature = score_bounds(policy, horizon)
    size = batch or published_batch(users, policy.size, budget.epsilon)
    steps = -(-users // size)  # the last batch may have fewer users, but is divided by m nevertheless
    std = published_std(largest_return, score, size, budget)
    eta = step_size or published_step_size(
        largest_return,
        score,
        curvature,
        2.0 * largest_return,
        size,
        steps,
        policy.size * std**2,
    )
    return Settings(
        users=users,
        batch=size,
        steps=steps,
        largest_return=largest_return,
        score_bound=score,
        curvature_bound=curvature,
        std=std,
        step_size=eta,
    )


def published_run(settings: Settings, policy: Parametric, horizon: int) -> tuple[RunShape, Rates, GaussianSum]:
    """Return shape, rates and noisy sum with which the trainer runs Algorithm 1. Bind the sum's noise to a seed."""
    s = settings
    shape = RunShape(
        policy=policy,
        places=s.users,
        batch=s.batch,
        steps=s.steps,
        horizon=horizon,
        estimator="reinforce",
        baseline=False,
        bootstrap="none",
    )
    numbers = Rates(
        step_size=s.step_size, final=1.0, discount=1.0, middle=0.0, half=s.largest_return, scale=s.largest_return,
        baseline_weight=1.0, baseline_gain=0.0, regularisation=0.0, clip=1.0,
    )  # fmt: skip
    exact = GaussianSum(
        parts=((policy.size, s.largest_return * s.score_bound),),
        steps=s.steps,
        batch=s.batch,
        noise_multiplier=s.std * s.batch / (2.0 * s.largest_return * s.score_bound),
        relation="replace one",
    )
    return shape, Rates(*map(np.float32, numbers)), exact.unclipped()


def conditions(budget: Budget) -> tuple[Precondition, ...]:
    """Return the conditions that Theorem 1's calibration assumes.

    One of them is the bound on a user's vector, which nothing enforces.
    """
    return (
        Precondition(f"epsilon = {budget.epsilon:g} is below 1, where the classical Gaussian mechanism is proved",
                     budget.epsilon < 1.0),
        Precondition("every user's vector is at most Rmax G long, though nothing clips it", False),
    )  # fmt: skip


def noise_multipliers(budget: Budget) -> dict[str, float]:
    """Return noise multipliers std m/(Rmax G): the paper's, and the analytic Gaussian's for replace one and zero-out.

    >>> {name: round(value, 2) for name, value in noise_multipliers(Budget(1.0, 1e-6)).items()}
    {'as published': 10.6, 'replace one': 8.45, 'zero out one': 4.22}
    """
    from dprl.accounting.calibration import gaussian_noise_multiplier

    exact = gaussian_noise_multiplier(budget)
    return {"as published": published_std(1.0, 1.0, 1, budget), "replace one": 2.0 * exact, "zero out one": exact}


ALGORITHM = Algorithm(
    PublishedPG,
    settings={},
    attacks=(Attack(units=200, epsilon=1.0, delta=1e-6, trials=400_000),),
    canary="dprl_papers.paper_003_dp_pg.attack:canary_of_plan",
)
