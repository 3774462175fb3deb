"""Several target policies in one release: which linear combinations to release, so that noise is least.

A person's vector f has one coordinate for each target policy, proportional to that policy's probability of what the
person did. Where policies exclude one another (the arms of a trial), only few patterns c of f are possible, and
releasing the sum of S f instead of f needs less noise. The strategy S is the matrix with the least total variance
subject to |S c| <= 1 for every possible pattern c. Its Gram matrix M = S'S solves  min tr(W M^-1)  s.t.  c' M c <= 1,
whose dual gives M = W^(1/2) (W^(1/2) sum_j lambda_j c_j c_j' W^(1/2))^(-1/2) W^(1/2). This is an A-optimal design,
found by multiplicative updates. W is the identity plus, for each difference that is asked for, the square of that
difference. This is the matrix mechanism (Li, Miklau, Hay, McGregor, Rastogi 2015) for L2 sensitivity and this workload.

Only public facts enter: policies and bounds. Whatever the rows hold, the mechanism's clip enforces the sensitivity.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float

from dprl.bounds import Bounds
from dprl.policies.loading import LOG_ONLY_POLICIES, LoggedPolicy, policy_probabilities

_GRID, _ITERATIONS = 4096, 2000


@dataclass(frozen=True)
class UnknownPolicy:
    """Stand-in for a policy that is not known yet when a release is planned and may be any policy."""


def public_states(bounds: Bounds) -> Float[np.ndarray, "points d"]:
    """Return many public states within the bounds; half of them are whole numbers, like codes and counts."""
    low, high = np.array(bounds.state, dtype=np.float64).T
    draws = np.random.default_rng(0).random((_GRID, len(low)))  # noqa: TID251 (public)
    states = low + draws * (high - low)
    states[::2] = np.clip(np.round(states[::2]), low, high)
    return states


def public_patterns(policies: Sequence[Any], bounds: Bounds) -> Float[np.ndarray, "patterns policies"]:
    """Return ``(J, K)`` patterns that a person can have over K policies, each scaled to a largest entry of 1.

    Patterns are known only for logs of one decision with discrete actions, from the policies at many public states.
    Otherwise all policies may agree with the logged actions at once, and the only pattern is all ones.

    The logged policy has an importance ratio of one, in units of the largest ratio. An unknown policy may have any
    ratio up to the largest.
    """
    k, steady = len(policies), LoggedPolicy(steady=True)
    unasked = any(isinstance(p, LOG_ONLY_POLICIES) and p != steady for p in policies)
    if k == 1 or bounds.horizon > 1 or bounds.actions is None or unasked:
        return np.ones((1, k))
    known = [place for place, p in enumerate(policies) if not isinstance(p, UnknownPolicy | LoggedPolicy)]
    states = public_states(bounds)
    table = [policy_probabilities(policies[place], states, bounds.actions) for place in known]
    rows = np.stack(table, axis=-1).reshape(-1, len(known)) if known else np.zeros((1, 0))
    if len(known) < k:
        return _with_unknown(policies, np.unique(rows, axis=0), known, 1.0 / bounds.max_importance_ratio)
    rows = rows[rows.max(axis=1) > 0.0]
    return np.unique(np.round(rows / rows.max(axis=1, keepdims=True), 6), axis=0)


def _with_unknown(
    policies: Sequence[Any], rows: Float[np.ndarray, "rows known"], known: Sequence[int], least: float
) -> Float[np.ndarray, "patterns policies"]:
    """Return patterns of all policies from the probabilities of the known policies.

    In units of the largest ratio, a unit's vector is ``x p``. Here p are the policies' probabilities of the logged
    action, and ``x`` is one over the product of the largest ratio and the behaviour probability. The largest entry is
    at most one. The logged policy has ``least``, and an unknown policy anything up to ``min(x, 1)``. Points between the
    ends are included for functions that are not linear in the vector.
    """
    most = rows.max(axis=1, initial=0.0)
    found = []
    for x, share in itertools.product(np.linspace(0.0, 1.0, 3), np.linspace(0.0, 1.0, 3)):
        ends = np.minimum(1.0 / np.maximum(most, least), 1.0 / least)  # of x: the largest entry, or certainty
        times = least + x * (ends - least)
        out = np.empty((len(rows), len(policies)))
        out[:, known] = rows * times[:, None]
        for place, policy in enumerate(policies):
            if isinstance(policy, UnknownPolicy):
                out[:, place] = share * np.minimum(times, 1.0)
            elif isinstance(policy, LoggedPolicy):
                out[:, place] = least
        found.append(out)
    return np.unique(np.round(np.concatenate(found), 12), axis=0)


def least_noise_strategy(
    patterns: Float[np.ndarray, "patterns policies"], contrasts: Sequence[tuple[int, int]] = ()
) -> Float[np.ndarray, "policies policies"]:
    """Return the ``(K, K)`` strategy S with the least total variance of S^-1 y.

    For each pattern c, |S c| is at most 1.

    Args:
        patterns: patterns that a unit's vector can have over the policies.
        contrasts: pairs of policies whose differences count as much as values do.
    """
    if len(patterns) == 1:
        return np.eye(patterns.shape[1]) / np.linalg.norm(patterns[0])
    return _least_noise(np.asarray(patterns, np.float64).tobytes(), patterns.shape[1], tuple(contrasts)).copy()


@lru_cache(maxsize=64)
def _least_noise(made: bytes, k: int, contrasts: tuple[tuple[int, int], ...]) -> Float[np.ndarray, "k k"]:
    """Return the strategy for patterns given as bytes; cached, for a release needs the same strategy several times."""
    patterns = np.frombuffer(made).reshape(-1, k)
    workload = np.eye(k)
    for a, b in contrasts:
        difference = np.eye(k)[a] - np.eye(k)[b]
        workload += np.outer(difference, difference)
    # a small pattern of each single policy keeps S invertible where two policies agree everywhere
    return optimal_strategy(np.vstack([patterns, 0.1 * np.eye(k)]), workload if contrasts else None)


def optimal_strategy(
    columns: Float[np.ndarray, "columns k"], workload: Float[np.ndarray, "k k"] | None = None, tolerance: float = 0.0
) -> Float[np.ndarray, "k k"]:
    """Return the ``(k, k)`` strategy S with the least ``tr(workload (S'S)^-1)``.

    For each row c of ``columns``, |S c| is at most 1.

    Args:
        workload: quadratic form of what is estimated, such as L'L for errors of L y; by default the identity.
        tolerance: how much longer than one the longest column may be when the iteration ends. The result is scaled so
            that the longest column has length one.
    """
    asked = None if workload is None else workload.tobytes()
    return _optimal(columns.tobytes(), columns.shape[1], asked, tolerance).copy()


# a plan needs the same strategy several times, and so does the release that follows
@lru_cache(maxsize=64)
def _optimal(given: bytes, k: int, workload: bytes | None, tolerance: float) -> Float[np.ndarray, "k k"]:
    columns, root = np.frombuffer(given).reshape(-1, k).copy(), np.eye(k)
    if workload is not None:
        values, vectors = np.linalg.eigh(np.frombuffer(workload).reshape(k, k))
        root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    weight = np.full(len(columns), 1.0 / len(columns))
    gram = np.eye(len(root))
    for _ in range(_ITERATIONS):
        values, vectors = np.linalg.eigh(root @ (columns.T * weight) @ columns @ root)
        gram = root @ (vectors / np.sqrt(np.maximum(values, 1e-12))) @ vectors.T @ root
        norms = np.einsum("jk,kl,jl->j", columns, gram, columns)
        weight = weight * norms
        if tolerance and norms.max() <= 1.0 + tolerance:
            break
    norms = np.einsum("jk,kl,jl->j", columns, gram, columns)
    values, vectors = np.linalg.eigh(gram / norms.max())
    return (vectors * np.sqrt(values)) @ vectors.T
