"""Mechanism rows of a certificate: one class for each kind, by which a row is written, read strictly and checked.

The fields of a class are the row's fields, each with what it may be. A mechanism writes its row by :func:`written`;
:func:`read` takes it back; :func:`check_noise` computes again what noise the relation of a certificate asks for:
docs/proofs/functional-noise.md, observed-reward.md, reward-gradient.md, output-perturbation.md, one-pass-users.md,
correlated-noise.md and renyi-filter.md. :mod:`dprl.accounting.verification` compares the rows with the privacy event.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from dprl.accounting.reward_relation import (
    DEPTHS,
    UNIT,
    RewardRelation,
    answer_step,
    parse_relation,
    path_delta,
    path_sensitivity,
)
from dprl.accounting.user_relation import CLIPS, MECHANISM, WORDS, column_norm_of
from dprl.errors import DprlError

if TYPE_CHECKING:
    from dprl.accounting.renyi_filter import RenyiFilterEvent

LEAST_STD, LARGEST_STD = 2.0**24, 2.0**44
"""Standard deviations, in grid points, for which the sampler is proved: docs/proofs/rounded-gaussian.md."""
MOST_DIMENSION, MOST_NORMED = 2**22, 2**16
"""Coordinates of a sum, and of one whose norm is released beside it."""
_MOST_STEPS = 10**12
_SLACK = 1e-9  # the last digits of floating-point functions on another machine
_LEAST = 1.0 - _SLACK
_CALIBRATED = 1e-5  # to how much a multiplier is calibrated, with room

# --- what a field may be ----------------------------------------------------------------------------------------------


def whole(value: Any) -> bool:
    """Whether ``value`` is a positive whole number: neither a truth value, nor a fraction, nor text."""
    return type(value) is int and 1 <= value <= _MOST_STEPS


def positive(value: Any) -> bool:
    """Whether ``value`` is a positive finite number."""
    return not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value) and value > 0.0


def text(value: Any) -> bool:
    """Whether ``value`` is text that can be printed."""
    return isinstance(value, str) and value.isprintable()


def _number(value: Any) -> bool:
    return (value == 0.0 and type(value) in (int, float)) or positive(value)


def _share(value: Any) -> bool:
    return positive(value) and value <= 1.0 + _SLACK


def _levels(value: Any) -> bool:
    return isinstance(value, list) and 1 <= len(value) <= 64 and all(map(positive, value))


def _part(value: Any) -> bool:
    named = isinstance(value, dict) and set(value) == {"dimension", "clip_norm"}
    return named and whole(value["dimension"]) and positive(value["clip_norm"])


def _parts(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(map(_part, value))


Text = Annotated[str, text]
Whole = Annotated[int, whole]
Positive = Annotated[float, positive]
Number = Annotated[float, _number]
Share = Annotated[float, _share]

# --- the kinds of rows ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Row:
    """What every mechanism says: by what noise, how often, and over how many numbers."""

    name: Text
    purpose: Text
    noise_multiplier: Positive
    grid_step: Positive
    steps: Whole
    dimension: Whole

    def proved(self) -> bool:
        """Whether the grid is that of the sensitivity, and the noise on it one that the sampler draws."""
        return self.dimension <= MOST_DIMENSION and math.frexp(self.grid_step)[0] == 0.5

    def drawn(self, std: float) -> bool:
        """Whether the sampler is proved for this standard deviation on the row's grid."""
        return LEAST_STD * (1.0 - _SLACK) <= std / self.grid_step <= LARGEST_STD * (1.0 + _SLACK)


@dataclass(frozen=True, kw_only=True)
class SumRow(Row):
    """A sum over units, each clipped, for adding or removing one of them."""

    clip_norm: Positive
    sampling_rate: Share

    @property
    def multipliers(self) -> tuple[float, ...]:
        """All by which noise is drawn."""
        return (self.noise_multiplier,)

    def proved(self) -> bool:
        noises = (float(z) * self.clip_norm for z in self.multipliers)
        return (
            super().proved() and 2.0**32 <= self.clip_norm / self.grid_step < 2.0**33 and all(map(self.drawn, noises))
        )


@dataclass(frozen=True, kw_only=True)
class SharedSumRow(SumRow):
    """A sum of a plan that divides its budget; ``share`` is written by the plan."""

    share: Share


