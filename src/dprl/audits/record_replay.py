"""Record and replay: release neighbouring data one after the other and look at what enters the mechanisms.

A call is released as users release it; what stands at the mechanisms' doors is replaced for the length of the call.
Every call after the first has the same key and sees what the first one released, so that adaptivity hides nothing: step
by step, along the same outputs, the exact integer totals must lie within the declared sensitivity, and nothing else may
differ: not the number of steps, not a coin's rate or a draw's scale, not a shape of what is released, not a word that
is printed. Where the private thing is a reward function, :mod:`dprl.audits.record_rewards` compares what was asked.
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
from dprl.accounting.user_relation import CLIPS
from dprl.audits.record_rewards import Question, RecordingAnswers, compare_questions
from dprl.engine.two_parts import STREAM
from dprl.mechanisms.filtered_sum import FilteredGaussianSum
from dprl.mechanisms.function_noise import FunctionNoise
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.grid import grid_step
from dprl.mechanisms.noise import SeededNoise
from dprl.mechanisms.noisy_maximum import NoisyMaximum
from dprl.mechanisms.reward_noise import RewardGradient, RewardNoise
from dprl.protocols import NoiseSource

_SLACK = 1.0 + 1e-9  # of float sums here
_AT_THE_DOORS = threading.RLock()  # one thread at a time: of two, what one puts there would stay
SEED = 11
"""Seed of every recorded call, which stands for the key that neighbours share."""

Call = Callable[[int], Mapping[str, np.ndarray]]
"""A public call with a seed, which returns all that it hands out, by name."""
Relation = Literal["add or remove one", "replace one"]


@dataclass(frozen=True)
class Entry:
    """One release of one mechanism, as grid points and as numbers, and what it was made of. Private.

    Attributes:
        total: sum without the noise, and the norm of a filtered sum.
        points: grid points that were released.
        released: the same as numbers.
        level: noise level of a filtered sum.
    """

    total: tuple[int, ...]
    points: np.ndarray
    released: np.ndarray
    level: int | None = None


@dataclass
class ReleaseTrace:
    """Everything that one call let into its mechanisms, asked of its noise source, said and handed out. Private.

    Attributes:
        mechanisms: noisy sums and noisy maxima, in the order in which they first released.
        entries: releases of each of these, by place.
        questions: rewards that were asked of a private reward function.
        answering: mechanism that answered them.
        calls: calls of the noise source.
        results: everything that was handed out.
        messages: everything that was printed, logged or warned of.
    """

    mechanisms: list[Any] = field(default_factory=list)
    entries: dict[int, list[Entry]] = field(default_factory=dict)
    questions: list[Question] = field(default_factory=list)
    answering: Any = None
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    results: Mapping[str, np.ndarray] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    def place_of(self, mechanism: Any) -> int:
        """Return the place of that very object, for another mechanism may equal it."""
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
        problems: sentences, empty where nothing differs that must not.
        largest: largest L2 distance of two totals over the declared sensitivity; at most 1.
        releases: number of releases that were compared.
    """

    problems: tuple[str, ...]
    largest: float
    releases: int


@dataclass(frozen=True)
class RecordingNoise:
    """A noise source that writes down what it is asked for, streams included.

    Attributes:
        missing: place of a unit that this run lacks: the others keep the coins that they have beside it.
    """

    inner: Any
    calls: list[tuple[Any, ...]] = field(repr=False)
    name: str = ""
    missing: int | None = None

    def __getattr__(self, name: str) -> Any:
        """Return what else the source has (paths, blocks of draws), which is not written down."""
        return getattr(self.inner, name)

    def stream(self, name: str) -> RecordingNoise:
        """Return the stream of that name, whose calls are written down with it."""
        return RecordingNoise(self.inner.stream(name), self.calls, f"{self.name}/{name}", self.missing)

    def participation_mask(self, step: Any, count: int, rate: float) -> Any:
        """Return coins ``(count,)``; the number of units is private and is not compared."""
        self.calls.append((self.name, "coins", int(step), float(rate)))
        if self.missing is None or rate == 1.0:  # everybody; of a part of the people, too, where places are others
            return self.inner.participation_mask(step, count, rate)
        return np.delete(np.asarray(self.inner.participation_mask(step, count + 1, rate)), self.missing)

    def gaussian(self, step: Any, dimension: int, std: float) -> Any:
        """Return a draw ``(dimension,)``."""
        if not isinstance(step, Tracer):  # what compiled code draws is compared in what it answers
            self.calls.append((self.name, "gaussian", int(step), int(dimension), float(std)))
        return self.inner.gaussian(step, dimension, std)

    def uniform_index(self, step: Any, count: int) -> Any:
        """Return a whole number below ``count``."""
        self.calls.append((self.name, "below", int(step)))
        return self.inner.uniform_index(step, count)

    def actions(self) -> Any:
        """Return the coins of actions."""
        self.calls.append((self.name, "actions"))
        coins = self.inner.actions()
        return coins if self.missing is None else CoinsWithout(coins, self.missing)


