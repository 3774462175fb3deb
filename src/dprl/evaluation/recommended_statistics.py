"""The program of :mod:`recommended` on returns: unclipped statistics in two stages, descent, and both reconciled."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dprl.engine.layouts import apply, project, project_phi
from dprl.engine.program import Stage
from dprl.evaluation import recommended_bayes as bayes
from dprl.evaluation.recommended_modes import Modes, make_modes
from dprl.value_functions.features import Features

FIRST_SHARE = 0.5  # of the statistics' mu^2
_OVERLAP = 0.5
_BIAS_OF_VISITS = 1.3
_SHAPE_OF_ENDS = 0.3  # prior size of the shape of the discounts to the end


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Choices that follow from the public facts.

    Attributes:
        features: what the answer's weights are over.
        units: declared number of units.
        discount: gamma.
        ratio: bound on a unit's importance ratio; 1 on-policy.
        start: whether statistics begin with the weights of start states, rather than of all visits.
        choose: whether the second stage chooses these weights by the first one's occupancies.
        descend: whether a descent stage follows.
        shape: prior size of the value function's shape, which the first stage is designed for.
        occupancy: weight of the occupancy in a unit's vector.
        nothing: what no reward at all is worth, in half-widths of the value range from its middle.
        ends: weight of the discounts to the end in a unit's vector; 0 where they are not measured.
        early: weight of the rewards before the end, where ``ends`` is not 0.
        steps, clip, step_size: of the descent; the clip in units of the root mean square norm of the modes.
    """

    features: Features
    units: int
    discount: float
    ratio: float
    start: bool
    choose: bool
    descend: bool
    shape: float
    occupancy: float
    nothing: float
    ends: float
    early: float
    steps: int = 50
    clip: float = 0.08
    step_size: float = 0.06

    @property
    def modes(self) -> Modes:
        """Modes of the features."""
        return make_modes(self.features)

    @property
    def occupancies(self) -> int:
        """Number of occupancies that are measured: of start states and of visits where both may be used."""
        return 2 if self.choose else 1

    @property
    def statistics_dimension(self) -> int:
        """Length of a vector of statistics."""
        modes = self.modes
        return modes.size + self.occupancies * modes.second_size + (modes.size + 1 if self.ends else 0)

    def norm(self, occupancy: Any) -> Any:
        """Return largest norm of a unit's vector of statistics, with this weight of each occupancy."""
        ends = self.ends**2 + self.early**2 if self.ends else 0.0
        return jnp.sqrt(1.0 + self.occupancies * occupancy**2 + ends)

    @property
    def descent_clip(self) -> float:
        """Clip norm of the gradients."""
        return self.clip * math.sqrt(self.modes.size)


class State(NamedTuple):
    """Made of released sums alone. The first axis of ``signal``, ``variance`` and ``start`` is the stage."""

    released: jax.Array  # (D,) the last stage's noisy sum
    strategy: jax.Array  # (K,) weights a of the modes
    occupancy: jax.Array  # () weight beta of the occupancies
    signal: jax.Array  # (2, K) means of w y mode(s), noised
    variance: jax.Array  # (2, K) of their noise
    start: jax.Array  # (2,) share of the start states in the weights w
    moments: jax.Array  # (o, M) sums of the noisy means of the second modes, times their precision
    precision: jax.Array  # (M,)
    ends: jax.Array  # (2, K) means of w to_end mode(s), noised
    ends_variance: jax.Array  # (2, K) of their noise
    early: jax.Array  # (2,) means of the rewards before the end, noised
    early_variance: jax.Array  # (2,)
    theta: jax.Array  # (K,) answer so far
    covariance: jax.Array  # (K, K)
    evidence: bayes.Evidence
    found: bayes.Ends
    limit: jax.Array  # () largest stable step of the descent
    total: jax.Array  # (K,) sum of the iterates of the last half