@dataclass(frozen=True, kw_only=True)
class FilteredSumRow(SharedSumRow):
    """A sum and its norm, whose noise is chosen step by step among levels."""

    levels: Annotated[list[float], _levels]
    norm_multiplier: Positive
    order: Whole
    budget: Positive

    @property
    def multipliers(self) -> tuple[float, ...]:
        return (self.noise_multiplier, *self.levels, self.norm_multiplier)

    def proved(self) -> bool:
        return super().proved() and 2 <= self.dimension <= MOST_NORMED + 1


@dataclass(frozen=True, kw_only=True)
class MovedRow(Row):
    """Noise over a stated sensitivity, which follows from the certificate's own relation."""

    sensitivity: Positive
    std: Positive

    def proved(self) -> bool:
        return super().proved() and self.drawn(self.std)

    def least_sensitivity(self, relation: Any, content: Mapping[str, Any]) -> float:
        """What neighbours move at least; raises for a relation under which there is no proof."""
        raise NotImplementedError

    def column(self) -> tuple[float, float]:
        """How far one round moves all of them, as stated and at least; one, unless noise is correlated."""
        return 1.0, 1.0

    def precision(self, content: Mapping[str, Any]) -> float:
        """What finite precision adds to delta beyond the sampler of rounded Gaussians."""
        del content
        return 0.0

    def enough(self, relation: Any, content: Mapping[str, Any]) -> bool:
        """Whether the noise is at least what the relation asks for."""
        stated, least = self.column()
        return (
            self.sensitivity >= self.least_sensitivity(relation, content) * _LEAST
            and stated >= least * _LEAST
            and self.std >= self.noise_multiplier * self.sensitivity * stated * _LEAST
        )


@dataclass(frozen=True, kw_only=True)
class UserSumRow(MovedRow):
    """Sums over batches of users, each of whom takes part once, or in a stated number of epochs."""

    relation: Text
    parts: Annotated[list[dict[str, Any]], _parts]
    noise: Text
    column_norm: Positive
    epochs: Whole
    batch: Whole

    def least_sensitivity(self, relation: str, content: Mapping[str, Any]) -> float:
        if self.relation != relation:
            raise ValueError("a sum for another relation")
        if self.steps % self.epochs or (self.epochs > 1 and self.noise != "independent"):
            raise ValueError("no proof for users who come back")
        if sum(part["dimension"] for part in self.parts) != self.dimension:
            raise ValueError("parts of another dimension")
        clip_norm = math.hypot(*(part["clip_norm"] for part in self.parts))
        if self.grid_step > clip_norm * 2.0**-32:
            raise ValueError("too coarse a grid")
        return CLIPS[relation] * clip_norm

    def column(self) -> tuple[float, float]:
        return self.column_norm, column_norm_of(self.noise, self.steps, self.dimension, self.noise_multiplier)


@dataclass(frozen=True, kw_only=True)
class RewardRow(MovedRow):
    """Noise on every observed reward."""

    def least_sensitivity(self, relation: RewardRelation, content: Mapping[str, Any]) -> float:
        return relation.radius


@dataclass(frozen=True, kw_only=True)
class GradientRow(RewardRow):
    """Noise on the part of an update that has rewards in it."""

    clip_norm: Positive

    def least_sensitivity(self, relation: RewardRelation, content: Mapping[str, Any]) -> float:
        return relation.radius * self.clip_norm


