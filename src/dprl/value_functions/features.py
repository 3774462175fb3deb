"""Public feature maps of a state, orthonormal under the uniform distribution on the bounds.

Only the coupled Fourier basis and the radial basis are not orthogonal. Their features, too, have mean square one (those
of the radial basis on average). This scaling is a public choice, needs no data, and makes one step size and one clip
norm fit all feature maps.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from dprl.arrays import cell_numbers
from dprl.bounds import Interval
from dprl.errors import DprlError
from dprl.value_functions.feature_map import Features as Features
from dprl.value_functions.network import MLP

MAX_FEATURES = 4096
_POINTS = 4096  # number of points that fill the bounds


@dataclass(frozen=True)
class Columns(Features):
    """A constant and each component, scaled to [-sqrt 3, sqrt 3]."""

    name = "columns"

    @property
    def size(self) -> int:
        """Number of features."""
        return 1 + len(self.bounds)

    def __call__(self, states: Any, xp: Any = np) -> Any:
        """Return the features ``(N, n)`` of ``states`` ``(N, d)``."""
        x = self.unit_scale(states, xp)
        return xp.concatenate([xp.ones_like(x[:, :1]), math.sqrt(3.0) * (2.0 * x - 1.0)], axis=1)


@dataclass(frozen=True)
class Tabular(Features):
    """One indicator for each state of a finite grid of whole numbers, times the square root of the number of states."""

    name = "tabular"

    def __post_init__(self) -> None:
        for low, high in self.bounds:
            if low != int(low) or high != int(high):
                raise DprlError(
                    "Tabular features need whole-number observation bounds: states are counted from low to high."
                )
        if self.size > MAX_FEATURES:
            raise DprlError(
                f"Tabular features: there are more than {MAX_FEATURES} states; use columns or fourier:ORDER."
            )

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of values of each component."""
        return tuple(int(high) - int(low) + 1 for low, high in self.bounds)

    @property
    def size(self) -> int:
        """Number of features."""
        return math.prod(self.counts)

    def index(self, states: Any, xp: Any = np) -> Any:
        """Return the number ``(N,)`` of each state."""
        return cell_numbers(states, self.bounds, xp)

    def __call__(self, states: Any, xp: Any = np) -> Any:
        """Return the features ``(N, n)`` of ``states`` ``(N, d)``."""
        one_hot = self.index(states, xp)[:, None] == xp.arange(self.size, dtype=np.int32)[None, :]
        return one_hot.astype(states.dtype) * math.sqrt(self.size)

    def constant(self) -> np.ndarray:
        """Return the weights of the value function that is 1 everywhere."""
        return np.full(self.size, 1.0 / math.sqrt(self.size))


@dataclass(frozen=True)
class _CosineFeatures(Features):
    """Base of the cosine features: there is one feature for each choice of an order 0..k for every component."""

    order: int = 3

    kind: ClassVar[str]

    def __post_init__(self) -> None:
        if self.order < 1:
            raise DprlError(f"{self.kind}:ORDER needs an order of at least 1.")
        if self.size > MAX_FEATURES:
            raise DprlError(f"{self.name} has more than {MAX_FEATURES} features here: choose a lower order.")

    @property
    def name(self) -> str:  # type: ignore[override]
        """Name of the features on the command line."""
        return f"{self.kind}:{self.order}"

    @property
    def size(self) -> int:
        """Number of features."""
        return (self.order + 1) ** len(self.bounds)


@dataclass(frozen=True)
class Fourier(_CosineFeatures):
    """Products of cosines up to order k, with one factor per component: (k + 1)^d features.

    With one component this is the Fourier basis of Konidaris et al. (2011). With more components their basis, cos(pi c
    . x), is not orthogonal (its constant and its (1, 1) coupling correlate by -0.57), but the products are.
    """

    kind = "fourier"

    @property
    def norm_bound(self) -> float:
        """Largest L2 norm of the features of a state."""
        return (1.0 + 2.0 * self.order) ** (len(self.bounds) / 2.0)

    def __call__(self, states: Any, xp: Any = np) -> Any:
        """Return the features ``(N, n)`` of ``states`` ``(N, d)``."""
        x = self.unit_scale(states, xp)
        scale = np.array([1.0] + [math.sqrt(2.0)] * self.order)
        orders = xp.asarray(math.pi * np.arange(self.order + 1), dtype=states.dtype)
        scale = xp.asarray(scale, dtype=states.dtype)
        return _products([xp.cos(x[:, i, None] * orders) * scale for i in range(len(self.bounds))])


