"""Record and replay catches what it is for: each fault below is one that a real algorithm could have."""

from __future__ import annotations

import logging
import sys
import threading
import warnings
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from dprl.audits.record_replay import Recorder, record_replay
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SecureNoise, SeededNoise

MECHANISM = GaussianSum(parts=((3, 1.0),), noise_multiplier=2.0, sampling_rate=0.5, steps=6)
NOISE = SeededNoise.from_seed(3)
DATA = np.random.default_rng(0).normal(size=(8, 3))
NEIGHBOUR = np.concatenate([DATA, [[30.0, 40.0, 0.0]]])


def descent(data: np.ndarray, *, mechanism=MECHANISM, divisor: float | None = 4.0, **fault: Any):
    """A small adaptive algorithm, called with a seed: gradient descent towards the mean, with room for faults."""

    def call(seed: int) -> dict[str, np.ndarray]:
        noise: Any = SeededNoise.from_seed(seed)
        x = np.zeros(3)
        for step in range(fault.get("steps", lambda data: mechanism.steps)(data)):
            included = np.asarray(mechanism.participation_mask(noise, step, len(data)))
            if fault.get("shuffled"):
                # a batch of fixed size in random order: who is in it depends on how many there are
                included = np.isin(
                    np.arange(len(data)), np.random.default_rng([step, len(data)]).permutation(len(data))[:4]
                )
            vectors = data - x
            if fault.get("clip_first"):
                vectors = np.clip(vectors, -1.0, 1.0) * (1.0 if len(data) == len(DATA) else 3.0)
            total = mechanism.clipped_sum(jnp.asarray(vectors), jnp.asarray(included))
            if fault.get("rescaled"):
                total = total * len(data)
            drawn = jnp.asarray(mechanism.draw(noise, fault.get("draw_at", lambda step, _: step)(step, included)))
            size = divisor or max(int(included.sum()), 1)
            x = x + np.asarray(mechanism.release(total, drawn)) / size
        return {"x": x}

    return call


def with_fault(**fault: Any) -> list[str]:
    """Problems found over a few sources of noise: a coin must fall for the added unit to show anything."""
    sources = [SeededNoise.from_seed(seed) for seed in range(3)]
    found = [record_replay(descent(DATA, **fault), descent(NEIGHBOUR, **fault), noise=noise) for noise in sources]
    return [problem for comparison in found for problem in comparison.problems]


@pytest.mark.parametrize("noise", [NOISE, SecureNoise.fresh()])
def test_a_sound_algorithm_passes_and_the_added_unit_is_seen(noise):
    found = record_replay(descent(DATA), descent(NEIGHBOUR), noise=noise)
    assert found.problems == ()
    assert found.releases == MECHANISM.steps
    # the added unit is far out, so it is clipped: the distance is the sensitivity, but for rounding
    assert 1.0 - 1e-8 < found.largest <= 1.0 or found.largest == 0.0


def test_no_fault_no_problem():
    assert with_fault() == []


def test_the_same_data_differ_in_nothing():
    found = record_replay(descent(DATA), descent(DATA), noise=NOISE)
    assert found.problems == ()
    assert found.largest == 0.0


@dataclass(frozen=True, kw_only=True)
class Unclipped(GaussianSum):
    def clipped_sum(self, vectors, included):
        return jnp.sum(jnp.where(included[:, None], jnp.round(vectors * 2.0**32), 0), axis=0).astype(jnp.int64)


@dataclass(frozen=True, kw_only=True)
class TwiceTheClip(GaussianSum):
    def clipped_sum(self, vectors, included):
        return 2 * super().clipped_sum(vectors, included)


@dataclass(frozen=True, kw_only=True)
class PerCoordinate(GaussianSum):
    def clipped_sum(self, vectors, included):
        points = jnp.trunc(jnp.clip(vectors, -1.0, 1.0) * 2.0**32)
        return jnp.sum(jnp.where(included[:, None], points, 0), axis=0).astype(jnp.int64)


@dataclass(frozen=True, kw_only=True)
class LouderForMore(GaussianSum):
    def draw(self, noise, step, width=None):
        return noise.gaussian(step, self.dimension, self.noise_on_grid)

    def participation_mask(self, noise, step, units):
        return noise.participation_mask(step, units, self.sampling_rate if units == len(DATA) else 0.9)