@dataclass(frozen=True)
class Statistics:
    """The program; ``stages`` are two sums of statistics and, where there is a budget for it, the descent."""

    settings: Settings
    stages: tuple[Stage, ...]

    @property
    def choices(self) -> dict[str, Any]:
        """Choices that follow from public facts, for the certificate."""
        s = self.settings
        out = {"modes": s.modes.size, "weights of start states": s.start, "shape": s.shape, "occupancy": s.occupancy}
        out |= {"ends": s.ends, "rewards before the end": s.early} if s.ends else {}
        return out | ({"descent step_size": s.step_size / s.descent_clip} if s.descend else {})

    @property
    def columns(self) -> tuple[str, ...]:
        """Further columns of the rows that are needed."""
        return ("returns", "start", "to_end", "early") if self.settings.ends else ("returns", "start")

    def init(self) -> State:
        """Return the state before the first step."""
        s, modes = self.settings, self.settings.modes
        K, M, o = modes.size, modes.second_size, s.occupancies
        P = bayes.first_prior(modes, s.shape)
        zeros = jnp.zeros
        empty = bayes.Evidence(zeros(2 * K), zeros((2 * K, K)), zeros((2 * K, 2 * K)), zeros((2 * K, 2 * K)))
        none = bayes.Ends(zeros(K), zeros((K, K)), zeros(()), zeros(()), zeros(()))
        state = State(
            zeros(s.statistics_dimension), zeros(K), zeros(()), zeros((2, K)), zeros((2, K)), zeros(2),
            zeros((o, M)), zeros(M), zeros((2, K)), zeros((2, K)), zeros(2), zeros(2),
            zeros(K), jnp.asarray(P), empty, none, zeros(()), zeros(K),
        )  # fmt: skip
        return self._design(0, state, jnp.asarray(1.0 if s.start else 0.0))

    def _design(self, stage: int, state: State, start: jax.Array) -> State:
        """Return the strategy of a stage from what is known before it."""
        s, modes = self.settings, self.settings.modes
        noise = self._relative_noise(stage) * s.ratio * s.norm(s.occupancy)
        x = bayes.water_fill(jnp.diag(state.covariance), modes.extreme.max(axis=0), s.units / noise)
        a = _within_one(modes, x)
        # no occupancy where little but the constant is asked for
        beta = s.occupancy * jnp.minimum(1.0, _BIAS_OF_VISITS * jnp.sqrt(jnp.maximum(1.0 - a[0] ** 2, 0.0)))
        return state._replace(strategy=a, occupancy=jnp.maximum(beta, 1e-3), start=state.start.at[stage].set(start))

    def _relative_noise(self, stage: int) -> float:
        """Return noise of a coordinate of a stage's sum over its sensitivity."""
        return self.stages[stage].mechanism.noise_multiplier

    def contribution(self, stage: int, state: State, block: Any) -> jax.Array:
        """Return a unit's vector: of statistics, of norm at most one by convexity, or a gradient that will be
        clipped.
        """
        s, modes = self.settings, self.settings.modes
        kind = block.phi.dtype
        X = jnp.asarray(modes.to_features, dtype=kind)
        if stage == 2:
            lam = (0.5 * (state.start[1] > 0)).astype(kind)
            w = lam * block.start + (1 - lam) * block.weight
            y = lam * block.start_return + (1 - lam) * block.weight_return
            return project_phi(y - w * apply(block.phi, X @ state.theta.astype(kind)), block) @ X
        lam = state.start[stage].astype(kind)
        y = lam * block.start_return + (1 - lam) * block.weight_return
        weights = (block.start, block.weight) if s.choose else (block.start if s.start else block.weight,)
        parts = [(project_phi(y, block) @ X) * state.strategy.astype(kind)]
        scale = (state.occupancy * self._occupancy_strategy()).astype(kind)
        parts += [scale * second_sums(modes, w, block.phi) for w in weights]
        if s.ends:
            ends = lam * block.start_end + (1 - lam) * block.weight_end
            parts += [(project_phi(ends, block) @ X) * (s.ends * self._ends_strategy(stage)).astype(kind)]
            parts += [s.early * jnp.sum(block.start_early, axis=1, keepdims=True)]
        return jnp.concatenate(parts, axis=1) / s.norm(state.occupancy).astype(kind)

    def _occupancy_strategy(self) -> np.ndarray:
        """Return ``(M,)`` public weights of the second modes, the norm of a weighted row at most one."""
        modes = self.settings.modes
        d = len(self.settings.features.bounds)
        weights = (1.0 + modes.second_frequency) ** (-d / 2.0)
        return weights / math.sqrt((modes.second_extreme @ weights**2).max(initial=1e-300))

    def _ends_strategy(self, stage: int) -> jax.Array:
        """Return ``(K,)`` public weights of the modes that discounts to the end go with; a row's norm is at most
        one.
        """
        s, modes = self.settings, self.settings.modes
        precision = s.units * s.ends / self._relative_noise(stage)
        expected = jnp.diag(jnp.asarray(bayes.first_prior(modes, _SHAPE_OF_ENDS)))
        return _within_one(modes, bayes.water_fill(expected, modes.extreme.max(axis=0), precision))

    def update(self, stage: int, state: State, noisy: jax.Array, step: Any) -> State:
        """Return the state after a step, from its noisy sum."""
        s = self.settings
        if stage < 2:
            return state._replace(released=noisy)
        length = jnp.minimum(s.step_size / s.descent_clip, state.limit)
        theta = state.theta + length * noisy / s.units
        keep = jnp.asarray(step) >= s.steps // 2
        return state._replace(theta=theta, total=state.total + jnp.where(keep, theta, 0.0))

    def finish(self, stage: int, state: State) -> State:
        """Return the state after the stage's last step."""
        if stage == 2:
            return state._replace(theta=state.total / (self.settings.steps - self.settings.steps // 2))
        s, modes = self.settings, self.settings.modes
        K, M = modes.size, modes.second_size
        mean = state.released * s.norm(state.occupancy) / s.units
        deviation = self._relative_noise(stage) * s.norm(state.occupancy) / s.units
        scale = state.occupancy * self._occupancy_strategy()
        precision = (scale / deviation) ** 2
        state = state._replace(
            signal=state.signal.at[stage].set(s.ratio * mean[:K] / state.strategy),
            variance=state.variance.at[stage].set((s.ratio * deviation / state.strategy) ** 2),
            moments=state.moments + mean[K : K + s.occupancies * M].reshape(s.occupancies, M) / scale * precision,
            precision=state.precision + precision,
        )
        if s.ends:
            ends = s.ends * self._ends_strategy(stage)
            state = state._replace(
                ends=state.ends.at[stage].set(mean[-K - 1 : -1] / ends),
                ends_variance=state.ends_variance.at[stage].set((deviation / ends) ** 2),
                early=state.early.at[stage].set(mean[-1] / s.early),
                early_variance=state.early_variance.at[stage].set((deviation / s.early) ** 2),
            )
        means, variances = state.moments / state.precision, 1.0 / state.precision
        cells = jax.vmap(lambda m: bayes.density(modes, m, variances))(means)
        grams = jax.vmap(lambda c, m: bayes.gram(modes, c, m, variances))(cells, means)
        state = self._infer(stage, state, cells, grams)
        if stage == 0:
            start = state.start[0]
            if s.choose:
                start = (jnp.sum(jnp.minimum(cells[0], cells[1])) > _OVERLAP).astype(jnp.float64)
            return self._design(1, state, start)
        lam = 0.5 * (state.start[1] > 0)
        H = lam * grams[0] + (1 - lam) * grams[-1]
        return state._replace(limit=1.0 / bayes.largest_eigenvalue(H))

    def _infer(self, stage: int, state: State, cells: jax.Array, grams: jax.Array) -> State:
        """Posterior of theta from the stages so far; ``cells`` ``(o, G)`` and ``grams`` ``(o, K, K)``: occupancies."""
        s, modes = self.settings, self.settings.modes
        seen = stage + 1
        Phi = jnp.asarray(modes.grid)
        Hs, Zs = [], []
        for start in state.start[:seen]:
            density = start * cells[0] + (1 - start) * cells[-1]
            Hs.append(start * grams[0] + (1 - start) * grams[-1])
            Zs.append(Phi.T @ ((density**2)[:, None] * Phi))
        H, Z = jnp.stack(Hs), jax.scipy.linalg.block_diag(*Zs)
        noise_of_gram = jnp.median(1.0 / state.precision[:4]) if modes.second_size else jnp.zeros(())

        def evidence(signal: jax.Array, variance: jax.Array, ratio: float) -> bayes.Evidence:
            noise = jax.vmap(jnp.diag)(variance) + ratio**2 / 3.0 / s.units * H + 1e-10 * jnp.eye(modes.size)
            R = jax.scipy.linalg.block_diag(*noise)
            return bayes.Evidence(signal.reshape(-1), H.reshape(-1, modes.size), R, Z)

        models: bayes.Models = bayes.priors
        if s.ends:
            known = evidence(state.ends[:seen], state.ends_variance[:seen], 1.0)
            first = jnp.zeros(modes.size), jnp.asarray(bayes.first_prior(modes, _SHAPE_OF_ENDS))
            mean, covariance, _ = bayes.refine(modes, known, first, noise_of_gram, bayes.priors)
            early = jnp.mean(state.early[:seen]), jnp.sqrt(jnp.sum(state.early_variance[:seen])) / seen
            ends = bayes.Ends(mean.at[0].add(1.0) / 2.0, covariance / 4.0, jnp.asarray(s.nothing), *early)
            state = state._replace(found=ends)
            models = functools.partial(bayes.priors_with_ends, ends)
        known = evidence(state.signal[:seen], state.variance[:seen], s.ratio)
        theta, P, R = bayes.refine(modes, known, (state.theta, state.covariance), noise_of_gram, models)
        kept = known._replace(R=R) if stage == 1 else state.evidence
        return state._replace(theta=theta, covariance=P, evidence=kept)

    def answer(self, state: State) -> jax.Array:
        """Return the weights over the features."""
        s, modes = self.settings, self.settings.modes
        theta = state.theta
        if s.descend:
            theta = bayes.reconcile(modes, state.evidence, theta, state.found if s.ends else None).mean
        weights = jnp.asarray(modes.to_features) @ theta
        if modes.table is None:
            return weights
        end = 1.0 / math.sqrt(s.features.size)  # the value range, for indicators
        return jnp.clip(weights, -end, end)


def _within_one(modes: Modes, squares: jax.Array) -> jax.Array:
    """Return ``(K,)`` weights of the modes in proportion to the roots of ``squares``, a weighted row's norm at most
    one.
    """
    a = jnp.sqrt(jnp.maximum(squares, 1e-6 * jnp.max(squares)))
    return a / jnp.sqrt(jnp.max(modes.extreme @ (a * a)))


def second_sums(modes: Modes, weights: jax.Array, phi: jax.Array) -> jax.Array:
    """Return ``(B, M)`` weighted sums of the second modes over each unit's rows."""
    kind = phi.dtype
    if modes.table is not None:
        return project(weights, phi) @ jnp.asarray(modes.table, dtype=kind)
    psi = phi @ jnp.asarray(modes.to_features, dtype=kind)
    K = modes.size
    from_products = jnp.asarray(modes.from_products, dtype=kind)
    if phi.ndim == 2:
        pairs = (psi[:, :, None] * psi[:, None, :]).reshape(len(psi), K * K)
        return weights @ (pairs @ from_products)
    pairs = jnp.einsum("bl,blj,blk->bjk", weights, psi, psi)
    return pairs.reshape(len(psi), K * K) @ from_products
