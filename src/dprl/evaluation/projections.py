"""Compute best linear projections of values on covariates, with bands, from noisy moments: post-processing.

A projection is the solution of noisy normal equations. Its band counts the sampling error of their right side, the
noise there, and the noise in the matrix, each with its effect on the solution. Derivations:
docs/proofs/best-linear-projection.md.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import gammaincinv

from dprl.arrays import along_components, state_rows, unit_states
from dprl.bounds import Interval
from dprl.untrusted_files import read_json_result

FILE = "projections.json"
_SCHEMA = "dprl.projections/1"
_ARRAYS, _POINTS = ("weights", "covariance"), 21


# --- symmetric tensors ------------------------------------------------------------------------------------------------


@lru_cache
def _monomials(size: int, power: int) -> tuple[Int[np.ndarray, "n power"], Float[np.ndarray, " n"], np.ndarray]:
    """Return the monomials of a power of a vector, and their places in the tensor.

    For each monomial these are the entries that it multiplies, and the root of its number of places; for each place of
    the tensor, its monomial.
    """
    index = np.array(list(combinations_with_replacement(range(size), power)))
    base = size ** np.arange(power)[::-1]
    places = np.searchsorted(index @ base, base @ np.sort(np.indices((size,) * power).reshape(power, -1), axis=0))
    return index, np.sqrt(np.bincount(places)), places


def powers(vectors: Float[np.ndarray, "units size"], power: int) -> Float[np.ndarray, "units n"]:
    """Return the distinct coordinates of ``v (x) ... (x) v``, scaled so that their norm is ``|v| ** power``."""
    index, root, _ = _monomials(vectors.shape[1], power)
    out = np.tile(root, (len(vectors), 1))
    for column in index.T:
        out *= vectors[:, column]
    return out


def tensor(coordinates: Float[np.ndarray, " n"], size: int, power: int) -> np.ndarray:
    """Return the symmetric tensor ``(size, ..., size)`` with these :func:`powers` coordinates."""
    _, root, places = _monomials(size, power)
    return (coordinates / root)[places].reshape((size,) * power)


# --- one projection ---------------------------------------------------------------------------------------------------


class Moments(NamedTuple):
    """Noisy sums over units for one policy or difference, with psi the features and u the weighted return.

    Attributes:
        gram, quartic: sums of psi psi' and of psi (x) psi (x) psi (x) psi.
        linear, cubic, square: sums of psi u, psi (x) psi (x) psi u, and psi psi' u^2.
        noises: standard deviation of the noise in a coordinate, for each of the five sums in the order above.
    """

    gram: Float[np.ndarray, "D D"]
    quartic: Float[np.ndarray, "D D D D"]
    linear: Float[np.ndarray, " D"]
    cubic: Float[np.ndarray, "D D D"]
    square: Float[np.ndarray, "D D"]
    noises: tuple[float, float, float, float, float]


def solve(
    moments: Moments, critical: float, margin: float
) -> tuple[Float[np.ndarray, " D"], Float[np.ndarray, "D D"]] | None:
    """Return weights tau and a matrix C; None where noise hides the matrix of the normal equations.

    With the confidence of ``critical`` the error ``|a'(tau - true)|`` is at most ``critical sqrt(a'Ca)`` for all
    vectors a at once.

    Args:
        moments: the released moments.
        critical: root of a chi-square quantile with as many degrees of freedom as there are features.
        margin: how many standard errors of its own noise are added to the sampling variance.
    """
    gram, quartic, linear, cubic, square, _ = moments
    of_gram, of_quartic, of_linear, of_cubic, of_square = moments.noises
    least, size = float(np.linalg.eigvalsh(gram)[0]), len(gram)
    lost = (critical * of_gram / least) ** 2 if least > 0.0 else math.inf
    if lost >= 1.0:
        return None
    inverse = np.linalg.inv(gram)
    tau = inverse @ linear
    norm, identity = float(np.linalg.norm(tau)), np.eye(size)
    meat = square - 2.0 * cubic @ tau + quartic @ tau @ tau
    noise = math.hypot(of_square, 2.0 * norm * of_cubic, norm**2 * of_quartic)
    values, vectors = np.linalg.eigh(meat + margin * noise * identity)
    spread = (vectors * np.maximum(values, 0.0)) @ vectors.T + of_linear**2 * identity
    # the noise in the matrix multiplies the true weights; the event that the band holds bounds their norm as well
    first = float(np.linalg.eigvalsh(inverse @ spread @ inverse)[-1])
    most = (norm + math.sqrt(lost * norm**2 + (1.0 - lost) * critical**2 * first)) / (1.0 - lost)
    along = most / norm * np.outer(tau, tau) if norm > 0.0 else 0.0 * identity
    spread += of_gram**2 / 2.0 * ((2.0 * most**2 - most * norm) * identity + along)
    return tau, inverse @ spread @ inverse


def critical_value(confidence: float, size: int) -> float:
    """Return the root of the chi-square quantile with ``size`` degrees of freedom."""
    return math.sqrt(2.0 * float(gammaincinv(size / 2.0, confidence)))


# --- results ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Projection:
    """The best linear projection of a policy's value, or of the difference of two.

    Attributes:
        policy: place of the policy among those of the release.
        against: place of the policy whose value is subtracted; None for the value of one policy.
        weights: ``(1 + d,)`` weights of a constant and of each covariate, scaled to [-1, 1]; None where there is no
            band.
        covariance: ``(1 + d, 1 + d)`` matrix of the band; None where there is no band.
    """

    policy: int
    against: int | None = None
    weights: Float[np.ndarray, " D"] | None = None
    covariance: Float[np.ndarray, "D D"] | None = None


@dataclass(frozen=True)
class Projections:
    """Best linear projections of values on covariates of the first state, with bands that hold for all together.

    Attributes:
        components: places of the covariates among the components of a state.
        names: names of the covariates.
        bounds: range of every component of a state.
        critical: half-width of a band, in standard errors.
        found: the projection of each target policy, then of each difference that was asked for.
    """

    components: tuple[int, ...]
    names: tuple[str, ...]
    bounds: tuple[Interval, ...]
    critical: float
    found: tuple[Projection, ...]

    file: ClassVar[str] = FILE
    kind: ClassVar[str] = "projections"

    @property
    def theta(self) -> Float[np.ndarray, " n"]:
        """Weights of all projections that have a band, one after the other."""
        return np.concatenate([np.zeros(0), *(p.weights for p in self.found if p.weights is not None)])

    def band(self, place: int, states: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """Return values and both ends of the band, each ``(N,)``, at ``states`` ``(N, d)``; None without a band.

        Args:
            place: place of the projection in :attr:`found`.
            states: states with all their components; ``(N,)`` where a state has one component.
        """
        weights, covariance = self.found[place].weights, self.found[place].covariance
        if weights is None or covariance is None:
            return None
        own = state_rows(states, len(self.bounds))[:, self.components]
        scaled = 2.0 * unit_states(own, tuple(self.bounds[i] for i in self.components)) - 1.0
        features = np.concatenate([np.ones((len(scaled), 1)), scaled], axis=1)
        half = self.critical * np.sqrt(np.einsum("ni,ij,nj->n", features, covariance, features))
        return features @ weights, features @ weights - half, features @ weights + half

    def described(self, targets: Sequence[str], names: Sequence[str] | None) -> dict[str, Any]:
        """Return coefficients and curves with their bands, as plain data.

        A coefficient tells how much the projection rises from the low to the high end of a covariate's declared range.

        Args:
            targets: names of the target policies.
            names: not needed.
        """
        del names
        found = []
        for place, one in enumerate(self.found):
            who: dict[str, Any] = {"policy": targets[one.policy]}
            who |= {} if one.against is None else {"against": targets[one.against]}
            if one.weights is None or one.covariance is None:
                found.append(who | {"band": False})
                continue
            rises = 2.0 * one.weights[1:]
            halves = 2.0 * self.critical * np.sqrt(np.diag(one.covariance)[1:])
            coefficients = [
                {"name": name, "value": float(rise), "interval": [float(rise - half), float(rise + half)]}
                for name, rise, half in zip(self.names, rises, halves, strict=True)
            ]
            constant = bool((np.abs(rises) <= halves).all())
            slices = self._slices(place)
            found.append(
                who | {"band": True, "constant_only": constant, "coefficients": coefficients, "slices": slices}
            )
        return {"file": FILE, "covariates": list(self.names), "found": found}

    def _slices(self, place: int) -> list[dict[str, Any]]:
        """Return a curve with its band along each covariate, with the other components at the middle of their range."""
        out = []
        for component, grid, states in along_components(self.bounds, _POINTS, len(self.bounds)):
            band = self.band(place, states)
            if component in self.components and band is not None:
                curve = dict(zip(("values", "low", "high"), (x.tolist() for x in band), strict=True))
                name = self.names[self.components.index(component)]
                out.append({"component": component, "name": name, "grid": grid.tolist(), **curve})
        return out

    def to_bytes(self) -> bytes:
        """Write weights and matrices as JSON."""
        return (json.dumps({"schema": _SCHEMA, **asdict(self)}, default=np.ndarray.tolist, indent=1) + "\n").encode()


def load_projections(path: str | Path) -> Projections:
    """Read released projections from their file, or from the results folder that contains the file."""
    return read_json_result(path, FILE, "projections", _read)


def _read(made: dict[str, Any]) -> Projections:
    if made["schema"] != _SCHEMA:
        raise ValueError
    found = [
        Projection(x["policy"], x["against"], *(x[n] if x[n] is None else np.array(x[n]) for n in _ARRAYS))
        for x in made["found"]
    ]
    bounds = tuple((float(low), float(high)) for low, high in made["bounds"])
    lists = tuple(made["components"]), tuple(made["names"]), bounds
    return Projections(*lists, float(made["critical"]), tuple(found))
