"""Public modes: the few smooth functions of the state that :mod:`recommended` measures, and their products.

Modes lie in the span of the features that were asked for, and are orthonormal under the uniform distribution (but for
the coupled Fourier basis): product cosines for Fourier and tabular features, the constant and the linear functions for
columns. The product of two modes is a sum of few *second* modes (cosines of twice the order; Legendre polynomials of
degree two), so that the Gram matrix of the modes under any distribution of states is linear in their means.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from dprl.value_functions.features import Columns, CoupledFourier, Features, Fourier, Tabular

_ONE_COMPONENT, _MOST_MODES = 9, 36
_GRID = 1024
MOST_COLUMNS = 64
"""Components of the observation up to which the statistics of ``columns``, quadratic in them, are worth it."""
Family = Literal["cosine", "coupled", "legendre"]
Index = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Modes:
    """Public arrays over ``K`` modes (the first is the constant 1), ``M`` second modes and ``G`` grid points.

    Attributes:
        to_features: ``(n, K)``: weights over the features of the function sum_k c_k mode_k are ``to_features @ c``.
        frequency: ``(K,)`` Euclidean norm of a mode's orders.
        linear: ``(K, d)`` coefficients of the unit-variance linear functions of the ``d`` components.
        extreme: ``(E, K)`` squares of the modes at points where any weighted sum of them is largest.
        second_frequency: ``(M,)``.
        second_extreme: ``(E, M)``, as ``extreme``.
        product: ``(M + 1, K, K)``: the Gram matrix is ``product[0] + sum_l mean_l product[l + 1]``.
        grid: ``(G, K)`` modes at the grid points, which stand for the uniform distribution.
        second_grid: ``(G, M)``.
        uniform: ``(M,)`` means of the second modes under the uniform distribution.
        dual: ``(G, M)``: the density ``1 + dual @ (means - uniform)`` has these means.
        table: ``(n, M)`` what turns tabular features into second modes, ``phi @ table``; None for other features.
        from_products: ``(K K, M)`` what turns the products of all pairs of modes into the second modes.
    """

    family: Family
    to_features: np.ndarray
    frequency: np.ndarray
    linear: np.ndarray
    extreme: np.ndarray
    second_frequency: np.ndarray
    second_extreme: np.ndarray
    product: np.ndarray
    grid: np.ndarray
    second_grid: np.ndarray
    uniform: np.ndarray
    dual: np.ndarray
    table: np.ndarray | None
    from_products: np.ndarray

    @property
    def size(self) -> int:
        """Number of modes."""
        return self.to_features.shape[1]

    @property
    def second_size(self) -> int:
        """Number of second modes."""
        return len(self.second_frequency)


@lru_cache(maxsize=64)
def make_modes(features: Features) -> Modes:
    """Return the modes of a feature map: a function of public facts alone."""
    counts: tuple[int | None, ...] = tuple(None for _ in features.bounds)
    if isinstance(features, Tabular):
        counts = features.counts
    family: Family = "cosine"
    if isinstance(features, Columns | CoupledFourier):
        family = "legendre" if isinstance(features, Columns) else "coupled"
    first = _orders_of(features)
    products: dict[tuple[int, int], dict[Index, float]] = {}
    for (i, j), (k, other) in itertools.combinations_with_replacement(enumerate(first), 2):
        products[i, k] = _expand(family, j, other, counts)
    zero = (0,) * len(counts)
    found = sorted({index for terms in products.values() for index in terms} - {zero}, key=_by_frequency)
    place = {index: number + 1 for number, index in enumerate(found)} | {zero: 0}
    product = np.zeros((len(found) + 1, len(first), len(first)))
    for (i, k), terms in products.items():
        for index, coefficient in terms.items():
            product[place[index], i, k] = product[place[index], k, i] = coefficient
    points = _grid_points(counts, 2 * max((max(j) for j in first), default=0))
    grid = evaluate(family, first, points)
    second_grid = evaluate(family, found, points)
    tabular = isinstance(features, Tabular)
    uniform, dual = np.zeros(len(found)), second_grid
    if family == "coupled":
        uniform = second_grid.mean(axis=0)
        centred = second_grid - uniform
        dual = centred @ np.linalg.pinv(centred.T @ centred / len(points), rcond=0.01, hermitian=True)
    corner = np.ones((1, len(counts)))  # every cosine and every Legendre polynomial is largest at one corner
    if family != "legendre":
        corner = np.zeros((1, len(counts)))
    return Modes(
        family=family,
        to_features=_to_features(features, first, grid),
        frequency=np.array([_frequency(j) for j in first]),
        linear=_linear(family, first, points, counts),
        extreme=(grid if tabular else evaluate(family, first, corner)) ** 2,
        second_frequency=np.array([_frequency(j) for j in found]),
        second_extreme=(second_grid if tabular else evaluate(family, found, corner)) ** 2,
        product=product,
        grid=grid,
        second_grid=second_grid,
        uniform=uniform,
        dual=dual,
        table=second_grid / math.sqrt(features.size) if tabular else None,
        from_products=_left_inverse(product, family)[1:].T,
    )


def _left_inverse(product: np.ndarray, family: Family) -> np.ndarray:
    """Return ``(M + 1, K K)`` what finds the second modes, and the constant, in the products of all pairs of modes."""
    spread = product.reshape(len(product), -1)  # (M + 1, K K)
    if family == "legendre":  # of full rank, and well conditioned: no singular values are needed
        return np.linalg.solve(spread @ spread.T, spread)
    return np.linalg.pinv(spread.T)


def evaluate(family: Family, orders: Sequence[Index], points: np.ndarray) -> np.ndarray:
    """Return ``(G, len(orders))`` modes of these orders at ``points`` ``(G, d)`` of the unit cube."""
    out = np.ones((len(points), len(orders)))
    if family == "coupled":
        whole = np.array(orders, dtype=int).reshape(len(orders), points.shape[1])
        return np.where(whole.any(axis=1), math.sqrt(2.0), 1.0) * np.cos(math.pi * points @ whole.T)
    for i, of_component in enumerate(np.array(orders, dtype=int).reshape(len(orders), points.shape[1]).T):
        x = points[:, i : i + 1]
        if family == "cosine":
            out *= np.where(of_component, math.sqrt(2.0), 1.0) * np.cos(math.pi * of_component * x)
        else:
            z = 2.0 * x - 1.0
            one = np.concatenate([np.ones_like(z), math.sqrt(3.0) * z, math.sqrt(5.0) * (1.5 * z * z - 0.5)], axis=1)
            out *= one[:, of_component]
    return out


def _orders_of(features: Features) -> list[Index]:
    """Orders of the modes, in order of frequency: whole shells of equal frequency, as many as may be measured."""
    d = len(features.bounds)
    varies = [high > low for low, high in features.bounds]
    if isinstance(features, Columns):
        highest, cube = [1] * d, False
    elif isinstance(features, Fourier | CoupledFourier):
        highest, cube = [features.order] * d, True
    elif isinstance(features, Tabular):
        wanted = _ONE_COMPONENT - 1 if sum(varies) <= 1 else 5
        highest, cube = [min(wanted, count - 1) for count in features.counts], True
    else:
        raise TypeError(f"no modes are known for features of type {type(features).__name__}")
    highest = [h if v else 0 for h, v in zip(highest, varies, strict=True)]
    zero = (0,) * d
    if not cube:
        return [zero] + [tuple(int(i == j) for j in range(d)) for i in range(d) if varies[i]]
    shells: dict[int, list[Index]] = {}
    # no order above the number of modes can be among the lowest
    for index in itertools.product(*[range(min(h, _MOST_MODES) + 1) for h in highest]):
        shells.setdefault(sum(j * j for j in index), []).append(index)
    chosen: list[Index] = []
    for square in sorted(shells):
        if chosen and len(chosen) + len(shells[square]) > _MOST_MODES:
            break
        chosen += shells[square]
    return chosen


def _to_features(features: Features, orders: list[Index], grid: np.ndarray) -> np.ndarray:
    if isinstance(features, Tabular):  # indicators are scaled by sqrt(S)
        return grid / math.sqrt(features.size)
    out = np.zeros((features.size, len(orders)))
    for k, index in enumerate(orders):
        if isinstance(features, Columns):
            out[1 + index.index(1) if any(index) else 0, k] = 1.0
        elif isinstance(features, Fourier | CoupledFourier):
            row = 0
            for order in index:
                row = row * (features.order + 1) + order
            out[row, k] = 1.0
    return out


def _expand(family: Family, j: Index, k: Index, counts: Sequence[int | None]) -> dict[Index, float]:
    """Return the product of two modes as a sum of modes."""
    if family == "coupled":
        return _coupled_product(j, k)
    terms: dict[Index, float] = {(): 1.0}
    for a, b, count in zip(j, k, counts, strict=True):
        one = _legendre_product(a, b) if family == "legendre" else _cosine_product(a, b, count)
        terms = {(*head, order): x * y for head, x in terms.items() for order, y in one.items()}
    return {index: value for index, value in terms.items() if value}


def _cosine_product(j: int, k: int, count: int | None) -> dict[int, float]:
    if not j or not k:
        return {j + k: 1.0}
    out = {abs(j - k): 1.0 if j == k else math.sqrt(0.5)}
    high, sign = j + k, 1.0
    if count is not None and high >= count:  # on a grid of `count` midpoints high orders are low ones in disguise
        high, sign = 2 * count - high, -1.0 if high > count else 0.0
    if sign:
        out[high] = out.get(high, 0.0) + sign * math.sqrt(0.5)
    return out


def _coupled_product(j: Index, k: Index) -> dict[Index, float]:
    """Cos a cos b = (cos(a + b) + cos(a - b)) / 2; of c and -c, which are one cosine, the one is taken that starts
    with a positive order.
    """
    if not any(j) or not any(k):
        return {tuple(a + b for a, b in zip(j, k, strict=True)): 1.0}
    out: dict[Index, float] = {}
    for sign in (1, -1):
        index = tuple(a + sign * b for a, b in zip(j, k, strict=True))
        leading = next((order for order in index if order), 0)
        index = index if leading >= 0 else tuple(-order for order in index)
        out[index] = out.get(index, 0.0) + (math.sqrt(0.5) if leading else 1.0)
    return out


def _legendre_product(j: int, k: int) -> dict[int, float]:
    return {j + k: 1.0} if not (j and k) else {0: 1.0, 2: 2.0 / math.sqrt(5.0)}


def _grid_points(counts: Sequence[int | None], highest: int) -> np.ndarray:
    """Return ``(G, d)`` points of the unit cube: the states themselves, a grid of midpoints, or a low-discrepancy
    sequence.
    """
    d = len(counts)
    if d > 2 and None in counts:
        root = 2.0
        for _ in range(64):
            root = (1.0 + root) ** (1.0 / (d + 1))
        steps = root ** -np.arange(1.0, d + 1.0)
        return (0.5 + np.arange(_GRID)[:, None] * steps) % 1.0
    sides = [count if count is not None else max(48 if d == 1 else 24, highest + 2) for count in counts]
    axes = [(np.arange(n) + 0.5) / n for n in sides]
    return np.stack([x.ravel() for x in np.meshgrid(*axes, indexing="ij")], axis=-1)


def _linear(family: Family, orders: list[Index], points: np.ndarray, counts: Sequence[int | None]) -> np.ndarray:
    out = np.zeros((len(orders), points.shape[1]))
    for k, index in enumerate(orders):
        used = [i for i, order in enumerate(index) if order]
        if len(used) != 1:
            continue
        i, order, count = used[0], index[used[0]], counts[used[0]]
        if family == "legendre":
            out[k, i] = 1.0
        elif count is None:
            out[k, i] = math.sqrt(6.0) * 2.0 * ((-1.0) ** order - 1.0) / (math.pi * order) ** 2
        else:
            x = (np.arange(count) + 0.5) / count
            out[k, i] = np.mean(math.sqrt(6.0) * (2.0 * x - 1.0) * np.cos(math.pi * order * x))
    return out


def _frequency(index: Index) -> float:
    return math.sqrt(sum(j * j for j in index))


def _by_frequency(index: Index) -> tuple[float, Index]:
    return _frequency(index), index
