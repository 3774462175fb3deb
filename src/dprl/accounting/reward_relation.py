"""Neighbouring reward functions, where the reward function is private, and how far apart a kernel's norm finds them.

Proofs: docs/proofs/functional-noise.md (norms, finite precision) and docs/proofs/adaptive-gaussian.md.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from dprl.accounting.schema import positive, zero_or_positive
from dprl.errors import DprlError, require

REWARD_FUNCTION = "reward function"
DEPTHS = {1: 20, 2: 10, 3: 7}
"""Bits of a position, by the number of dimensions of the observation: a path is known at multiples of ``2**-bits``."""
LARGEST_DECAY = 2.0**16
REACH = 8.0
"""Values of a path beyond this many standard deviations are charged for in :func:`path_delta`."""
_OUTSIDE = 2.0**-49  # a normal beyond REACH has probability 1.2440e-15, and 2**-49 is 1.7764e-15
# Largest error of a computed value of a path of variance one, where nothing in it lies beyond REACH.
_PATH_ERROR = {1: 2.0**-42, 2: 2.0**-40, 3: 2.0**-39}
_STEP_BITS = 7
_NUMBER = r"([0-9.e+-]+)"
_ALONE, _STATE, _ACTION = " of the state alone", " of the state in which the action is taken", " and of the action"
_WORDS = re.compile(
    rf"reward functions(?:({_ALONE})|({_STATE})({_ACTION})?,)? at most {_NUMBER} apart"
    rf"(?:, whose difference has (?:Lipschitz constant at most {_NUMBER}"
    rf"|mixed derivatives of order k at most {_NUMBER} \({_NUMBER}/{_NUMBER}\)\^k) over the scaled observation)?"
)


@dataclass(frozen=True)
class RewardRelation:
    """Relation between reward functions r, r': for every action a, ``f = r(., a) - r'(., a)`` is as small as stated.

    Without a Lipschitz constant, a reward may depend on the next state, on chance and on time too; random rewards are
    compared under the same randomness. With a Lipschitz constant, a reward is a function of the state in which the
    action is taken and of the action, and it is the same whenever it is asked for. The scaled observation is the
    observation with its public bounds mapped to ``[0, 1]`` and clipped there. A reward that is not a finite number
    counts as a public constant before two rewards are compared.

    Attributes:
        radius: R, largest ``|f|``.
        lipschitz: L, largest ``|f(x) - f(y)|`` over the Manhattan distance of the scaled observations x and y.
        of_state: rewards ignore the action, so that f is the same function for every action.
        mixed: L also bounds the mixed derivatives: a derivative by k different components is at most ``R (L/R)^k``.
    """

    radius: float
    lipschitz: float | None = None
    of_state: bool = False
    mixed: bool = False

    def __post_init__(self) -> None:
        known = self.lipschitz is not None
        require(positive(self.radius), "The reward radius must be a positive number.")
        smooth = not known or positive(self.lipschitz)
        require(smooth, "The Lipschitz constant of the reward must be a positive number.")
        require(known or not self.mixed, "A bound on mixed derivatives needs the Lipschitz constant of the reward.")

    def words(self) -> str:
        """Return the relation in the words of a certificate and a ledger, which :func:`parse_relation` reads.

        >>> RewardRelation(0.01, 0.04, of_state=True).words()
        'reward functions of the state in which the action is taken, at most 0.01 apart, whose difference has \
Lipschitz constant at most 0.04 over the scaled observation'
        """
        if self.lipschitz is None:
            return self.earlier_words()
        return self._words(f"{_STATE}{'' if self.of_state else _ACTION},")

    def earlier_words(self) -> str:
        """Return the words of earlier versions, which did not name the state of which a reward is a function."""
        return self._words(_ALONE if self.of_state else "")

    def _words(self, of: str) -> str:
        found = f"reward functions{of} at most {self.radius!r} apart"
        if self.lipschitz is None:
            return found
        bound = f"Lipschitz constant at most {self.lipschitz!r}"
        if self.mixed:
            bound = f"mixed derivatives of order k at most {self.radius!r} ({self.lipschitz!r}/{self.radius!r})^k"
        return f"{found}, whose difference has {bound} over the scaled observation"


def parse_relation(text: str) -> RewardRelation | None:
    """Return the relation that ``text`` states in the words of :class:`RewardRelation`; None where it states none.

    Certificates and ledgers keep their words for ever, so the words of earlier versions are read too.
    """
    match = _WORDS.fullmatch(text)
    if match is None:
        return None
    alone, state, action, radius, lipschitz, _, mixed, _ = match.groups()
    slope, of_state = lipschitz or mixed, alone is not None or (state is not None and action is None)
    try:
        found = RewardRelation(float(radius), float(slope) if slope else None, of_state, mixed is not None)
    except (ValueError, DprlError):
        return None
    return found if text in (found.words(), found.earlier_words()) else None


def default_decay(sup: float, lipschitz: float) -> float:
    """Return ``L/R``, which makes the norm smallest on the grid, but at least 1 for the sake of finite precision.

    It is at most ``LARGEST_DECAY``.
    """
    return min(max(1.0, lipschitz / sup), LARGEST_DECAY)


def kernel_norm(sup: float, lipschitz: float, decay: float, dimensions: int = 1, spread: float = 0.0) -> float:
    """Return the largest norm of an f in the space of the kernel ``exp(-decay |x - y|_1)`` on the unit cube.

    The norm is ``sqrt(R^2 (1 + b/2) + L^2 (1 + spread) / (2b))`` in one dimension. In d dimensions, for f with bounded
    mixed derivatives, it is ``R (1 + b/2 + (L/R)^2 / (2b))^(d/2)``.

    Args:
        sup, lipschitz: R and L of :class:`RewardRelation`.
        decay: b.
        spread: ``3 N h`` for N answers, each to the first observation in a cell of width h; 0 where observations are
            on the grid.
    """
    sound = positive(sup) and zero_or_positive(lipschitz) and positive(decay)
    require(sound, "The radius, the Lipschitz constant and the decay of a path must be positive numbers.")
    few = f"Functional noise is for observations of 1 to {max(DEPTHS)} components; use observed-reward."
    require(dimensions in DEPTHS, few)
    alone = spread == 0.0 or (positive(spread) and dimensions == 1)
    require(alone, "Answers to the first observation of a cell are proved only in one dimension.")
    slope = lipschitz / sup
    return sup * (1.0 + decay / 2.0 + slope * slope * (1.0 + spread) / (2.0 * decay)) ** (dimensions / 2.0)


def path_sensitivity(
    sup: float, lipschitz: float, decay: float, paths: int, dimensions: int = 1, spread: float = 0.0
) -> float:
    """Return the largest norm of the change of all ``paths`` together: ``sqrt(paths)`` times :func:`kernel_norm`."""
    require(paths >= 1, "There must be at least one path.")
    return math.sqrt(paths) * kernel_norm(sup, lipschitz, decay, dimensions, spread)


def answer_step(std: float) -> float:
    """Return the grid step of noisy rewards: the power of two between ``std / 256`` and ``std / 128``."""
    return math.ldexp(1.0, math.frexp(std)[1] - 1 - _STEP_BITS)


def path_delta(epsilon: float, answers: int, std: float, decay: float, dimensions: int, largest_reward: float) -> float:
    """Return what the finite precision of a path adds to delta: docs/proofs/functional-noise.md, "Finite precision".

    Args:
        epsilon: epsilon of the release.
        answers: largest number of points at which the paths are evaluated.
        std: standard deviation of a path.
        decay, dimensions: decay and dimensions of the path's kernel.
        largest_reward: largest absolute value of the public bounds of a reward.
    """
    bits = DEPTHS[dimensions]
    error = _PATH_ERROR[dimensions] * std + 2.0**-52 * largest_reward
    least_std = std * math.tanh(decay * 2.0**-bits) ** (dimensions / 2.0)
    rounded_otherwise = 2.0 * error * (1.0 / answer_step(std) + 1.0 / (math.sqrt(2.0 * math.pi) * least_std))
    values = sum((bits + 2) ** i for i in range(dimensions + 1)) + (bits + 2) ** dimensions
    return (1.0 + math.exp(min(epsilon, 700.0))) * answers * (rounded_otherwise + values * _OUTSIDE)
