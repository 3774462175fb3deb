"""What is compared: a method turns logs into a value function or a value, and says what its guarantee really is.

Methods are found by file: every file of ``dprl_papers/methods/`` has ``METHODS``, a sequence of :class:`Method`,
and so has any file that is given as a plugin. To add a method, add a file.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dprl.errors import DprlError
from dprl_papers.harness.versions import module_file

if TYPE_CHECKING:
    from dprl_papers.harness.problem import Problem, Setting, Trials

FOLDER = Path(__file__).parents[1] / "methods"
Status = Literal["verified", "as published", "unreviewed", "none"]


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """What a method's output guarantees at a setting.

    Attributes:
        status: ``verified``, ``as published`` (the claim is a paper's), ``unreviewed`` (it is that of somebody else's
            algorithm), or ``none``.
        claimed: epsilon that is claimed.
        true: epsilon that it really has at ``delta``; None where there is no guarantee, or none that is known.
        delta: of both.
        words: what else must be said, for instance how ``true`` is known.
    """

    status: Status
    claimed: float | None = None
    true: float | None = None
    delta: float | None = None
    words: str = ""


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method; exactly one of ``weights``, ``values``, ``batch``, ``value`` and ``curves`` says what it does.

    Attributes:
        name: in specifications.
        label: in charts and tables.
        guarantee: of what kind.
        weights: one trial and a noise key ``(2,)`` to ``(n,)`` weights of V = w' phi over the domain's features, in the
            reward's unit.
        values: the same to ``(S,)`` values at the states of the domain's truth.
        batch: several trials and their noise keys ``(T, 2)`` to ``(T, n)`` weights.
        value: one trial and its noise key to the policy's value, its expected discounted return from the start, in the
            reward's unit. Such a method learns no value function, and is measured by the error of that value alone.
        curves: several trials, their noise keys ``(T, 2)`` and the epochs ``(E,)``, ascending, at which they are
            measured to ``(T, E)`` errors of each metric; a run ends with the last epoch. Without epochs it is as long
            as the method has it, and measured once, at the answer: ``(T, 1)``. Such a method measures itself: its
            value function need not be linear.
        clamp: whether values are clamped to the public range, as a release does.
        promise: the guarantee at a setting; without it a ``verified`` method has the whole budget.
        options: what else determines it, for the name of its results.
        sources: files that determine it, beside the one that defines it.
        trivial: drawn as a reference: what one knows without a value function.
        scalable: whether a factor of its step size (or ridge) means anything to it.
        configured: the configuration of an algorithm at a setting.
    """

    name: str
    label: str
    guarantee: Status
    weights: Callable[[Problem, Any], np.ndarray] | None = None
    values: Callable[[Problem, Any], np.ndarray] | None = None
    batch: Callable[[Trials, Any], np.ndarray] | None = None
    value: Callable[[Problem, Any], float] | None = None
    curves: Callable[[Trials, Any, tuple[int, ...]], Mapping[str, np.ndarray]] | None = None
    clamp: bool = True
    promise: Callable[[Setting], Guarantee] | None = None
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    sources: tuple[Path, ...] = ()
    trivial: bool = False
    scalable: bool = False
    configured: Callable[[Setting], Any] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if sum(f is not None for f in self._functions) != 1:
            raise DprlError(f"Method {self.name!r} must have exactly one of weights, values, batch, value and curves.")

    @property
    def _functions(self) -> tuple[Callable[..., Any] | None, ...]:
        return (self.weights, self.values, self.batch, self.value, self.curves)

    def answer(self, trials: Trials, keys: Any) -> np.ndarray:
        """Return ``(T, n)`` weights; ``(T, S)`` values where :attr:`values`, ``(T,)`` where :attr:`value` is given."""
        if self.batch is not None:
            return np.asarray(self.batch(trials, keys), dtype=np.float64)
        one = self.weights or self.values or self.value
        assert one is not None
        return np.stack([np.asarray(one(p, k), dtype=np.float64) for p, k in zip(trials, keys, strict=True)])

    def guarantees(self, setting: Setting) -> Guarantee:
        """Return what is true of it at ``setting``."""
        if self.promise is not None:
            found = self.promise(setting)
            return replace(found, status="unreviewed", true=None) if self.guarantee == "unreviewed" else found
        budget = setting.budget
        if self.guarantee == "verified":
            return Guarantee(status="verified", claimed=budget.epsilon, true=budget.epsilon, delta=budget.delta)
        if self.guarantee == "unreviewed":
            return Guarantee(status="unreviewed", claimed=budget.epsilon, delta=budget.delta)
        return Guarantee(status=self.guarantee)

    def files(self) -> set[Path]:
        """Return the files that it is made by, what it is given and what its answer is measured by among them."""
        ends = {module_file(f"dprl_papers.harness.{name}") for name in ("problem", "metrics")}
        functions = {_file_of(function) for function in (*self._functions, self.promise) if function}
        return {*self.sources, *(Path(file) for file in functions | ends if file)}


def _file_of(function: Any) -> str | None:
    while isinstance(function, functools.partial):
        function = function.func
    try:
        return inspect.getsourcefile(inspect.unwrap(function))
    except TypeError:
        return None


@functools.cache
def library_methods() -> dict[str, Method]:
    """Return every method of ``dprl_papers/methods/`` by name."""
    found: dict[str, Method] = {}
    for path in sorted(FOLDER.glob("*.py")):
        if not path.stem.startswith("_"):
            module = import_module(f"dprl_papers.methods.{path.stem}")
            found = add_methods(found, module.METHODS, path.name)
    return found


def add_methods(known: Mapping[str, Method], new: Any, source: str) -> dict[str, Method]:
    """Return ``known`` and ``new`` methods by name; ``source`` is what an error calls the file."""
    new = tuple(new) if isinstance(new, Iterable) else (None,)
    if not all(isinstance(m, Method) for m in new):
        raise DprlError(f"{source}: METHODS must be a sequence of dprl_papers.harness.method.Method.")
    out = dict(known)
    for method in new:
        if method.name in out:
            raise DprlError(f"{source}: there is a method called {method.name!r} already.")
        out[method.name] = method
    return out
