"""Released propensities and outcome models, from counts within strata or from a regression: post-processing.

With counts and sums of outcomes by stratum and action, propensities are ratios of counts. The outcome model is
additive: a level for each action and an effect of each stratum, as far as noise lets it be seen. With a regression,
propensities are those of a multinomial logit, and the outcome of each action is linear in the same terms. Derivation:
docs/proofs/stratified.md.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from dprl.bounds import Bounds
from dprl.evaluation.propensity_regression import RegressionTerms, ridge_inverse
from dprl.evaluation.strata import Strata
from dprl.untrusted_files import read_json_result

FILE = "propensities.json"
TABLE_SCHEMA, MODEL_SCHEMA = "dprl.propensities/1", "dprl.propensity-model/1"
"""Schemas of the file."""
COUNT_WEIGHT = 2.0
"""Weight of a count against a sum of outcomes in [-1, 1]."""
FEWEST_PEOPLE, CLEAR_DEVIATIONS = 10.0, 3.0
"""An action is supported in a stratum by at least so many units, and standard deviations of a count's noise."""


def released_size(bounds: Bounds) -> int:
    """Return how many numbers are released: counts and, for logs of one decision, sums of outcomes."""
    return Strata(bounds).count * (bounds.kinds + (bounds.actions or 1) * (bounds.horizon == 1))


@dataclass(frozen=True)
class Propensities:
    """Noisy counts and outcomes of each stratum and action, as released.

    Attributes:
        theta: ``(S K + S A,)`` released numbers: weighted counts for S strata and K kinds of decision, then sums of
            outcomes in [-1, 1]. The kinds are the A actions, and being lost from the log where that is estimated. For
            several steps only the ``(S K,)`` counts.
        strata: public strata.
        noise: standard deviation of the noise in each number of ``theta``.
    """

    theta: Float[np.ndarray, " numbers"]
    strata: Strata
    noise: float

    file: ClassVar[str] = FILE
    kind: ClassVar[str] = "propensities"

    @property
    def shape(self) -> tuple[int, int]:
        """Number of strata, and of actions."""
        return self.strata.count, self.strata.bounds.actions or 1

    @property
    def count_noise(self) -> float:
        """Standard deviation of the noise in a count."""
        return self.noise * self._unit

    @cached_property
    def counts(self) -> Float[np.ndarray, "strata actions"]:
        """Noisy numbers of decisions, without those with a loss from the log. A small number may be negative."""
        return self._counted[:, : self.shape[1]]

    @cached_property
    def people(self) -> Float[np.ndarray, " strata"]:
        """Noisy numbers of decisions in each stratum, including decisions in which a person was lost from the log."""
        return self._counted.sum(axis=1)

    @property
    def people_noise(self) -> float:
        """Standard deviation of the noise in :attr:`people`."""
        return self.count_noise * math.sqrt(self.strata.bounds.kinds)

    @property
    def total(self) -> tuple[float, float]:
        """Noisy number of all decisions, and the standard deviation of its noise."""
        return float(self.people.sum()), self.people_noise * math.sqrt(self.shape[0])

    @property
    def _counted(self) -> Float[np.ndarray, "strata kinds"]:
        cells = self.shape[0], self.strata.bounds.kinds
        return self.theta[: math.prod(cells)].reshape(cells) * self._unit

    @property
    def _unit(self) -> float:
        """Factor that turns a released count into a number of decisions."""
        return self.strata.bounds.horizon / COUNT_WEIGHT

    @cached_property
    def sums(self) -> Float[np.ndarray, "strata actions"]:
        """Noisy sums of outcomes, scaled so that -1 and 1 are the ends of the declared range."""
        return self.theta[self.shape[0] * self.strata.bounds.kinds :].reshape(self.shape)

    def supported(self, min_propensity: float) -> Bool[np.ndarray, "strata actions"]:
        """Return where an action was taken clearly often, with a propensity of at least ``min_propensity``."""
        return self.counts >= self.needed_count(min_propensity)

    def needed_count(self, min_propensity: float) -> Float[np.ndarray, "strata one"]:
        """Return the smallest noisy count with which an action is supported in a stratum."""
        people = np.maximum(self.people, 0.0)[:, None]
        return np.maximum(min_propensity * people, max(FEWEST_PEOPLE, CLEAR_DEVIATIONS * self.count_noise))

    def propensities(self, min_propensity: float) -> Float[np.ndarray, "strata actions"]:
        """Return the estimated propensity of getting each action and staying in the log; zero where not supported."""
        people = np.maximum(self.people, 1.0)[:, None]
        return np.where(self.supported(min_propensity), np.minimum(self.counts / people, 1.0), 0.0)

    @cached_property
    def outcomes(self) -> Float[np.ndarray, "strata actions"]:
        """Outcome model: the mean outcome in [-1, 1] of each action in each stratum."""
        return np.clip(self.levels[None, :] + self.effects[:, None], -1.0, 1.0)

    @cached_property
    def levels(self) -> Float[np.ndarray, " actions"]:
        """Mean outcome of each action; zero where noise hides the count of the action."""
        people, enough = self.counts.sum(axis=0), CLEAR_DEVIATIONS * self.count_noise * self.shape[0] ** 0.5
        return np.where(people > enough, np.clip(self.sums.sum(axis=0) / np.maximum(people, 1.0), -1.0, 1.0), 0.0)

    @cached_property
    def effects(self) -> Float[np.ndarray, " strata"]:
        """How far the outcomes of each stratum lie above :attr:`levels`, shrunk to zero by the noise in them."""
        people = np.maximum(self.counts.sum(axis=1), max(FEWEST_PEOPLE, self.count_noise))
        raw = (self.sums - self.levels * self.counts).sum(axis=1) / people
        own = (self.noise**2 * self.shape[1] + self.count_noise**2 * float(np.sum(self.levels**2))) / people**2
        spread = max(float(np.sum(people * (raw**2 - own)) / people.sum()), 0.0)
        return raw * spread / (spread + own) if spread > 0.0 else np.zeros_like(raw)

    def described(self, targets: Any, names: Any) -> dict[str, Any]:
        """Return noisy counts and propensities by stratum and action, and the noise in a count, as plain data."""
        del targets, names
        lost = self._counted[:, self.shape[1] :].ravel()
        shares = self.counts / np.maximum(self.people, 1.0)[:, None]
        return {
            "file": FILE,
            "strata": self.strata.labels,
            "noisy_counts": self.counts.tolist(),
            **({"noisy_counts_of_lost": lost.tolist()} if lost.size else {}),
            "standard_deviation_of_noise": self.count_noise,
            "propensities": np.clip(shares, 0.0, 1.0).tolist(),
        }

    def to_bytes(self) -> bytes:
        """Write what was released as JSON."""
        made = {"schema": TABLE_SCHEMA, "bounds": self.strata.bounds.as_dict(), "released": self.theta.tolist()}
        made |= self.described((), None)
        return (json.dumps(made, indent=1) + "\n").encode()


