"""Errors of value functions and of policy values, for all trials at once."""

from __future__ import annotations

import numpy as np

from dprl.value_functions.features import Tabular
from dprl_papers.harness.domain import Domain
from dprl_papers.harness.problem import Setting


class Metrics:
    """Errors on a domain: MSPBE, RMSE, and the error of the policy's value.

    MSPBE is that of paper 004, in the squared unit of the reward. RMSE is taken against the true values, in their unit.
    The error of the policy's value is ``|estimate - value|``, in the same unit, and exists only for domains that give
    the value.
    """

    def __init__(self, domain: Domain) -> None:
        setting = Setting(domain=domain, units=1, budget=None)  # type: ignore[arg-type]
        self.domain, features = domain, setting.features
        self.low, self.high = setting.value
        self.phi = features(np.asarray(domain.truth.states, dtype=np.float64))  # (S, n)
        self.A, self.b, C = domain.moments(features)
        self.inverse = np.linalg.pinv(C, hermitian=True)
        self.tabular = isinstance(features, Tabular)
        self.start_phi = None if domain.start is None else features(domain.start.states.astype(np.float64))
        root = np.sqrt(domain.truth.weights)[:, None]
        self.fit = np.linalg.pinv(root * self.phi) * root.T  # (n, S): maps values to the nearest weights

    def errors(self, answers: np.ndarray, are_values: bool, clamp: bool) -> dict[str, np.ndarray]:
        """Return the errors of each trial.

        Args:
            answers: ``(T, n)`` weights, or ``(T, S)`` values at the states of the truth. The MSPBE of values is that of
                the nearest weights.
            are_values: whether ``answers`` are values.
            clamp: whether values are clamped to the public range, as in a release. Tabular weights are values, so they
                are clamped too.

        Returns:
            ``mspbe`` and ``rmse``, ``(T,)`` each, and, where the domain gives the policy's value, ``value``: the error
            of the mean over the start states.
        """
        with np.errstate(all="ignore"):  # an answer that is not finite has an error that is not finite
            values = answers if are_values else answers @ self.phi.T
            if clamp:
                values = np.clip(values, self.low, self.high)
            weights = answers
            if are_values or (clamp and self.tabular):
                weights = values @ self.fit.T
            residual = self.b - weights @ self.A.T
            truth = self.domain.truth
            errors = {
                "mspbe": np.einsum("ti,ij,tj->t", residual, self.inverse, residual),
                "rmse": np.sqrt((values - truth.values) ** 2 @ truth.weights),
            }
            if self.domain.start is None or self.start_phi is None:
                return errors
            at_starts = weights @ self.start_phi.T
            if clamp:
                at_starts = np.clip(at_starts, self.low, self.high)
            return errors | self.value_errors(at_starts @ self.domain.start.weights, clamp)

    def value_errors(self, estimates: np.ndarray, clamp: bool) -> dict[str, np.ndarray]:
        """Return ``value``, the ``(T,)`` errors of ``(T,)`` estimates of the policy's value.

        Raises:
            DprlError: the domain does not give the policy's value.
        """
        if clamp:
            estimates = np.clip(estimates, self.low, self.high)
        return {"value": np.abs(estimates - self.domain.policy_value)}
