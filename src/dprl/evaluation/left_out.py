"""AdaSSP's value function without a unit's own part of it, for a baseline that does not contain the unit's rewards.

Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one.
Released: AdaSSP's noisy sums, and nothing more; taking out a unit's own part costs nothing.
Proof: docs/proofs/doubly-robust.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from typing_extensions import override

from dprl.data.trajectories import Trajectories
from dprl.engine.layouts import gather, unit_rows
from dprl.engine.ratios import step_ratios
from dprl.engine.rows import rows_of
from dprl.evaluation.adassp import AdaSSPProgram, State, modes_bound
from dprl.value_functions.features import public_states
from dprl.value_functions.value_function import ValueFunction

_NUMBERS = 1 << 22  # numbers in units' sums that are held at a time
_ROWS = 1 << 14  # rows at a time


class Kept(NamedTuple):
    """AdaSSP's state, and the noisy sums that it was made of: first that of returns, then the statistics."""

    level: Float[Array, ""]
    theta: Float[Array, " n"]
    sums: Float[Array, " dim"]


@dataclass(frozen=True)
class KeptSums(AdaSSPProgram):
    """AdaSSP whose answer is the weights, followed by the noisy sums."""

    @override
    def update(self, stage: int, state: Any, noisy: Float[Array, " dim"], step: Any) -> Any:
        if stage == 0:
            return noisy[0]
        level, theta = super().update(stage, state, noisy, step)
        return Kept(level, theta, jnp.append(state.sums[:1], noisy))

    @override
    def finish(self, stage: int, state: Any) -> Any:
        if stage:
            return state
        level, theta = self.start_at(self._level(state[None]))
        return Kept(level, theta, jnp.append(state, jnp.zeros(self.stages[1].mechanism.dimension)))

    @override
    def answer(self, state: Any) -> Float[Array, " n_and_dim"]:
        return jnp.append(super().answer(state), state.sums)

    def _level(self, sums: Any) -> Any:
        assert self.start is not None
        return self.start.level(sums, self.stages[0].mechanism)

    def matrix(self, sums: Float[np.ndarray, " dim"]) -> Float[np.ndarray, "k k"]:
        """Return the matrix that the release solves, from which any unit's part can be subtracted.

        Its least eigenvalue is at least twice the largest eigenvalue that a unit's part can have.
        """
        values, vectors = np.linalg.eigh(self._matrices(sums[None])[0])
        least = 2.0 * modes_bound(self.facts.features, self.config.modes) ** 2
        return (vectors * np.maximum(np.maximum(values, 0.0) + self.ridge, least)) @ vectors.T

    def without(
        self, sums: Float[np.ndarray, " dim"], matrix: Float[np.ndarray, "k k"], own: Float[np.ndarray, "units dim"]
    ) -> Float[np.ndarray, "units k"]:
        """Return weights over the modes of the value function, without each unit's ``own`` part of the sums.

        The products of the other units were taken around a level that includes the unit's return. They are moved to the
        level without that return.
        """
        level, levels = (np.asarray(self._level(x.T)) for x in (sums, sums - own))
        whole, parts = self._matrices(sums[None]), self._matrices(own)
        cross = (sums - own)[:, -len(matrix) :] / self._kappa * (self.facts.ratio + np.abs(level))
        cross += (level - levels)[:, None] * (whole[:, :, 0] - parts[:, :, 0])
        weights = np.linalg.solve(matrix - parts, cross[:, :, None])[:, :, 0]
        weights[:, 0] += levels  # the first mode is the constant 1
        return weights

    def _matrices(self, sums: Float[np.ndarray, "units dim"]) -> Float[np.ndarray, "units k k"]:
        k = self.config.modes
        i, j = np.triu_indices(k)
        matrices = np.empty((len(sums), k, k))
        matrices[:, i, j] = matrices[:, j, i] = sums[:, 1 : 1 + len(i)] / np.where(i == j, 1.0, math.sqrt(2.0))
        return matrices

    def own(
        self, sums: Float[np.ndarray, " dim"], log: Trajectories, ratios: Float[np.ndarray, " rows"]
    ) -> Float[np.ndarray, "units dim"]:
        """Return each unit's part of the sums, as the mechanisms clipped and counted it. Private."""
        facts = self.facts
        rows = rows_of(log, ratios, facts.features, facts.discount, facts.value, columns=self.columns)
        units, state = unit_rows(rows, facts.units), State(jnp.asarray(self._level(sums)), jnp.zeros(()))
        own = np.empty((log.units, len(sums)))
        order, start = np.concatenate([np.zeros(0, np.int64), *(members for members, _ in units.buckets)]), 0
        for index, live in units.chunks(np.ones(log.units, dtype=bool)):
            members = order[start : start + np.count_nonzero(live)]
            for stage, part in enumerate((slice(1), slice(1, None))):
                mechanism = self.stages[stage].mechanism
                found = np.asarray(_contribution(self, stage, state, units.columns, index))
                own[members, part] = mechanism.scaled(mechanism.clipped(found[live]))
            start += len(members)
        return own


