from __future__ import annotations

import numpy as np
import pytest

from dprl.value_functions.features import Features, make_features
from dprl.value_functions.modes import make_modes

BOX3 = ((0.0, 1.0), (-2.0, 2.0), (5.0, 9.0))
CASES = [
    ("tabular", ((0.0, 38.0),)),
    ("tabular", ((0.0, 3.0),)),
    ("tabular", ((0.0, 6.0), (1.0, 4.0))),
    ("columns", ((0.0, 1.0),)),
    ("columns", BOX3),
    ("columns", ((0.0, 1.0), (3.0, 3.0))),
    ("fourier:5", ((0.0, 2.0),)),
    ("fourier:5", ((0.0, 2.0), (-1.0, 1.0))),
    ("fourier:2", BOX3),
    ("fourier:2", tuple((0.0, 1.0) for _ in range(6))),
]


def _states(features: Features, count: int = 400) -> np.ndarray:
    rng = np.random.default_rng(0)
    low, high = np.array(features.bounds).T
    states = rng.uniform(low, high, (count, len(low)))
    corners = rng.integers(0, 2, states.shape) == 1
    states[:40] = np.where(corners, low, high)[:40]
    return np.round(states) if features.name == "tabular" else states


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{len(case[1])}")
def features(request: pytest.FixtureRequest) -> Features:
    return make_features(*request.param)


def test_modes_are_orthonormal_and_start_with_the_constant(features: Features) -> None:
    modes = make_modes(features)
    low, high = np.array(features.bounds).T
    if features.name == "tabular":
        grid = np.stack([x.ravel() for x in np.meshgrid(*(np.arange(a, b + 1) for a, b in features.bounds))], axis=1)
        weights = np.ones(len(grid)) / len(grid)
    else:  # Gauss-Legendre is exact for columns and close for cosines
        varies = high > low
        nodes, w = np.polynomial.legendre.leggauss(24 if len(low) < 3 else 10 if len(low) < 4 else 4)
        axes = [nodes if v else np.zeros(1) for v in varies]
        parts = [w / 2 if v else np.ones(1) for v in varies]
        grid = np.stack([x.ravel() for x in np.meshgrid(*axes)], axis=1) / 2 + 0.5
        grid = low + grid * (high - low)
        weights = np.prod([x.ravel() for x in np.meshgrid(*parts)], axis=0)
    psi = features(grid) @ modes.to_features
    tolerance = 1e-9 if len(low) < 4 else 0.02
    np.testing.assert_allclose(psi.T @ (weights[:, None] * psi), np.eye(modes.size), atol=tolerance)
    np.testing.assert_allclose(psi[:, 0], 1.0)


def test_extreme_squares_bound_every_weighted_norm(features: Features) -> None:
    modes = make_modes(features)
    psi = features(_states(features)) @ modes.to_features
    rng = np.random.default_rng(1)
    for _ in range(20):
        weights = rng.exponential(size=modes.size) ** 3
        assert (psi**2 @ weights).max() <= (modes.extreme @ weights).max() * (1.0 + 1e-9)
