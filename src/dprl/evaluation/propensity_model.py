"""Released propensity regression and outcome model, and what follows from them: post-processing.

Propensities are those of a multinomial logit; outcomes of each action are linear in the same terms. Derivation:
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
from jaxtyping import Float

from dprl.errors import DprlError
from dprl.evaluation.propensities import COUNT_WEIGHT, FILE, Propensities, size_of
from dprl.evaluation.propensities import SCHEMA as TABLE
from dprl.evaluation.regression import Terms, inverse
from dprl.evaluation.strata import Strata
from dprl.protocols import Bounds

SCHEMA = "dprl.propensity-model/1"


@dataclass(frozen=True)
class PropensityModel:
    """Multinomial regression of actions on declared terms, and a linear outcome model, as released.

    Attributes:
        theta: released numbers: products of terms and outcomes by action, coefficients before and after the last Newton
            step, and the information of that step.
        terms: public.
        noise: standard deviation of the noise in each product, and in each number of a Newton step.
    """

    theta: Float[np.ndarray, " numbers"]
    terms: Terms
    noise: tuple[float, float]

    file: ClassVar[str] = FILE
    kind: ClassVar[str] = "propensities"

    @cached_property
    def _parts(self) -> list[Float[np.ndarray, " part"]]:
        moments, c = self.terms.queries()[0].dimension, self.terms.coefficients
        return np.split(self.theta, [moments, moments + c, moments + 2 * c])

    @cached_property
    def products(self) -> Float[np.ndarray, "actions size size"]:
        """Noisy sums of products of two terms, of the people of each action."""
        return np.asarray(self.terms.products(jnp.asarray(self._parts[0])))

    @cached_property
    def coefficients(self) -> Float[np.ndarray, "actions size"]:
        """Log odds of each action against the first, for each scaled term; zero for the first action."""
        return np.vstack([np.zeros(self.terms.size), self._parts[2].reshape(-1, self.terms.size)])

    @cached_property
    def outcome_coefficients(self) -> Float[np.ndarray, "actions size"]:
        """Of each action, weights of the scaled terms in the outcome in [-1, 1]."""
        noise, d = self.noise[0], self.terms.size
        sums = self._parts[0][self.terms.actions * self.terms.triangle :].reshape(-1, d)
        ridge = noise * math.sqrt(2.0 * d)
        return np.stack(
            [np.asarray(inverse(jnp.asarray(x), ridge)) @ y for x, y in zip(self.products, sums, strict=True)]
        )

    @cached_property
    def largest_outcome(self) -> float:
        """Largest absolute outcome that the model has anywhere; at most one."""
        return min(float(np.abs(self.outcome_coefficients).sum(axis=1).max()) / self.terms.norm, 1.0)

    @cached_property
    def least(self) -> Float[np.ndarray, " actions"]:
        """Probability that no state within the declared bounds has less of, for each action."""
        apart = self.coefficients[None, :, :] - self.coefficients[:, None, :]
        return 1.0 / np.exp(np.minimum(np.abs(apart).sum(axis=2) / self.terms.norm, 700.0)).sum(axis=1)

    @cached_property
    def covariance(self) -> Float[np.ndarray, "coefficients coefficients"]:
        """What noise, and what the last step's ridge held back, make of the coefficients: a mean square."""
        ridge = self.terms.ridge(self.noise[1])
        solved = np.asarray(inverse(self.terms.information(jnp.asarray(self._parts[3])), ridge))
        left = ridge * solved @ (self._parts[2] - self._parts[1])
        return self.noise[1] ** 2 * solved @ solved + np.outer(left, left)

    @cached_property
    def spread(self) -> float:
        """Mean over people of the variance of a log odds that this makes: twice, with more than two actions."""
        values, vectors = np.linalg.eigh(self.products.sum(axis=0))
        people = max(float(self.products[:, 0, 0].sum()) * self.terms.norm**2, 1.0)
        gram = (vectors * np.maximum(values, 0.0)) @ vectors.T / people
        both = float(np.trace(np.kron(np.eye(self.terms.actions - 1), gram) @ self.covariance))
        return both * (1.0 if self.terms.actions == 2 else 2.0)

    def probabilities(self, f: Float[np.ndarray, "rows size"]) -> Float[np.ndarray, "rows actions"]:
        """Return ``(N, A)`` propensities of rows with terms ``f`` ``(N, D)``; each of its own row, to the last bit."""
        logits = _by_row(f, self.coefficients)
        odds = np.exp(np.clip(logits - logits.max(axis=1, keepdims=True), -700.0, 0.0))
        return odds / _summed(odds)[:, None]

    def outcomes(self, f: Float[np.ndarray, "rows size"]) -> Float[np.ndarray, "rows actions"]:
        """Return ``(N, A)`` outcomes in [-1, 1] by the outcome model; each of its own row, to the last bit."""
        return np.clip(_by_row(f, self.outcome_coefficients), -1.0, 1.0)

    def described(self, targets: Any, names: Any) -> dict[str, Any]:
        """Return the terms and each action's coefficients of them, in units of half their range, as plain data."""
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
        made = {
            "schema": SCHEMA,
            "bounds": self.terms.bounds.as_dict(),
            "released": self.theta.tolist(),
            "noise": list(self.noise),
        }
        return (json.dumps(made | self.described((), None), indent=1) + "\n").encode()


def _by_row(f: Float[np.ndarray, "rows size"], weights: Float[np.ndarray, "actions size"]) -> Any:
    """Return ``f @ weights.T`` one term at a time: a matrix product may round a row differently beside others."""
    out = np.zeros((len(f), len(weights)))
    for place in range(f.shape[1]):
        out += f[:, place : place + 1] * weights[:, place]
    return out


def _summed(columns: Float[np.ndarray, "rows n"]) -> Float[np.ndarray, " rows"]:
    out = np.zeros(len(columns))
    for column in columns.T:
        out += column
    return out


def load_propensities(path: str | Path) -> Propensities | PropensityModel:
    """Read released propensities back, from their file or from the results folder it lies in."""
    path = Path(path)
    path = path / FILE if path.is_dir() else path
    try:
        made: dict[str, Any] = json.loads(path.read_bytes())
        bounds, theta = Bounds.from_mapping(made["bounds"]), np.array(made["released"], dtype=np.float64)
        if made["schema"] == SCHEMA:
            products, step = made["noise"]
            model = PropensityModel(theta, Terms(bounds), (float(products), float(step)))
            if theta.shape != (model.terms.released,):
                raise ValueError
            return model
        noise = COUNT_WEIGHT * float(made["standard_deviation_of_noise"]) / bounds.horizon
        table = Propensities(theta, Strata(bounds), noise)
        if made["schema"] != TABLE or theta.shape != (size_of(bounds),):
            raise ValueError
    except OSError as error:
        raise DprlError(f"Cannot read propensities in {path.name!r}: {error.strerror}.") from error
    except (KeyError, TypeError, ValueError, RecursionError, DprlError) as error:
        raise DprlError(f"{path.name!r} holds no propensities of a version that this dprl reads.") from error
    return table
