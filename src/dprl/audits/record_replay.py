"""Record and replay: run an algorithm twice on neighbouring data and look at what enters its mechanisms.

The second run sees the released outputs of the first, so that adaptivity hides nothing: step by step, along the same
outputs, the exact integer totals must lie within the declared sensitivity, and nothing else may differ: not the number
of steps, not a coin's rate or a draw's scale, not a shape of what is released, not a word that is printed.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

import jax
import numpy as np
from jax.core import Tracer
from jax.experimental import io_callback

from dprl import x64 as x64
from dprl.accounting.renyi_filter import NORM_ROUNDING, WHOLE
from dprl.accounting.user_relation import CLIPS
from dprl.mechanisms.filtered_sum import FilteredGaussianSum
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.grid import grid_step
from dprl.protocols import NoiseSource

_SLACK = 1.0 + 1e-9  # of float sums here


@dataclass(frozen=True)
class Entry:
    """One release of one mechanism, as grid points and as numbers, and what it was made of. Private.

    Attributes:
        total: without the noise; of a filtered sum its norm, too.
        level: of a filtered sum.
    """

    total: tuple[int, ...]
    points: np.ndarray
    released: np.ndarray
    level: int | None = None


@dataclass
class Tape:
    """One run: the releases of each mechanism in the order in which they were wrapped, the calls of the noise source,
    the run's results, and what it said (printed, logged, warned of)."""

    entries: dict[int, list[Entry]] = field(default_factory=dict)
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    results: Mapping[str, np.ndarray] = field(default_factory=dict)
    mechanisms: list[GaussianSum] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)


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


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordingMechanism(GaussianSum):
    """Does what ``inner`` does, and tells its recorder. Works inside ``jit`` and ``scan``.

    Compared by identity: two of them are never the same static argument of a compiled function.
    """

    inner: GaussianSum
    recorder: Recorder
    place: int

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def _check_proved(self) -> None:
        """Accept what ``inner`` has checked."""

    def coins(self, noise: Any, step: Any, units: int) -> Any:
        return self.inner.coins(noise, step, units)

    @property
    def released(self) -> int:
        return self.inner.released

    def admit(self, spent: Any, level: Any) -> tuple[Any, Any]:
        """Of a filtered sum."""
        assert isinstance(self.inner, FilteredGaussianSum)
        return self.inner.admit(spent, level)

    def draw(self, noise: Any, step: Any, width: int | None = None, **level: Any) -> Any:
        if level:
            self.recorder.draw_level(self.place, int(level["level"]))
        return self.inner.draw(noise, step, width, **level)

    def clipped_sum(self, vectors: jax.Array, included: jax.Array) -> jax.Array:
        return self.inner.clipped_sum(vectors, included)

    def scaled(self, points: jax.Array) -> jax.Array:
        return self.inner.scaled(points)

    def noised(self, total: jax.Array, draw: jax.Array) -> jax.Array:
        points = self.inner.noised(total, draw)
        if isinstance(self.inner, FilteredGaussianSum):
            total = self.inner.answer(total)
        shape = jax.ShapeDtypeStruct(points.shape, points.dtype)
        return io_callback(self._note, shape, total, points, ordered=True)

    def _note(self, total: Any, points: Any) -> np.ndarray:
        return self.recorder.note(self.place, np.asarray(total), np.asarray(points))


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

    @property
    def secure(self) -> bool:
        return self.inner.secure

    @property
    def total_variation_per_draw(self) -> float:
        return self.inner.total_variation_per_draw

    def describe(self) -> str:
        return self.inner.describe()

    def stream(self, name: str) -> RecordingNoise:
        return RecordingNoise(self.inner.stream(name), self.calls, f"{self.name}/{name}", self.missing)

    def coins(self, step: Any, count: int, rate: float) -> Any:
        # the number of units is private and is not compared
        self.calls.append((self.name, "coins", int(step), float(rate)))
        if self.missing is None:
            return self.inner.coins(step, count, rate)
        return np.delete(np.asarray(self.inner.coins(step, count + 1, rate)), self.missing)

    def __getattr__(self, name: str) -> Any:
        """What else the source has (paths, blocks of draws, coins of actions) is not written down."""
        return getattr(self.inner, name)

    def gaussian(self, step: Any, dimension: int, std: float) -> Any:
        if not isinstance(step, Tracer):
            self.calls.append((self.name, "gaussian", int(step), int(dimension), float(std)))
        return self.inner.gaussian(step, dimension, std)

    def below(self, step: Any, count: int) -> Any:
        self.calls.append((self.name, "below", int(step)))
        return self.inner.below(step, count)

    def actions(self) -> Any:
        self.calls.append((self.name, "actions"))
        coins = self.inner.actions()
        return coins if self.missing is None else CoinsWithout(coins, self.missing)