# --- a regression ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PropensityModel:
    """Multinomial regression of actions on declared terms, and a linear outcome model, as released.

    Attributes:
        theta: released numbers: products of terms and outcomes by action, coefficients before and after the last Newton
            step, and the information of that step.
        terms: public terms of the regression.
        noise: standard deviation of the noise in each product, and in each number of a Newton step.
    """

    theta: Float[np.ndarray, " numbers"]
    terms: RegressionTerms
    noise: tuple[float, float]

    file: ClassVar[str] = FILE
    kind: ClassVar[str] = "propensities"

    @cached_property
    def _parts(self) -> list[Float[np.ndarray, " part"]]:
        moments, c = self.terms.queries()[0].dimension, self.terms.coefficients
        return np.split(self.theta, [moments, moments + c, moments + 2 * c])

    @cached_property
    def products(self) -> Float[np.ndarray, "actions size size"]:
        """Noisy sums of products of two terms, over the people who got each action."""
        return np.asarray(self.terms.products(jnp.asarray(self._parts[0])))

    @cached_property
    def coefficients(self) -> Float[np.ndarray, "actions size"]:
        """Coefficients of the scaled terms in each action's log odds against the first action, whose own are zero."""
        return np.vstack([np.zeros(self.terms.size), self._parts[2].reshape(-1, self.terms.size)])

    @cached_property
    def outcome_coefficients(self) -> Float[np.ndarray, "actions size"]:
        """Weights, for each action, of the scaled terms in the outcome, which lies in [-1, 1]."""
        noise, d = self.noise[0], self.terms.size
        sums = self._parts[0][self.terms.actions * self.terms.triangle :].reshape(-1, d)
        ridge = noise * math.sqrt(2.0 * d)
        return np.stack(
            [np.asarray(ridge_inverse(jnp.asarray(x), ridge)) @ y for x, y in zip(self.products, sums, strict=True)]
        )

    @cached_property
    def largest_outcome(self) -> float:
        """Largest absolute outcome that the outcome model predicts anywhere; at most one."""
        return min(float(np.abs(self.outcome_coefficients).sum(axis=1).max()) / self.terms.norm, 1.0)

    @cached_property
    def least_probabilities(self) -> Float[np.ndarray, " actions"]:
        """Lower bound of each action's probability over all states within the declared bounds."""
        apart = self.coefficients[None, :, :] - self.coefficients[:, None, :]
        return 1.0 / np.exp(np.minimum(np.abs(apart).sum(axis=2) / self.terms.norm, 700.0)).sum(axis=1)

    @cached_property
    def covariance(self) -> Float[np.ndarray, "coefficients coefficients"]:
        """Mean square error of the coefficients, from the noise and from what the last step's ridge held back."""
        ridge = self.terms.ridge(self.noise[1])
        solved = np.asarray(ridge_inverse(self.terms.information(jnp.asarray(self._parts[3])), ridge))
        left = ridge * solved @ (self._parts[2] - self._parts[1])
        return self.noise[1] ** 2 * solved @ solved + np.outer(left, left)

    @property
    def total(self) -> tuple[float, float]:
        """Noisy number of people, and the standard deviation of its noise."""
        unit = self.terms.norm**2
        return float(self.products[:, 0, 0].sum()) * unit, self.noise[0] * unit * math.sqrt(self.terms.actions)

    @cached_property
    def log_odds_variance(self) -> float:
        """Mean over people of the log odds' variance that :attr:`covariance` makes; doubled with over two actions."""
        values, vectors = np.linalg.eigh(self.products.sum(axis=0))
        gram = (vectors * np.maximum(values, 0.0)) @ vectors.T / max(self.total[0], 1.0)
        both = float(np.trace(np.kron(np.eye(self.terms.actions - 1), gram) @ self.covariance))
        return both * (1.0 if self.terms.actions == 2 else 2.0)

    def probabilities(self, f: Float[np.ndarray, "rows size"]) -> Float[np.ndarray, "rows actions"]:
        """Return ``(N, A)`` propensities of rows with terms ``f`` ``(N, D)``; no row changes another row's digits."""
        logits = _by_row(f, self.coefficients)
        odds = np.exp(np.clip(logits - logits.max(axis=1, keepdims=True), -700.0, 0.0))
        return odds / _by_row(odds, np.ones((1, odds.shape[1])))

    def outcomes(self, f: Float[np.ndarray, "rows size"]) -> Float[np.ndarray, "rows actions"]:
        """Return ``(N, A)`` outcomes in [-1, 1] by the outcome model; no row changes another row's digits."""
        return np.clip(_by_row(f, self.outcome_coefficients), -1.0, 1.0)

    def described(self, targets: Any, names: Any) -> dict[str, Any]:
        """Return the terms and each action's coefficients, per half of a term's range, as plain data."""
        del targets, names
        deviation = np.sqrt(np.diag(self.covariance)).reshape(-1, self.terms.size)
        return {
            "file": FILE,
            "regression": self.terms.names,
            "coefficients": (self.coefficients / self.terms.norm).tolist(),
            "standard_deviation_of_noise": (np.vstack([0.0 * deviation[:1], deviation]) / self.terms.norm).tolist(),
        }

    def to_bytes(self) -> bytes:
        """Write what was released as JSON."""
        made = {"schema": MODEL_SCHEMA, "bounds": self.terms.bounds.as_dict(), "released": self.theta.tolist()}
        made |= {"noise": list(self.noise)} | self.described((), None)
        return (json.dumps(made, indent=1) + "\n").encode()


