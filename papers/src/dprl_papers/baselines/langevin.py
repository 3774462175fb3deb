"""DP-GLD: gradient Langevin dynamics, with the noise that privacy requires.

Method: Wang, Chen and Xu (2019), Algorithm 1, after Raginsky, Rakhlin and Telgarsky (2017), in the primal-dual form of
paper 000, section 6.2: ``x <- x - step * (mean gradient + N(0, s^2 I))`` over the whole log. The answer is a uniformly
random iterate. Clip, box, both step sizes and the calibration are ours (docs/papers/000.md, deviation 18).
Privacy unit: a transition, a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: a start, and every noisy sum, hence every iterate. Proof: docs/proofs/dp-gld.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.program import PublicFacts, Stage
from dprl.evaluation.dptd import GRADIENT_DUAL, GRADIENT_PRIMAL
from dprl.evaluation.primal_dual import PrimalDualProgram, noise_limited_steps
from dprl.protocols import Attack
from dprl_papers.baselines.primal_dual_sgd import GradientConfig


@dataclass(frozen=True, kw_only=True)
class DPGLD(GradientConfig):
    """Options of DP-GLD; all of them are public facts.

    Batches are full, which takes long, so by default there are 100 of them, with a primal step twice as large. The
    temperature is no option, because step sizes and budget imply it (``DPGLDProgram.temperature``).
    """

    average: Literal["tail", "all", "last", "random"] | None = "random"

    algorithm: ClassVar[str] = "dp-gld"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("it takes full batches, sampling_rate = 1", self.sampling_rate in (None, 1.0))

    def rate(self, facts: PublicFacts) -> float:
        """Return 1: every unit takes part in every step."""
        del facts
        return 1.0

    def step_count(self, facts: PublicFacts) -> int:
        return super().step_count(facts) // 2 if self.steps is None else self.steps

    def step_sizes(self, facts: PublicFacts, stage: Stage) -> tuple[float, float]:
        return noise_limited_steps(facts, stage, 2.0 * GRADIENT_PRIMAL, GRADIENT_DUAL)

    def program(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> DPGLDProgram:
        return DPGLDProgram(self.resolve(facts, stages), stages, facts)


@dataclass(frozen=True)
class DPGLDProgram(PrimalDualProgram):
    """Program of plain simultaneous steps, with the temperatures that they imply."""

    @property
    def temperature(self) -> tuple[float, float]:
        """Temperatures of theta and of w: ``step s^2 / 2``, where s is the noise in the mean gradient.

        A step is a step of Langevin dynamics, ``x - step * gradient + sqrt(2 step temperature) N(0, I)``.
        """
        variance = (self.stages[-1].mechanism.noise_std / self.facts.units) ** 2
        return self.primal_step * variance / 2.0, self.dual_step * variance / 2.0


ALGORITHM = Algorithm(
    DPGLD,
    settings={
        "linear": Setting(DPGLD(steps=3, discount=0.9)),
        "a network": Setting(DPGLD(steps=3, discount=0.9, max_rows_per_unit=3, start="random"), features="mlp:2"),
    },
    attacks=(Attack(options={"steps": 50}, trials=200_000),),
)
