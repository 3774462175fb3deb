"""DP-SRM: stochastic recursive momentum, where noisy differences of gradients correct a running gradient.

Method: Wang, Jayaraman, Evans and Gu (2019), a private form of STORM (Cutkosky and Orabona 2019), in the primal-dual
form of paper 000, section 6.2::

    v_0 = mean of g_i(x_0),     v_{t+1} = (1 - a) v_t + mean of [g_i(x_{t+1}) - (1 - a) g_i(x_t)],     x <- x - step * v

with ``x = (theta, w)``. Clips, step sizes and the calibration are ours, because the paper's constants are not at hand.
Privacy unit: a transition, a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: a start, the noisy sum of gradients at x_0, and every noisy sum of differences, hence every iterate.
Proof: docs/proofs/dp-srm.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp

from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.layouts import Block
from dprl.engine.program import PublicFacts, Query, Stage
from dprl.evaluation.primal_dual import FUNCTION, STANDARD_ATTACKS, PrimalDualProgram
from dprl.evaluation.td_gradients import unit_gradients
from dprl_papers.baselines.primal_dual_sgd import GradientConfig

INITIAL = "initial gradient"
# how far a unit's gradient may move in a step, over its clip norm, before the default clip of a difference cuts it
MOVE = 0.2


@dataclass(frozen=True, kw_only=True)
class DPSRM(GradientConfig):
    """Options of DP-SRM; all of them are public facts. See :class:`GradientConfig`.

    Attributes:
        recursion: a, the weight of a new gradient; 1 gives DP-SGDA with a full first batch.
        difference_clip: L2 clip norm of a unit's difference of gradients; by default ``(a + 0.2 (1 - a)) clip_norm``.
        initial_share: share of the total mu^2 that is spent on the initial gradient.
    """

    recursion: float = 0.3
    difference_clip: float | None = None
    initial_share: float = 0.1
    average: Literal["tail", "all", "last", "random"] | None = "random"

    algorithm: ClassVar[str] = "dp-srm"

    ranges: ClassVar[Mapping[str, str]] = {
        "steps": "[2, inf)",
        "recursion": "[1e-6, 1]",
        "initial_share": "(0, 1)",
        "difference_clip": "[1e-12, 1e12]",
    }

    @property
    def gain(self) -> float:
        """The noise of a difference stays in v for about ``1 / a`` steps, so this is ``1 / a``."""
        return 1.0 / self.recursion

    def clip_of_differences(self, facts: PublicFacts) -> float:
        if self.difference_clip is not None:
            return self.difference_clip
        return (self.recursion + (1.0 - self.recursion) * MOVE) * self.clip(facts)

    def queries(self, facts: PublicFacts) -> tuple[Query, ...]:
        """Return the queries: the start, where it is released; the gradient of all units at x_0; the differences."""
        size, share = self.dimension(facts), self.initial_share
        initial = Query(INITIAL, size, self.clip(facts), share=share)
        steps, clip = self.step_count(facts) - 1, self.clip_of_differences(facts)
        return self.with_start(facts, (initial, Query(FUNCTION, size, clip, steps, self.rate(facts), 1.0 - share)))

    def defaults(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> dict[str, Any]:
        return super().defaults(facts, stages) | {"difference_clip": self.clip_of_differences(facts)}

    def program(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> DPSRMProgram:
        return DPSRMProgram(self.resolve(facts, stages), stages, facts)


class State(NamedTuple):
    """State of a run. It is made only of noisy sums and public facts, so it is as private as the noisy sums."""

    theta: jax.Array  # (d,) float32
    w: jax.Array  # (d,)
    p: jax.Array  # (d,) primal half of v
    d: jax.Array  # (d,) dual half, with the sign of a descent direction
    kept: jax.Array  # (d,) what the answer would be after this step
    step: jax.Array  # () int32, noisy sums so far
    theta_before: jax.Array  # (d,) theta of the step before
    w_before: jax.Array  # (d,)


@dataclass(frozen=True)
class DPSRMProgram(PrimalDualProgram):
    """Program of the recursion, with all public facts filled in."""

    config: DPSRM

    def start_at(self, level: jax.Array) -> State:
        start = super().start_at(level)
        return State(*start, theta_before=start.theta, w_before=start.w)

    def contribution(self, stage: int, state: Any, block: Block) -> jax.Array:
        """Return each unit's difference of gradients in the last stage, and its gradient in earlier stages.

        Both gradients are made from the unit's own rows and released states.
        """
        here = super().contribution(stage, state, block)
        if stage < len(self.stages) - 1:
            return here
        facts = self.facts
        there = unit_gradients(facts.features, facts.discount, state.theta_before, state.w_before, block)
        return here - jnp.float32(1.0 - self.config.recursion) * there

    def direction(self, state: Any, ghat: jax.Array) -> State:
        """Return the state after ``v <- (1 - a) v + ghat`` and a step against v; v is zero at first.

        The new state also holds the iterate before the step.
        """
        kept = jnp.float32(1.0 - self.config.recursion)
        moved = super().direction(state, kept * jnp.concatenate([state.p, state.d]) + ghat)
        return moved._replace(theta_before=state.theta, w_before=state.w)


ALGORITHM = Algorithm(
    DPSRM,
    settings={
        "linear": Setting(DPSRM(steps=4, discount=0.9, sampling_rate=0.5, start="mid-range")),
        "a network": Setting(
            DPSRM(steps=3, discount=0.9, sampling_rate=1.0, max_rows_per_unit=3, recursion=0.6, average="tail"),
            features="mlp:2",
        ),
    },
    attacks=STANDARD_ATTACKS,
)
