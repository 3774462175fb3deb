"""DPTD: differentially private primal-dual temporal differences (paper 000, Algorithm 1).

Paper 000, Eq. (2), (4), Algorithm 1, Theorems 5.1 and A.1, appendix G.
Privacy unit: a transition, a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: a start, and every noised sum of clipped joint gradients, hence every iterate.
Calibrations: ``verified`` (Poisson batches, noise before momentum, PLD; docs/proofs/dptd.md) and ``as-published`` (one
unit a step, noise after momentum with the formula of Theorem 5.1, which does not hold as printed; docs/papers/000.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp

from dprl.accounting.budget import Budget
from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.layouts import Block
from dprl.engine.program import Facts, Shape, Stage
from dprl.evaluation import protected
from dprl.evaluation.primal_dual import STANDARD_ATTACKS, PrimalDualConfig, PrimalDualProgram, limited, resolve
from dprl.protocols import Attack, Precondition

# Algorithm 1's own direction wants a faster dual variable, and more steps
GRADIENT_STEPS, GRADIENT_PRIMAL, GRADIENT_DUAL = 200, 24.0, 7.0
PUBLISHED_STEP = 2.0  # kappa = eta, appendix G


@dataclass(frozen=True, kw_only=True)
class DPTD(PrimalDualConfig):
    """Options of DPTD: those of :class:`PrimalDualConfig`, and its own.

    With noised means g, weights ``a_0 = 1, a_t = alpha nu_{t-1}`` and the projection P onto the box::

        p_t = (1 - a_t) p_{t-1} + a_t g_t,    theta_{t+1} = theta_t + nu_t (P(theta_t - kappa p_t) - theta_t)

    and w likewise with beta and eta. So a step is ``nu kappa p``, which is what ``primal_step`` says.

    Attributes:
        calibration: ``verified``, or ``as-published`` (for reproduction: it certifies nothing). As published the noise
            is added behind the weight a_t, batches are of one unit, and direction, schedule, steps, start and answer
            are the paper's.
        direction: ``gradient``: Algorithm 1's own; ``corrected``: p is taken together with the gradient by w, which is
            nonlinear TDC (Maei et al. 2009) from the same release. By default ``corrected``.
        alpha: weight of a new gradient in p, over nu.
        beta: likewise in d.
        kappa: step size inside of the projection; by default ``primal_step / nu``, which it overrides; 2 as published.
        eta: likewise of w, and ``dual_step / nu``.
        schedule: of nu: ``constant``, or ``diminishing``: ``nu / sqrt(t + offset)``. By default ``constant``.
        nu: relaxation.
        offset: b of the diminishing schedule.
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

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("nu must be above 0 and at most 1", 0.0 < self.nu <= 1.0)
        self._check("offset must be between 1 and 1e12", 1.0 <= self.offset <= 1e12)
        for name in ("alpha", "beta"):
            self._check(f"{name} must be above 0 and at most 1e6", 0.0 < getattr(self, name) <= 1e6)
        for name in ("kappa", "eta"):
            given = getattr(self, name)
            self._check(f"{name} must be between 1e-12 and 1e12", given is None or 1e-12 <= given <= 1e12)
        if self.published:
            theirs = {"direction": "gradient", "schedule": "diminishing", "average": "random"}
            for name, value in theirs.items():
                self._check(
                    f"{name} is {value!r} with calibration = 'as-published': leave it out",
                    getattr(self, name) in (None, value),
                )
            self._check(
                "start = 'constant' is a release that calibration = 'as-published' does not have: choose another",
                self.start != "constant",
            )

        protected.check_options(self)

    # --- defaults -------------------------------------------------------------------------------------------------

    @property
    def follows(self) -> Literal["corrected", "gradient"]:
        """The direction in force."""
        if self.direction is not None:
            return self.direction
        return "gradient" if self.published else "corrected"

    def count(self, facts: Facts) -> int:
        if self.steps is None and self.follows == "gradient":
            return GRADIENT_STEPS
        return super().count(facts)

    def rate(self, facts: Facts) -> float:
        if not self.published:
            return super().rate(facts)
        rate = 1.0 / facts.units
        self._check(
            "sampling_rate is one over the number of units with calibration = 'as-published': leave it out",
            self.sampling_rate in (None, rate),
        )
        return rate

    def clip(self, facts: Facts) -> float:
        """As published, the Lipschitz constant G, which is 1 unless it is given."""
        return 1.0 if self.published and self.clip_norm is None else super().clip(facts)

    def starts_at(self, facts: Facts) -> Literal["constant", "mid-range", "zero", "random"]:
        if self.published and self.start is None:
            return "mid-range" if facts.features.linear else "random"
        return super().starts_at(facts)

    def step_sizes(self, facts: Facts, stage: Stage) -> tuple[float, float]:
        if self.published:
            return PUBLISHED_STEP * self.nu, PUBLISHED_STEP * self.nu
        if self.follows == "gradient":
            return limited(facts, stage, GRADIENT_PRIMAL, GRADIENT_DUAL)
        return super().step_sizes(facts, stage)

    def resolved(self, facts: Facts, stage: Stage) -> dict[str, Any]:
        found = super().resolved(facts, stage)
        found["direction"] = self.follows
        found["schedule"] = "diminishing" if self.published else "constant"
        if self.published:
            found["average"] = "random"
        for step, inner in (("primal_step", "kappa"), ("dual_step", "eta")):
            given, over = getattr(self, inner), getattr(self, step)
            found[step] = found[step] if given is None else given * self.nu
            found[inner] = (found[step] if over is None else over) / self.nu
        return found

    def shapes(self, facts: Facts) -> tuple[Shape, ...]:
        return super().shapes(facts) if self.optimizer is None else protected.protected_shapes(self, facts)

    def program(self, facts: Facts, stages: tuple[Stage, ...]) -> DPTDProgram | protected.Protected:
        if self.optimizer is not None:
            return protected.protected_program(self, facts, stages)
        config = resolve(self, facts, stages[-1])
        return DPTDProgram(config, tuple(Stage(s.name, s.mechanism, self.published) for s in stages), facts)

    # --- as published ---------------------------------------------------------------------------------------------

    def published_multiplier(self, facts: Facts, budget: Budget) -> float:
        return published_multiplier(max(self.count(facts) - 1, 1), facts.units, budget.epsilon, budget.delta)

    def published_conditions(self, facts: Facts, budget: Budget) -> tuple[Precondition, ...]:
        return published_conditions(max(self.count(facts) - 1, 1), facts.units, budget.epsilon, budget.delta)


