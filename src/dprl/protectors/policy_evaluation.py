"""Private policy evaluation on random chains and MDPs, as public tasks for a protector of GPOPE or DPTD.

A task is a simulated log of ``units`` episodes; the parameters are primal and dual weights of GPOPE or DPTD, whose
vectors are the same where the value function is linear. The loss is the exact mean squared projected Bellman error
(paper 004, Eq. 2.1), over that of the mid-range start. Paper 002 has no such tasks, but it has the same issue: step
sizes cannot be tuned on private data. All tasks are simulations from public seeds.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dprl.accounting.budget import Budget
from dprl.errors import require
from dprl.protectors import random_chains as chains
from dprl.protectors.meta_training import Training
from dprl.protectors.projector import Architecture, HandSchedule, Weights, init_weights
from dprl.protectors.simulation import seeded_noise, unit_sum
from dprl.value_functions.features import make_features

THETA_BALL = 1.0
"""Largest norm of theta that GPOPE allows."""
PARAMETER_BOX = 1.0
"""Largest absolute coordinate of theta and of w that DPTD allows."""
LEAST_EIGENVALUE = 1e-4
"""Least eigenvalue of C that counts: states that are hardly ever met are left out of the error."""


class Task(NamedTuple):
    """A simulated log in the form of its units' matrices, and the exact error of an answer.

    Attributes:
        A, C: ``(units, n, n)`` matrices of each unit.
        b: ``(units, n)`` vector of each unit.
        residual: ``(n, n + 1)`` matrix. The error is the squared norm of its product with (theta, -1).
        chain: the process that was simulated.
        level: () mean return of the log, in public units.
    """

    A: jax.Array
    b: jax.Array
    C: jax.Array
    residual: jax.Array
    chain: chains.Chain
    level: jax.Array


@dataclass(frozen=True, kw_only=True)
class RandomChains:
    """Family of policy evaluation tasks; its fields are public facts of the logs that its protectors serve.

    Attributes:
        serves: the algorithm whose releases the protectors are for, ``gpope`` or ``dptd``.
        kind: ``chains`` or ``mdps``, see :mod:`~dprl.protectors.random_chains`.
        units, horizon, discount: number of units, horizon and discount of a log.
        states: number of states of a chain. The observation is the number of the state.
        features: feature map of a state, which has one observation component.
        steps, sampling_rate, clip_norm, step_size, dual_step, offset, tail: numbers of the hand schedule; :meth:`tuned`
            fills in those for a budget. The step sizes multiply gradients in their natural unit; ``clip_norm`` is the
            option of that name of the algorithm that is served.
    """

    serves: str = "gpope"
    kind: str = "chains"
    units: int = 300
    horizon: int = 12
    discount: float = 0.95
    states: int = 30
    features: str = "rbf:12"
    steps: int = 100
    sampling_rate: float = 0.05
    clip_norm: float = 0.0125
    step_size: float = 0.1
    dual_step: float = 0.4
    offset: float | None = None
    tail: float = 0.5

    name = "policy-evaluation"

    def __post_init__(self) -> None:
        require(self.kind in ("chains", "mdps"), "The policy-evaluation tasks are chains or mdps.")
        require(self.serves in ("gpope", "dptd"), "The policy-evaluation tasks serve gpope or dptd.")

    @property
    def algorithm(self) -> str:
        """Name of the algorithm whose steps a protector learns."""
        return self.serves

    @property
    def observation(self) -> tuple[tuple[float, float], ...]:
        """Bounds of the observation, the number of a state."""
        return ((0.0, self.states - 1.0),)

    @property
    def size(self) -> int:
        """n, the number of features."""
        return make_features(self.features, self.observation).size

    @property
    def dimension(self) -> int:
        """Number of parameters."""
        return 2 * self.size

    @property
    def blocks(self) -> tuple[int, ...]:
        """Kind of each parameter: 0 for theta, and 1 for the dual variables w."""
        return (0,) * self.size + (1,) * self.size

    @property
    def hand(self) -> HandSchedule:
        """The hand schedule."""
        return HandSchedule(
            steps=self.steps,
            sampling_rate=self.sampling_rate,
            clip_norm=self.clip_norm,
            step_sizes=(self.step_size, self.dual_step),
            offset=self.offset,
            tail=self.tail,
        )

    def table(self) -> np.ndarray:
        """Return ``(S, n)`` float32 features of every state."""
        features = make_features(self.features, self.observation)
        return features(np.arange(self.states, dtype=np.float64)[:, None]).astype(np.float32)

    def sample(self, key: jax.Array) -> Task:
        """Return the task of ``key``."""
        chain, log = self.simulate(key)
        return self.task_of(chain, log)

    def simulate(self, key: jax.Array) -> tuple[chains.Chain, chains.Log]:
        """Return the process and the log of the task of ``key``."""
        process, episodes = jax.random.split(key)
        chain = chains.draw_chain(process, self.states, self.kind)
        return chain, chains.draw_log(episodes, chain, self.units, self.horizon)

    def task_of(self, chain: chains.Chain, log: chains.Log) -> Task:
        """Make a task from a log of the chain, with rewards in public units: values in [0, 1] are mapped to [-1, 1]."""
        table = jnp.asarray(self.table())
        weight = log.alive / jnp.sum(log.alive, axis=1, keepdims=True).astype(jnp.float32)
        onward = self.discount * (~log.ended).astype(jnp.float32)
        phi = table[log.state]
        delta = phi - onward[..., None] * table[log.following]
        reward = (log.reward - 0.5 * (1.0 - onward)) / 0.5
        weighted = weight[..., None] * phi
        A = jnp.einsum("uhi,uhj->uij", weighted, delta)
        C = jnp.einsum("uhi,uhj->uij", weighted, phi)
        b = jnp.einsum("uhi,uh->ui", weighted, reward)
        discounts = jnp.float32(self.discount) ** jnp.arange(self.horizon)
        level = 2.0 * jnp.mean(jnp.sum(discounts * log.reward * log.alive, axis=1)) - 1.0
        return Task(A, b, C, self.residual_of(chain), chain, level.astype(jnp.float32))

    def residual_of(self, chain: chains.Chain) -> jax.Array:
        """Return the ``(n, n + 1)`` matrix ``C^(-1/2) (A, b)`` of the exact moments, as in :class:`Task`."""
        table = jnp.asarray(self.table())
        visits, onward, outcome = chains.exact_moments(chain, self.horizon)
        C = table.T @ (visits[:, None] * table)
        A = C - self.discount * table.T @ onward @ table
        reward = (outcome - 0.5 * (visits - self.discount * jnp.sum(onward, axis=1))) / 0.5
        eigenvalues, vectors = jnp.linalg.eigh(C)
        root = (vectors / jnp.sqrt(jnp.maximum(eigenvalues, LEAST_EIGENVALUE))) @ vectors.T
        return root @ jnp.concatenate([A, (table.T @ reward)[:, None]], axis=1)

    def initial(self, task: Task) -> jax.Array:
        """Return the parameters with which the algorithm starts.

        GPOPE starts with mid-range values, DPTD with the mean return, whose noise is left out here.
        """
        zeros = jnp.zeros(self.dimension, jnp.float32)
        if self.serves == "gpope":
            return zeros
        constant = make_features(self.features, self.observation).constant()
        return zeros.at[: self.size].set(task.level * jnp.asarray(constant, jnp.float32))

    def natural_clip(self, clip_norm: Any) -> Any:
        """Return the clip norm of the gradient from the option ``clip_norm``.

        GPOPE's option is in units of the root mean square norm of the features; DPTD's is the clip norm itself.
        """
        return clip_norm * self._clip_unit

    @property
    def _clip_unit(self) -> float:
        return math.sqrt(self.size) if self.serves == "gpope" else 1.0

    def mean_gradient(self, task: Task, parameters: jax.Array, key: jax.Array, clip: Any) -> jax.Array:
        """Return GPOPE's joint gradients (paper 004, Eq. 4.1), clipped, summed over a Poisson batch, over ``q m C``."""
        mechanism = unit_sum(self.dimension, self.sampling_rate)
        members, _ = mechanism.members(seeded_noise(jax.random.bits(key, dtype=jnp.uint32)), 0, self.units, 1)
        included = members < self.units
        # places that nobody takes get the last unit's rows, because a clipped vector of zeros has no gradient
        members = jnp.minimum(members, self.units - 1)
        A, b, C = task.A[members], task.b[members], task.C[members]
        theta, w = parameters[: self.size], parameters[self.size :]
        primal = -jnp.einsum("uij,i->uj", A, w)
        dual = jnp.einsum("uij,j->ui", A, theta) + jnp.einsum("uij,j->ui", C, w) - b
        vectors = jnp.concatenate([primal, dual], axis=1) / clip
        total = jnp.asarray(mechanism.clipped_sum(vectors, included))
        return (total / (self.sampling_rate * self.units)).astype(jnp.float32)

    def project(self, parameters: jax.Array) -> jax.Array:
        """Return the parameters, moved to the public set in which they may lie."""
        if self.serves == "dptd":
            return jnp.clip(parameters, -PARAMETER_BOX, PARAMETER_BOX)
        theta, w = parameters[: self.size], parameters[self.size :]
        # the floor is as small as single precision differentiates
        norm = jnp.sqrt(jnp.maximum(jnp.sum(theta * theta), 1e-12))
        return jnp.concatenate([theta * jnp.minimum(1.0, THETA_BALL / norm), w])

    def loss(self, task: Task, parameters: jax.Array) -> jax.Array:
        """Return the exact mean squared projected Bellman error (MSPBE) in public units."""
        residual = task.residual[:, :-1] @ parameters[: self.size] - task.residual[:, -1]
        return jnp.sum(residual * residual)

    def reference(self, task: Task) -> jax.Array:
        """Return the MSPBE of the mid-range start."""
        return jnp.maximum(jnp.sum(task.residual[:, -1] ** 2), 1e-6)

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Return the public ranges of the tasks."""
        n = float(self.size)
        return {
            "units": (0.8 * self.units, 1.25 * self.units),
            "horizon": (float(self.horizon), float(self.horizon)),
            "discount": (self.discount, self.discount),
            "features": (n, n),
            "ratio": (1.0, 1.0),
        }

    def describe(self) -> Mapping[str, Any]:
        """Return the family as plain data."""
        source = "simulated: random Markov reward processes with an outcome at the end"
        return {"source": source} | dataclasses.asdict(self)

    def tuned(self, budget: Budget, value_budget_fraction: float = 0.0) -> RandomChains:
        """Return the family with the hand schedule of the nearest budget in :data:`TUNED_SCHEDULES`.

        Budgets are compared by noise over units.
        """
        strength = budget.epsilon * math.sqrt(1.0 - value_budget_fraction) * self.units / 300.0
        near = min(TUNED_SCHEDULES, key=lambda epsilon: abs(math.log(epsilon / strength)))
        found = dict(TUNED_SCHEDULES[near])
        return dataclasses.replace(self, **found | {"clip_norm": self._option(found["clip_norm"])})

    def _option(self, clip_norm: float) -> float:
        """Return the value of GPOPE's option ``clip_norm`` as the same option of the algorithm that is served."""
        return clip_norm * math.sqrt(self.size) / self._clip_unit

    @functools.cached_property
    def architecture(self) -> Architecture:
        """Architecture that did best on unseen tasks of the family (docs/papers/002.md)."""
        return Architecture(
            layers=0,
            dense=3,
            knots=6,
            signal=True,
            learned_start=True,
            learned_clip=True,
            learned_average=True,
            dimension=self.dimension,
        )

    def begin(self, architecture: Architecture, seed: int) -> Weights:
        """Return the weights that training starts from; their steps are small enough to be differentiated through.

        At little noise, the best hand schedule takes steps so long that only clipping holds them, and gradients through
        a hundred such steps explode. These weights turn it into :data:`GENTLE_SCHEDULE`, with a mean of the last half.
        """
        weights = init_weights(architecture, jax.random.key(seed))
        if self.step_size <= GENTLE_SCHEDULE["step_size"] or not (architecture.knots and architecture.learned_average):
            return weights
        clip = self._option(GENTLE_SCHEDULE["clip_norm"]) / self.clip_norm if architecture.learned_clip else 1.0
        steps = jnp.asarray(
            [GENTLE_SCHEDULE["step_size"] / self.step_size, GENTLE_SCHEDULE["dual_step"] / self.dual_step], jnp.float32
        )
        late = jnp.linspace(0.0, 1.0, weights["log_average"].shape[0], dtype=jnp.float32) >= 0.5
        return weights | {
            "log_step": weights["log_step"] + jnp.log(steps),
            "log_clip": weights["log_clip"] + jnp.log(jnp.float32(clip)),
            "log_average": jnp.where(late, 0.0, -4.0).astype(jnp.float32),
        }

    @property
    def training(self) -> Training:
        """Options of a protector's first training; :attr:`refinement` follows."""
        first = Training(
            epochs=300,
            tasks=12,
            repeats=2,
            learning_rate=0.02,
            rates=(("dense.time", 0.3), ("dense", 3.0), ("signal", 3.0), ("start", 0.5)),
            objective="both",
            penalty=4.0,
            validate=100,
        )
        if self.step_size <= GENTLE_SCHEDULE["step_size"]:
            return first
        # with more noise to begin with, so that short steps are worth while
        return dataclasses.replace(first, learning_rate=0.015, penalty=1.0, incremental=(5.0,), share=0.2, validate=50)

    @property
    def refinement(self) -> Training:
        """Options of a second training, from the weights that :attr:`training` gave.

        Tasks that are worst compared with the hand schedule count for more, and no single task's gradient counts for
        much. With little noise the training takes longer.
        """
        return dataclasses.replace(
            self.training,
            epochs=600 if self.step_size <= GENTLE_SCHEDULE["step_size"] else 1500,
            tasks=24,
            learning_rate=0.012,
            penalty=6.0,
            mean_weight=3.0,
            task_clip=2.0,
            incremental=(),
            validate=100,
            validation=96,
            seed=self.training.seed + 1,
        )


GENTLE_SCHEDULE = {"clip_norm": 0.0144, "step_size": 0.1, "dual_step": 0.4}
"""Schedule with which training begins, see :meth:`RandomChains.begin`; ``clip_norm`` is an option of GPOPE."""

TUNED_SCHEDULES: dict[float, dict[str, Any]] = {
    0.1: {"clip_norm": 0.0144, "step_size": 0.1, "dual_step": 0.4, "offset": None, "tail": 0.5},
    1.0: {"clip_norm": 0.0577, "step_size": 3.2, "dual_step": 1.6, "offset": None, "tail": 1.0},
}
"""Best schedules of a grid on public tasks, by epsilon; ``clip_norm`` is an option of GPOPE."""
