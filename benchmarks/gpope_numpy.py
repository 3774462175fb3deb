"""GPOPE in NumPy, as a careful user would write it: the peers that run in the worker of JAX.

Each function runs ``steps`` updates and returns the mean iterate. ``chosen`` ``(steps, trials)`` fixes the trajectories
and turns the noise off, for the check that all candidates do the same mathematics.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from benchmarks.chain_data import DISCOUNT, NOISE_MULTIPLIER, STATES, STEP_SIZE, TRAJECTORIES, clip_norm

Data = Mapping[str, np.ndarray]


def batched(data: Data, steps: int, chosen: np.ndarray | None = None) -> np.ndarray:
    """Run all trials at once over the unique transitions: four matrix products per update, no matrix per trajectory."""
    rng = np.random.default_rng(0)
    phi, delta, weight, weight_reward = (data[k] for k in ("phi", "delta_phi", "weight", "weight_reward"))
    phi_t, delta_t = np.ascontiguousarray(phi.T), np.ascontiguousarray(delta.T)
    trials, n = len(weight), STATES
    theta, w, total = (np.zeros((trials, n), dtype=np.float32) for _ in range(3))
    gradient = np.empty((trials, 2 * n), dtype=np.float32)
    noise = np.empty_like(gradient)
    everyone = np.arange(trials)
    drawn = rng.integers(0, TRAJECTORIES, (steps, trials)) if chosen is None else chosen
    for i in range(steps):
        c, cr = weight[everyone, drawn[i]], weight_reward[everyone, drawn[i]]
        u, d = w @ phi_t, theta @ delta_t
        u *= c
        np.matmul(-u, delta, out=gradient[:, :n])
        d *= c
        d += u
        d -= cr
        np.matmul(d, phi, out=gradient[:, n:])
        _clip_noise_update(rng, gradient, noise, theta, w, chosen is None)
        total += theta
    return total / steps


def banded(data: Data, steps: int, chosen: np.ndarray | None = None) -> np.ndarray:
    """Run all trials at once, written by hand for this chain, whose matrix products are scalings and shifts."""
    rng = np.random.default_rng(0)
    n, scale, gamma = STATES, np.float32(np.sqrt(STATES)), np.float32(DISCOUNT)
    # rho = 1: one array holds the weights of both kinds of transition and of the rewards
    packed = np.concatenate([data["weight"], data["weight_reward"].reshape(*data["weight"].shape[:2], 2, n).sum(2)], 2)
    trials = len(packed)
    theta, w, total = (np.zeros((trials, n), dtype=np.float32) for _ in range(3))
    gradient = np.empty((trials, 2 * n), dtype=np.float32)
    noise = np.empty_like(gradient)
    everyone = np.arange(trials)
    drawn = rng.integers(0, TRAJECTORIES, (steps, trials)) if chosen is None else chosen
    for i in range(steps):
        c = packed[everyone, drawn[i]]
        stay, leave, reward = c[:, :n], c[:, n : 2 * n], c[:, 2 * n :]
        u, v = w * scale, theta * scale
        both = stay + leave
        primal, dual = gradient[:, :n], gradient[:, n:]
        # -sum c u (e_s - gamma e_s'), and sum c (v_s - gamma v_s' + u_s - r) e_s
        np.multiply(stay, gamma, out=primal)
        primal -= both
        primal *= u
        primal[:, 1:] += gamma * (leave[:, :-1] * u[:, :-1])
        primal *= scale
        np.multiply(both, u + v, out=dual)
        v *= gamma
        dual -= stay * v
        dual[:, :-1] -= leave[:, :-1] * v[:, 1:]
        dual -= reward
        dual *= scale
        _clip_noise_update(rng, gradient, noise, theta, w, chosen is None)
        total += theta
    return total / steps


def _clip_noise_update(
    rng: np.random.Generator, gradient: np.ndarray, noise: np.ndarray, theta: np.ndarray, w: np.ndarray, noisy: bool
) -> None:
    clip, n = np.float32(clip_norm()), STATES
    norm = np.sqrt(np.einsum("ij,ij->i", gradient, gradient))
    gradient *= np.minimum(np.float32(1.0), clip / np.maximum(norm, np.float32(1e-30)))[:, None]
    if noisy:
        rng.standard_normal(dtype=np.float32, out=noise)
        noise *= np.float32(NOISE_MULTIPLIER) * clip
        gradient += noise
    gradient *= np.float32(STEP_SIZE)
    theta -= gradient[:, :n]
    w -= gradient[:, n:]


def loop(data: Data, steps: int, chosen: np.ndarray | None = None) -> np.ndarray:
    """Run one trial, one update after the other, with each trajectory's A_i, b_i and C_i computed beforehand."""
    rng = np.random.default_rng(0)
    A, b, C = moments(data)
    clip, beta = np.float32(clip_norm()), np.float32(STEP_SIZE)
    n = STATES
    theta, w, total = (np.zeros(n, dtype=np.float32) for _ in range(3))
    gradient = np.empty(2 * n, dtype=np.float32)
    drawn = rng.integers(0, TRAJECTORIES, steps) if chosen is None else chosen[:, 0]
    sigma = np.float32(NOISE_MULTIPLIER) * clip
    for i in drawn:
        np.matmul(w, A[i], out=gradient[:n])
        np.negative(gradient[:n], out=gradient[:n])
        gradient[n:] = A[i] @ theta + C[i] @ w - b[i]
        norm = np.sqrt(gradient @ gradient)
        if norm > clip:
            gradient *= clip / norm
        if chosen is None:
            gradient += sigma * rng.standard_normal(2 * n, dtype=np.float32)
        theta -= beta * gradient[:n]
        w -= beta * gradient[n:]
        total += theta
    return total / steps


def moments(data: Data) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return A_i ``(m, n, n)``, b_i ``(m, n)`` and C_i ``(m, n, n)`` of the first trial's trajectories."""
    phi, delta, c, cr = data["phi"], data["delta_phi"], data["weight"][0], data["weight_reward"][0]
    A = np.einsum("ik,kp,kq->ipq", c, phi, delta, optimize=True)
    C = np.einsum("ik,kp,kq->ipq", c, phi, phi, optimize=True)
    return np.ascontiguousarray(A), cr @ phi, np.ascontiguousarray(C)


def share_clipped(data: Data, chosen: np.ndarray) -> float:
    """Return the share of the first trial's noiseless updates in which the clip binds.

    A check in which the clip never binds would check little.
    """
    A, b, C = moments(data)
    theta, w = np.zeros((2, STATES))
    bound = 0
    for i in chosen[:, 0]:
        gradient = np.concatenate([-(w @ A[i]), A[i] @ theta + C[i] @ w - b[i]])
        norm = float(np.linalg.norm(gradient))
        bound += norm > clip_norm()
        gradient *= min(1.0, clip_norm() / max(norm, 1e-30))
        theta, w = theta - STEP_SIZE * gradient[:STATES], w - STEP_SIZE * gradient[STATES:]
    return bound / len(chosen)