@dataclass(frozen=True)
class CoinsWithout:
    """Coins of the actions of people of whom one is ``missing``: the others keep theirs. On the host."""

    inner: Any = field(repr=False)
    missing: int

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def of_batch(self, step: int) -> CoinsWithout:
        return CoinsWithout(self.inner.of_batch(step), self.missing)

    def words_at(self, places: np.ndarray, draw: int) -> np.ndarray:
        return self.inner.words_at(places + (places >= self.missing), draw)


jax.tree_util.register_dataclass(CoinsWithout, data_fields=["inner"], meta_fields=["missing"])


class Recorder:
    """Wraps the mechanisms of a run and keeps its tape; later runs replay the released outputs of the first."""

    def __init__(self) -> None:
        self._wrapped: list[RecordingMechanism] = []
        self._first: Tape | None = None
        self._tape = Tape()
        self._level: dict[int, int] = {}

    def wrap(self, mechanism: GaussianSum) -> RecordingMechanism:
        place = len(self._tape.mechanisms)
        self._tape.mechanisms.append(mechanism)
        self._tape.entries[place] = []
        # one object for the same place of every run, so that its compiled code is the same code
        if place >= len(self._wrapped) or self._wrapped[place].inner != mechanism:
            fields = {name: getattr(mechanism, name) for name in GaussianSum.__dataclass_fields__}
            self._wrapped[place:] = [RecordingMechanism(**fields, inner=mechanism, recorder=self, place=place)]
        return self._wrapped[place]

    def place_of(self, mechanism: GaussianSum) -> int:
        """The place of a mechanism that no wrapper told of; it is that very object, for others may equal it."""
        for place, known in enumerate(self._tape.mechanisms):
            if known is mechanism:
                return place
        self._tape.mechanisms.append(mechanism)
        place = len(self._tape.mechanisms) - 1
        self._tape.entries[place] = []
        return place

    def draw_level(self, place: int, level: int) -> None:
        """The level of the release that comes next."""
        self._level[place] = level

    def note(self, place: int, total: np.ndarray, points: np.ndarray) -> np.ndarray:
        entries = self._tape.entries[place]
        if self._first is not None:
            before = self._first.entries.get(place, [])
            if len(entries) < len(before):
                points = before[len(entries)].points
        released = points * grid_step(self._tape.mechanisms[place].clip_norm)
        level = self._level.pop(place, None)
        entries.append(Entry(tuple(int(x) for x in total), np.array(points), released, level))
        return entries[-1].points

    def forget(self) -> None:
        """Start over with a new first run; what was compiled is kept."""
        self._first = None

    def record(
        self,
        run: Callable[[Any, Any], Mapping[str, np.ndarray]],
        noise: NoiseSource,
        missing: int | None = None,
    ) -> Tape:
        """Run once. ``run(noise, wrap)`` must pass every mechanism through ``wrap`` and return what it releases.

        ``missing`` is the place of a unit that the run's data lack: the others keep their coins.
        """
        self._tape = Tape()
        with listening(self._tape.messages):
            results = run(RecordingNoise(noise, self._tape.calls, missing=missing), self.wrap)
            jax.effects_barrier()
        self._tape.results = {name: np.asarray(value) for name, value in results.items()}
        if self._first is None:
            self._first = self._tape
        return self._tape


class _Hearing(logging.Handler):
    def __init__(self, messages: list[str]) -> None:
        super().__init__()
        self.messages = messages

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(f"log: {record.getMessage()}")


