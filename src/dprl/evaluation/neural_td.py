"""Private neural TD(0): noisy clipped semi-gradients of a value function that need not be linear.

Method: Sutton (1988). The steps are not gradients of any objective, and may diverge where V is not linear (Tsitsiklis
and Van Roy 1997). The box keeps theta bounded, but nothing makes the answer right. A unit's vector is half of DPTD's.
Privacy unit: a transition, a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: a start, and every noisy sum, hence every iterate. Proof: docs/proofs/neural-td.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from jaxtyping import Array, Float
from typing_extensions import override

from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.layouts import Block
from dprl.engine.program import PublicFacts, Stage
from dprl.evaluation.primal_dual import STANDARD_ATTACKS, PrimalDualConfig, PrimalDualProgram
from dprl.evaluation.td_gradients import td_gradients


@dataclass(frozen=True, kw_only=True)
class NeuralTD(PrimalDualConfig):
    """Options of private neural TD(0): those of :class:`PrimalDualConfig` except ``dual_step``, which has no meaning.

    A unit's vector is ``-sum_t omega_t rho_t delta_t Psi_t``; theta descends along it.
    """

    algorithm: ClassVar[str] = "neural-td"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("dual_step means nothing without a dual variable: leave it out", self.dual_step is None)

    @override
    def dimension(self, facts: PublicFacts) -> int:
        """Length of a vector."""
        return facts.features.size

    @override
    def defaults(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> dict[str, Any]:
        found = super().defaults(facts, stages)
        del found["dual_step"]
        return found

    @override
    def program(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> NeuralTDProgram:
        return NeuralTDProgram(self.resolve(facts, stages), stages, facts)


@dataclass(frozen=True)
class NeuralTDProgram(PrimalDualProgram):
    """TD(0) with everything that is public filled in; w, p and d of its state stay zero."""

    @override
    def vectors(self, state: Any, block: Block) -> Float[Array, "units d"]:
        return td_gradients(self.facts.features, self.facts.discount, state.theta, block)

    @override
    def direction(self, state: Any, ghat: Float[Array, " d"]) -> Any:
        return state._replace(theta=self.in_box(state.theta - self.primal_step * ghat, self.theta_box))


ALGORITHM = Algorithm(
    NeuralTD,
    settings={
        "a network": Setting(NeuralTD(steps=3, discount=0.9, sampling_rate=0.5, max_rows_per_unit=3), features="mlp:2"),
        "linear": Setting(NeuralTD(steps=3, discount=0.9, sampling_rate=1.0, start="zero"), features="fourier:2"),
    },
    attacks=STANDARD_ATTACKS,
)