@dataclass(frozen=True)
class CoupledFourier(_CosineFeatures):
    """The Fourier basis of Konidaris et al. (2011): cos(pi c . x) for c in {0..k}^d, with x scaled to [0, 1].

    There are (k + 1)^d features. All features except the constant are multiplied by sqrt 2, so that each has mean
    square one. With two components or more they are **not orthogonal**: the (1, 1) coupling and the constant correlate
    by -0.57. :class:`Fourier` spans other functions and is orthogonal.
    """

    kind = "fourier-coupled"

    def coefficients(self) -> np.ndarray:
        """Return the whole numbers c ``(size, d)``, first those of the constant; the last component changes fastest."""
        return np.indices((self.order + 1,) * len(self.bounds)).reshape(len(self.bounds), -1).T

    def __call__(self, states: Any, xp: Any = np) -> Any:
        """Return the features ``(N, n)`` of ``states`` ``(N, d)``."""
        x = self.unit_scale(states, xp)
        # one component at a time, because a matrix product may round a row differently beside other rows
        coefficients = math.pi * self.coefficients()
        angles = sum(x[:, i, None] * xp.asarray(coefficients[:, i], dtype=states.dtype) for i in range(x.shape[1]))
        scale = np.full(self.size, math.sqrt(2.0))
        scale[0] = 1.0
        return xp.cos(angles) * xp.asarray(scale, dtype=states.dtype)


@dataclass(frozen=True)
class RadialBasis(Features):
    """Normalised radial basis functions, products over the components: N^d features (Sutton and Barto 2018, 9.5.5).

    Along a component there are N Gaussian bumps at even distances, each two distances wide and divided by the sum of
    all bumps. Neighbours overlap, so that the features are **not orthogonal** and noise in their weights is smoothed.
    The mean square of the features is one on average.
    """

    count: int = 12

    def __post_init__(self) -> None:
        if self.count < 2:
            raise DprlError("rbf:N needs at least two functions along a component.")
        if self.size > MAX_FEATURES:
            raise DprlError(f"rbf:{self.count} has more than {MAX_FEATURES} features here: choose fewer.")

    @property
    def name(self) -> str:  # type: ignore[override]
        """Name of the features on the command line."""
        return f"rbf:{self.count}"

    @property
    def size(self) -> int:
        """Number of features."""
        return self.count ** len(self.bounds)

    @property
    def scale(self) -> float:
        """Factor of the features along one component."""
        x = (np.arange(4096) + 0.5) / 4096.0
        return math.sqrt(self.count / float(np.mean(np.sum(self._bumps(x, np) ** 2, axis=1))))

    def _bumps(self, x: Any, xp: Any) -> Any:
        """Return the bumps ``(N, count)`` at places ``(N,)`` in [0, 1]; every row sums to one."""
        places = xp.asarray(np.arange(self.count), dtype=x.dtype)
        heights = xp.exp(-(((x[:, None] * (self.count - 1) - places) / 2.0) ** 2) / 2.0)
        return heights / xp.sum(heights, axis=1)[:, None]

    def __call__(self, states: Any, xp: Any = np) -> Any:
        """Return the features ``(N, n)`` of ``states`` ``(N, d)``."""
        x = self.unit_scale(states, xp)
        scale = xp.asarray(self.scale, dtype=x.dtype)
        return _products([self._bumps(x[:, i], xp) * scale for i in range(len(self.bounds))])

    def constant(self) -> np.ndarray:
        """Return the weights of the value function that is 1 everywhere."""
        return np.full(self.size, self.scale ** -len(self.bounds))


def _products(factors: list[Any]) -> Any:
    """Return ``(N, k^d)``: all products of one column from each of d factors ``(N, k)``; the last changes fastest."""
    out = factors[0]
    for factor in factors[1:]:
        out = (out[:, :, None] * factor[:, None, :]).reshape(len(out), out.shape[1] * factor.shape[1])
    return out


_PLAIN = {"columns": Columns, "tabular": Tabular}
_NUMBERED = {"fourier": Fourier, "fourier-coupled": CoupledFourier, "rbf": RadialBasis, "mlp": MLP}


def make_features(spec: str, bounds: tuple[Interval, ...]) -> Features:
    """Return the features of a name.

    Names are ``columns``, ``tabular``, ``fourier:ORDER``, ``fourier-coupled:ORDER``, ``rbf:N`` and ``mlp:HIDDEN``.

    >>> make_features("fourier:2", ((0.0, 1.0), (0.0, 1.0))).size
    9
    """
    if isinstance(spec, str):
        if spec in _PLAIN:
            return _PLAIN[spec](bounds)
        name, _, number = spec.partition(":")
        if name in _NUMBERED and re.fullmatch(r"[0-9]{1,6}", number):
            return _NUMBERED[name](bounds, int(number))
    raise DprlError(
        f"There are no features called {spec!r}; use columns, tabular, fourier:ORDER, fourier-coupled:ORDER, rbf:N or "
        "mlp:HIDDEN."
    )


def public_states(features: Features) -> Float[np.ndarray, "points d"]:
    """Return ``(P, d)`` public states: all states of a finite grid, or else points that fill the bounds evenly."""
    low, high = np.array(features.bounds, dtype=np.float64).T
    if isinstance(features, Tabular):
        numbers = np.unravel_index(np.arange(features.size), features.counts)
        return low + np.stack(numbers, axis=1)
    d = len(low)
    # a lattice from the root of x^(d + 1) = x + 1, which is even in any number of dimensions
    root = 2.0
    for _ in range(64):
        root = (1.0 + root) ** (1.0 / (d + 1))
    places = (0.5 + np.arange(_POINTS)[:, None] * root ** -(1.0 + np.arange(d))) % 1.0
    return low + places * (high - low)