@dataclass(frozen=True)
class DPTDProgram(PrimalDualProgram):
    """Algorithm 1 with everything that is public filled in."""

    config: DPTD

    def relaxation(self, step: jax.Array) -> jax.Array:
        """nu_t."""
        nu = jnp.asarray(self.config.nu, jnp.float32)
        if self.config.schedule == "constant":
            return nu
        return nu / jnp.sqrt(step.astype(jnp.float32) + jnp.float32(self.config.offset))

    def momentum(self, step: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Weights of gradient number ``step`` in p and in d: 1, then alpha and beta times nu of the step before."""
        nu = self.relaxation(jnp.maximum(step - 1, 0))
        factors = (self.config.alpha, self.config.beta)
        primal, dual = (jnp.minimum(jnp.float32(factor) * nu, 1.0) for factor in factors)
        return jnp.where(step == 0, 1.0, primal), jnp.where(step == 0, 1.0, dual)

    def vectors(self, state: Any, block: Block) -> jax.Array:
        """As published, with the weight a_t in front of the clip: what one unit can move p and d by is what counts."""
        gradients = super().vectors(state, block)
        if not self.config.published:
            return gradients
        primal, dual = self.momentum(state.step)
        size = state.theta.shape[0]
        return gradients * jnp.where(jnp.arange(2 * size) < size, primal, dual)

    def direction(self, state: Any, ghat: jax.Array) -> Any:
        config, (fresh_p, fresh_d) = self.config, jnp.split(ghat, 2)
        assert config.kappa is not None
        assert config.eta is not None
        a, b = self.momentum(state.step)
        weights = (1.0, 1.0) if config.published else (a, b)
        p = (1.0 - a) * state.p + weights[0] * fresh_p
        d = (1.0 - b) * state.d + weights[1] * fresh_d
        nu, towards = self.relaxation(state.step), p + d if config.direction == "corrected" else p
        theta = self.in_box(state.theta - config.step_scale * config.kappa * towards, self.theta_box)
        w = self.in_box(state.w - config.step_scale * config.eta * d, config.box)
        # nu = 1 gives theta itself, to the last bit
        return state._replace(theta=(1.0 - nu) * state.theta + nu * theta, w=(1.0 - nu) * state.w + nu * w, p=p, d=d)


# --- Theorem 5.1 ------------------------------------------------------------------------------------------------------


def published_multiplier(steps: int, units: int, epsilon: float, delta: float) -> float:
    """Theorem 5.1's sigma over G with the beta' for which it is smallest. It does not give (epsilon, delta).

    ``sigma^2 = 14 G^2 T / (n^2 rho)`` with ``rho = (sqrt(epsilon + L) - sqrt(L))^2`` and ``L = log(1 / delta)``:
    docs/papers/000.md.

    Args:
        steps: T, the number of updates. T + 1 noised gradients are released, the initial one first.
        units: n, transitions; or trajectories, of Theorem A.1 with whole trajectories as the records.

    >>> round(published_multiplier(1000, 1000, 1.0, 1e-5), 3)
    0.82
    """
    log = math.log(1.0 / delta)
    return math.sqrt(14.0 * steps) / units / (math.sqrt(epsilon + log) - math.sqrt(log))


def published_conditions(steps: int, units: int, epsilon: float, delta: float) -> tuple[Precondition, ...]:
    """What Theorem 5.1 assumes of T, n and epsilon, at the same beta' as :func:`published_multiplier`.

    Condition (ii) has sigma where only ``sigma' = sigma / (2 G)`` does not depend on the unit of the reward: both
    readings are given, the printed one with G = 1.
    """
    sigma = published_multiplier(steps, units, epsilon, delta)
    square, ratio = (sigma / 2.0) ** 2, math.log(1.0 / delta) / epsilon
    order = ratio + 1.0 + math.sqrt(ratio * (ratio + 1.0))
    logarithm = math.log(units / (order * (1.0 + square)))
    found = [Precondition(f"Theorem 5.1 (i) needs sigma'^2 >= 0.7, and it is {square:.3g}", square >= 0.7)]
    for name, scale in (("as printed, with sigma", sigma**2), ("with sigma' for sigma", square)):
        most = 2.0 / 3.0 * scale * logarithm
        found.append(
            Precondition(
                f"Theorem 5.1 (ii), {name}, needs alpha' - 1 <= {most:.3g}, and it is {order - 1.0:.3g}",
                order - 1.0 <= most,
            )
        )
    return tuple(found)


ALGORITHM = Algorithm(
    DPTD,
    settings={
        "a network": Setting(DPTD(steps=3, discount=0.9, sampling_rate=1.0, rows=3), features="mlp:2"),
        "Algorithm 1, Poisson batches": Setting(
            DPTD(
                steps=4,
                discount=0.9,
                direction="gradient",
                schedule="diminishing",
                sampling_rate=0.5,
                average="random",
                start="mid-range",
                rows=None,
            ),
            features="fourier:2",
        ),
    },
    attacks=(
        *STANDARD_ATTACKS,
        # through columns, by each unit: a person has three trajectories
        *(
            Attack(options={"unit": unit, "steps": 20, "sampling_rate": 1.0}, trials=200_000)
            for unit in ("transition", "trajectory", "person")
        ),
        Attack(calibration="as-published", units=10_000, options={"steps": 1001}, trials=400_000),
    ),
    canary="dprl.audits.attacks.dptd:dptd_canary",
    published={"as published": Setting(DPTD(steps=6, discount=0.9, calibration="as-published"), features="mlp:2")},
)