@dataclass(frozen=True)
class CoinsWithout:
    """Coins of the actions of people of whom one is ``missing``: the others keep theirs. On the host."""

    inner: Any = field(repr=False)
    missing: int

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # pickle asks before there is anything inside
            raise AttributeError(name)
        return getattr(self.inner, name)

    def of_batch(self, step: int) -> CoinsWithout:
        """Return the coins of one batch."""
        return CoinsWithout(self.inner.of_batch(step), self.missing)

    def words_at(self, places: np.ndarray, draw: int) -> np.ndarray:
        """Return the coins of those who stand at ``places`` now."""
        return self.inner.words_at(places + (places >= self.missing), draw)


jax.tree_util.register_dataclass(CoinsWithout, data_fields=["inner"], meta_fields=["missing"])


class Recorder:
    """The keeper of the mechanisms' doors while neighbours are released: the first call is what later ones replay.

    The doors are the process's, and open as ever to what any other thread releases meanwhile.
    """

    def __init__(self) -> None:
        self._first: ReleaseTrace | None = None

    def record(self, call: Call, missing: int | None = None, *, noise: NoiseSource | None = None) -> ReleaseTrace:
        """Call once, with :data:`SEED`.

        Args:
            call: what is released; whatever noise it makes of a seed is ``noise``.
            missing: place of the unit that this call's data lack: the others keep the coins that they have beside that
                unit, which is the coupling of the proofs.
            noise: source of all calls that are compared; a function of (key, step), as ours are.
        """
        tape, level = ReleaseTrace(), dict[int, int]()
        first = self._first or ReleaseTrace()

        def keep(mechanism: Any, total: Any, points: Any, unit: float) -> np.ndarray:
            """Write down a release; return its points, which are those of the first call where there was one."""
            place = tape.place_of(mechanism)
            before = first.entries.get(place, [])[len(tape.entries[place]) :]
            points = np.array(before[0].points if before else points)
            exact = tuple(int(x) for x in np.asarray(total))
            tape.entries[place].append(Entry(exact, points, points * unit, level.pop(place, None)))
            return points

        def add_noise(mechanism: GaussianSum, original: Any, total: Any, draw: Any) -> Any:
            exact = mechanism.answer(total) if isinstance(mechanism, FilteredGaussianSum) else total
            points = keep(mechanism, exact, original(mechanism, total, draw), grid_step(mechanism.clip_norm))
            return jnp.array(points)

        def choose(mechanism: NoisyMaximum, original: Any, noise: Any, total: Any) -> int:
            return int(keep(mechanism, total, [original(mechanism, noise, total)], 1.0)[0])

        def draw(mechanism: FilteredGaussianSum, original: Any, *asked: Any, **chosen: Any) -> Any:
            level[tape.place_of(mechanism)] = int(chosen["level"])
            return original(mechanism, *asked, **chosen)

        def bind(mechanism: Any, original: Any, noise: Any) -> Any:
            tape.answering = mechanism
            return RecordingAnswers(original(mechanism, noise), tape.questions, first.questions)

        source = RecordingNoise(noise or SeededNoise.from_seed(SEED), tape.calls, missing=missing)
        thread = threading.get_ident()

        def door(recorded: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
            def entered(mechanism: Any, *asked: Any, **chosen: Any) -> Any:
                if threading.get_ident() != thread:
                    return original(mechanism, *asked, **chosen)
                return recorded(mechanism, original, *asked, **chosen)

            return entered

        with _AT_THE_DOORS, contextlib.ExitStack() as stack:
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
            stack.enter_context(listening(tape.messages))
            tape.results = {name: np.asarray(value) for name, value in call(SEED).items()}
        self._first = self._first or tape
        return tape


@contextlib.contextmanager
def listening(messages: list[str]) -> Iterator[None]:
    """Write down what is printed, logged or warned of meanwhile; it is passed on all the same."""
    heard = {name: io.StringIO() for name in ("log", "stdout", "stderr")}
    handler = logging.StreamHandler(heard["log"])
    logging.getLogger().addHandler(handler)
    try:
        # the filters stay as they are: what they turn into an error is one
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
    relation: Relation = "add or remove one",
) -> Comparison:
    """Release ``first``, then its neighbour ``second`` under the same randomness, along the same released outputs.

    Args:
        first: call on one data set.
        second: call on its neighbour.
        noise: source of both.
        missing: place among the units of ``first`` of the one that ``second`` lacks, where it is not the last.
        relation: of the two data sets; replacing one may move a sum by twice the sensitivity.
    """
    recorder = Recorder()
    return compare(recorder.record(first, noise=noise), recorder.record(second, missing, noise=noise), relation)


