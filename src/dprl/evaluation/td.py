"""Private TD(0): full or Poisson batches of clipped temporal-difference vectors, on and off policy.

Method: Sutton (1988); with an importance ratio per step, Precup, Sutton and Singh (2000). Noise and clip are ours.
Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: the noisy sums of rewards that the start may be made of, and every noisy sum of clipped vectors, hence every
iterate. Proof: docs/proofs/td.md. Symbols: docs/symbols.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from typing_extensions import override

from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.layouts import Block, apply, project_phi
from dprl.engine.program import PublicFacts, Query, Stage
from dprl.evaluation.descent import REFERENCE, STANDARD_ATTACKS, Descent, DescentConfig
from dprl.evaluation.start_level import MeanReward, StartLevel, behind
from dprl.value_functions.features import Tabular


@dataclass(frozen=True, kw_only=True)
class TD(DescentConfig):
    """Options of private TD(0): those of :class:`DescentConfig`, and the start.

    A unit's vector is ``a * sum_t weight_t rho_t phi_t (r_t + gamma theta'phi_{t+1} - theta'phi_t)``. Off policy the
    expected update can diverge (Baird 1995): the projection keeps theta bounded, but nothing makes it right.

    Attributes:
        start: ``mid-range`` of the public values, or ``mean-reward``: the constant ``rbar / (1 - gamma)``, where
            ``rbar`` is the importance-weighted mean reward. It is a noisy ratio, but known without any release where
            the public rewards are a single number. Only there ``mean-reward`` is the default, off policy and unless
            features are a table. For a table this start is far off where trajectories end, and many steps are needed to
            come back.
        start_budget_fraction: share of the mu^2 of the value function that pays for the noisy ratio of the start.
    """

    start: Literal["mid-range", "mean-reward"] | None = None
    start_budget_fraction: float = 0.1

    algorithm: ClassVar[str] = "td"
    ranges: ClassVar[Mapping[str, str]] = {"start_budget_fraction": "(0, 1)"}

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("start = 'mean-reward' needs a discount below 1", self.start != "mean-reward" or self.discount < 1)

    @override
    def count(self, facts: PublicFacts) -> int:
        """Return the number of updates; by default 400 for a table and 100 otherwise."""
        if self.steps is not None:
            return self.steps
        return 400 if isinstance(facts.features, Tabular) else 100

    @override
    def travel(self, facts: PublicFacts, strength: float) -> float:
        """Return how far theta can go by default.

        For a table this is in proportion to n0, because values spread from state to state; otherwise it is 2, growing
        slowly with n0.
        """
        if isinstance(facts.features, Tabular):
            return min(max(2.5 * strength / REFERENCE, 2.0), 25.0)
        return 2.0 * max(strength / REFERENCE, 1.0) ** 0.25

    def starts_at_mean_reward(self, facts: PublicFacts) -> bool:
        """Tell whether the start is the constant made of the mean reward."""
        if self.start is not None:
            return self.start == "mean-reward"
        (low, high), table = facts.bounds.reward, isinstance(facts.features, Tabular)
        return low == high and self.discount < 1.0 and facts.horizon > 1 and facts.ratio > 1.0 and not table

    @override
    def released_start(self, facts: PublicFacts) -> StartLevel | None:
        low, high = facts.bounds.reward
        return MeanReward(facts) if self.starts_at_mean_reward(facts) and low < high else None

    @override
    def queries(self, facts: PublicFacts) -> tuple[Query, ...]:
        return behind(self.released_start(facts), self.start_budget_fraction, *super().queries(facts))

    @override
    def program(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> TDProgram:
        return TDProgram(self.resolve(facts, stages), stages, facts)


@dataclass(frozen=True)
class TDProgram(Descent):
    """Program of private TD(0), with all public numbers filled in. Of two stages the first releases the mean reward."""

    @property
    def public_level(self) -> float | jax.Array:
        """Level of the middle of the value range, or that of the mean reward where all rewards are a single number."""
        # then the smallest reward is also the largest
        known = self.config.starts_at_mean_reward(self.facts)
        return MeanReward(self.facts).of_mean(-1.0) if known else 0.0

    @override
    def vectors(self, state: Any, block: Block) -> Float[Array, "units n"]:
        theta = state.theta.astype(block.phi.dtype)
        error = block.weight_rho_reward - block.weight_rho * apply(block.delta_phi, theta)
        return project_phi(error, block) * jnp.asarray(self.scale, dtype=block.phi.dtype)


ALGORITHM = Algorithm(
    TD,
    settings={
        "full batches": Setting(TD(steps=3, discount=0.9)),
        "from the mean reward": Setting(TD(steps=3, discount=0.9, start="mean-reward")),
        "Poisson batches": Setting(TD(steps=4, discount=0.9, sampling_rate=0.5)),
    },
    attacks=STANDARD_ATTACKS,
)
