"""Fitted Q iteration on noisy statistics, with pessimism that counts sampling and privacy noise.

For a table, counts of (state, action, next state) and sums of rewards are released once, and the policy is planned on
them (DP-APVI). Otherwise Q is linear in a public basis. Each of K rounds then releases, for every action, the Gram
matrix of the features and the products of the features with a target: the reward plus the value that the round before
gave to the next state (DP-VAPVI). The learned policy takes the action with the highest lower bound. Qiao and Wang
(2023), "Offline reinforcement learning with differential privacy".

Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one. Released: every noisy
sum; the policy is post-processing. The bounds steer what is learned and promise nothing: other people value the policy.
Proofs: docs/proofs/fitted-q.md, docs/proofs/two-parts.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dprl.accounting.budget import Budget
from dprl.bounds import Bounds
from dprl.engine.columns import scale_of
from dprl.engine.layouts import Block
from dprl.engine.plan import calibrated_stages
from dprl.engine.program import Query, Stage
from dprl.evaluation.adassp import smat
from dprl.policies.greedy import Basis, GreedyPolicy
from dprl.policies.loading import LoggedPolicy
from dprl.policies.rules import Rule
from dprl.value_functions.feature_map import Features

# All numbers were chosen on the seeds for choosing of benchmarks/learn_many_steps.py.
CAUTION = 0.5
"""Standard errors, of sampling and privacy noise together, by which a bound is below the estimate."""
CLIP_FACTOR = 1.0
"""Clip norm over that of a person of as many steps as the horizon has, all in cells or directions of their own."""
KAPPA = 0.7
"""Weight of a reward against a count."""
RESIDUAL_VARIANCE = 0.25
"""Variance of a linear target around its mean, in halves of the value range."""
RIDGE = 1.0
"""Ridge over the spectral norm of a noisy Gram matrix's noise."""
ROUNDS = 20
"""Most rounds of a linear basis."""
FITTED_Q = "fitted-q"
"""Name of the learner, of its noise stream, and of the journal's stream."""


class NoFeatures(Features):
    """Empty feature map: rows hold states, from which the program makes its own features."""

    name = "none"

    @property
    def size(self) -> int:
        """Number of features: none."""
        return 0

    def __call__(self, states: Any, xp: Any = np) -> Any:
        """Return an empty array ``(N, 0)``."""
        return xp.zeros((states.shape[0], 0), dtype=states.dtype)


@dataclass(frozen=True)
class PolicyLearner:
    """Base of the programs of fitted Q iteration and of advantages, made from public facts only; see the module.

    Attributes:
        bounds: public bounds of the part of the people from whom the policy is learned.
        basis: basis in which Q is linear.
        discount: gamma.
        allowed: for a table, which actions may be proposed in each state; empty for all.
        stages: the calibrated stage.
        caution: standard errors by which a bound is below the estimate; 0 for fitted Q iteration without pessimism.
    """

    bounds: Bounds
    basis: Basis
    discount: float
    allowed: tuple[tuple[bool, ...], ...] = ()
    stages: tuple[Stage, ...] = ()
    caution: float = CAUTION

    name: ClassVar[str] = FITTED_Q
    columns = ("step", "raw_reward", "actions", "states", "next_states", "alive")

    @property
    def ratio_policy(self) -> Any:
        """The policy whose importance ratios the rows hold."""
        return LoggedPolicy()

    @property
    def actions(self) -> int:
        """Number of actions."""
        assert self.bounds.actions is not None
        return self.bounds.actions

    @property
    def query(self) -> Query:
        """Query to every person in the part."""
        raise NotImplementedError

    def calibrated(self, budget: Budget) -> Self:
        """Return the same program with noise for this budget."""
        return replace(self, stages=calibrated_stages([self.query], [], 1.0, budget))

    def _greedy(self, theta: np.ndarray, root: np.ndarray) -> GreedyPolicy:
        return GreedyPolicy(self.basis, theta, root, self.bounds.state_names, self.bounds.action_names)

    @property
    def _noise(self) -> float:
        return self.stages[0].mechanism.noise_std

    def init(self) -> Any:
        """Return the state before the release: zeros, for each action and function of the basis."""
        return jnp.zeros(self.actions * self.basis.size, jnp.float64)

    def finish(self, stage: int, state: Any) -> Any:
        """Return the state as it is."""
        del stage
        return state

    def answer(self, state: Any) -> Float[Array, " n"]:
        """Return the state, from which the policy is made."""
        return state

    def _weights(self, block: Block) -> Any:
        """Return ``(B, L)`` weights of rows: one over the unit's number of trajectories; zero for unusable rows.

        A row in which a person was lost has no outcome: its ratio is zero, and so is its weight.
        """
        usable = (block.actions >= 0) & (block.rho > 0.0)
        return jnp.where(usable, block.step * self.bounds.horizon, 0.0)

    def _upper_triangles(self, gram: Any) -> Any:
        """Return the upper triangles of symmetric matrices ``(..., n, n)``.

        They are as :func:`~dprl.evaluation.adassp.smat` reads them.
        """
        i, j = np.triu_indices(self.basis.size)
        return gram[..., i, j] * np.where(i == j, 1.0, math.sqrt(2.0))

    def _summed_at(self, places: Any, values: Any) -> Float[Array, "units dim"]:
        """Return each unit's vector: the sums of ``values`` ``(B, L, n)`` at ``places``, rows in their order."""
        unit = jnp.arange(len(places))[:, None]

        def add(total: Any, row: Any) -> tuple[Any, None]:
            place, value = row
            return total.at[unit, place].add(value), None

        nothing = jnp.zeros((len(places), self.query.dimension), values.dtype)
        return jax.lax.scan(add, nothing, (jnp.swapaxes(places, 0, 1), jnp.swapaxes(values, 0, 1)))[0]

    def _phi(self, states: Any) -> Any:
        flat = self.basis(states.reshape(-1, states.shape[-1]), jnp)
        return flat.reshape(*states.shape[:-1], self.basis.size)