@partial(jax.jit, static_argnames=("program", "stage"))
def _contribution(program: KeptSums, stage: int, state: State, columns: Any, index: Any) -> jax.Array:
    with jax.default_matmul_precision("highest"):
        return program.contribution(stage, state, gather(columns, index))


@dataclass(frozen=True)
class LeftOut(ValueFunction):
    """A released value function that is made again for each unit, from the noisy sums less the unit's own part.

    Attributes:
        program: program that released the function.
        sums: ``(1 + dim,)`` noisy sums of the program.
    """

    program: KeptSums
    sums: np.ndarray

    @cached_property
    def _matrix(self) -> Float[np.ndarray, "k k"]:
        return self.program.matrix(self.sums)

    def on_public_states(self) -> tuple[Float[np.ndarray, " points"], float]:
        """Return the values at public states with nobody left out, and the most by which a unit's own part moves them.

        The latter is ``h (W + 1) / (1 - h)`` with the largest leverage ``h`` of a public state, at most 1/2.
        """
        modes = self._modes(public_states(self.features))
        weights = self.program.without(self.sums, self._matrix, np.zeros((1, len(self.sums))))[0]
        leverage = float((modes * np.linalg.solve(self._matrix, modes.T).T).sum(axis=1).max())
        return modes @ weights, leverage / (1.0 - leverage) * (self.program.facts.ratio + 1.0)

    def at_rows(self, log: Trajectories, policy: Any, behavior: Any) -> Float[np.ndarray, " rows"]:
        """Return ``(N,)`` values in public units at the states of the log, each without the row's own unit. Private.

        Args:
            policy, behavior: the target policy of the value function, and the public behaviour policy, if any.
        """
        found, block = [np.zeros(0)], max(1, _NUMBERS // len(self.sums))
        for start in range(0, log.units, block):
            some = (np.arange(log.units) // block) == start // block
            part = log if some.all() else log.of_units(some, log.bounds)
            own = self.program.own(self.sums, part, step_ratios(policy, part, behavior))
            weights = self.program.without(self.sums, self._matrix, own)
            unit = part.unit_of_episode()[part.episode_of()]
            for first in range(0, len(unit), _ROWS):
                rows = slice(first, first + _ROWS)
                found.append((self._modes(part.observation[rows]) * weights[unit[rows]]).sum(axis=1))
        return np.concatenate(found)

    def _modes(self, states: Float[np.ndarray, "rows d"]) -> Float[np.ndarray, "rows k"]:
        """Return ``(N, k)`` modes at ``states``, computed one mode at a time.

        A product of matrices may round a row differently beside other rows.
        """
        phi = self.features(states)
        return np.stack([(phi * weights).sum(axis=1) for weights in self.program.basis.T], axis=1)
