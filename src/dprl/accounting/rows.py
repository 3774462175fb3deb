"""Mechanism rows of a certificate: one class for each kind, by which a row is written, read strictly and checked.

The fields of a class are the row's fields, each annotated with its check. A mechanism writes its row by
:func:`certificate_row`, and :func:`read_rows` reads it. :mod:`dprl.accounting.claim_verification` compares the rows
with the privacy event and with the relation.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from dprl.accounting import reward_relation as rewards
from dprl.accounting import schema
from dprl.accounting.reward_relation import RewardRelation
from dprl.accounting.schema import SLACK
from dprl.accounting.user_relation import CLIPS_MOVED, USER_SUMS, column_norm_of
from dprl.errors import DprlError, require

LEAST_STD, LARGEST_STD = 2.0**24, 2.0**44
"""Standard deviations, in grid points, for which the sampler is proved: docs/proofs/rounded-gaussian.md."""
MOST_DIMENSION, MOST_NORMED = 2**22, 2**16
"""Largest number of coordinates of a sum, and of a sum whose norm is released with it."""
MOST_CANDIDATES = 1000
"""Largest number of candidates among which a noisy maximum chooses."""
SPREADS = (2**24, 2**23)
"""Spreads of the scores of policies: where nothing is cut, and where products of importance ratios are cut."""
_LEAST = 1.0 - SLACK

Text = Annotated[str, schema.text]
Whole = Annotated[int, schema.whole]
Positive = Annotated[float, schema.positive]
Number = Annotated[float, schema.zero_or_positive]
Share = Annotated[float, schema.share]
Levels = Annotated[list[float], schema.list_of(schema.positive, 64)]
Parts = Annotated[
    list[dict[str, Any]], schema.list_of(schema.mapping_of({"dimension": schema.whole, "clip_norm": schema.positive}))
]

# --- the kinds of rows ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class MechanismRow:
    """Row with the fields that every mechanism states."""

    name: Text
    purpose: Text

    def proved(self) -> bool:
        """Return whether there is a proof for the row's numbers."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class MaximumRow(MechanismRow):
    """Row of a noisy maximum, with the ``rate`` of its coins for each point of a score.

    ``spread`` is how far one unit can move two scores apart. The coins are exact, so they add nothing to delta.
    """

    epsilon: Positive
    candidates: Whole
    spread: Whole
    rate: Positive

    def proved(self) -> bool:
        """Return whether epsilon is at least the rate times the spread, exactly: docs/proofs/noisy-maximum.md."""
        return self.candidates <= MOST_CANDIDATES and Fraction(self.rate) * self.spread <= Fraction(self.epsilon)


@dataclass(frozen=True, kw_only=True)
class GaussianRow(MechanismRow):
    """Row of Gaussian noise: how much there is, how often it is drawn, and over how many numbers."""

    noise_multiplier: Positive
    grid_step: Positive
    steps: Whole
    dimension: Whole

    def proved(self) -> bool:
        """Return whether the dimension is small enough, and the grid step a power of two."""
        return self.dimension <= MOST_DIMENSION and math.frexp(self.grid_step)[0] == 0.5

    def sampler_proved(self, std: float) -> bool:
        """Return whether the sampler is proved for this standard deviation on the row's grid."""
        return LEAST_STD * _LEAST <= std / self.grid_step <= LARGEST_STD * (1.0 + SLACK)


@dataclass(frozen=True, kw_only=True)
class SumRow(GaussianRow):
    """Row of a sum of the clipped contributions of units, for adding or removing one unit."""

    clip_norm: Positive
    sampling_rate: Share

    @property
    def multipliers(self) -> tuple[float, ...]:
        """Return every noise multiplier with which noise may be drawn."""
        return (self.noise_multiplier,)

    def proved(self) -> bool:
        """Return whether the grid is fine enough for the clip norm, and the sampler is proved for all noise on it."""
        fine = 2.0**32 <= self.clip_norm / self.grid_step < 2.0**33
        return (
            super().proved() and fine and all(self.sampler_proved(float(z) * self.clip_norm) for z in self.multipliers)
        )


@dataclass(frozen=True, kw_only=True)
class SharedSumRow(SumRow):
    """Row of a sum in a plan that divides its budget; the plan writes the ``share``."""

    share: Share


@dataclass(frozen=True, kw_only=True)
class FilteredSumRow(SharedSumRow):
    """Row of a sum and its norm, whose noise is chosen step by step among levels."""

    levels: Levels
    norm_multiplier: Positive
    order: Whole
    budget: Positive

    @property
    def multipliers(self) -> tuple[float, ...]:
        """Return the multipliers of the plan, of each level and of the norm."""
        return (self.noise_multiplier, *self.levels, self.norm_multiplier)

    def proved(self) -> bool:
        """Return whether the sum is proved, and has few enough coordinates for its norm to be computed accurately."""
        return super().proved() and 2 <= self.dimension <= MOST_NORMED + 1