@dataclass(frozen=True)
class TableQ(PolicyLearner):
    """Q of a table, from one release. The state after the release is the table of scores ``(A S,)``."""

    rounds = 1
    kappa: ClassVar[float] = KAPPA

    @property
    def destinations(self) -> int:
        """Number of next states, the end last; for one decision only the end."""
        return self.basis.size + 1 if self.bounds.horizon > 1 else 1

    @property
    def query(self) -> Query:
        """Counts of (state, action, next state) and sums of rewards in [-1, 1] of each (state, action)."""
        clip = CLIP_FACTOR * math.sqrt(self.bounds.horizon * (1.0 + self.kappa**2))
        return Query(FITTED_Q, self.basis.size * self.actions * (self.destinations + 1), clip)

    def strength(self, noise_multiplier: float) -> float:
        """Return the expected number of rows per state and action, over the noise in that number."""
        rows = self.bounds.units * self.bounds.horizon / (self.basis.size * self.actions)
        return rows / (noise_multiplier * self.query.clip_norm * math.sqrt(self.destinations))

    def contribution(self, stage: int, state: Any, block: Block) -> Float[Array, "units dim"]:
        """Return each unit's counts and sums."""
        del stage, state
        end, weights = self.destinations - 1, self._weights(block)
        cells = self.basis.index(block.states, jnp) * self.actions + jnp.maximum(block.actions, 0).astype(jnp.int32)
        following = end
        if end:
            following = jnp.where(block.alive > 0.0, self.basis.index(block.next_states, jnp), end)
        moves, counts = cells * self.destinations + following, self.basis.size * self.actions * self.destinations
        values = jnp.stack([weights, self.kappa * weights * block.raw_reward], axis=-1)
        return self._summed_at(jnp.stack([moves, counts + cells], axis=-1), values)

    def update(self, stage: int, state: Any, noisy: Float[Array, " dim"], step: Any) -> Float[Array, " n"]:
        """Return lower bounds of Q after as many backups as there are steps, in half-widths of the reward range."""
        del stage, state, step
        size, actions, gamma = self.basis.size, self.actions, self.discount
        middle, half = scale_of(self.bounds.reward)
        low, high = (end / half for end in self.bounds.reward)
        moves = noisy[: size * actions * self.destinations].reshape(size, actions, self.destinations)
        rows, noise = jnp.sum(moves, axis=2), self._noise
        sums = noisy[size * actions * self.destinations :].reshape(size, actions) / self.kappa + middle / half * rows
        error = noise * math.sqrt(self.destinations)
        some = jnp.maximum(rows, max(error, 1.0))
        shares = jnp.maximum(moves, 0.0) / jnp.maximum(jnp.sum(jnp.maximum(moves, 0.0), axis=2, keepdims=True), 1e-9)
        seen, allowed = self._seen(rows, error), jnp.asarray(self.allowed or True)

        def backup(values: Any, steps: Any) -> tuple[Any, Any]:
            """Return values ``(destinations,)`` one step earlier, the end's value last, and bounds of Q ``(S, A)``."""
            least, most = jnp.minimum(low, low * steps), jnp.maximum(high, high * steps)
            mean = jnp.clip((sums + gamma * moves @ values) / some, least, most)
            spread = shares @ values**2 - (shares @ values) ** 2
            future = gamma**2 * jnp.maximum(spread, 0.0)
            around = jnp.sum((gamma * values + middle / half - mean[..., None]) ** 2, axis=2)
            private = (noise / some) ** 2 * (self.kappa**-2 + around)
            lower, likely = self._q_estimates(mean, future, private, some, seen)
            # among actions that nobody took, the likeliest one has the highest score
            bound = jnp.where(seen, jnp.clip(lower, least, most), least) + 1e-9 * likely
            bound = jnp.where(allowed, bound, -1e300)
            return jnp.append(jnp.max(bound, axis=1), 0.0)[-self.destinations :], bound

        lengths = np.cumsum(gamma ** np.arange(self.bounds.horizon, dtype=np.float64))
        _, found = jax.lax.scan(backup, jnp.zeros(self.destinations, jnp.float64), jnp.asarray(lengths))
        return found[-1].T.ravel()

    def _seen(self, rows: Any, error: float) -> Any:
        """Return ``(S, A)`` whether each action was taken, from noisy numbers of rows and the noise in these."""
        return rows >= 2.0 * error

    def _q_estimates(self, mean: Any, future: Any, private: Any, some: Any, seen: Any) -> tuple[Any, Any]:
        """Return estimates of Q ``(S, A)``, and scores ``(S, A)`` that rank actions that nobody took.

        The estimates are lower bounds. A subclass may rank actions by others, such as shrunken means.

        Args:
            mean: Q, in half-widths of the reward range.
            future, private: variances of what follows a row, and of the noise in the mean.
            some, seen: numbers of rows, at least the noise in them; and where an action was taken (:meth:`_seen`).
        """
        del seen
        return mean - self.caution * jnp.sqrt((1.0 + future) / some + private), mean

    def policy(self, weights: Float[np.ndarray, " n"]) -> GreedyPolicy | Rule:
        """Return the policy of the released scores."""
        theta = weights.reshape(self.actions, self.basis.size)
        return self._greedy(theta, np.zeros(0))