SMALL = {"parts": ((3, 1.0),), "noise_multiplier": 2.0, "steps": 6}
FAULTS = {
    "no clip": ({"mechanism": Unclipped(**SMALL)}, "more than the sensitivity"),
    "sensitivity off by two": ({"mechanism": TwiceTheClip(**SMALL)}, "more than the sensitivity"),
    "clip per coordinate": ({"mechanism": PerCoordinate(**SMALL)}, "more than the sensitivity"),
    "rescaled after the clip": ({"rescaled": True}, "more than the sensitivity"),
    "scaled before the sum by a count": ({"clip_first": True}, "more than the sensitivity"),
    "realised batch size as denominator": ({"divisor": None}, "more than the sensitivity"),
    "shuffled batches under Poisson": ({"shuffled": True}, "more than the sensitivity"),
    "rate that depends on the data": ({"mechanism": LouderForMore(**SMALL, sampling_rate=0.5)}, "coins or draws"),
    "more steps for more data": ({"steps": lambda data: min(len(data), 6) - (len(data) == 8)}, "number of releases"),
    "last step skipped": ({"steps": lambda data: 5}, "declared number of steps"),
    "no draw of its own for a batch": (
        {"draw_at": lambda step, included: int(included.sum())},
        "coins or draws",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(fault):
    options, sentence = FAULTS[fault]
    assert any(sentence in problem for problem in with_fault(**options))


def test_shapes_of_results_are_compared():
    def call(data):
        return lambda seed: {**descent(data)(seed), "rows": np.zeros(len(data))}

    found = record_replay(call(DATA), call(NEIGHBOUR), noise=NOISE)
    assert found.problems == ("the shapes of what is released differ",)


def talkative(how, data, words=None):
    def call(seed):
        how(words or f"{len(data)} rows")
        return descent(data)(seed)

    return call


WAYS = {
    "printed": print,
    "printed on stderr": lambda text: print(text, file=sys.stderr),
    "logged": logging.getLogger("somewhere.below").warning,
    "warned": lambda text: warnings.warn(text, stacklevel=1),
}


@pytest.mark.parametrize("way", WAYS)
def test_words_that_depend_on_the_rows_are_found(way):
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        found = record_replay(*(talkative(WAYS[way], data) for data in (DATA, NEIGHBOUR)), noise=NOISE)
        assert found.problems == ("what is printed, logged or warned of differs",)
        # the same words are not a difference
        alike = (talkative(WAYS[way], data, "so many rows") for data in (DATA, NEIGHBOUR))
        assert record_replay(*alike, noise=NOISE).problems == ()


def test_words_are_passed_on(capsys):
    def say(text):
        print("out")
        print("err", file=sys.stderr)
        warnings.warn("oh", stacklevel=1)

    with pytest.warns(UserWarning, match="oh"):
        Recorder().record(talkative(say, DATA))
    assert capsys.readouterr() == ("out\n", "err\n")


@pytest.mark.parametrize("noise", [NOISE, SecureNoise(bytes(32))], ids=["seeded", "secure"])
def test_the_others_keep_their_coins_when_one_in_the_middle_leaves(noise):
    """Without telling who is missing, the coins move and the inputs differ by more than one unit's vector."""
    far = np.concatenate([NEIGHBOUR[:3], [[30.0, 40.0, 0.0]], NEIGHBOUR[3:]])
    without = np.delete(far, 3, axis=0)
    assert record_replay(descent(far), descent(without), noise=noise, missing=3).problems == ()
    moved = record_replay(descent(far), descent(without), noise=noise)
    assert any("more than the sensitivity" in p for p in moved.problems)


def test_replacing_one_moves_a_sum_by_twice_the_sensitivity():
    everybody = GaussianSum(**SMALL)
    other = np.concatenate([DATA, [[-30.0, -40.0, 0.0]]])
    calls = [descent(data, mechanism=everybody) for data in (NEIGHBOUR, other)]
    found = record_replay(*calls, noise=NOISE, relation="replace one")
    assert found.problems == ()
    assert 0.9 < found.largest <= 1.0
    added = record_replay(*calls, noise=NOISE)
    assert any("more than the sensitivity" in problem for problem in added.problems)


def test_a_mechanism_that_differs_is_found():
    def call(data):
        clip = float(np.abs(data).max())  # a bound inferred from the rows
        return descent(data, mechanism=GaussianSum(**SMALL | {"parts": ((3, clip),)}))

    assert "the mechanisms differ" in record_replay(call(DATA), call(NEIGHBOUR), noise=NOISE).problems


def test_the_second_run_sees_the_outputs_of_the_first():
    recorder = Recorder()
    one = recorder.record(descent(DATA), noise=NOISE)
    two = recorder.record(descent(NEIGHBOUR), noise=NOISE.stream("other"))
    np.testing.assert_array_equal(one.results["x"], two.results["x"])
    for a, b in zip(one.entries[0], two.entries[0], strict=True):
        np.testing.assert_array_equal(a.released, b.released)
    assert [a.total for a in one.entries[0]] != [b.total for b in two.entries[0]]


def test_what_another_thread_releases_meanwhile_is_its_own():
    """Else it would be the audit's, and its exact sum would be written down."""
    mechanism, recorder, released = GaussianSum(parts=((3, 1.0),), noise_multiplier=2.0), Recorder(), []

    def elsewhere() -> None:
        total, draw = np.arange(3) + len(released), np.asarray(mechanism.draw(SecureNoise.fresh(), 0))
        released.append(np.array_equal(mechanism.add_noise(total, draw), total + draw))
        released.append(type(SeededNoise.from_seed(5)) is SeededNoise)

    def call(seed: int) -> dict[str, np.ndarray]:
        other = threading.Thread(target=elsewhere)
        other.start()
        other.join()
        return descent(DATA)(seed)

    tapes = [recorder.record(call) for _ in range(2)]
    assert released == [True] * 4
    assert [tape.mechanisms for tape in tapes] == [[MECHANISM]] * 2


def test_two_threads_that_record_leave_nothing_at_the_doors():
    before, second_is_in, first_is_done = vars(GaussianSum)["add_noise"], threading.Event(), threading.Event()

    def second(seed: int) -> dict[str, np.ndarray]:
        second_is_in.set()
        first_is_done.wait()
        return descent(DATA)(seed)

    other = threading.Thread(target=Recorder().record, args=(second,))

    def first(seed: int) -> dict[str, np.ndarray]:
        other.start()
        second_is_in.wait(0.2)
        return descent(DATA)(seed)

    Recorder().record(first)
    first_is_done.set()
    other.join()
    assert vars(GaussianSum)["add_noise"] is before
