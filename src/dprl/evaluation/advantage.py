"""Advantages of actions over what was done, from one noisy regression; the policy takes the action with the largest.

An action's advantage in a state is how much more it brings there than the behaviour policy's choice, if the behaviour
policy takes all later actions. The regression needs no value function. For each action, a row adds the return from that
step on, times ``1{taken} / propensity - 1``. The mean of this product is the advantage (A-learning, Murphy 2003 and
Robins 2004; for one decision outcome-weighted learning, Zhao et al. 2012). Whatever all actions have in common drops
out, so a basis that cannot describe values may still tell actions apart. The method is one step of policy improvement
in one release. With little budget it finds more than fitted Q iteration, which adds noise in every round. Where later
actions of the behaviour policy are far from the best, it finds less.

Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one. Released: one noisy
sum; the policy is post-processing. Proofs: docs/proofs/advantage.md, docs/proofs/two-parts.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from typing_extensions import override

from dprl.accounting import events
from dprl.accounting.budget import Budget
from dprl.accounting.calibration import noise_multiplier_for
from dprl.engine.layouts import Block
from dprl.engine.program import Query
from dprl.evaluation.adassp import smat
from dprl.evaluation.fitted_q import PolicyLearner
from dprl.policies.greedy import GreedyPolicy
from dprl.policies.loading import UniformPolicy

# All numbers were chosen on the seeds for choosing of benchmarks/learn_many_steps.py.
CLIP_RANGE = 1.0, 8.0
"""Least and largest clip norm, over that of a Gram matrix of as many rows as the horizon has, in directions of their
own."""
LEAST_CLIP_STRENGTH = 25.0
"""The strength up to which the clip norm is the least; above, it grows in proportion, so that less and less is cut."""
KAPPA = 3.0
"""Weight of products with returns against those of two features."""
GRAM_DEVIATION = 0.02
"""Expected square of an entry of a Gram matrix off that of a basis that is orthonormal, per row."""
ADVANTAGE = "advantage"
"""Name of the learner, of its noise stream, and of the journal's stream."""


@dataclass(frozen=True)
class Advantage(PolicyLearner):
    """Program of the regression; its state after the release is the weights ``(A p,)``, for a table the noisy sums.

    Attributes:
        clip: clip norm, relative to the norm of a Gram matrix with one row per step of the horizon, all in different
            directions.
    """

    caution: float = 0.0
    clip: float = CLIP_RANGE[0]

    name: ClassVar[str] = ADVANTAGE
    rounds: ClassVar[int] = 1
    columns = ("step", "logged_return", "actions", "states")

    @property
    @override
    def ratio_policy(self) -> UniformPolicy:
        """The policy whose ratios the rows hold; a ratio times the number of actions is one over the propensity."""
        return UniformPolicy(self.actions)

    @property
    def functions_per_row(self) -> int:
        """How many functions of the basis one row involves: one for a table, else all."""
        return 1 if self.basis.is_table else self.basis.size

    @property
    @override
    def query(self) -> Query:
        """Products with returns for each action; for a linear basis also the upper triangle of the Gram matrix."""
        size = self.basis.size
        of_gram = 0 if self.basis.is_table else size * (size + 1) // 2
        clip = self.clip * math.sqrt(self.bounds.horizon * self.functions_per_row)
        return Query(ADVANTAGE, self.actions * size + of_gram, clip)

    @override
    def calibrated(self, budget: Budget) -> Advantage:
        """Return the same program with the clip norm and the noise for this budget."""
        strength = self.strength(noise_multiplier_for(events.gaussian, budget))
        wide = replace(self, clip=min(max(CLIP_RANGE[0], strength / LEAST_CLIP_STRENGTH), CLIP_RANGE[1]))
        return super(Advantage, wide).calibrated(budget)

    def strength(self, noise_multiplier: float) -> float:
        """Return the number of people times the clip norm, over the length of the noise vector in their sum."""
        return self.bounds.units / (noise_multiplier * math.sqrt(self.query.dimension))

    def contribution(self, stage: int, state: Any, block: Block) -> Float[Array, "units dim"]:
        """Return each unit's sums over rows."""
        del stage, state
        weights, taken = self._weights(block), block.actions[..., None] == jnp.arange(self.actions)
        over = jnp.where(weights > 0.0, self.actions * block.rho, 0.0)
        more = (KAPPA * weights * block.logged_return)[..., None] * (taken * over[..., None] - 1.0)
        if self.basis.is_table:
            cells = self.basis.index(block.states, jnp)
            return self._summed_at(jnp.arange(self.actions) * self.basis.size + cells[..., None], more)
        phi = self._phi(block.states)
        products = jnp.einsum("bla,bln->ban", more, phi).reshape(len(weights), -1)
        gram = self._upper_triangles(jnp.einsum("bl,bln,blm->bnm", weights, phi, phi))
        return jnp.concatenate([products, gram / math.sqrt(self.functions_per_row)], axis=1)

    def update(self, stage: int, state: Any, noisy: Float[Array, " dim"], step: Any) -> Float[Array, " n"]:
        """Return the regression's weights from the noisy sums; for a table return the sums themselves.

        Within a state of a table the sums have the order of the advantages.
        """
        del stage, state, step
        size, noise = self.basis.size, self._noise
        products = noisy[: self.actions * size].reshape(self.actions, size) / KAPPA
        if self.basis.is_table:
            return products.ravel()
        gram = smat(noisy[self.actions * size :], size) * math.sqrt(size)
        # the more the noise hides the matrix, the nearer it is drawn to that of an orthonormal basis
        rows = self.bounds.units * self.bounds.horizon
        usual, expected = rows * jnp.eye(size), rows**2 * GRAM_DEVIATION
        gram = usual + expected / (expected + noise**2 * size) * (gram - usual)
        scale, axes = jnp.linalg.eigh(gram)
        scale = jnp.maximum(scale, 0.0)
        shrunk = scale / (scale**2 + size * (scale + (noise / KAPPA) ** 2) + 1e-9)
        return jnp.einsum("ij,j,kj,ak->ai", axes, shrunk, axes, products).ravel()

    def policy(self, weights: Float[np.ndarray, " n"]) -> GreedyPolicy:
        """Return the policy of the released weights."""
        theta, size = weights.reshape(self.actions, self.basis.size), self.basis.size
        if self.basis.is_table:
            allowed = np.array(self.allowed or np.ones((size, self.actions), dtype=bool))
            return self._greedy(np.where(allowed.T, theta, -1e300), np.zeros(0))
        return self._greedy(theta, np.zeros((self.actions, size, size)))
