"""Read the section ``[prepare]`` from TOML into a :class:`~dprl.data.preparation.Preparation`, or refuse it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dprl.data.memory import NUMBER
from dprl.data.preparation import ByValue, Codes, Component, Preparation, has_step_label, lagged_name, preparation_error
from dprl.data.schema import ALIASES
from dprl.user_code import quietly

_MOST = 1000


def read_preparation(section: Any) -> Preparation:
    """Return what the section declares.

    Raises:
        DprlError: something is wrong with the section; the message says what, in one sentence.
    """
    if not isinstance(section, Mapping):
        raise preparation_error("it must be a table: a section of the bounds file.")
    unknown = next((str(name) for name in section if name not in _READERS), None)
    if unknown is not None:
        raise preparation_error(f"unknown name {unknown!r}; known are {', '.join(sorted(_READERS))}.")
    if "person" not in section:
        raise preparation_error(
            "person is missing: name the column that tells people apart, or say person = false where every row is a "
            "person of its own."
        )
    for part in ("observation", "action", "reward"):
        if part not in section:
            raise preparation_error(f"{part} is missing: name its column{'s' * (part == 'observation')}.")
    given: dict[str, Any] = {name: read(name, section[name]) for name, read in _READERS.items() if name in section}
    made = Preparation(**given, declared=section)
    _check_steps(made)
    _check_codes(made)
    return made


def _check_steps(made: Preparation) -> None:
    wide = [name for name in made.names() if has_step_label(name)]
    if made.step and made.steps:
        raise preparation_error(
            "step is for a table with one row for each step, steps for one with one row for each person."
        )
    if bool(wide) != bool(made.steps):
        raise preparation_error(
            f"{wide[0]!r} stands for one column for each step: list the labels under steps."
            if wide
            else "steps are declared, but no column has {step} in its name."
        )
    if wide and made.labels == ("",):
        raise preparation_error("with {next} in a name there must be two steps or more.")
    if made.person is None and (made.step or made.episode):
        raise preparation_error(
            "step and episode order the rows of a person, and person is false: name the person's column."
        )
    if made.episode and not (made.step or made.steps):
        raise preparation_error("an episode needs its order: name the column step.")
    if made.step_format and not made.step:
        raise preparation_error("step_format is of the column step, which is not named.")
    lagged = any(component.lag for component in made.observation)
    if (lagged or made.outcome != "each" or made.decisions != "each") and not (made.step or made.steps):
        raise preparation_error("what was before, the last, the sum and the first need an order: name the column step.")
    if made.decisions == "first" and "outcome" not in made.declared:
        raise preparation_error(
            'say which outcome first decisions have: outcome = "last" or "sum" of a person\'s rows, or "each", that of '
            "the first row."
        )
    for part in ("person", "episode", "step"):
        if has_step_label(getattr(made, part) or ""):
            raise preparation_error(f"{part} is one column for all steps.")


def _check_codes(made: Preparation) -> None:
    played = made.names()
    for name in made.codes:
        if name not in played:
            raise preparation_error(
                f"codes are declared for {name!r}, which plays no part; those that do are {', '.join(played)}."
            )
    if len(made.action) > 1 and any(made.category(name) for name in made.action):
        raise preparation_error(
            "the components of a continuous action are numbers: declare their codes as text = number."
        )
    parts = [stem for part, also in ALIASES.items() if part != "target_prob" for stem in (part, *also)]
    taken = next((name for name in made.keep if re.sub(r"_\d+$", "", name) in parts), None)
    if taken is not None:
        raise preparation_error(
            f"keep names {taken!r}, which is what a part of a log is called: give the column another name."
        )
    for name in (made.reward, made.reward_less, made.behavior_prob, *made.keep):
        if isinstance(name, str) and made.category(name):
            raise preparation_error(f"{name!r} must be a number: declare its codes as text = number.")


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise preparation_error(f"{name} must be the name of a column.")
    return value


def _one_of(words: tuple[str, ...], name: str, value: Any) -> str:
    if value not in words:
        raise preparation_error(f"{name} must be one of {', '.join(words)}.")
    return value


def _list(name: str, value: Any) -> list[Any]:
    if not isinstance(value, list | tuple) or not value or len(value) > _MOST:
        raise preparation_error(f"{name} must be a list that is not empty, of at most {_MOST} entries.")
    return list(value)


def _names(name: str, value: Any) -> tuple[str, ...]:
    found = tuple(_text(name, one) for one in ([value] if isinstance(value, str) else _list(name, value)))
    _once(found, lambda twice: f"{name} names {twice!r} twice.")
    return found


def _once(texts: Iterable[str], words: Callable[[str], str]) -> None:
    """Refuse a text that occurs twice; texts of equal numbers count as the same."""
    seen = set()
    for text in texts:
        value = float(text) if re.match(NUMBER, text) else text
        if value in seen:
            raise preparation_error(words(text))
        seen.add(value)


def _scalar(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float) or not str(value).strip():
        raise preparation_error(f"{name} must be text or numbers.")
    return str(value).strip()


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise preparation_error(f"{name} must be a finite number.")
    return float(value)


def _observation(name: str, value: Any) -> tuple[Component, ...]:
    found = tuple(map(_component, [value] if isinstance(value, str | Mapping) else _list(name, value)))
    _once((lagged_name(c.column, c.lag) for c in found), lambda twice: f"{name} names {twice!r} twice.")
    return found


def _component(value: Any) -> Component:
    if not isinstance(value, Mapping):
        return Component(_text("observation", value))
    if not {"previous"} <= value.keys() <= {"previous", "lag", "first"}:
        raise preparation_error('an entry of observation is a name, or { previous = "NAME", lag = 1, first = 0 }.')
    lag = value.get("lag", 1)
    if isinstance(lag, bool) or not isinstance(lag, int) or not 1 <= lag <= _MOST:
        raise preparation_error(f"lag must be a whole number from 1 to {_MOST}.")
    return Component(_text("previous", value["previous"]), lag, _number("first", value.get("first", 0.0)))


def _codes(name: str, value: Any) -> dict[str, Codes]:
    if not isinstance(value, Mapping):
        raise preparation_error('codes must be a table, such as codes.arm = ["placebo", "drug"].')
    found = {}
    for column, declared in value.items():
        whose, numbers = f"the list of codes of {column!r}", None
        if isinstance(declared, Mapping):
            numbers = tuple(_number(f"a code of {column!r}", number) for number in declared.values())
            declared = [*declared]
        texts = tuple(_scalar(whose, text) for text in _list(whose, declared))
        _once(texts, lambda twice, column=column: f"{column!r} has the code {twice!r} twice.")
        found[str(column)] = Codes(texts, numbers)
    return found


def _behavior(name: str, value: Any) -> str | float | ByValue:
    if isinstance(value, str):
        return _text(name, value)
    if not isinstance(value, Mapping):
        return _probability(value)
    if value.keys() != {"by", "table"}:
        raise preparation_error(
            f'{name} is a column, a number, or {{ by = ["COLUMN"], table = {{ VALUE = PROBABILITY }} }}.'
        )
    by = _names("by", value["by"])
    table: dict[tuple[str, ...], float] = {}
    _flatten(value["table"], (), len(by), table)
    return ByValue(by, table)


def _flatten(table: Any, key: tuple[str, ...], depth: int, found: dict[tuple[str, ...], float]) -> None:
    """Put the probabilities in nested tables into ``found``, by the names that lead to them."""
    if len(key) == depth:
        found[key] = _probability(table)
        return
    if not isinstance(table, Mapping) or not table:
        raise preparation_error(f"the table of behavior_prob must be {depth} deep: one level for each column in by.")
    _once((str(text).strip() for text in table), lambda twice: f"the table of behavior_prob has {twice!r} twice.")
    for text, below in table.items():
        _flatten(below, (*key, str(text).strip()), depth, found)


def _probability(value: Any) -> float:
    found = _number("behavior_prob", value)
    if found <= 0.0:
        raise preparation_error("a behaviour probability must be above 0.")
    return found


def _format(name: str, value: Any) -> str:
    day = datetime(2031, 11, 23)

    def written_and_read() -> Any:
        text = pa.array([day.strftime(value)])
        return pc.strptime(text, format=value, unit="s", error_is_null=True)[0].as_py()  # type: ignore[attr-defined]

    if quietly(written_and_read, None) != day:
        raise preparation_error(f"{name} must be the format of a date, such as %d/%m/%Y.")
    return value


def _flag(name: str, value: Any) -> str | bool:
    return value if isinstance(value, bool) else _text(name, value)


_READERS: dict[str, Callable[[str, Any], Any]] = {
    "person": lambda name, value: None if value is False else _text(name, value),
    "observation": _observation,
    "action": _names,
    "reward": _text,
    "reward_less": _text,
    "step": _text,
    "step_format": _format,
    "episode": _text,
    "steps": lambda name, value: tuple(_scalar(name, label) for label in _list(name, value)),
    "outcome": partial(_one_of, ("each", "sum", "last")),
    "decisions": partial(_one_of, ("each", "first")),
    "terminated": _flag,
    "censored": _flag,
    "behavior_prob": _behavior,
    "codes": _codes,
    "keep": _names,
}
