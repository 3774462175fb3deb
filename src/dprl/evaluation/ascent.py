"""Off-policy policy gradient: a few noisy steps along people's clipped gradients of the importance-weighted value.

The policy is a softmax of scores that are linear in a public basis, or stand in a table. A person's gradient is that of
``sum_t gamma^t w_t r_t``, with rewards about the middle of their range and the product ``w_t`` of importance ratios so
far, cut; each step is as long as the others, whatever the gradient's size, as dp-pg's are (paper 003). The learned
policy takes the action of the highest score. Where noise hides cells and directions it still sees which way is up, all
of them together: it needs less budget than fitted Q iteration, and with much budget finds less.

Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one. Released: every noisy
sum; the policy is post-processing. Proofs: docs/proofs/off-policy-gradient.md, docs/proofs/two-parts.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from typing_extensions import override

from dprl.engine.layouts import Block
from dprl.engine.options import Query
from dprl.evaluation.fitted_q import FittedQ
from dprl.policies.greedy import GreedyPolicy
from dprl.policies.loading import UniformPolicy

# All numbers were chosen on the seeds for choosing of benchmarks/learn_many_steps.py.
STEPS, LENGTH, MOMENTUM = 10, 0.6, 0.5
"""Number of steps, the length of each, and the share of the direction before that is kept."""
CLIP = 0.5
"""Clip norm over the root of the horizon."""
MOST_WEIGHT = 20.0
"""At which a product of importance ratios is cut, at the latest."""
FAR = 1e18
"""Products are never larger, so that none overflows."""
ASCENT = "policy-gradient"
"""Of the learner, of its noise stream, and of the journal's."""


@dataclass(frozen=True)
class Ascent(FittedQ):
    """The program: of its state, the weights ``(A p,)`` and the direction, the weights are the answer."""

    caution: float = 0.0

    name: ClassVar[str] = ASCENT
    rounds: ClassVar[int] = STEPS
    columns = (*FittedQ.columns, "start")

    @property
    @override
    def weighted(self) -> UniformPolicy:
        """The policy whose importance ratios rows hold: times the number of actions they are one over the behaviour."""
        return UniformPolicy(self.actions)

    @property
    @override
    def query(self) -> Query:
        """Gradients of all people, at every step."""
        return Query(ASCENT, self.actions * self.basis.size, CLIP * math.sqrt(self.bounds.horizon), steps=STEPS)

    def strength(self, noise_multiplier: float) -> float:
        """Return people times the clip norm over the length of the noise in their sum."""
        length = math.sqrt(STEPS * self.query.dimension)
        return self.bounds.units / (noise_multiplier * length)

    def init(self) -> tuple[Array, Array]:
        """Return the state before the first step: every action is as likely."""
        nothing = jnp.zeros(self.query.dimension, jnp.float64)
        return nothing, nothing

    def contribution(self, stage: int, state: Any, block: Block) -> Float[Array, "units dim"]:
        """Return each unit's gradient; its trajectories are gone through row by row."""
        del stage
        theta, weights = state[0].astype(block.step.dtype), self._weights(block)
        gain, beside = weights * block.raw_reward, jnp.maximum(block.actions, 0).astype(jnp.int32)
        over = jnp.where(weights > 0.0, self.actions * block.rho, 0.0)
        most = min(self.bounds.cumulative_ratio, MOST_WEIGHT)

        def value(theta: Any, states: Any, action: Any, over: Any, begins: Any, gain: Any) -> Any:
            chances = jax.nn.softmax(self._scores(theta, states), axis=-1)
            ratios = over * jnp.take_along_axis(chances, action[:, None], axis=1)[:, 0]

            def one(carry: Any, row: Any) -> tuple[Any, Any]:
                product, factor = carry
                ratio, first, earned = row
                product = jnp.minimum(jnp.where(first, 1.0, product) * ratio, FAR)
                factor = jnp.where(first, 1.0, self.discount * factor)
                return (product, factor), factor * jnp.minimum(product, most) * earned

            ones = jnp.ones((), ratios.dtype)
            return jnp.sum(jax.lax.scan(one, (ones, ones), (ratios, begins, gain))[1])

        unit = (block.states, beside, over, block.start > 0.0, gain)
        return jax.vmap(jax.grad(value), in_axes=(None, 0, 0, 0, 0, 0))(theta, *unit)

    def update(self, stage: int, state: Any, noisy: Float[Array, " dim"], step: Any) -> tuple[Array, Array]:
        """Return weights one step further, and the direction."""
        del stage, step
        theta, before = state
        along = MOMENTUM * before + (1.0 - MOMENTUM) * noisy
        return theta + LENGTH * along / jnp.maximum(jnp.linalg.norm(along), 1e-12), along

    def answer(self, state: Any) -> Float[Array, " n"]:
        """Return the weights."""
        return state[0]

    def policy(self, weights: Float[np.ndarray, " n"]) -> GreedyPolicy:
        """Return the policy of the released weights."""
        theta, size = weights.reshape(self.actions, self.basis.size), self.basis.size
        if self.basis.is_table:
            allowed = np.array(self.allowed or np.ones((size, self.actions), dtype=bool))
            return self._greedy(np.where(allowed.T, theta, -1e300), np.zeros(0))
        return self._greedy(theta, np.zeros((self.actions, size, size)))

    def _scores(self, theta: Any, states: Any) -> Any:
        """Return ``(L, A)`` scores of ``(L, d)`` states."""
        table = theta.reshape(self.actions, self.basis.size)
        if self.basis.is_table:
            return table.T[self.basis.index(states, jnp)]
        return jnp.sum(self.basis(states, jnp)[:, None, :] * table, axis=-1)
