"""The section ``[prepare]`` of a bounds file: how an ordinary table becomes a log. It is public, as the bounds are.

Everything is declared: which column plays which part, the codes of text, what comes before the first step. Nothing is
learned from rows. :mod:`dprl.data.prepare_section` reads the section, and :mod:`dprl.data.table_to_log` carries it out.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pyarrow as pa

from dprl.bounds import Bounds
from dprl.data import schema as schemas
from dprl.data.memory import NUMBER
from dprl.errors import DprlError

SECTION = "prepare"
DIGEST_KEY = b"dprl.prepare"
"""Name under which a prepared table's metadata hold the digest of the section that made the table."""


@dataclass(frozen=True)
class Codes:
    """Declared values of a column.

    Attributes:
        texts: the values as they stand in the column.
        numbers: the number of each value, where the column is a quantity; None where it is a category. As an action, a
            category's value is its place in the list. In the observation, a category is one component for each value.
    """

    texts: tuple[str, ...]
    numbers: tuple[float, ...] | None = None

    @property
    def places(self) -> Sequence[float]:
        """The number of each value, or its place in the list where the column is a category."""
        return range(len(self.texts)) if self.numbers is None else self.numbers


@dataclass(frozen=True)
class Component:
    """Column of the observation, now or ``lag`` steps before; ``first`` is its value where there was no such step."""

    column: str
    lag: int = 0
    first: float = 0.0


