"""A log of random walks with the size of Mountain Car's: only the shape matters to a benchmark of a release."""

from __future__ import annotations

from typing import Any

UNITS, SHORTEST, LONGEST, FEATURES = 1000, 80, 240, "fourier:5"
DISCOUNT = 0.99


def walks(reward: tuple[float, float], columns: tuple[str, ...]) -> tuple[Any, Any, Any]:
    """Return bounds with rewards in ``reward``, the feature map, and rows with ``returns``, ``start`` or both."""
    import numpy as np

    from dprl.bounds import Bounds
    from dprl.engine.columns import ALWAYS
    from dprl.engine.rows import Rows
    from dprl.value_functions.features import make_features

    rng = np.random.default_rng(0)
    lengths = rng.integers(SHORTEST, LONGEST + 1, UNITS)
    rows, starts = int(lengths.sum()), np.cumsum(lengths) - lengths
    bounds = Bounds(
        units=UNITS, horizon=LONGEST, reward=reward, observation=((0.0, 1.0), (0.0, 1.0)), actions=2,
        return_range=(-100.0, 0.0),
    )  # fmt: skip
    features = make_features(FEATURES, bounds.observation)
    states = np.abs(np.cumsum(rng.normal(0.0, 0.02, (rows, 2)), axis=0)) % 1.0
    phi = features(states).astype(np.float32)
    following = np.roll(phi, -1, axis=0)
    following[starts + lengths - 1] = 0.0
    first = np.zeros(rows, np.float32)
    first[starts] = 1.0
    rewards, returns = (rng.uniform(-1.0, 1.0, rows).astype(np.float32) * scale for scale in (0.02, 1.0))
    weight = np.repeat(1.0 / lengths, lengths).astype(np.float32)

    def pad(x: Any) -> Any:
        return np.concatenate([x, np.zeros_like(x[:1])])

    made = {
        "phi": phi, "delta_phi": phi - np.float32(DISCOUNT) * following, "reward": rewards,
        "rho": np.ones(rows, np.float32), "weight": weight, "returns": returns, "start": first,
    }  # fmt: skip
    asked = {"phi", "delta_phi", *ALWAYS, *columns}
    log = Rows({name: pad(x) for name, x in made.items() if name in asked}, np.append(starts, rows))
    return bounds, features, log
