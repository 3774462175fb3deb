"""Rows of a few units as a program sees them, in two layouts with the same names.

Coefficients ``(B, L)`` of ``B`` units and ``L`` rows are each linear in one row, so that rows with the same features
can be added up beforehand. Symbols: docs/symbols.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp

from dprl.engine.bands import Bands


class Block(NamedTuple):
    """Rows of ``B`` units, padded to ``L`` with zero weight.

    The properties are coefficients ``(B, L)``, each linear in one row; :class:`SharedBlock` has the same ones. Those
    that stand in ``extra`` are there where they were asked for, see :mod:`~dprl.engine.row_columns`.
    """

    phi: Any  # (B, L, n)
    delta_phi: Any  # (B, L, n)
    reward: Any  # (B, L)
    rho: Any  # (B, L)
    weight: Any  # (B, L)
    extra: Mapping[str, Any] = {}

    @property
    def weight_rho(self) -> Any:
        return self.weight * self.rho

    @property
    def weight_rho_reward(self) -> Any:
        return self.weight * self.rho * self.reward

    @property
    def weight_return(self) -> Any:
        return self.weight * self.extra["returns"]

    @property
    def start(self) -> Any:
        return self.extra["start"]

    @property
    def start_return(self) -> Any:
        return self.extra["start"] * self.extra["returns"]

    @property
    def start_end(self) -> Any:
        return self.extra["start"] * self.extra["to_end"]

    @property
    def weight_end(self) -> Any:
        return self.weight * self.extra["to_end"]

    @property
    def start_early(self) -> Any:
        return self.extra["start"] * self.extra["early"]

    @property
    def first(self) -> Any:
        return self.extra["first"]

    @property
    def first_return(self) -> Any:
        return self.extra["first"] * self.extra["returns"]

    @property
    def first_rho(self) -> Any:
        return self.extra["first"] * self.rho

    @property
    def first_rho_reward(self) -> Any:
        return self.extra["first"] * self.rho * self.reward

    @property
    def weight_raw_reward(self) -> Any:
        return self.weight * self.rho * self.extra["raw_reward"]

    @property
    def states(self) -> Any:
        return self.extra["states"]

    @property
    def next_states(self) -> Any:
        return self.extra["next_states"]

    @property
    def alive(self) -> Any:
        return self.extra["alive"]


class SharedBlock(NamedTuple):
    """``B`` units as counts over ``K`` transitions that all units share (finite state spaces).

    An exact rewriting of :class:`Block`: rows of a unit with the same (s, s') are added up beforehand.
    """

    phi: Any  # (K, n)
    delta_phi: Any  # (K, n)
    weight: Any  # (B, K): sum of weight
    weight_rho: Any  # (B, K): sum of weight * rho
    weight_rho_reward: Any  # (B, K): sum of weight * rho * reward
    bands: Bands | None = None  # the transitions' diagonals, where they have some
    extra: Mapping[str, Any] = {}

    @property
    def weight_return(self) -> Any:
        return self.extra["weight_return"]

    @property
    def start(self) -> Any:
        return self.extra["start"]

    @property
    def start_return(self) -> Any:
        return self.extra["start_return"]

    @property
    def start_end(self) -> Any:
        return self.extra["start_end"]

    @property
    def weight_end(self) -> Any:
        return self.extra["weight_end"]

    @property
    def start_early(self) -> Any:
        return self.extra["start_early"]

    @property
    def first(self) -> Any:
        return self.extra["first"]

    @property
    def first_return(self) -> Any:
        return self.extra["first_return"]

    @property
    def first_rho(self) -> Any:
        return self.extra["first_rho"]

    @property
    def first_rho_reward(self) -> Any:
        return self.extra["first_rho_reward"]

    @property
    def weight_raw_reward(self) -> Any:
        return self.extra["weight_raw_reward"]

    @property
    def states(self) -> Any:  # (K, d)
        return self.extra["states"]

    @property
    def next_states(self) -> Any:
        return self.extra["next_states"]

    @property
    def alive(self) -> Any:  # (K,)
        return self.extra["alive"]


# what a shared layout keeps once for all units, rather than once for each
SHARED = ("states", "next_states", "alive")


def project(coefficients: Any, features: Any) -> Any:
    """``(B, n)`` sum over rows of ``coefficients`` ``(B, L)`` times ``features`` ``(B, L, n)`` or ``(L, n)``."""
    if features.ndim == 2:
        return coefficients @ features
    return jnp.einsum("bl,bln->bn", coefficients, features)


def project_phi(coefficients: Any, block: Block | SharedBlock) -> Any:
    """``(B, n)`` sum over rows of ``coefficients`` ``(B, L)`` times phi of the block; over bands without a product."""
    bands = block.bands if isinstance(block, SharedBlock) else None
    if bands is None:
        return project(coefficients, block.phi)
    diagonals = (coefficients[:, i * bands.states : (i + 1) * bands.states] for i in range(len(bands.offsets)))
    return bands.scale * sum(diagonals)


def apply(features: Any, theta: Any) -> Any:
    """``(B, L)`` or ``(L,)`` values theta'phi of each row."""
    return features @ theta
