"""Privacy loss distributions of Gaussians, the same as dp_accounting's but computed many times as fast.

dp_accounting inverts the privacy loss at one point of its grid after another, in Python. This module applies the same
formulas to the whole grid at once. Losses, discretisation and composition are dp_accounting's own.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from dp_accounting.pld.privacy_loss_mechanism import AdditiveNoisePrivacyLoss, AdjacencyType, GaussianPrivacyLoss
from scipy.special import log_ndtr, ndtr, ndtri


def gaussian_pld(sampling_rate: float, noise_multiplier: float, grid: float) -> PrivacyLossDistribution:
    """Return the privacy losses of one Gaussian release over a Poisson sample, for add or remove one.

    Args:
        sampling_rate: rate of the Poisson sample; 1 for everybody.
        noise_multiplier: standard deviation of the noise over the sensitivity.
        grid: grid step of the losses, which are rounded to the pessimistic side.
    """
    if sampling_rate == 1.0:  # adding and removing a unit are the same
        return PrivacyLossDistribution(_distribution(1.0, noise_multiplier, grid, "REMOVE"))
    remove, add = (_distribution(sampling_rate, noise_multiplier, grid, way) for way in ("REMOVE", "ADD"))
    return PrivacyLossDistribution(remove, add)


class _Losses(GaussianPrivacyLoss):
    """Privacy loss of a Gaussian, by dp_accounting's formulas."""

    def __init__(self, multiplier: float, rate: float, way: str) -> None:
        AdditiveNoisePrivacyLoss.__init__(self, 1, False, rate, AdjacencyType[way])
        self._standard_deviation = multiplier
        self._pessimistic_estimate, self._log_mass_truncation_bound = True, -50
        # the digits of scipy.stats.norm(scale=multiplier), which takes a second to import
        self._gaussian_random_variable: Any = SimpleNamespace(
            cdf=lambda x: ndtr(x / multiplier),
            logcdf=lambda x: log_ndtr(x / multiplier),
            ppf=lambda q: ndtri(q) * multiplier,
        )


def _distribution(rate: float, multiplier: float, grid: float, way: str) -> pld_pmf.PLDPmf:
    losses = _Losses(multiplier, rate, way)
    bounds = losses.connect_dots_bounds()
    assert bounds.epsilon_lower is not None
    assert bounds.epsilon_upper is not None
    first, last = math.floor(bounds.epsilon_lower / grid), math.ceil(bounds.epsilon_upper / grid)
    deltas = _deltas(losses, rate, multiplier, np.arange(first, last + 1) * grid)
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(grid, first, last, deltas)


def _deltas(losses: GaussianPrivacyLoss, rate: float, multiplier: float, epsilons: np.ndarray) -> np.ndarray:
    """Return :meth:`GaussianPrivacyLoss.get_delta_for_epsilon` for many epsilons at once."""
    if rate == 1.0:
        x = -0.5 - epsilons * multiplier**2
        lower: Any = losses.mu_lower_log_cdf(x)
        return np.clip(losses.mu_upper_cdf(x) - np.exp(epsilons + lower), 0.0, 1.0)
    adding = losses.adjacency_type is AdjacencyType.ADD
    edge = -math.log1p(-rate)
    deltas = np.zeros_like(epsilons)
    asked = epsilons < edge if adding else epsilons > -edge
    if not adding:
        deltas[~asked] = -np.expm1(epsilons[~asked])
    x = _inverse(rate, multiplier, epsilons[asked], adding)
    lower = losses.mu_lower_log_cdf(x)
    deltas[asked] = losses.mu_upper_cdf(x) - np.exp(epsilons[asked] + lower)
    return np.clip(deltas, 0.0, 1.0)


def _inverse(rate: float, multiplier: float, losses: np.ndarray, adding: bool) -> np.ndarray:
    """Return, for each of ``losses``, the largest x at which the loss is at least that; sampling must allow each loss.

    When one unit is removed, the loss at x is ``l = -(x + 1/2)/z^2`` without sampling, and ``log(1 - q + q e^l)`` with
    sampling rate q.
    """
    signed = -losses if adding else losses
    at_edge = np.isclose(signed, math.log1p(-rate), rtol=1e-9, atol=0.0)
    first, second = signed + math.log(1.0 / rate), math.log(1.0 / rate - 1.0)
    with np.errstate(all="ignore"):
        plain = first + np.log1p(-np.exp(second - first))
    plain = np.where(at_edge, -math.inf, np.where(signed == 0.0, 0.0, plain))
    x = -0.5 - (-plain if adding else plain) * multiplier**2
    return x + 1.0 if adding else x
