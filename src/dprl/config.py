"""One base for every configuration: frozen public facts, each with its provenance. A leaf."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self, TypeVar

from dprl.errors import DprlError

LIBRARY_DEFAULT = "library default (public)"
STATED_IN_CODE = "set in code (stated public)"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Base of the configurations. A subclass adds keyword-only fields; they are also its command-line options.

    ``provenance`` says where a hyper-parameter came from; what is not named there is the library's default.
    A value fitted on the private log has no provenance that could be stated, and must not be used.
    """

    provenance: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def options(cls) -> tuple[str, ...]:
        """Names a user may set, in order."""
        return tuple(f.name for f in fields(cls) if f.name != "provenance")

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], source: str) -> Self:
        """From flags, TOML or a specification; ``source`` (``flag``, ``run.toml``, ...) becomes the provenance."""
        hints = typing.get_type_hints(cls)
        values: dict[str, Any] = {}
        for name, value in mapping.items():
            if name not in cls.options():
                raise DprlError(f"{source}: {cls.__name__} has no option {name!r}; it has {', '.join(cls.options())}.")
            values[name] = _coerce(cls.__name__, name, value, hints[name], source)
        return cls(**values, provenance=dict.fromkeys(values, f"{source} (stated public)"))

    def hyper_parameters(self) -> dict[str, dict[str, Any]]:
        """Each option's value and where it came from, for the certificate."""
        defaults = {f.name: f.default for f in fields(self)}
        return {
            name: {
                "value": getattr(self, name),
                "provenance": self.provenance.get(
                    name, LIBRARY_DEFAULT if getattr(self, name) == defaults[name] else STATED_IN_CODE
                ),
            }
            for name in self.options()
        }

    def replace(self, provenance: str | None = None, **changes: Any) -> Self:
        """A copy with ``changes``, marked with ``provenance`` where one is given."""
        marks = dict(self.provenance)
        if provenance is not None:
            marks.update(dict.fromkeys(changes, provenance))
        return dataclasses.replace(self, **changes, provenance=marks)


T = TypeVar("T", bound=Config)


def merge(kind: type[T], sources: Sequence[tuple[Mapping[str, Any], str]]) -> T:
    """One configuration from several sources, weakest first; each option keeps the source that set it."""
    values: dict[str, Any] = {}
    marks: dict[str, str] = {}
    for mapping, source in sources:
        part = kind.from_mapping(mapping, source) if mapping else None
        if part is not None:
            values.update({name: getattr(part, name) for name in mapping})
            marks.update(part.provenance)
    return kind(**values, provenance=marks)


def _coerce(owner: str, name: str, value: Any, hint: Any, source: str) -> Any:
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    allowed = typing.get_args(hint) if union else (hint,)
    if value is None and type(None) in allowed:
        return None
    for kind in allowed:
        if typing.get_origin(kind) is typing.Literal:
            if value in typing.get_args(kind):
                return value
        elif kind is bool and isinstance(value, bool):
            return value
        elif kind in (int, float) and isinstance(value, int | float) and not isinstance(value, bool):
            # a whole number may be too large for a float
            if (isinstance(value, float) or abs(value) <= 1e300) and (kind is float or float(value).is_integer()):
                return kind(value)
        elif kind is str and isinstance(value, str):
            return value
    names = []
    for kind in allowed:
        if typing.get_origin(kind) is typing.Literal:
            names.extend(map(str, typing.get_args(kind)))
        elif kind is not type(None):
            names.append(
                {"int": "a whole number", "float": "a number", "str": "text", "bool": "true or false"}[kind.__name__]
            )
    raise DprlError(f"{source}: {name} of {owner} must be {' or '.join(names)}.")