@dataclass(frozen=True, kw_only=True)
class SensitivityRow(GaussianRow):
    """Row of noise for a stated sensitivity, which must follow from the certificate's own relation."""

    sensitivity: Positive
    std: Positive

    def proved(self) -> bool:
        """Return whether the sampler is proved for the stated standard deviation."""
        return super().proved() and self.sampler_proved(self.std)

    def least_sensitivity(self, relation: Any, content: Mapping[str, Any]) -> float:
        """Return the least sensitivity that a relation asks for; raise for a relation without a proof."""
        raise NotImplementedError

    def column(self) -> tuple[float, float]:
        """Return the column norm of correlated noise, as stated and the least that is proved; 1 without correlation."""
        return 1.0, 1.0

    def precision(self, content: Mapping[str, Any]) -> float:
        """Return what finite precision adds to delta beyond the sampler of rounded Gaussians."""
        return 0.0

    def noise_suffices(self, relation: Any, content: Mapping[str, Any]) -> bool:
        """Return whether the noise is at least what the relation asks for."""
        stated, least = self.column()
        return (
            self.sensitivity >= self.least_sensitivity(relation, content) * _LEAST
            and stated >= least * _LEAST
            and self.std >= self.noise_multiplier * self.sensitivity * stated * _LEAST
        )


@dataclass(frozen=True, kw_only=True)
class UserSumRow(SensitivityRow):
    """Row of sums over batches of users, each of whom takes part once, or in a stated number of epochs."""

    relation: Text
    parts: Parts
    noise: Text
    column_norm: Positive
    epochs: Whole
    batch: Whole

    def least_sensitivity(self, relation: str, content: Mapping[str, Any]) -> float:
        """Return how far one user moves a sum, from the clip norms of its parts."""
        comes_back = self.epochs > 1
        clip_norm = math.hypot(*(part["clip_norm"] for part in self.parts))
        require(self.relation == relation, "The sum is for another relation.")
        require(self.steps % self.epochs == 0, "The epochs are not whole.")
        require(not comes_back or self.noise == "independent", "There is no proof for users who come back.")
        require(sum(part["dimension"] for part in self.parts) == self.dimension, "The parts have another dimension.")
        require(self.grid_step <= clip_norm * 2.0**-32, "The grid is too coarse.")
        return CLIPS_MOVED[relation] * clip_norm

    def column(self) -> tuple[float, float]:
        """Return the column norm of the noise, as stated and the least that is proved."""
        return self.column_norm, column_norm_of(self.noise, self.steps, self.dimension, self.noise_multiplier)


@dataclass(frozen=True, kw_only=True)
class RewardRow(SensitivityRow):
    """Row of noise on every observed reward."""

    def least_sensitivity(self, relation: RewardRelation, content: Mapping[str, Any]) -> float:
        """Return how far apart the rewards of two neighbours can be."""
        require(self.dimension == 1, "A reward is one number, and each of them is a step.")
        return relation.radius


@dataclass(frozen=True, kw_only=True)
class GradientRow(RewardRow):
    """Row of noise on the part of an update that contains rewards."""

    clip_norm: Positive

    def least_sensitivity(self, relation: RewardRelation, content: Mapping[str, Any]) -> float:
        """Return how far a change of one reward can move an update."""
        return relation.radius * self.clip_norm