@dataclass(frozen=True, kw_only=True)
class PathRow(RewardRow):
    """Paths of a Gaussian process, added to a function of the observation."""

    sup: Positive
    lipschitz: Number
    decay: Positive
    paths: Whole
    dimensions: Whole
    spread: Number
    largest_reward: Number

    def proved(self) -> bool:
        return self.grid_step == answer_step(float(self.std))

    def least_sensitivity(self, relation: RewardRelation, content: Mapping[str, Any]) -> float:
        facts, options = (content["assumed_public"][name] for name in ("environment", "hyper_parameters"))
        actions, of_q = _public(facts, "actions", whole), options["variant"]["value"] == "output"
        if relation.lipschitz is None:
            raise ValueError("a path needs a Lipschitz constant")
        least_sup, least_lipschitz = relation.radius, relation.lipschitz
        if of_q:  # a path is added to the optimal Q: docs/proofs/output-perturbation.md
            discount = _public(options["discount"], "value", _number)
            if discount >= 1.0:
                raise ValueError("returns without a bound")
            least_sup /= 1.0 - discount
            least_lipschitz += discount * _public(facts, "transition_rate", _number) * least_sup
        if self.sup < least_sup * _LEAST or self.lipschitz < least_lipschitz * _LEAST:
            raise ValueError("the path is for other functions")
        if self.dimensions != len(facts["observation"]) or (self.dimensions > 1 and not relation.mixed):
            raise ValueError("no proof in so many dimensions")
        # one path for all actions hides nothing of a function that depends on the action
        if self.paths != actions and not (self.paths == 1 and relation.of_state and not of_q):
            raise ValueError("too few paths")
        if facts.get("on_grid") is not True and self.spread < 3.0 * self.dimension * 2.0 ** -DEPTHS[1] * _LEAST:
            raise ValueError("first observations of cells are not charged for")
        return path_sensitivity(self.sup, self.lipschitz, self.decay, self.paths, self.dimensions, self.spread)

    def precision(self, content: Mapping[str, Any]) -> float:
        if self.largest_reward < max(abs(float(end)) for end in content["assumed_public"]["environment"]["reward"]):
            raise ValueError("rewards beyond the bounds that precision was counted for")
        epsilon, largest = content["epsilon"], self.largest_reward
        return path_delta(epsilon, self.dimension, self.std, self.decay, self.dimensions, largest)


PATHS, REWARDS, GRADIENTS = (
    "Gaussian process",
    "Gaussian noise on observed rewards",
    "Gaussian noise on reward gradients",
)
UNDER_FILTER = " and its norm, under a Renyi filter"
OF_SAMPLED_USERS = "Gaussian noise on sums over sampled users"
_SUMS = ("Clipped Gaussian sum", "Poisson-sampled clipped Gaussian sum")
KINDS: dict[str, type[Row]] = {
    **dict.fromkeys(("Gaussian vector", *_SUMS), SharedSumRow),
    **{name + UNDER_FILTER: FilteredSumRow for name in _SUMS},
    OF_SAMPLED_USERS: SumRow,
    MECHANISM: UserSumRow,
    REWARDS: RewardRow,
    GRADIENTS: GradientRow,
    PATHS: PathRow,
}
"""The class of a row, by the mechanism's name."""

# --- writing and reading ----------------------------------------------------------------------------------------------


@functools.cache
def schema_of(kind: type[Row]) -> dict[str, Callable[[Any], bool]]:
    """What each field of a row may be, by its name."""
    return {name: hint.__metadata__[0] for name, hint in get_type_hints(kind, include_extras=True).items()}


def written(kind: type[Row], mechanism: Any, **stated: Any) -> dict[str, Any]:
    """The row of a certificate: what is ``stated``, and of the mechanism its attributes by the fields' names.

    A share is left to the plan that divides.
    """
    names = [name for name in schema_of(kind) if name != "share"]
    return {name: stated[name] if name in stated else getattr(mechanism, name) for name in names}


def read(path: Path, content: Mapping[str, Any]) -> list[Row]:
    """The rows of a verified certificate; refuses, in one sentence, one that is not of a mechanism that dprl has."""
    return [_read(path, row) for row in content["mechanisms"]]


def _read(path: Path, row: Any) -> Row:
    name = row.get("name") if isinstance(row, dict) else None
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise DprlError(f"A mechanism of {path} is none that this version of dprl knows.")
    schema = schema_of(kind)
    for field in (*schema, *row):
        if field not in row:
            raise DprlError(f"The mechanism {name!r} of {path} lacks the field {field!r}.")
        if field not in schema:
            raise DprlError(f"The mechanism {name!r} of {path} has an unknown field {field!r}.")
        if not schema[field](row[field]):
            raise DprlError(f"The field {field!r} of the mechanism {name!r} of {path} is out of its range.")
    found = kind(**row)
    if not found.proved():
        raise DprlError(f"The mechanism {name!r} of {path} has a grid or noise for which there is no proof.")
    return found


def counted(row: Mapping[str, Any]) -> Any:
    """How often the event of a certificate counts a mechanism: of sums over users, how many a user takes part in."""
    return row.get("epochs" if row.get("name") == MECHANISM else "steps")


def draws(content: Mapping[str, Any]) -> int:
    """Return how many numbers all mechanisms of a certificate draw: what the sampler's error is charged for."""
    return sum(row["dimension"] * row["steps"] for row in content["mechanisms"])


