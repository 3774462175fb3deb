"""DPTD as published, in NumPy, for all seeds at once, with the gradients of this network written by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from benchmarks.dptd_problem import BOX, CLIP, HIDDEN, PUSH, Problem, layers, momentum, relaxation

_ROOT = 1.0 / math.sqrt(HIDDEN)


def batched(problem: Problem, steps: int, chosen: np.ndarray | None = None) -> np.ndarray:
    """Return ``(seeds, 2d)`` weights after ``steps``; without noise if the transitions ``(steps, seeds)`` are given."""
    seeds, d, inputs = problem.seeds, problem.size, problem.x.shape[1]
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, len(problem.x), (steps, seeds)) if chosen is None else chosen
    both = np.tile(problem.start, (seeds, 1))
    gradient, running, noise = (np.zeros_like(both) for _ in range(3))
    W, b, o, c = layers(both[:, :d], inputs)
    Wd, bd, od, cd = layers(both[:, d:], inputs)
    of_W, of_b, of_o, of_c = layers(gradient[:, :d], inputs)
    dual_W, dual_b, dual_o, dual_c = layers(gradient[:, d:], inputs)
    std = np.float32(problem.std)
    for t in range(steps):
        i = drawn[t]
        x, following = problem.x[i], problem.x_next[i]
        here, after = _pre(W, x) + b, _pre(W, following) + b
        h, slope = _elu(here)
        h_after, slope_after = _elu(after)
        bend = np.where(here > 0.0, np.float32(0.0), slope)
        tangent = _pre(Wd, x) + bd
        value = c + _ROOT * np.sum(h * o, axis=1)
        q = cd + _ROOT * np.sum(slope * tangent * o + h * od, axis=1)
        value_after = c + _ROOT * np.sum(h_after * o, axis=1)
        error = problem.reward[i] + problem.alive[i] * value_after - value - q
        ahead, q, error = ((problem.alive[i] * q)[:, None], q[:, None], error[:, None])
        # by layer: q (gamma Psi' - Psi) + e H w, and - e Psi
        first = _ROOT * (error * (bend * tangent * o + slope * od) - q * slope * o)
        second = _ROOT * ahead * slope_after * o
        np.multiply(first[:, :, None], x[:, None, :], out=of_W)
        of_W += second[:, :, None] * following[:, None, :]
        of_b[...] = first + second
        of_o[...] = _ROOT * (error * slope * tangent - q * h + ahead * h_after)
        of_c[...] = (ahead - q)[:, 0]
        dual_b[...] = -_ROOT * error * slope * o
        np.multiply(dual_b[:, :, None], x[:, None, :], out=dual_W)
        dual_o[...] = -_ROOT * error * h
        dual_c[...] = -error[:, 0]
        a = np.float32(momentum(t))
        norm = a * np.sqrt(np.einsum("sd,sd->s", gradient, gradient))
        gradient *= (a * np.minimum(1.0, CLIP / np.maximum(norm, 1e-30)))[:, None]
        if chosen is None:
            rng.standard_normal(dtype=np.float32, out=noise)
            noise *= std
            gradient += noise
        running *= np.float32(1.0) - a
        running += gradient
        moved = np.clip(both - np.float32(PUSH) * running, -BOX, BOX)
        moved -= both
        moved *= np.float32(relaxation(t))
        both += moved
    return both


def _pre(W: Any, x: Any) -> Any:
    return np.matmul(W, x[:, :, None])[:, :, 0]


def _elu(a: Any) -> tuple[Any, Any]:
    """Return the ELU of ``a`` and its slope."""
    below = np.exp(np.minimum(a, np.float32(0.0)))
    return np.where(a > 0.0, a, below - np.float32(1.0)), below