@dataclass(frozen=True, kw_only=True)
class PathRow(RewardRow):
    """Row of paths of a Gaussian process, added to a function of the observation."""

    sup: Positive
    lipschitz: Number
    decay: Positive
    paths: Whole
    dimensions: Whole
    spread: Number
    largest_reward: Number

    def proved(self) -> bool:
        """Return whether the grid step of the answers is the one that belongs to the standard deviation."""
        return self.grid_step == rewards.answer_step(float(self.std))

    def least_sensitivity(self, relation: RewardRelation, content: Mapping[str, Any]) -> float:
        """Return the norm by which neighbours can move all paths, from the public facts and the relation."""
        facts, options = (content["assumed_public"][name] for name in ("environment", "hyper_parameters"))
        of_q, dimensions = options["variant"]["value"] == "output", len(facts["observation"])
        require(schema.whole(facts["actions"]), "The number of actions is not declared.")
        require(relation.lipschitz is not None, "A path needs a Lipschitz constant.")
        least_sup, least_lipschitz = relation.radius, relation.lipschitz or 0.0
        if of_q:  # a path is added to the optimal Q: docs/proofs/output-perturbation.md
            discount, rate = options["discount"]["value"], facts["transition_rate"]
            require(schema.zero_or_positive(discount) and discount < 1.0, "Returns have no bound.")
            require(schema.zero_or_positive(rate), "The rate of the transitions is not declared.")
            least_sup /= 1.0 - discount
            least_lipschitz += discount * rate * least_sup
        large = self.sup >= least_sup * _LEAST and self.lipschitz >= least_lipschitz * _LEAST
        require(large, "The path is for other functions.")
        proved = self.dimensions == dimensions and (dimensions == 1 or relation.mixed)
        require(proved, "There is no proof for so many dimensions.")
        # one path for all actions hides nothing of a function that depends on the action
        enough = self.paths == facts["actions"] or (self.paths == 1 and relation.of_state and not of_q)
        require(enough, "There are too few paths.")
        least_spread = 3.0 * self.dimension * 2.0 ** -rewards.DEPTHS[1]
        charged = facts.get("on_grid") is True or self.spread >= least_spread * _LEAST
        require(charged, "First observations of cells are not charged for.")
        return rewards.path_sensitivity(self.sup, self.lipschitz, self.decay, self.paths, self.dimensions, self.spread)

    def precision(self, content: Mapping[str, Any]) -> float:
        """Return what the finite precision of the paths adds to delta."""
        epsilon, largest = content["epsilon"], self.largest_reward
        ends = content["assumed_public"]["environment"]["reward"]
        require(largest >= max(abs(float(end)) for end in ends), "Precision was counted for smaller rewards.")
        return rewards.path_delta(epsilon, self.dimension, self.std, self.decay, self.dimensions, largest)


PATHS = "Gaussian process"
REWARDS = "Gaussian noise on observed rewards"
GRADIENTS = "Gaussian noise on reward gradients"
UNDER_FILTER = " and its norm, under a Renyi filter"
OF_SAMPLED_USERS = "Gaussian noise on sums over sampled users"
MAXIMUM = "Noisy maximum"
_SUMS = ("Clipped Gaussian sum", "Poisson-sampled clipped Gaussian sum")
KINDS: dict[str, type[MechanismRow]] = {
    **dict.fromkeys(("Gaussian vector", *_SUMS), SharedSumRow),
    **{name + UNDER_FILTER: FilteredSumRow for name in _SUMS},
    OF_SAMPLED_USERS: SumRow,
    MAXIMUM: MaximumRow,
    USER_SUMS: UserSumRow,
    REWARDS: RewardRow,
    GRADIENTS: GradientRow,
    PATHS: PathRow,
}
"""The class of a row, by the mechanism's name."""

# --- writing and reading ----------------------------------------------------------------------------------------------


@functools.cache
def schema_of(kind: type[MechanismRow]) -> dict[str, schema.Check]:
    """Return the check of each field of a row, by the field's name."""
    return {name: hint.__metadata__[0] for name, hint in get_type_hints(kind, include_extras=True).items()}


def certificate_row(kind: type[MechanismRow], mechanism: Any, **stated: Any) -> dict[str, Any]:
    """Return a mechanism's row for a certificate, without ``share``, which the plan that divides the budget adds.

    Args:
        kind: the class of the row.
        mechanism: has an attribute for each field that is not ``stated``.
        stated: values of fields that the mechanism itself does not know.
    """
    names = [name for name in schema_of(kind) if name != "share"]
    return {name: stated[name] if name in stated else getattr(mechanism, name) for name in names}


def read_rows(path: Path, content: Mapping[str, Any]) -> list[MechanismRow]:
    """Return the rows of a verified certificate; refuse, in one sentence, a row that is not of a dprl mechanism."""
    return [_read(path, row) for row in content["mechanisms"]]


def _read(path: Path, row: Any) -> MechanismRow:
    name = row.get("name") if isinstance(row, dict) else None
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise DprlError(f"A mechanism of {path} is none that this version of dprl knows.")
    what = f"The mechanism {name!r} of {path}"
    schema.check_fields(what, schema_of(kind), row)
    found = kind(**row)
    require(found.proved(), f"{what} has a grid or noise for which there is no proof.")
    return found


def counted_steps(row: Mapping[str, Any]) -> Any:
    """Return how many steps of a mechanism the event counts; for sums over users, the number of sums with one user."""
    return row.get("epochs" if row.get("name") == USER_SUMS else "steps")


def draws(content: Mapping[str, Any]) -> int:
    """Return how many Gaussian numbers a certificate's mechanisms draw, each of which costs the sampler's error."""
    return sum(row["dimension"] * row["steps"] for row in content["mechanisms"] if row.get("name") != MAXIMUM)