@dataclass(frozen=True)
class ByValue:
    """Behaviour probabilities by the values of columns: one probability for each declared combination of values."""

    by: tuple[str, ...]
    table: Mapping[tuple[str, ...], float]


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """Declarations of the section ``[prepare]``.

    A column whose name holds ``{step}`` or ``{next}`` stands for one column for each label in ``steps``.

    Attributes:
        person: column that tells people apart; None where every row is a person of its own.
        observation: components of the state.
        action: one column, or one for each component of a continuous action.
        reward: column of the outcome.
        reward_less: column that is subtracted from the reward, such as what was measured before.
        step: column of the number or date by which a person's rows are ordered.
        step_format: format of dates that are not ISO dates, such as ``%d/%m/%Y``.
        episode: column that tells a person's trajectories apart.
        steps: labels of the steps of a table with one row for each person. Where a name has ``{next}``, the last label
            only gives the values after the last step.
        outcome: ``each`` where each step has its reward; ``sum`` or ``last`` where the trajectory has one reward at its
            end, the sum or the last of its values.
        decisions: ``each`` step is a decision, or only the ``first``.
        terminated: column, or whether every trajectory ends at its last row (true) or is cut off there (false).
        censored: column that says whether a person was lost in a step; true where a person without a reward was lost;
            or None.
        behavior_prob: column, one number for all rows, probabilities by value, or None.
        codes: declared values of columns.
        keep: further columns of numbers, such as probabilities of a target policy.
        declared: the section as it was written.
    """

    person: str | None
    observation: tuple[Component, ...]
    action: tuple[str, ...]
    reward: str
    reward_less: str | None = None
    step: str | None = None
    step_format: str | None = None
    episode: str | None = None
    steps: tuple[str, ...] = ()
    outcome: str = "each"
    decisions: str = "each"
    terminated: str | bool = True
    censored: str | bool | None = None
    behavior_prob: str | float | ByValue | None = None
    codes: Mapping[str, Codes] = field(default_factory=dict)
    keep: tuple[str, ...] = ()
    declared: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def digest(self) -> str:
        """Digest of the section."""
        return hashlib.sha256(json.dumps(self.declared, sort_keys=True).encode()).hexdigest()

    @property
    def stepwise(self) -> bool:
        """Whether the log has steps; else each row is a decision of its own."""
        return bool(self.step or self.steps) and self.decisions == "each"

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of the steps that become rows; one empty label where each row of the table is one step."""
        follows = any("{next}" in name for name in self.names())
        return (self.steps[:-1] if follows else self.steps) or ("",)

    def columns_of(self, name: str) -> tuple[str, ...]:
        """Return the columns of the table behind a name: one for each step, or one for all steps."""
        if not self.steps or not has_step_label(name):
            return (name,)
        following = [*self.steps[1:], ""]
        return tuple(
            name.replace("{step}", label).replace("{next}", later)
            for label, later in zip(self.labels, following, strict=False)
        )

    def parts(self) -> list[tuple[str, str]]:
        """Return every name that the section uses, with each part that it plays."""
        found = [(getattr(self, part), part) for part in ("person", "episode", "step", "reward", "reward_less")]
        found += [(component.column, "observation") for component in self.observation]
        found += [(name, "action") for name in self.action] + [(name, "keep") for name in self.keep]
        given = self.behavior_prob
        found += [(name, "by") for name in given.by] if isinstance(given, ByValue) else [(given, "behavior_prob")]
        found += [(self.terminated, "terminated"), (self.censored, "censored")]
        return [(name, part) for name, part in dict.fromkeys(found) if isinstance(name, str)]

    def names(self) -> list[str]:
        """Return every name that the section uses, once."""
        return list(dict.fromkeys(name for name, _ in self.parts()))

    def columns(self) -> list[str]:
        """Return the columns of the table that are read."""
        return list(dict.fromkeys(chain.from_iterable(map(self.columns_of, self.names()))))

    def components(self) -> list[str]:
        """Return the name of each component of the observation."""
        return [
            lagged_name(component.column, component.lag) + ("" if value is None else f" = {value}")
            for component in self.observation
            for value in (self.category(component.column) or (None,))
        ]

    def category(self, name: str) -> tuple[str, ...] | None:
        """Return the values of a column that is a category; None for a column of numbers."""
        codes = self.codes.get(name)
        return codes.texts if codes is not None and codes.numbers is None else None

    def action_names(self, bounds: Bounds) -> tuple[str, ...] | None:
        """Return the names of the discrete actions; None where the codes do not name each action."""
        codes = None if bounds.actions is None else self.codes.get(self.action[0])
        if codes is None:
            return None
        names = dict(zip(codes.places, codes.texts, strict=True))
        each = len(names) == len(codes.texts) == bounds.actions
        return tuple(names[number] for number in sorted(names)) if each else None

    def log_schema(self, identifiers: Mapping[str, pa.DataType]) -> pa.Schema:
        """Return the columns of the log and their types; ``identifiers`` has the types of the table's columns."""
        row = {"person_id": identifiers[self.person]} if self.person else {}
        if self.stepwise:
            row["episode_id"] = identifiers[self.episode or self.person] if self.person else pa.int64()
            row["t"] = pa.int64()
        row |= {f"observation_{i}": pa.float64() for i in range(len(self.components()))}
        several = [f"action_{i}" for i in range(len(self.action))]
        row |= dict.fromkeys(several if len(several) > 1 else ["action"], pa.float64()) | {"reward": pa.float64()}
        row |= {} if self.behavior_prob is None else {"behavior_prob": pa.float64()}
        flags = ("terminated", "truncated", *(("censored",) if self.censored else ()))
        row |= dict.fromkeys(flags, pa.bool_()) | dict.fromkeys(self.keep, pa.float64())
        return pa.schema(row.items(), metadata={DIGEST_KEY: self.digest})

    def check_bounds(self, bounds: Bounds) -> None:
        """Refuse bounds that describe another log than the one that this section makes."""
        found = self.components()
        if len(found) != len(bounds.observation):
            raise preparation_error(
                f"the observation has {len(found)} components ({'; '.join(found)}), the bounds describe "
                f"{len(bounds.observation)}."
            )
        if self.censored and bounds.censoring_hazard is None:
            raise preparation_error(
                'censored tells who was lost: say in the bounds how readily, censoring_hazard = "estimate" or 0.02.'
            )
        if self.behavior_prob is not None and bounds.strata is not None:
            raise preparation_error(
                "behavior_prob says how likely actions were, and strata are declared to estimate that: leave one out."
            )
        if bounds.horizon > 1 and not self.stepwise:
            raise preparation_error(
                f"horizon is {bounds.horizon}: name the column step, or the labels steps, and leave decisions."
            )
        if self.stepwise and len(self.labels) > bounds.horizon:
            raise preparation_error(
                f"there are {len(self.labels)} steps, and the horizon of the bounds is {bounds.horizon}."
            )
        low, high = bounds.reward
        if self.stepwise and bounds.horizon > 1 and self.outcome != "each" and not low <= 0.0 <= high:
            raise preparation_error(
                f"outcome is {self.outcome!r}, so earlier rewards are 0: reward of the bounds must include 0."
            )
        action, several = self.action[0], len(self.action)
        if several != len(bounds.action or ("discrete",)):
            raise preparation_error(
                f"the action has {several} component{'s' * (several > 1)}, the bounds describe another number."
            )
        codes = self.codes.get(action)
        if bounds.actions is None:
            if self.category(action):
                raise preparation_error(
                    f"a continuous action is a number: declare the codes of {action!r} as text = number."
                )
            return
        if codes is not None:
            if not set(codes.places) <= set(range(bounds.actions)):
                raise preparation_error(
                    f"the codes of {action!r} are not among the {bounds.actions} actions, which count from 0."
                )
            if codes.numbers is None and len(codes.texts) < bounds.actions:
                raise preparation_error(
                    f"{action!r} has {len(codes.texts)} codes, and the bounds have {bounds.actions} actions."
                )
        given = self.behavior_prob
        declared = given.table.values() if isinstance(given, ByValue) else [given]
        if any(isinstance(one, float) and one > 1.0 for one in declared):
            raise preparation_error("a behaviour probability is above 1.")

    def check(self, names: Sequence[str], kinds: Mapping[str, pa.DataType | None]) -> None:
        """Refuse a table in which a column of the section is missing, occurs twice or has a type unfit for its part."""
        for name, part in self.parts():
            for column in self.columns_of(name):
                if column not in kinds:
                    raise DprlError(f"The table has no column {column!r}, which [prepare] names under {part}.")
                self._check_type(name, column, part, kinds[column])
        schemas.check_once(names, self.columns(), "table")

    def _check_type(self, name: str, column: str, part: str, kind: pa.DataType | None) -> None:
        kind = schemas.plain_type(kind)
        if part in ("person", "episode"):
            schemas.check_identifier(column, kind)
        elif part == "step":
            if not (schemas.is_text(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
                schemas.check_number(column, kind)
        elif name in self.codes or part == "by":
            if not schemas.is_text(kind) and not pa.types.is_boolean(kind):
                schemas.check_number(column, kind)
                texts = self.codes[name].texts if name in self.codes else ()
                if texts and not any(re.match(NUMBER, text) for text in texts):
                    raise DprlError(f"Column {column!r} has type {kind}, but the codes declared for it are text.")
        elif kind is not None and schemas.is_text(kind):
            raise DprlError(
                f"Column {column!r} holds text: declare its values under [prepare.codes], or where it has numbers, "
                "save it as a column of numbers."
            )
        else:
            schemas.check_number(column, kind, flag=part in ("terminated", "censored"))


def has_step_label(name: str) -> bool:
    """Tell whether a name stands for one column for each step."""
    return "{step}" in name or "{next}" in name


def lagged_name(column: str, lag: int) -> str:
    """Return the name of a column's value now, or ``lag`` steps before."""
    return column if lag == 0 else f"previous {column}" if lag == 1 else f"{column} {lag} steps before"


def is_lagged(name: str) -> bool:
    """Tell whether a name is one that :func:`lagged_name` gives to a column's value some steps before."""
    return name.startswith("previous ") or name.endswith(" steps before")


def preparation_error(sentence: str) -> DprlError:
    """Return the error for a section ``[prepare]`` in which something is wrong."""
    return DprlError(f"[prepare]: {sentence}")
