"""Base of feature maps: functions of a state, with public facts about them, from which value functions are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dprl.arrays import unit_states
from dprl.bounds import Interval


@dataclass(frozen=True)
class Features:
    """Map from states ``(N, d)`` to features ``(N, size)``, with public facts about the map. Base of all feature maps.

    Attributes:
        bounds: low and high of each observation component.
        linear: whether values are products of weights and features. Otherwise the map stands for a function of the
            states and of ``size`` weights, :meth:`values`, and rows hold no features.
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
        """Number of features that a row of a log holds."""
        return self.size

    @property
    def norm_bound(self) -> float:
        """Largest L2 norm of a feature vector; in each map of dprl, the state of lowest components has it."""
        return float(np.linalg.norm(self(np.array([[low for low, _ in self.bounds]]))))

    def __call__(self, states: Any, xp: Any = np) -> Any:
        """Return the features ``(N, size)`` of ``states`` ``(N, d)``; ``xp`` is numpy or jax.numpy."""
        raise NotImplementedError

    def values(self, theta: Any, states: Any, xp: Any = np) -> Any:
        """Return ``(N,)`` values of the function with weights ``theta`` ``(size,)``, in public units."""
        return self.values_of(self.split(theta), states, xp)

    def split(self, theta: Any) -> Any:
        """Return the weights ``(size,)`` by layer, as a pytree of views in the order of the weights."""
        return theta

    def values_of(self, weights: Any, states: Any, xp: Any = np) -> Any:
        """Return :meth:`values` for weights that are given by layer."""
        return self(states, xp) @ weights

    def constant(self) -> np.ndarray:
        """Return ``(size,)`` weights of the function that is 1 everywhere; by default this is the first feature."""
        return np.eye(1, self.size)[0]

    def start(self, level: float = 0.0) -> np.ndarray:
        """Return ``(size,)`` float32 start weights, which give a function that is ``level`` everywhere."""
        return (level * self.constant()).astype(np.float32)

    def mean_gradient_square(self) -> float:
        """Return the mean square norm of the gradient of values by weights, at the start weights.

        The mean is over states with a uniform distribution.
        """
        return float(self.size)

    def unit_scale(self, states: Any, xp: Any) -> Any:
        """Return ``states`` ``(N, d)`` scaled to the unit cube."""
        return unit_states(states, self.bounds, xp)
