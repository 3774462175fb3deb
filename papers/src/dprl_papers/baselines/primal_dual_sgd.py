"""DP-SGDA: stochastic gradient descent ascent on the saddle point of temporal differences, with noisy clipped batches.

Method: simultaneous steps (Lin, Jin and Jordan 2020) on paper 000, Eq. (2). The baseline SGD of paper 000 is the form
without noise.
Privacy unit: a transition, a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: a start, and every noisy sum, hence every iterate. Proof: docs/proofs/dp-sgda.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.program import PublicFacts, Stage
from dprl.evaluation.dptd import GRADIENT_DUAL, GRADIENT_PRIMAL, GRADIENT_STEPS
from dprl.evaluation.primal_dual import STANDARD_ATTACKS, PrimalDualConfig, noise_limited_steps


@dataclass(frozen=True, kw_only=True)
class GradientConfig(PrimalDualConfig):
    """Options that the gradient baselines share: both variables follow their own gradients of Eq. (2).

    The defaults are those of DPTD with ``direction = "gradient"``: 200 steps, and DPTD's step sizes.
    """

    def step_count(self, facts: PublicFacts) -> int:
        del facts
        return GRADIENT_STEPS if self.steps is None else self.steps

    def step_sizes(self, facts: PublicFacts, stage: Stage) -> tuple[float, float]:
        return noise_limited_steps(facts, stage, GRADIENT_PRIMAL, GRADIENT_DUAL, self.gain)

    @property
    def gain(self) -> float:
        """How far the noise of one sum moves the iterate over many steps, relative to its effect in one step."""
        return 1.0


@dataclass(frozen=True, kw_only=True)
class DPSGDA(GradientConfig):
    """Options of DP-SGDA; all of them are public facts. See :class:`GradientConfig`."""

    algorithm: ClassVar[str] = "dp-sgda"


ALGORITHM = Algorithm(
    DPSGDA,
    settings={
        "linear": Setting(DPSGDA(steps=3, discount=0.9, sampling_rate=0.5, start="mid-range")),
        "a network": Setting(
            DPSGDA(steps=3, discount=0.9, sampling_rate=1.0, max_rows_per_unit=3, average="all"), features="mlp:2"
        ),
    },
    attacks=STANDARD_ATTACKS,
)
