"""Record and replay: release neighbouring data one after the other and look at what enters the mechanisms.

A call runs as users run it; for its length, the mechanisms' methods that take sums in and give releases out (their
doors) are replaced by recorders. Every call after the first has the same key and sees what the first one released, so
that adaptivity hides nothing. Step by step, along the same outputs, the exact integer totals must lie within the
declared sensitivity. Nothing else may differ: not the number of steps, not a coin's rate or a draw's scale, not a shape
of what is released, not a word that is printed. Where a reward function is private,
:mod:`dprl.audits.record_rewards` compares the questions that were asked of it.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from dprl import x64 as x64
from dprl.accounting.renyi_filter import NORM_ROUNDING, WHOLE
from dprl.accounting.user_relation import CLIPS_MOVED
from dprl.audits.record_rewards import Question, RecordingAnswers, compare_questions
from dprl.engine.sample_split import STREAM
from dprl.mechanisms.arithmetic import grid_step
from dprl.mechanisms.filtered_sum import FilteredGaussianSum
from dprl.mechanisms.function_noise import FunctionNoise
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SeededNoise
from dprl.mechanisms.noisy_maximum import NoisyMaximum
from dprl.mechanisms.reward_noise import RewardGradient, RewardNoise
from dprl.protocols import NoiseSource

_SLACK = 1.0 + 1e-9  # for the float sums of this module
_PATCH_LOCK = threading.RLock()  # one thread at a time: with two, a recorder of one could stay in place for good
SEED = 11
"""Seed of every recorded call, which stands for the key that neighbours share."""

Call = Callable[[int], Mapping[str, np.ndarray]]
"""A function of a seed: it makes a public call and returns all that the call hands out, by name."""
NeighbourRelation = Literal["add or remove one", "replace one"]


@dataclass(frozen=True)
class RecordedRelease:
    """One release of one mechanism, as grid points and as numbers, and what it was made of. Private.

    Attributes:
        total: exact sum without the noise; for a filtered sum also the sum's norm.
        points: grid points that were released.
        released: the same points as numbers.
        level: noise level of a filtered sum; None for others.
    """

    total: tuple[int, ...]
    points: np.ndarray
    released: np.ndarray
    level: int | None = None


@dataclass
class ReleaseTrace:
    """Everything that one call let into its mechanisms, asked of its noise source, printed and handed out. Private.

    Attributes:
        mechanisms: noisy sums and noisy maxima, in the order in which they first released.
        entries: releases of each mechanism, by its place in ``mechanisms``.
        questions: rewards that were asked of a private reward function.
        answering: mechanism that answered the questions.
        calls: calls of the noise source.
        results: everything that was handed out.
        messages: everything that was printed, logged or warned of.
    """

    mechanisms: list[Any] = field(default_factory=list)
    entries: dict[int, list[RecordedRelease]] = field(default_factory=dict)
    questions: list[Question] = field(default_factory=list)
    answering: Any = None
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    results: Mapping[str, np.ndarray] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    def place_of(self, mechanism: Any) -> int:
        """Return the place of this very object, as another mechanism may equal it; a new object gets the next place."""
        for place, known in enumerate(self.mechanisms):
            if known is mechanism:
                return place
        self.mechanisms.append(mechanism)
        self.entries[len(self.entries)] = []
        return len(self.mechanisms) - 1


@dataclass(frozen=True)
class Comparison:
    """How two runs on neighbouring data differ.

    Attributes:
        problems: sentences about differences that must not be; empty where there are none.
        largest: largest L2 distance of two totals over the declared sensitivity. It must be at most 1.
        releases: number of releases that were compared.
    """

    problems: tuple[str, ...]
    largest: float
    releases: int


@dataclass(frozen=True)
class RecordingNoise:
    """A noise source that writes down what it is asked for, streams included.

    Attributes:
        missing: place of a unit that this run lacks. The others keep the coins that they have where this unit is there.
    """

    inner: Any
    calls: list[tuple[Any, ...]] = field(repr=False)
    name: str = ""
    missing: int | None = None

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of the source (paths, blocks of draws). Its use is not written down."""
        return getattr(self.inner, name)

    def stream(self, name: str) -> RecordingNoise:
        """Return the stream called ``name``. Its calls are written down under that name."""
        return RecordingNoise(self.inner.stream(name), self.calls, f"{self.name}/{name}", self.missing)

    def participation_mask(self, step: Any, count: int, rate: float) -> Any:
        """Return coins ``(count,)``; the number of units is private and is not compared."""
        self.calls.append((self.name, "coins", int(step), float(rate)))
        if self.missing is None or rate == 1.0:  # at rate 1 everybody is in, also of a part, where places are others
            return self.inner.participation_mask(step, count, rate)
        return np.delete(np.asarray(self.inner.participation_mask(step, count + 1, rate)), self.missing)

    def gaussian(self, step: Any, dimension: int, std: float) -> Any:
        """Return a draw ``(dimension,)``."""
        if not isinstance(step, Tracer):  # draws in compiled code are compared by the answers that are made of them
            self.calls.append((self.name, "gaussian", int(step), int(dimension), float(std)))
        return self.inner.gaussian(step, dimension, std)

    def uniform_index(self, step: Any, count: int) -> Any:
        """Return a whole number below ``count``."""
        self.calls.append((self.name, "uniform index", int(step)))
        return self.inner.uniform_index(step, count)

    def actions(self) -> Any:
        """Return the coins of people's actions."""
        self.calls.append((self.name, "actions"))
        coins = self.inner.actions()
        return coins if self.missing is None else CoinsWithout(coins, self.missing)