@contextlib.contextmanager
def listening(messages: list[str]) -> Iterator[None]:
    """Write down what is printed, logged or warned of meanwhile; it is passed on all the same."""
    handler, out, err = _Hearing(messages), io.StringIO(), io.StringIO()
    logging.getLogger().addHandler(handler)
    try:
        # the filters stay as they are: what they turn into an error is one
        with (
            warnings.catch_warnings(record=True) as caught,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            yield
    finally:
        logging.getLogger().removeHandler(handler)
    messages += [f"warning: {w.message}" for w in caught]
    messages += [f"{name}: {text.getvalue()}" for name, text in (("stdout", out), ("stderr", err)) if text.getvalue()]
    sys.stdout.write(out.getvalue())
    sys.stderr.write(err.getvalue())
    for warning in caught:
        warnings.showwarning(warning.message, warning.category, warning.filename, warning.lineno)


Relation = Literal["add or remove one", "replace one"]


def record_replay(
    run: Callable[[Any, Any, Any], Mapping[str, np.ndarray]],
    first: Any,
    second: Any,
    noise: NoiseSource,
    recorder: Recorder | None = None,
    *,
    missing: int | None = None,
    relation: Relation = "add or remove one",
) -> Comparison:
    """Run on ``first``, then on its neighbour ``second`` under the same randomness and the same released outputs.

    Args:
        run: ``run(data, noise, wrap)`` passes every mechanism through ``wrap`` and returns what it releases.
        noise: one source for both runs; it must be a function of (key, step), as ours are.
        recorder: of earlier comparisons of the same algorithm, so that nothing is compiled twice.
        missing: place among the units of ``first`` of the one that ``second`` lacks, where it is not the last: so
            that the others' coins do not move.
        relation: of the two data sets; replacing one may move a sum by twice the sensitivity.
    """
    recorder = recorder or Recorder()
    recorder.forget()
    one = recorder.record(lambda n, wrap: run(first, n, wrap), noise)
    two = recorder.record(lambda n, wrap: run(second, n, wrap), noise, missing)
    return compare(one, two, relation)


def compare(one: Tape, two: Tape, relation: Relation = "add or remove one") -> Comparison:
    """What two tapes of neighbouring data disagree on, in exact integers."""
    problems: list[str] = []
    if one.mechanisms != two.mechanisms:
        problems.append("the mechanisms differ")
    if one.calls != two.calls:
        problems.append("the coins or draws that were asked for differ")
    if one.messages != two.messages:
        problems.append("what is printed, logged or warned of differs")
    shapes = [{name: (v.shape, v.dtype) for name, v in tape.results.items()} for tape in (one, two)]
    if shapes[0] != shapes[1]:
        problems.append("the shapes of what is released differ")
    # the second run saw what the first released: whatever is made of that alone is the same, to the last bit
    elif any(value.tobytes() != two.results[name].tobytes() for name, value in one.results.items()):
        problems.append("what is made of the releases depends on more than them")
    largest, releases = Fraction(0), 0
    for place, mechanism in enumerate(one.mechanisms):
        a, b = one.entries.get(place, []), two.entries.get(place, [])
        problems += _numbers_of_releases(mechanism, a, b)
        if mechanism.participation == "once each":
            releases += len(a)
            moved = _moved_in_all(mechanism, a, b, problems)
            largest = max(largest, moved**2)
            continue
        parts = _parts(mechanism, relation)
        for step, (x, y) in enumerate(zip(a, b, strict=False)):
            releases += 1
            if len(x.total) != len(y.total) or len(x.total) != mechanism.released:
                problems.append(f"the dimension of release {step} is not the declared one")
                continue
            start = 0
            for size, limit in parts:
                pairs = zip(x.total[start : start + size], y.total[start : start + size], strict=True)
                squared = Fraction(sum((p - q) ** 2 for p, q in pairs)) / limit**2
                start += size
                if squared > 1:
                    problems.append(
                        f"the inputs of release {step} of mechanism {place} differ by more than the sensitivity"
                    )
                largest = max(largest, squared)
    return Comparison(tuple(problems), math.sqrt(largest), releases)


def _moved_in_all(mechanism: GaussianSum, one: list[Entry], two: list[Entry], problems: list[str]) -> Fraction:
    """How far apart the sums of all steps lie, of what the noise allows: of units that take part once.

    They are seen through the strategy of correlated noise, for that is what is drawn independently.
    """
    if not len(one) == len(two) == mechanism.steps:
        return Fraction(0)
    if any(len(entry.total) != mechanism.dimension for entry in (*one, *two)):
        problems.append("the dimension of a release is not the declared one")
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


def _parts(mechanism: GaussianSum, relation: Relation) -> list[tuple[int, Fraction]]:
    """Return the size of each part of a release, and how far neighbours may move it, in grid points."""
    clips, declared = (Fraction(CLIPS.get(one, 1.0)) for one in (relation, mechanism.relation))
    limit = clips / declared * Fraction(mechanism.sensitivity) / Fraction(mechanism.grid_step)
    parts = [(mechanism.dimension, limit)]
    # the sum's norm moves by as much as the sum, and by what rounding adds to it
    return parts + [(1, limit * Fraction(1.0 + NORM_ROUNDING))] * (mechanism.released - mechanism.dimension)


def _numbers_of_releases(mechanism: GaussianSum, one: list[Entry], two: list[Entry]) -> list[str]:
    problems = ["the number of releases differs"] if len(one) != len(two) else []
    if not isinstance(mechanism, FilteredGaussianSum):
        return problems + ["the number of releases is not the declared number of steps"] * (len(one) != mechanism.steps)
    for entries in (one, two):
        costs = [WHOLE + 1 if e.level is None else mechanism.costs[e.level] for e in entries]
        if len(entries) > mechanism.steps or sum(costs) > WHOLE:
            problems.append("the releases cost more than the filter's budget")
    return problems