@dataclass(frozen=True)
class LinearQ(PolicyLearner):
    """Q of a linear basis, with one release per round. Values are in half-widths of what the round's steps can return.

    The state holds, for each action, the sum of the Gram matrices so far, the weights and the root of their covariance;
    and the number of rounds so far.
    """

    @property
    def rounds(self) -> int:
        """Number of rounds: the horizon, at most :data:`ROUNDS`."""
        return min(self.bounds.horizon, ROUNDS)

    @property
    def kappa(self) -> float:
        """Weight of a feature times a target against a product of two features."""
        return math.sqrt(self.basis.size)

    @property
    def query(self) -> Query:
        """Upper triangles of Gram matrices, off the diagonal times sqrt 2, and products with targets in [-1, 1]."""
        size = self.basis.size
        clip = CLIP_FACTOR * size * math.sqrt(self.bounds.horizon)
        return Query(FITTED_Q, self.actions * (size * (size + 1) // 2 + size), clip, steps=self.rounds)

    def strength(self, noise_multiplier: float) -> float:
        """Return the expected number of rows per action, over the spectral norm of the noise in its Gram matrix."""
        rows = self.bounds.units * self.bounds.horizon / self.actions
        return rows / (2.0 * math.sqrt(self.basis.size * self.rounds) * noise_multiplier * self.query.clip_norm)

    def init(self) -> tuple[Array, Array, Array, Array]:
        """Return the state before the first round: nothing is earned after the last step."""
        square = jnp.zeros((self.actions, self.basis.size, self.basis.size), jnp.float64)
        return square, square[:, 0], square, jnp.zeros((), jnp.int32)

    def contribution(self, stage: int, state: Any, block: Block) -> Float[Array, "units dim"]:
        """Return each unit's sums over rows; a next state's value is its best lower bound in the round before."""
        del stage
        phi, weights = self._phi(block.states), self._weights(block)
        (before, reach), (middle, half) = jnp.asarray(self._ranges, weights.dtype)[state[3] + jnp.arange(2)]
        future = before + reach * jnp.clip(
            jnp.max(self._scores(state, self._phi(block.next_states)), axis=-1), -1.0, 1.0
        )
        going = self.discount * block.alive if self.bounds.horizon > 1 else jnp.zeros_like(block.alive)
        centre, width = scale_of(self.bounds.reward)
        target = jnp.clip((centre + width * block.raw_reward + going * future - middle) / half, -1.0, 1.0)
        chosen = (block.actions[..., None] == jnp.arange(self.actions)) * weights[..., None]
        gram = self._upper_triangles(jnp.einsum("bla,bln,blm->banm", chosen, phi, phi))
        products = jnp.einsum("bla,bln->ban", chosen * target[..., None], phi) * self.kappa
        return jnp.concatenate([gram, products], axis=-1).reshape(len(weights), -1)

    def update(self, stage: int, state: Any, noisy: Float[Array, " dim"], step: Any) -> Any:
        """Return the state with each action's ridge regression on noisy sums and the root of its error's covariance."""
        del stage
        size, noise = self.basis.size, self._noise
        sums = noisy.reshape(self.actions, -1)
        total = state[0] + jnp.stack([smat(row, size) for row in sums[:, :-size]])
        rounds = jnp.asarray(step, jnp.float64) + 1.0  # the noise in the mean Gram matrix falls with the root of this
        of_gram = noise / jnp.sqrt(rounds)
        scale, axes = jnp.linalg.eigh(total / rounds)
        scale = jnp.maximum(scale, 0.0)
        whole = scale + RIDGE * of_gram * math.sqrt(size) + 1e-6
        theta = jnp.einsum("aij,aj,akj,ak->ai", axes, 1.0 / whole, axes, sums[:, -size:] / self.kappa)
        private = (noise / self.kappa) ** 2 + of_gram**2 * jnp.sum(theta**2, axis=1)
        spread = jnp.sqrt(RESIDUAL_VARIANCE * scale + private[:, None]) / whole
        return total, theta, self.caution * axes * spread[:, None, :], state[3] + 1

    def answer(self, state: Any) -> Float[Array, " n"]:
        """Return the weights, followed by the roots of their covariances."""
        return jnp.concatenate([state[1].ravel(), state[2].ravel()])

    def policy(self, weights: Float[np.ndarray, " n"]) -> GreedyPolicy:
        """Return the policy of the released weights."""
        size = self.basis.size
        theta, root = np.split(weights, [self.actions * size])
        shape = (self.actions, size, size)
        return self._greedy(theta.reshape(shape[:2]), root.reshape(shape))

    @property
    def _ranges(self) -> list[tuple[float, float]]:
        """Middle and half-width of what no step, one step, and so on up to all rounds can return.

        Where rewards have one sign, no part of a return exceeds what the whole is declared to be.
        """
        (low, high), (least, most) = self.bounds.reward, self.bounds.value_interval(self.discount)
        least, most = (least if high <= 0.0 else -math.inf), (most if low >= 0.0 else math.inf)
        lengths = np.cumsum(self.discount ** np.arange(self.rounds, dtype=np.float64))
        ends = [(max(min(low, low * n), least), min(max(high, high * n), most)) for n in lengths.tolist()]
        return [(0.0, 1.0), *map(scale_of, ends)]

    def _scores(self, state: Any, phi: Any) -> Any:
        theta, root = (part.astype(phi.dtype) for part in state[1:3])
        away = jnp.einsum("bln,anm->blam", phi, root)
        return jnp.einsum("bln,an->bla", phi, theta) - jnp.sqrt(jnp.sum(away**2, axis=-1))