def _by_row(f: Float[np.ndarray, "rows size"], weights: Float[np.ndarray, "actions size"]) -> Any:
    """Return ``f @ weights.T``, summed term by term: a matrix product may round a row differently beside others."""
    out = np.zeros((len(f), len(weights)))
    for place in range(f.shape[1]):
        out += f[:, place : place + 1] * weights[:, place]
    return out


def load_propensities(path: str | Path) -> Propensities | PropensityModel:
    """Read released propensities from their file, or from the results folder that contains the file."""
    return read_json_result(path, FILE, "propensities", _read)


def _read(made: dict[str, Any]) -> Propensities | PropensityModel:
    bounds, theta = Bounds.from_mapping(made["bounds"]), np.array(made["released"], dtype=np.float64)
    if made["schema"] == MODEL_SCHEMA:
        products, step = map(float, made["noise"])
        found, size = (
            PropensityModel(theta, RegressionTerms(bounds), (products, step)),
            RegressionTerms(bounds).released_size,
        )
    else:
        noise = COUNT_WEIGHT * float(made["standard_deviation_of_noise"]) / bounds.horizon
        found, size = Propensities(theta, Strata(bounds), noise), released_size(bounds)
    if made["schema"] not in (MODEL_SCHEMA, TABLE_SCHEMA) or theta.shape != (size,):
        raise ValueError
    return found