# --- what must agree --------------------------------------------------------------------------------------------------


def check_noise(path: Path, content: Mapping[str, Any], rows: Sequence[Row], accounted: str) -> float:
    """Refuse rows with less noise than the certificate's relation asks for; raises one sentence.

    Args:
        accounted: the relation for which the accountant answers, where rows state no other.

    Returns:
        What the finite precision of all of them adds to delta, at least, beyond the sampler of rounded Gaussians.
    """
    stated = content["neighbouring_relation"]
    if content["privacy_unit"] == UNIT:
        kind, whom, relation = RewardRow, "reward functions", parse_relation(stated)
        if relation is None:
            raise DprlError(f"The neighbouring relation of {path} does not say how far apart two reward functions are.")
        if not isinstance(content["assumed_public"].get("environment"), dict) or not rows:
            raise DprlError(
                f"{path} does not say in which environment, and by which mechanism, rewards were asked for."
            )
    elif any(isinstance(row, UserSumRow) for row in rows):
        kind, whom = UserSumRow, "users"
        relation = {words: name for name, words in WORDS.items()}.get(stated)
        if relation is None:
            raise DprlError(f"The neighbouring relation of {path} does not say which users are neighbours.")
    elif stated != accounted:
        raise DprlError(f"The accountant answers for {accounted!r}, which is not the relation that {path} claims.")
    elif not all(isinstance(row, SumRow) for row in rows):
        raise DprlError(f"A mechanism of {path} does not protect the units of its relation.")
    else:
        return 0.0  # the noise is over the clip norm, which is what one unit moves
    delta = 0.0
    for row in rows:
        try:
            if not isinstance(row, kind):
                raise ValueError("for other neighbours")
            sound = row.enough(relation, content)
            delta += row.precision(content)
        except (KeyError, TypeError, ValueError, ArithmeticError, DprlError) as error:
            raise DprlError(f"A mechanism of {path} does not protect the {whom} of its relation.") from error
        if not sound:
            raise DprlError(f"A mechanism of {path} states less noise than its relation asks for.")
    return delta


def check_shares(path: Path, rows: Sequence[Row]) -> None:
    """Refuse rows whose shares of the budget are not the whole of it; raises one sentence."""
    shares = [row.share for row in rows if isinstance(row, SharedSumRow)]
    if shares and abs(math.fsum(shares) - 1.0) > 1e-6:
        raise DprlError(f"The shares of the mechanisms of {path} do not add up to the whole budget.")


def check_filter(path: Path, rows: Sequence[Row], event: RenyiFilterEvent) -> None:
    """Compute again what the row of a Renyi filter says beyond its event; raises one sentence.

    Its ``noise_multiplier`` is that of the constant noise which the budget just lets run to the last step. The shares
    are those of the Renyi divergence, of the releases before the steps and of the steps.
    """
    from dprl.accounting.renyi_filter import gaussian_cost

    parts = [Fraction(gaussian_cost(event.order, z)) for z in event.before] + [Fraction(event.budget)]
    for row, part in zip(rows, parts, strict=True):
        if not (isinstance(row, SharedSumRow) and math.isclose(row.share, float(part / sum(parts)), rel_tol=1e-6)):
            raise DprlError(f"The shares of the mechanisms of {path} are not what its Renyi filter spends.")
    row = rows[-1]
    runs = [isinstance(row, FilteredSumRow) and _runs(event, row, 1.0 + sign * _CALIBRATED) for sign in (1, -1)]
    if runs != [True, False]:
        raise DprlError(
            f"The noise multiplier of {path} is not the least that its filter's budget lets run to the end."
        )


def _runs(event: RenyiFilterEvent, row: FilteredSumRow, scale: float) -> bool:
    """Whether constant noise of that much runs to the last step."""
    from dprl.accounting.renyi_filter import WHOLE, cost, effective_multiplier

    both = effective_multiplier(row.noise_multiplier * scale, row.norm_multiplier * scale)
    one = Fraction(cost(event.order, event.sampling_probability, both))
    return one <= event.budget and event.steps * math.ceil(one * WHOLE / Fraction(event.budget)) <= WHOLE


def _public(mapping: Mapping[str, Any], name: str, sound: Callable[[Any], bool]) -> Any:
    value = mapping[name]
    if not sound(value):
        raise ValueError(name)
    return value