def compare(one: ReleaseTrace, two: ReleaseTrace, relation: Relation = "add or remove one") -> Comparison:
    """Return what two tapes of neighbouring data disagree on, in exact integers.

    Sums over sampled people are compared under ``relation``, batches of users under the mechanism's own.
    """
    shapes = [{name: (v.shape, v.dtype) for name, v in tape.results.items()} for tape in (one, two)]
    # the second run saw what the first released: whatever is made of that alone is the same, to the last bit
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
    if divided and len(moving) > 1:  # the first part of the people has one mechanism, the first of all
        problems.append("one unit moves what is released of either part: it is in both parts of the people")
    largest = math.sqrt(largest)
    if one.answering is not None and one.answering == two.answering:
        asked, moved = compare_questions(one.questions, two.questions, one.answering)
        problems, largest, releases = [*problems, *asked], max(largest, moved), releases + len(one.questions)
    return Comparison(tuple(dict.fromkeys(problems)), largest, releases)


def _squared(mechanism: GaussianSum, relation: Relation, moved: np.ndarray) -> Fraction:
    """Return the square of how far two totals of a release lie apart, over how far neighbours may move them."""
    clips, declared = (Fraction(CLIPS.get(one, 1.0)) for one in (relation, mechanism.relation))
    limit = clips / declared * Fraction(mechanism.sensitivity) / Fraction(mechanism.grid_step)
    size = mechanism.dimension
    # the sum's norm moves by as much as the sum, and by what rounding adds to it
    norms = [Fraction(x) / Fraction(1.0 + NORM_ROUNDING) for x in moved[size:]]
    return max([Fraction(np.sum(moved[:size] ** 2)), *(x**2 for x in norms)]) / limit**2


def _moved_in_all(mechanism: GaussianSum, one: list[Entry], two: list[Entry], problems: list[str]) -> Fraction:
    """Return how far apart the sums of all steps lie, over what the noise allows, for units that take part once.

    They are seen through the strategy of correlated noise, for that is what is drawn independently.
    """
    if not len(one) == len(two) == mechanism.steps:
        return Fraction(0)
    sums = (np.array([entry.total for entry in entries], np.int64) for entries in (two, one))
    # int64 wraps around: so does the exact sum, and the difference is right all the same
    moved = np.subtract(*sums).astype(np.float64) * mechanism.grid_step
    if np.count_nonzero(np.abs(moved).max(axis=1)) > mechanism.epochs:
        problems.append(f"one user moves more than {mechanism.epochs} of the sums")
    allowed = mechanism.noise_std / mechanism.noise_multiplier * math.sqrt(mechanism.epochs)
    found = float(np.linalg.norm(mechanism.correlation.whitened(moved))) / allowed
    if found > _SLACK:
        problems.append("the sums of all rounds together differ by more than the noise allows")
    return Fraction(found)


def _numbers_of_releases(mechanism: GaussianSum, one: list[Entry], two: list[Entry]) -> list[str]:
    problems = ["the number of releases differs"] if len(one) != len(two) else []
    if not isinstance(mechanism, FilteredGaussianSum):
        return problems + ["the number of releases is not the declared number of steps"] * (len(one) != mechanism.steps)
    for entries in (one, two):
        costs = [WHOLE + 1 if e.level is None else mechanism.costs[e.level] for e in entries]
        if len(entries) > mechanism.steps or sum(costs) > WHOLE:
            problems.append("the releases cost more than the filter's budget")
    return problems
