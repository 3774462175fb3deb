"""DPTD: differentially private primal-dual temporal differences (paper 000, Algorithm 1).

Paper 000, Eq. (2), (4), Algorithm 1, Theorems 5.1 and A.1, appendix G.
Privacy unit: a transition, a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: a start, and every noisy sum of clipped joint gradients, hence every iterate.
Noise comes before the momentum. Proof: docs/proofs/dptd.md. As published: the distribution dprl-papers,
docs/papers/000.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax.numpy as jnp
from jaxtyping import Array, Float, Int
from typing_extensions import override

from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.program import PublicFacts, Query, Stage
from dprl.evaluation import protected
from dprl.evaluation.primal_dual import STANDARD_ATTACKS, PrimalDualConfig, PrimalDualProgram, noise_limited_steps
from dprl.protocols import Attack

# Algorithm 1's own direction wants a faster dual variable, and more steps
GRADIENT_STEPS, GRADIENT_PRIMAL, GRADIENT_DUAL = 200, 24.0, 7.0


@dataclass(frozen=True, kw_only=True)
class DPTD(PrimalDualConfig):
    """Options of DPTD: those of :class:`PrimalDualConfig`, and its own.

    With noisy means g, weights ``a_0 = 1, a_t = alpha nu_{t-1}`` and the projection P onto the box::

        p_t = (1 - a_t) p_{t-1} + a_t g_t,    theta_{t+1} = theta_t + nu_t (P(theta_t - kappa p_t) - theta_t)

    w moves likewise, with beta and eta. So a step is ``nu kappa p``, and ``primal_step`` stands for ``nu kappa``.

    Attributes:
        calibration: ``verified``, or ``as-published``: that of dprl-papers, which certifies nothing.
        direction: ``gradient``: Algorithm 1's own; ``corrected``: p is taken together with the gradient by w, which is
            nonlinear TDC (Maei et al. 2009) from the same release. By default ``corrected``.
        alpha: weight of a new gradient in p, divided by nu.
        beta: weight of a new gradient in d, divided by nu.
        kappa: step size of theta inside of the projection; by default ``primal_step / nu``, which it overrides.
        eta: step size of w inside of the projection; by default ``dual_step / nu``, which it overrides.
        schedule: schedule of nu: ``constant``, or ``diminishing``: ``nu / sqrt(t + offset)``. By default ``constant``.
        nu: relaxation, the part of the way to the projected point that a step goes.
        offset: constant b of the diminishing schedule.
        optimizer: folder of a protector of ``dprl learn-protector`` (paper 002), which then decides steps, rate, clip,
            noise schedule and updates.
    """

    calibration: Literal["verified", "as-published"] = "verified"
    direction: Literal["corrected", "gradient"] | None = None
    alpha: float = 3.0
    beta: float = 3.0
    kappa: float | None = None
    eta: float | None = None
    schedule: Literal["constant", "diminishing"] | None = None
    nu: float = 0.25
    offset: float = 3.0
    optimizer: str | None = None

    algorithm: ClassVar[str] = "dptd"
    ranges: ClassVar[Mapping[str, str]] = {
        "nu": "(0, 1]",
        "offset": "[1, 1e12]",
        **dict.fromkeys(("alpha", "beta"), "(0, 1e6]"),
        **dict.fromkeys(("kappa", "eta"), "[1e-12, 1e12]"),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        protected.check_options(self)

    @property
    def follows(self) -> Literal["corrected", "gradient"]:
        """The direction in force."""
        return "corrected" if self.direction is None else self.direction

    @override
    def step_count(self, facts: PublicFacts) -> int:
        return GRADIENT_STEPS if self.steps is None and self.follows == "gradient" else super().step_count(facts)

    @override
    def step_sizes(self, facts: PublicFacts, stage: Stage) -> tuple[float, float]:
        """Return the primal and the dual step size."""
        if self.follows == "gradient":
            return noise_limited_steps(facts, stage, GRADIENT_PRIMAL, GRADIENT_DUAL)
        return super().step_sizes(facts, stage)

    @override
    def defaults(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> dict[str, Any]:
        found: dict[str, Any] = super().defaults(facts, stages) | {"direction": self.follows, "schedule": "constant"}
        for step, inner in (("primal_step", "kappa"), ("dual_step", "eta")):
            given, over = getattr(self, inner), getattr(self, step)
            found[step] = found[step] if given is None else given * self.nu
            found[inner] = (found[step] if over is None else over) / self.nu
        return found

    @override
    def queries(self, facts: PublicFacts) -> tuple[Query, ...]:
        """Return the sums that are asked for, from public facts."""
        return super().queries(facts) if self.optimizer is None else protected.protected_queries(self, facts)

    @override
    def program(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> DPTDProgram | protected.Protected:
        """Return the program with everything public filled in."""
        if self.optimizer is not None:
            return protected.protected_program(self, facts, stages)
        return DPTDProgram(self.resolve(facts, stages), stages, facts)


@dataclass(frozen=True)
class DPTDProgram(PrimalDualProgram):
    """Algorithm 1 with everything that is public filled in."""

    def relaxation(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """Return nu_t."""
        nu = jnp.asarray(self.config.nu, jnp.float32)
        if self.config.schedule == "constant":
            return nu
        return nu / jnp.sqrt(step.astype(jnp.float32) + jnp.float32(self.config.offset))

    def momentum(self, step: Int[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return the weights of gradient number ``step`` in p and in d.

        Both are 1 at the first step, and then alpha and beta times nu of the step before, at most 1.
        """
        nu = self.relaxation(jnp.maximum(step - 1, 0))
        factors = (self.config.alpha, self.config.beta)
        primal, dual = (jnp.minimum(jnp.float32(factor) * nu, 1.0) for factor in factors)
        return jnp.where(step == 0, 1.0, primal), jnp.where(step == 0, 1.0, dual)

    def weights(self, step: Int[Array, ""]) -> tuple[Any, Any]:
        """Return what the noisy mean gradients are multiplied by in p and in d."""
        return self.momentum(step)

    @override
    def direction(self, state: Any, ghat: Float[Array, " dim"]) -> Any:
        config, (fresh_p, fresh_d) = self.config, jnp.split(ghat, 2)
        a, b = self.momentum(state.step)
        fresh_a, fresh_b = self.weights(state.step)
        p = (1.0 - a) * state.p + fresh_a * fresh_p
        d = (1.0 - b) * state.d + fresh_b * fresh_d
        nu, towards = self.relaxation(state.step), p + d if config.direction == "corrected" else p
        theta = self.in_box(state.theta - config.step_scale * config.kappa * towards, self.theta_box)
        w = self.in_box(state.w - config.step_scale * config.eta * d, config.parameter_bound)
        # nu = 1 gives theta itself, to the last bit
        return state._replace(theta=(1.0 - nu) * state.theta + nu * theta, w=(1.0 - nu) * state.w + nu * w, p=p, d=d)


ALGORITHM = Algorithm(
    DPTD,
    settings={
        "a network": Setting(DPTD(steps=3, discount=0.9, sampling_rate=1.0, max_rows_per_unit=3), features="mlp:2"),
        "Algorithm 1, Poisson batches": Setting(
            DPTD(
                steps=4,
                discount=0.9,
                direction="gradient",
                schedule="diminishing",
                sampling_rate=0.5,
                average="random",
                start="mid-range",
                max_rows_per_unit=None,
            ),
            features="fourier:2",
        ),
    },
    attacks=(
        *STANDARD_ATTACKS,
        # through columns, for each privacy unit: a person has three trajectories
        *(
            Attack(options={"unit": unit, "steps": 20, "sampling_rate": 1.0}, trials=200_000)
            for unit in ("transition", "trajectory", "person")
        ),
    ),
)
