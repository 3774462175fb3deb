"""Methods, which experiments compare: a method turns logs into a value function or a value, and states its guarantee.

Methods are found by file. Every file in ``dprl_papers/methods/`` has ``METHODS``, a sequence of :class:`Method`, and so
has every plugin with methods. To add a method, add a file.
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
    """Privacy guarantee of a method's output at a setting.

    Attributes:
        status: ``verified``, ``as published`` (a paper makes the claim), ``unreviewed`` (the author of another
            algorithm makes the claim), or ``none``.
        claimed: the claimed epsilon.
        true: the epsilon that the output really has at ``delta``; None where there is no guarantee, or none is known.
        delta: delta of both epsilons.
        words: a remark on the guarantee, for instance how ``true`` is known.
    """

    status: Status
    claimed: float | None = None
    true: float | None = None
    delta: float | None = None
    words: str = ""


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method of an experiment; exactly one of ``weights``, ``values``, ``batch``, ``value`` and ``curves`` is given.

    Attributes:
        name: its name in specifications.
        label: its name in charts and tables.
        guarantee: the kind of its guarantee.
        weights: maps one trial and a noise key ``(2,)`` to ``(n,)`` weights of V = w' phi over the domain's features,
            in the reward's unit.
        values: maps one trial and a noise key to ``(S,)`` values at the states of the domain's truth.
        batch: maps several trials and their noise keys ``(T, 2)`` to ``(T, n)`` weights.
        value: maps one trial and its noise key to the policy's value, its expected discounted return from the start, in
            the reward's unit. Such a method learns no value function, so only the error of that value is measured.
        curves: maps several trials, their noise keys ``(T, 2)`` and the ascending epochs ``(E,)`` at which they are
            measured to ``(T, E)`` errors of each metric. A run ends with the last epoch. Without epochs, the method
            chooses the length of the run, and the answer is measured once: ``(T, 1)``. Such a method measures itself,
            so its value function need not be linear.
        clamp: whether values are clamped to the public range, as in a release.
        promise: returns the guarantee at a setting; without it, a ``verified`` method has the guarantee of the whole
            budget.
        options: further values that determine the method; they are part of the name of its results.
        sources: files that determine the method, besides the file that defines it.
        trivial: whether it is drawn as a reference, which shows what is known without a value function.
        scalable: whether its step size (or ridge) can be multiplied by a factor.
        configured: returns the configuration of an algorithm at a setting.
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
        """Return ``(T, n)`` weights; ``(T, S)`` values if :attr:`values` is given, and ``(T,)`` if :attr:`value` is."""
        if self.batch is not None:
            return np.asarray(self.batch(trials, keys), dtype=np.float64)
        one = self.weights or self.values or self.value
        assert one is not None
        return np.stack([np.asarray(one(p, k), dtype=np.float64) for p, k in zip(trials, keys, strict=True)])

    def guarantees(self, setting: Setting) -> Guarantee:
        """Return the guarantee that holds at ``setting``."""
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
        """Return the files that determine the method, among them the harness's files for its inputs and its metrics."""
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
    """Return all methods in ``dprl_papers/methods/``, by name."""
    found: dict[str, Method] = {}
    for path in sorted(FOLDER.glob("*.py")):
        if not path.stem.startswith("_"):
            module = import_module(f"dprl_papers.methods.{path.stem}")
            found = add_methods(found, module.METHODS, path.name)
    return found


def add_methods(known: Mapping[str, Method], new: Any, source: str) -> dict[str, Method]:
    """Return ``known`` and ``new`` methods by name. Error messages call the file of the new methods ``source``."""
    new = tuple(new) if isinstance(new, Iterable) else (None,)
    if not all(isinstance(m, Method) for m in new):
        raise DprlError(f"{source}: METHODS must be a sequence of dprl_papers.harness.method.Method.")
    out = dict(known)
    for method in new:
        if method.name in out:
            raise DprlError(f"{source}: there is a method called {method.name!r} already.")
        out[method.name] = method
    return out
