"""Planting a fault into real code for the length of a ``with`` block, and knowing that the planted code ran."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from dprl.engine import loop as engine
from dprl.mechanisms.gaussian_sum import GaussianSum

from .lab import forget_compiled, forget_plans


class Planting:
    """What is replaced at the moment, and how often a replacement was called (by JAX, once a trace)."""

    def __init__(self) -> None:
        self.ran = 0
        self._replaced = ExitStack()

    def replace(self, owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Put ``make(original)`` in the place of a module's function, or of a class's method or property."""
        static = vars(owner)[name]
        kind = type(static) if isinstance(static, property | classmethod | staticmethod) else lambda function: function
        inner = static.fget if isinstance(static, property) else getattr(static, "__func__", static)
        planted = make(inner)

        @functools.wraps(inner)
        def counted(*args: Any, **options: Any) -> Any:
            self.ran += 1
            return planted(*args, **options)

        self.constant(owner, name, kind(counted))

    def constant(self, owner: Any, name: str, value: Any) -> None:
        """Replace a value; goes with a replaced function, for nothing tells whether a value was used."""
        self._replaced.enter_context(patch.object(owner, name, value))

    def undo(self) -> None:
        self._replaced.close()


@dataclass(frozen=True)
class Mutation:
    """One fault.

    Attributes:
        name: in words.
        plant: puts it in.
        caught_by: name of the check that must find it.
        traced: whether the faulty code is compiled, or changes what a mechanism is: what the engine has compiled is
            then forgotten before and after.
    """

    name: str
    plant: Callable[[Planting], None]
    caught_by: str
    traced: bool = False

    @contextmanager
    def planted(self) -> Iterator[Planting]:
        planting = Planting()
        self._forget()
        try:
            self.plant(planting)
            yield planting
        finally:
            planting.undo()
            self._forget()

    def _forget(self) -> None:
        forget_plans()
        if self.traced:
            forget_compiled()


MUTATIONS: list[Mutation] = []
Function = Callable[..., Any]


def fault(name: str, caught_by: str, *places: tuple[Any, str], traced: bool = False) -> Callable[[Function], Function]:
    """Register a fault: what stands in all ``places`` meanwhile, with the original as its first argument.

    Without places it is a function of a :class:`Planting`, which it plants itself.
    """

    def register(function: Function) -> Function:
        def replace(planting: Planting) -> None:
            for owner, attribute in places:
                planting.replace(owner, attribute, lambda original: functools.partial(function, original))

        MUTATIONS.append(Mutation(name, replace if places else function, caught_by, traced))
        return function

    return register


def gives(value: Any) -> Function:
    """Return a fault that answers the same, whatever it is asked."""
    return lambda original, *args, **options: value


def go_on_without_noise(planting: Planting, from_stage: int = 0) -> None:
    """What is released is noised; the states of a program, from a stage on, are made of the sums without noise."""
    totals: list[Any] = []

    def noisy(original: Callable[..., Any]) -> Callable[..., Any]:
        def remembered(self: Any, total: Any, draw: Any) -> Any:
            totals.append(total)
            return original(self, total, draw)

        return remembered

    def advance(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda program, stage, mechanism, state, points, step: original(
            program, stage, mechanism, state, points if stage < from_stage else totals[-1], step
        )

    planting.replace(GaussianSum, "add_noise", noisy)
    planting.replace(engine, "_advance", advance)
