"""Private TD(0): full or Poisson batches of clipped temporal-difference vectors, on and off policy.

Method: Sutton (1988); with an importance ratio a step, Precup, Sutton and Singh (2000). Noise and clip are ours.
Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: the noisy sums of rewards that the start may be made of, and every noisy sum of clipped vectors, hence every
iterate. Proof: docs/proofs/td.md. Symbols: docs/symbols.md.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp

from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.layouts import Block, apply, project_phi
from dprl.engine.program import PublicFacts, Query, Stage
from dprl.evaluation.descent import REFERENCE, Descent, DescentConfig
from dprl.protocols import Attack
from dprl.value_functions.features import Tabular

START = "mean reward"


@dataclass(frozen=True, kw_only=True)
class TD(DescentConfig):
    """Options of private TD(0): those of :class:`DescentConfig` and its start.

    A unit's vector is ``a * sum_t weight_t rho_t phi_t (r_t + gamma theta'phi_{t+1} - theta'phi_t)``. Off policy the
    expected update can diverge (Baird 1995): the projection keeps theta bounded, nothing makes it right.

    Attributes:
        start: ``mid-range`` of the public values, or ``mean-reward``: the constant ``rbar / (1 - gamma)`` with
            ``rbar`` the importance-weighted mean reward, a noisy ratio, which is known without any release where the
            public rewards are a single number. The default is ``mean-reward`` just there, off policy.
        start_budget_fraction: share of the mu^2 of the value function that pays for such a ratio.
    """

    start: Literal["mid-range", "mean-reward"] | None = None
    start_budget_fraction: float = 0.1

    algorithm: ClassVar[str] = "td"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("start_budget_fraction must be above 0 and below 1", 0.0 < self.start_budget_fraction < 1.0)
        self._check("start = 'mean-reward' needs a discount below 1", self.start != "mean-reward" or self.discount < 1)

    def count(self, facts: PublicFacts) -> int:
        """400 for a table, 100 otherwise."""
        if self.steps is not None:
            return self.steps
        return 400 if isinstance(facts.features, Tabular) else 100

    def travel(self, facts: PublicFacts, strength: float) -> float:
        """Tabular: in proportion to n0, as values travel from state to state; otherwise 2, growing slowly with n0."""
        if isinstance(facts.features, Tabular):
            return min(max(2.5 * strength / REFERENCE, 2.0), 25.0)
        return 2.0 * max(strength / REFERENCE, 1.0) ** 0.25

    def starts_at_mean_reward(self, facts: PublicFacts) -> bool:
        """Tell whether it starts at a constant made of the mean reward."""
        low, high = facts.bounds.reward
        if self.start is None:
            return low == high and self.discount < 1.0 and facts.horizon > 1 and facts.ratio > 1.0
        return self.start == "mean-reward"

    def queries(self, facts: PublicFacts) -> tuple[Query, ...]:
        """Return the updates; before them, where it must be released, a mean reward."""
        low, high = facts.bounds.reward
        (updates,) = super().queries(facts)
        if not self.starts_at_mean_reward(facts) or low == high:
            return (updates,)
        start = Query(START, 2, math.sqrt(2.0), share=self.start_budget_fraction)
        return start, dataclasses.replace(updates, share=1.0 - self.start_budget_fraction)

    def program(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> TDProgram:
        """Return the program with everything public filled in."""
        config = self.resolve(facts, stages[-1])
        # of a mean reward that is not released it is the smallest one, which is then the largest too
        level = level_of(facts, jnp.asarray(-1.0)) if self.starts_at_mean_reward(facts) else 0.0
        return TDProgram(stages, config, facts, float(level))


def level_of(facts: PublicFacts, mean: jax.Array) -> jax.Array:
    """Return the constant ``rbar / (1 - gamma)`` in public units; ``mean`` is rbar, with the reward interval as [-1,
    1].
    """
    low, high = facts.bounds.reward
    reward = (low + high) / 2.0 + (high - low) / 2.0 * jnp.clip(mean, -1.0, 1.0)
    return jnp.clip((reward / (1.0 - facts.discount) - facts.centre) / facts.half, -1.0, 1.0)


@dataclass(frozen=True)
class TDProgram(Descent):
    """Private TD(0) with everything that is public filled in; with two stages, the first releases the mean reward."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Further columns of the rows that are needed."""
        return ("raw_reward",) if len(self.stages) == 2 else ()

    def init(self) -> Any:
        """Return the state before the first step."""
        return jnp.zeros(2, dtype=jnp.float64) if len(self.stages) == 2 else super().init()

    def contribution(self, stage: int, state: Any, block: Block) -> jax.Array:
        """Return each unit's vector, ``(B, dimension)``."""
        if stage < len(self.stages) - 1:
            sums = jnp.sum(block.weight_raw_reward, axis=-1), jnp.sum(block.weight_rho, axis=-1)
            return jnp.stack(sums, axis=-1)
        theta = state.theta.astype(block.phi.dtype)
        error = block.weight_rho_reward - block.weight_rho * apply(block.delta_phi, theta)
        return project_phi(error, block) * jnp.asarray(self.scale, dtype=block.phi.dtype)

    def update(self, stage: int, state: Any, noisy: jax.Array, step: Any) -> Any:
        """Return the state after a step, from its noisy sum."""
        return noisy if stage < len(self.stages) - 1 else super().update(stage, state, noisy, step)

    def finish(self, stage: int, state: Any) -> Any:
        """Return the state after the stage's last step."""
        if stage == len(self.stages) - 1:
            return state
        # a weight this small is noise: with few units the ratio then stays near the middle
        weight = jnp.maximum(state[1], 0.5 * self.facts.units)
        return self.start_at(level_of(self.facts, state[0] / weight))


_STEPS = {"steps": 50}
ALGORITHM = Algorithm(
    TD,
    settings={
        "full batches": Setting(TD(steps=3, discount=0.9)),
        "from the mean reward": Setting(TD(steps=3, discount=0.9, start="mean-reward")),
        "Poisson batches": Setting(TD(steps=4, discount=0.9, sampling_rate=0.5)),
    },
    attacks=(
        Attack(options=_STEPS, trials=400_000),
        # beside the values, which every unit pays for, a share for the steps that lets subsampling be seen
        Attack(options={**_STEPS, "sampling_rate": 0.1, "value_budget_fraction": 0.05}, trials=400_000),
    ),
)
