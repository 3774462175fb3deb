"""What a feature map is: a function of a state with public facts about it, on which value functions stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dprl.protocols import Interval
from dprl.states import unit_states


@dataclass(frozen=True)
class Features:
    """Base: a map from states ``(N, d)`` to features ``(N, size)``, and public facts about it.

    Attributes:
        bounds: low and high of each observation component.
        linear: whether values are products with the features. Otherwise the map stands for a function of the states
            and of ``size`` weights, :meth:`values`, and rows hold no features of it.
    """

    bounds: tuple[Interval, ...]

    name = "features"
    linear: ClassVar[bool] = True

    @property
    def size(self) -> int:
        """Number of weights."""
        raise NotImplementedError

    @property
    def row_size(self) -> int:
        """Features that a row of a log holds."""
        return self.size

    @property
    def norm_bound(self) -> float:
        """Largest L2 norm of a feature vector, which each map of dprl has where every component is at its lowest."""
        return float(np.linalg.norm(self(np.array([[low for low, _ in self.bounds]]))))

    def __call__(self, states: Any, xp: Any = np) -> Any:
        """Return ``(N, d)`` states to ``(N, size)`` features; ``xp`` is numpy or jax.numpy."""
        raise NotImplementedError

    def values(self, theta: Any, states: Any, xp: Any = np) -> Any:
        """Return ``(N,)`` values of the function with weights ``theta`` ``(size,)``, in public units."""
        return self.values_of(self.split(theta), states, xp)

    def split(self, theta: Any) -> Any:
        """Return the weights ``(size,)`` by layer, a pytree of views in their order."""
        return theta

    def values_of(self, weights: Any, states: Any, xp: Any = np) -> Any:
        """Return :meth:`values` of weights by layer."""
        return self(states, xp) @ weights

    def constant(self) -> np.ndarray:
        """Return ``(size,)`` weights of the function that is 1 everywhere; here the first feature is."""
        return np.eye(1, self.size)[0]

    def start(self, level: float = 0.0) -> np.ndarray:
        """Return ``(size,)`` float32 weights to start from: those of a function that is ``level`` everywhere."""
        return (level * self.constant()).astype(np.float32)

    def mean_square(self) -> float:
        """Return mean square norm of the values' gradient by the weights, at the start and under the uniform
        distribution.
        """
        return float(self.size)

    def unit_scale(self, states: Any, xp: Any) -> Any:
        """Return ``states`` ``(N, d)`` scaled to the unit cube."""
        return unit_states(states, self.bounds, xp)