@dataclass(frozen=True)
class CoinsWithout:
    """Coins of people's actions where the person at place ``missing`` is not there; the others keep their coins.

    These coins are for code that runs on the host.
    """

    inner: Any = field(repr=False)
    missing: int

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # pickle asks before there is anything inside
            raise AttributeError(name)
        return getattr(self.inner, name)

    def for_batch(self, step: int) -> CoinsWithout:
        """Return the coins of one batch."""
        return CoinsWithout(self.inner.for_batch(step), self.missing)

    def words_at(self, places: np.ndarray, draw: int) -> np.ndarray:
        """Return the coins of the people at ``places``, counted without the missing person."""
        return self.inner.words_at(places + (places >= self.missing), draw)


jax.tree_util.register_dataclass(CoinsWithout, data_fields=["inner"], meta_fields=["missing"])


class Recorder:
    """Recorder of calls that release neighbours: the first call is recorded, and later calls replay its outputs.

    The doors of the mechanisms belong to the whole process, but releases of other threads pass through them unchanged.
    """

    def __init__(self) -> None:
        self._first: ReleaseTrace | None = None

    def record(self, call: Call, missing: int | None = None, *, noise: NoiseSource | None = None) -> ReleaseTrace:
        """Run ``call`` once with :data:`SEED`, and return its trace.

        Args:
            call: the release. Where it makes a noise source of a seed, it gets ``noise``.
            missing: place of the unit that this call's data lack. The others keep the coins that they have where this
                unit is there, which is the coupling of the proofs.
            noise: noise source of all calls that are compared; its draws must be functions of (key, step), as those of
                dprl's sources are. The default has the key of :data:`SEED`.
        """
        trace, level = ReleaseTrace(), dict[int, int]()
        first = self._first or ReleaseTrace()

        def keep(mechanism: Any, total: Any, points: Any, unit: float) -> np.ndarray:
            """Write down a release and return its points: those of the first call, if it has a release here."""
            place = trace.place_of(mechanism)
            before = first.entries.get(place, [])[len(trace.entries[place]) :]
            points = np.array(before[0].points if before else points)
            exact = tuple(int(x) for x in np.asarray(total))
            trace.entries[place].append(RecordedRelease(exact, points, points * unit, level.pop(place, None)))
            return points

        def add_noise(mechanism: GaussianSum, original: Any, total: Any, draw: Any) -> Any:
            exact = mechanism.answer(total) if isinstance(mechanism, FilteredGaussianSum) else total
            points = keep(mechanism, exact, original(mechanism, total, draw), grid_step(mechanism.clip_norm))
            return jnp.array(points)

        def choose(mechanism: NoisyMaximum, original: Any, noise: Any, total: Any) -> int:
            return int(keep(mechanism, total, [original(mechanism, noise, total)], 1.0)[0])

        def draw(mechanism: FilteredGaussianSum, original: Any, *asked: Any, **chosen: Any) -> Any:
            level[trace.place_of(mechanism)] = int(chosen["level"])
            return original(mechanism, *asked, **chosen)

        def bind(mechanism: Any, original: Any, noise: Any) -> Any:
            trace.answering = mechanism
            return RecordingAnswers(original(mechanism, noise), trace.questions, first.questions)

        source = RecordingNoise(noise or SeededNoise.from_seed(SEED), trace.calls, missing=missing)
        thread = threading.get_ident()

        def door(recorded: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
            def entered(mechanism: Any, *asked: Any, **chosen: Any) -> Any:
                if threading.get_ident() != thread:
                    return original(mechanism, *asked, **chosen)
                return recorded(mechanism, original, *asked, **chosen)

            return entered

        with _PATCH_LOCK, contextlib.ExitStack() as stack:
            seeded = door(lambda kind, original, seed: source, vars(SeededNoise)["from_seed"].__func__)
            stack.enter_context(patch.object(SeededNoise, "from_seed", classmethod(seeded)))
            for owner, recorded in (
                (GaussianSum, add_noise),
                (FilteredGaussianSum, add_noise),
                (FilteredGaussianSum, draw),
                (NoisyMaximum, choose),
                *((answering, bind) for answering in (FunctionNoise, RewardNoise, RewardGradient)),
            ):
                name = recorded.__name__
                stack.enter_context(patch.object(owner, name, door(recorded, vars(owner)[name])))
            stack.enter_context(listening(trace.messages))
            trace.results = {name: np.asarray(value) for name, value in call(SEED).items()}
        self._first = self._first or trace
        return trace


@contextlib.contextmanager
def listening(messages: list[str]) -> Iterator[None]:
    """Write down what is printed, logged or warned of in the ``with`` block. Everything is still passed on."""
    heard = {name: io.StringIO() for name in ("log", "stdout", "stderr")}
    handler = logging.StreamHandler(heard["log"])
    logging.getLogger().addHandler(handler)
    try:
        # the warning filters stay in force: a warning that they turn into an error is raised
        with (
            warnings.catch_warnings(record=True) as caught,
            contextlib.redirect_stdout(heard["stdout"]),
            contextlib.redirect_stderr(heard["stderr"]),
        ):
            yield
    finally:
        logging.getLogger().removeHandler(handler)
    messages += [f"warning: {w.message}" for w in caught]
    messages += [f"{name}: {text.getvalue()}" for name, text in heard.items() if text.getvalue()]
    sys.stdout.write(heard["stdout"].getvalue())
    sys.stderr.write(heard["stderr"].getvalue())
    for warning in caught:
        warnings.showwarning(warning.message, warning.category, warning.filename, warning.lineno)


def record_replay(
    first: Call,
    second: Call,
    *,
    noise: NoiseSource | None = None,
    missing: int | None = None,
    relation: NeighbourRelation = "add or remove one",
) -> Comparison:
    """Release ``first``, then its neighbour ``second`` under the same randomness, along the same released outputs.

    Args:
        first: call on one dataset.
        second: call on its neighbour.
        noise: noise source of both calls.
        missing: place, among the units of ``first``, of the unit that ``second`` lacks, where it is not the last.
        relation: relation of the two datasets; replacing one unit may move a sum by twice the sensitivity.
    """
    recorder = Recorder()
    return compare(recorder.record(first, noise=noise), recorder.record(second, missing, noise=noise), relation)


def compare(one: ReleaseTrace, two: ReleaseTrace, relation: NeighbourRelation = "add or remove one") -> Comparison:
    """Return where the traces of two neighbouring datasets disagree, in exact integers.

    Sums over sampled people are compared under ``relation``, sums over batches of users under the mechanism's own
    relation.
    """
    shapes = [{name: (v.shape, v.dtype) for name, v in trace.results.items()} for trace in (one, two)]
    # the second run saw what the first released: all that is made of releases only must be the same to the last bit
    made = shapes[0] != shapes[1] or all(v.tobytes() == two.results[name].tobytes() for name, v in one.results.items())
    same = {
        "the mechanisms differ": one.mechanisms == two.mechanisms and one.answering == two.answering,
        "the coins or draws that were asked for differ": one.calls == two.calls,
        "what is printed, logged or warned of differs": one.messages == two.messages,
        "the shapes of what is released differ": shapes[0] == shapes[1],
        "what is made of the releases depends on more than them": made,
    }
    problems = [problem for problem, holds in same.items() if not holds]
    largest, releases, moving = Fraction(0), 0, set[bool]()
    divided = any(name == f"/{STREAM}" for name, *_ in one.calls)
    for place, mechanism in enumerate(one.mechanisms):
        a, b = one.entries.get(place, []), two.entries.get(place, [])
        problems += _numbers_of_releases(mechanism, a, b)
        choice = isinstance(mechanism, NoisyMaximum)
        width = mechanism.candidates if choice else mechanism.released
        if any(len(entry.total) != width for entry in (*a, *b)):
            problems.append("the dimension of a release is not the declared one")
            continue
        moved = [np.array(x.total, object) - np.array(y.total, object) for x, y in zip(a, b, strict=False)]
        moving |= {place == 0 for x in moved if x.any()}
        if choice:
            divided, squared = True, [Fraction(int(np.ptp(x)), int(mechanism.spread)) ** 2 for x in moved]
            problems += [f"the scores of mechanism {place} differ by more than the spread" for x in squared if x > 1]
        elif mechanism.participation == "once each":
            squared = [_moved_in_all(mechanism, a, b, problems) ** 2]
        else:
            squared = [_squared(mechanism, relation, x) for x in moved]
            too_far = f"of mechanism {place} differ by more than the sensitivity"
            problems += [f"the inputs of release {step} {too_far}" for step, x in enumerate(squared) if x > 1]
        releases, largest = releases + len(a), max([largest, *squared])
    if divided and len(moving) > 1:  # the first part of the people has one mechanism, which is the first in the list
        problems.append("one unit moves what is released of either part: it is in both parts of the people")
    largest = math.sqrt(largest)
    if one.answering is not None and one.answering == two.answering:
        asked, moved = compare_questions(one.questions, two.questions, one.answering)
        problems, largest, releases = [*problems, *asked], max(largest, moved), releases + len(one.questions)
    return Comparison(tuple(dict.fromkeys(problems)), largest, releases)


def _squared(mechanism: GaussianSum, relation: NeighbourRelation, moved: np.ndarray) -> Fraction:
    """Return the squared distance of two totals of a release, over the square of how far neighbours may move them."""
    clips, declared = (Fraction(CLIPS_MOVED.get(one, 1.0)) for one in (relation, mechanism.relation))
    limit = clips / declared * Fraction(mechanism.sensitivity) / Fraction(mechanism.grid_step)
    size = mechanism.dimension
    # the norm of a sum moves by no more than the sum itself, and by what rounding adds
    norms = [Fraction(x) / Fraction(1.0 + NORM_ROUNDING) for x in moved[size:]]
    return max([Fraction(np.sum(moved[:size] ** 2)), *(x**2 for x in norms)]) / limit**2


def _moved_in_all(
    mechanism: GaussianSum, one: list[RecordedRelease], two: list[RecordedRelease], problems: list[str]
) -> Fraction:
    """Return the distance between the sums of all steps, over what the noise allows, for units that take part once.

    The sums are whitened by the strategy of the correlated noise, because only the whitened noise is independent.
    """
    if not len(one) == len(two) == mechanism.steps:
        return Fraction(0)
    sums = (np.array([entry.total for entry in entries], np.int64) for entries in (two, one))
    # int64 wraps around, and so does the exact sum, so that the difference is right all the same
    moved = np.subtract(*sums).astype(np.float64) * mechanism.grid_step
    if np.count_nonzero(np.abs(moved).max(axis=1)) > mechanism.epochs:
        problems.append(f"one user moves more than {mechanism.epochs} of the sums")
    allowed = mechanism.noise_std / mechanism.noise_multiplier * math.sqrt(mechanism.epochs)
    found = float(np.linalg.norm(mechanism.correlation.whitened(moved))) / allowed
    if found > _SLACK:
        problems.append("the sums of all rounds together differ by more than the noise allows")
    return Fraction(found)


def _numbers_of_releases(mechanism: GaussianSum, one: list[RecordedRelease], two: list[RecordedRelease]) -> list[str]:
    problems = ["the number of releases differs"] if len(one) != len(two) else []
    if not isinstance(mechanism, FilteredGaussianSum):
        return problems + ["the number of releases is not the declared number of steps"] * (len(one) != mechanism.steps)
    for entries in (one, two):
        costs = [WHOLE + 1 if e.level is None else mechanism.costs[e.level] for e in entries]
        if len(entries) > mechanism.steps or sum(costs) > WHOLE:
            problems.append("the releases cost more than the filter's budget")
    return problems
