"""Errors of value functions that need not be linear in their weights, and the states of a run at given steps.

The objective is Eq. (2) of paper 000. The MSPBE is Eq. (1) of paper 000 without the factor 1/2, so that for linear
features it equals the MSPBE of :class:`dprl_papers.harness.metrics.Metrics`. Weights are in public units, V = centre +
half * V_theta.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from dprl.engine.columns import TRANSITION, scale_of
from dprl.engine.layouts import PaddedUnits
from dprl.engine.loop import run_steps
from dprl.engine.rows import rows_of
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SeededNoise
from dprl.value_functions.features import Features
from dprl.value_functions.network import MLP
from dprl_papers.harness.domain import MOMENT_SEED

if TYPE_CHECKING:
    from dprl.engine.program import Program
    from dprl_papers.harness.domain import Domain

CUT = 1e-7
"""Eigenvalues of E[Psi Psi'] below this part of the largest count as zero."""
MOST_DIRECTIONS = 2048
"""Largest number of directions of the gradients of a network's values for which the MSPBE is computed; with more, its
matrix would take minutes."""
_NO_DIRECTION = 1e-12
"""Singular values of a network's inputs below this part of the largest are rounding."""
_SPREAD = 4  # simulated rows per used row: rows of one trajectory are alike
_UNITS = 250  # trajectories simulated at a time
_CHUNK = 2000  # rows whose gradients are held together
_CALLS = 200


class NeuralMetrics:
    """Errors of value functions ``V_theta``, linear or not, on a domain.

    Expectations are means over transitions of logs that share no seed with any trial. A transition has weight one over
    the length of its trajectory. Off-policy, the TD error is multiplied by the importance ratio, and the metric G is
    not.

    Args:
        domain: gives the logs and the true values.
        features: maps weights to values.
        transitions: number of transitions, chosen at random from logs with several times as many.
    """

    def __init__(self, domain: Domain, features: Features, transitions: int = 20_000) -> None:
        self.domain, self.features = domain, features
        value = domain.bounds(1).value_interval(domain.discount)
        self.low, self.high = value
        self.centre, self.half = scale_of(value)
        self.rows = _transitions(domain, features, transitions)
        self.inputs = _directions(features, self.rows["states"])
        self.truth_states = jnp.asarray(domain.truth.states, dtype=jnp.float64)

    def errors(self, theta: np.ndarray, w: np.ndarray | None = None, clamp: bool = True) -> dict[str, np.ndarray]:
        """Return the errors of each trial, in the unit of the reward or its square; NaN where theta is not finite.

        Args:
            theta: ``(T, d)`` weights.
            w: ``(T, d)`` dual variables, for the objective.
            clamp: whether the values that are compared with the true values are clamped to the public range, as in a
                release.

        Returns:
            Errors, ``(T,)`` each. ``rmse`` is taken against the true values. ``msbe`` is the mean squared TD error.
            ``mspbe`` is ``b' G^+ b`` with ``b = E[delta Psi]`` and ``G = E[Psi Psi']``, where Psi is the gradient at
            theta; it is left out where the gradient has more than :data:`MOST_DIRECTIONS` directions. ``objective`` is
            ``E[delta q - q^2 / 2]`` with ``q = Psi' w``, where ``w`` is given; its largest value over all w is half of
            ``mspbe``. ``value`` is the error of the mean over the start states, where the domain gives the policy's
            value.
        """
        weights = np.asarray(theta, dtype=np.float64)
        duals = [None] * len(weights) if w is None else np.asarray(w, dtype=np.float64)
        each = [self._errors(*one, clamp) for one in zip(weights, duals, strict=True)]
        return {name: np.array([errors[name] for errors in each]) for name in each[0]}

    def _errors(self, theta: np.ndarray, w: np.ndarray | None, clamp: bool) -> dict[str, float]:
        finite = bool(np.isfinite(theta).all())
        values = self._values(theta, self.truth_states, clamp)
        delta, dot = _residuals(
            self.features, self.domain.discount, theta, np.zeros_like(theta) if w is None else w, self.rows
        )
        weight, weight_rho, delta = (np.asarray(x) for x in (self.rows["weight"], self.rows["weight_rho"], delta))
        squared = self.half**2
        out = {
            "rmse": self.domain.truth.rmse(values) if finite else np.nan,
            "msbe": squared * float(weight_rho @ delta**2),
        }
        if _count(self.features, self.inputs) <= MOST_DIRECTIONS:
            out["mspbe"] = squared * self._projected(theta, weight, weight_rho * delta) if finite else np.nan
        if w is not None:
            q = np.asarray(dot)
            out["objective"] = squared * float(weight_rho @ (delta * q) - 0.5 * weight @ q**2)
        if (start := self.domain.start) is not None:
            mean = float(start.weights @ self._values(theta, jnp.asarray(start.states, dtype=jnp.float64), clamp))
            out["value"] = abs(mean - start.mean)
        return out

    def _values(self, theta: np.ndarray, states: Any, clamp: bool) -> np.ndarray:
        values = self.centre + self.half * np.asarray(_values(self.features, theta, states))
        return np.clip(values, self.low, self.high) if clamp else values

    def _projected(self, theta: np.ndarray, weight: np.ndarray, weighted_delta: np.ndarray) -> float:
        """Return ``b' G^+ b`` in public units."""
        size, count = _count(self.features, self.inputs), len(weight)
        b, G = np.zeros(size), np.zeros((size, size))
        for start in range(0, count, _CHUNK):
            part = slice(start, start + _CHUNK)
            gradients = np.asarray(_gradients(self.features, theta, self.inputs, self.rows["states"][part]))
            b += gradients.T @ weighted_delta[part]
            gradients = gradients * np.sqrt(weight[part])[:, None]
            G += gradients.T @ gradients
        values, vectors = np.linalg.eigh(G)
        kept = values > CUT * values[-1]
        return float(np.sum((vectors.T @ b)[kept] ** 2 / values[kept]))


def _transitions(domain: Domain, features: Features, count: int) -> dict[str, Any]:
    """Return about ``count`` transitions, in public units; the weights of all, including unusable ones, sum to one."""
    parts, found, units = [], 0, 0
    each = min(_UNITS, domain.moment_units)  # a domain of long trajectories has few trajectories
    value = domain.bounds(1).value_interval(domain.discount)
    while found < _SPREAD * count:
        log = domain.simulate(domain.bounds(each), MOMENT_SEED + units // each)
        rows = rows_of(log, domain.ratios(log), features, domain.discount, value, dtype=np.float64, columns=TRANSITION)
        names = ("states", "next_states", "alive", "reward", "weight")
        kept = {name: getattr(rows, name) for name in names} | {"weight_rho": rows.weight * rows.rho}
        parts.append({name: x[:-1] for name, x in kept.items()})
        found, units = found + len(log.reward), units + log.units
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    chosen = np.sort(np.random.default_rng(0).choice(found, min(count, found), replace=False))
    rows = {name: x[chosen] for name, x in joined.items()}
    scale = found / len(chosen) / units
    rows |= {name: scale * rows[name] for name in ("weight", "weight_rho")}
    return {name: jnp.asarray(x) for name, x in rows.items()}


@partial(jax.jit, static_argnames="features")
def _values(features: Features, theta: Any, states: Any) -> Any:
    return features.values(theta, states, jnp)


def _directions(features: Features, states: Any) -> Any:
    """Return ``(k + 1, r)`` orthonormal directions of the inputs that a network's hidden units see in these states.

    The inputs are the scaled observations times their gain, and a constant one. Where most inputs never change, as most
    bytes of a console's memory, there are few directions.
    """
    if not isinstance(features, MLP):
        return None
    seen = features.gain * (2.0 * np.asarray(features.unit_scale(states, jnp)) - 1.0)
    _, sizes, across = np.linalg.svd(np.column_stack([seen, np.ones(len(seen))]), full_matrices=False)
    return jnp.asarray(across[sizes > _NO_DIRECTION * sizes[0]].T)


def _count(features: Features, inputs: Any) -> int:
    """Return the number of columns of :func:`_gradients`."""
    return features.hidden * (inputs.shape[1] + 1) + 1 if isinstance(features, MLP) else features.size


@partial(jax.jit, static_argnames="features")
def _gradients(features: Features, theta: Any, inputs: Any, states: Any) -> Any:
    """Return ``(N, n)`` gradients Psi of each state.

    The gradients of a network are rotated so that only the directions remain that they can have. This changes no inner
    product of two gradients.
    """

    def one(state: Any) -> Any:
        gradient = jax.grad(lambda x: features.values(x, state[None], jnp)[0])(theta)
        if not isinstance(features, MLP):
            return gradient
        W, b, w, c = features.split(gradient)
        return jnp.concatenate([(jnp.column_stack([W, b]) @ inputs).reshape(-1), w, c[None]])

    return jax.vmap(one)(states)


@partial(jax.jit, static_argnames=("features", "discount"))
def _residuals(features: Features, discount: float, theta: Any, w: Any, rows: Any) -> tuple[Any, Any]:
    """Return the ``(N,)`` TD errors and the ``(N,)`` products Psi' w."""
    here, dot = jax.jvp(lambda x: features.values(x, rows["states"], jnp), (theta,), (w,))
    following = features.values(theta, rows["next_states"], jnp)
    return rows["reward"] + discount * rows["alive"] * following - here, dot


# --- states along a run -------------------------------------------------------------------------------------------


def run_curves(
    program: Program,
    mechanisms: Sequence[GaussianSum] | None,
    keys: Any,
    logs: PaddedUnits,
    at: tuple[int, ...],
    starts: Any = None,
    batch: int = 32,
) -> tuple[Any, ...]:
    """Return the states of several trials at given steps of one run each, all trials at once.

    Args:
        program: the algorithm, with the public facts that all trials share.
        mechanisms: as in :func:`~dprl.engine.loop.run`; without them, the program's own mechanisms in single
            precision.
        keys: ``(T, 2)`` noise keys.
        logs: the trials' logs, with a leading axis of trials in every array.
        at: ascending numbers of steps of the last stage, counted after all earlier stages are done; 0 is before its
            first step.
        starts: initial states of the trials, with a leading axis of trials; they replace the program's own initial
            state.
        batch: units in one block of a Poisson batch.

    Returns:
        One state for each entry of ``at``, where every array has a leading axis of trials.
    """
    used = tuple(mechanisms or (stage.mechanism.in_float() for stage in program.stages))
    keys, states = jnp.asarray(keys), []
    state, done = _before(program, used, batch, keys, logs, starts), 0
    stride = math.gcd(*at)  # one compiled program for all intervals, unless it would be called too often
    for step in at:
        while done < step:
            count = stride if at[-1] <= _CALLS * stride else step - done
            state = _onward(program, used, batch, count, keys, logs, state, np.uint32(done))
            done += count
        states.append(state)
    return tuple(states)


def answers(program: Program, state: Any) -> np.ndarray:
    """Return the ``(T, n)`` float64 released weights of the final states of :func:`run_curves`."""
    return np.asarray(_answers(program, state), dtype=np.float64)


@partial(jax.jit, static_argnames="program")
def _answers(program: Program, states: Any) -> Any:
    return jax.vmap(lambda state: program.answer(program.finish(len(program.stages) - 1, state)))(states)


@partial(jax.jit, static_argnames=("program", "mechanisms", "batch"))
def _before(
    program: Program, mechanisms: tuple[GaussianSum, ...], batch: int, keys: Any, logs: Any, starts: Any
) -> Any:
    """Return the states after all stages but the last."""

    def one(key: Any, log: Any, start: Any) -> Any:
        state = program.init() if start is None else start
        for number in range(len(program.stages) - 1):
            state = program.finish(number, _run(program, mechanisms, batch, number, key, log, state))
        return state

    return jax.vmap(one)(keys, logs, starts)


@partial(jax.jit, static_argnames=("program", "mechanisms", "batch", "count"))
def _onward(
    program: Program, mechanisms: tuple[GaussianSum, ...], batch: int, count: int, keys: Any, logs: Any,
    states: Any, first: Any,
) -> Any:  # fmt: skip
    """Return the states after ``count`` further steps of the last stage."""
    last = len(program.stages) - 1

    def one(key: Any, log: Any, state: Any) -> Any:
        return _run(program, mechanisms, batch, last, key, log, state, (first, count))

    return jax.vmap(one)(keys, logs, states)


def _run(
    program: Program, mechanisms: tuple[GaussianSum, ...], batch: int, number: int, key: Any, log: Any, state: Any,
    steps: tuple[Any, int] | None = None,
) -> Any:  # fmt: skip
    noise = SeededNoise(key).stream(program.stages[number].name)
    return run_steps(program, number, mechanisms[number], noise, log, state, steps=steps, batch=batch)[0]
