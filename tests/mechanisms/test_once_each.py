"""Noisy sums over units that take part once: what one unit moves, what is drawn, how the parts fit together."""

from __future__ import annotations

import copy
import math
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2

from dprl.accounting import events
from dprl.accounting.user_relation import USER_SUMS
from dprl.engine import loop as engine
from dprl.engine.program import Stage
from dprl.errors import DprlError
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SecureNoise, SeededNoise
from dprl.mechanisms.step_noise import Correlation, Correlator

SOURCES = [SeededNoise.from_seed(3), SecureNoise(b"u" * 32)]
KINDS = ["independent", "square-root", "banded:3"]
LEVEL = 5e-7


def user_sum(**changes: Any) -> GaussianSum:
    given = {"parts": ((4, 0.9), (1, 0.2)), "steps": 6, "batch": 3, "noise_multiplier": 4.0, "relation": "zero-out"}
    given |= changes
    correlation = Correlation(given.pop("noise", "square-root"))
    return GaussianSum(**given, correlation=correlation)


def total_of(mechanism: Any, vectors: Any, included: Any) -> np.ndarray:
    """Compiled once a shape: quicker than one operation after the other."""
    return np.asarray(_TOTAL(mechanism, jnp.asarray(vectors), jnp.asarray(included)))


_TOTAL = jax.jit(lambda mechanism, *given: mechanism.clipped_sum(*given), static_argnums=0)
_CLIPPED = jax.jit(lambda mechanism, vectors: mechanism.clipped(vectors), static_argnums=0)


def squared(points: Any) -> int:
    """Squared norm of whole numbers, exact."""
    return sum(int(x) ** 2 for x in np.asarray(points).ravel())


# --- the sum ----------------------------------------------------------------------------------------------------------


def test_parts_are_clipped_apart_and_exactly():
    mechanism = user_sum()
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(60, 5)) * np.geomspace(1e-3, 1e200, 60)[:, None]
    vectors[:20, 4] = np.linspace(-0.5, 0.5, 20)
    points = np.asarray(_CLIPPED(mechanism, jnp.asarray(vectors)))
    step = Fraction(mechanism.grid_step)
    for row, raw in zip(points, vectors, strict=True):
        for part, clip in ((slice(0, 4), 0.9), (slice(4, 5), 0.2)):
            assert squared(row[part]) * step**2 <= Fraction(clip) ** 2
            norm = math.hypot(*raw[part])
            if norm < 1e150:
                kept = min(1.0, clip / norm) * raw[part]
                np.testing.assert_allclose(row[part] * mechanism.grid_step, kept, atol=1e-8)
        assert squared(row) * step**2 < Fraction(mechanism.clip_norm) ** 2
    assert mechanism.clip_norm == pytest.approx(math.sqrt(0.85))
    # a statistic that is no number leaves the gradient as it is, and the other way round
    vectors = np.array([[0.1, 0.2, 0, 0, math.nan], [math.inf, 0, 0, 0, 0.1], [9.0, 9, 9, 9, 9]])
    total = total_of(mechanism, vectors, [True, True, False])
    np.testing.assert_allclose(total * mechanism.grid_step, [0.1, 0.2, 0, 0, 0.1], atol=1e-9)


def test_blocks_add_up_and_nobody_is_nothing():
    mechanism = user_sum(parts=((5, 1.0),))
    vectors, included = jnp.asarray(np.random.default_rng(1).normal(size=(40, 5))), np.arange(40) % 3 > 0
    whole = total_of(mechanism, vectors, included)
    parts = [total_of(mechanism, vectors[i : i + 8], included[i : i + 8]) for i in range(0, 40, 8)]
    np.testing.assert_array_equal(whole, sum(parts))
    # whatever stands in the place of somebody who is not included
    vectors = jnp.where(included[:, None], vectors, jnp.nan)
    np.testing.assert_array_equal(whole, total_of(mechanism, vectors, included))
    np.testing.assert_array_equal(whole, total_of(mechanism, vectors, np.ones(40, dtype=bool)))


# --- what one user moves ----------------------------------------------------------------------------------------------


def corrections(correlator: Correlator) -> np.ndarray:
    """What the next round's noise has taken off for earlier noise, ``(dimension,)`` int64."""
    peeked = copy.deepcopy(correlator)
    return -peeked.correlated(np.zeros(peeked._past.shape[1], dtype=np.int64))


def moved(mechanism: GaussianSum, slot: int, one: Any, other: Any, seed: int) -> list[np.ndarray]:
    """Differences ``h_t - h'_t`` of the queries that are answered with independent draws, along one history.

    All other users answer at random, as a function of what was released. ``one`` and ``other`` stand in ``slot``.
    """
    noise, d = SecureNoise(bytes([seed]) * 32), mechanism.dimension
    chains = [mechanism.correlation.in_order(mechanism.steps, d) for _ in range(2)]
    found, released = [], np.zeros(d)
    for t in range(mechanism.steps):
        rng = np.random.default_rng(abs(int(released.sum() * 1e6)) % 2**32)
        vectors = rng.normal(size=(mechanism.batch, d))
        queries = []
        for answer, chain in zip((one, other), chains, strict=True):
            if slot // mechanism.batch == t:
                vectors[slot % mechanism.batch] = answer
            total = total_of(mechanism, vectors, np.ones(mechanism.batch, dtype=bool))
            queries.append((total, total - corrections(chain)))
        draw = noise.gaussian(t, d, mechanism.noise_on_grid)
        answer = queries[0][1] + draw
        released = answer * mechanism.grid_step
        for (total, query), chain in zip(queries, chains, strict=True):
            # the draw that makes this query's answer the one that was released
            assert np.array_equal(chain.correlated(answer - query), answer - total)
        found.append(queries[0][1] - queries[1][1])
    return found


@pytest.mark.parametrize("noise", KINDS)
def test_no_pair_of_users_moves_all_rounds_further_than_is_declared(noise):
    """The answers of two neighbours, in whole numbers; the worst pairs reach what is declared, but for rounding."""
    rng = np.random.default_rng(2)
    for relation, slots in (("zero-out", (0, 4, 17)), ("replace one", (1, 9, 17))):
        mechanism = user_sum(noise=noise, relation=relation)
        allowed = (Fraction(mechanism.sensitivity * mechanism.column_norm) / Fraction(mechanism.grid_step)) ** 2
        single = (Fraction(mechanism.sensitivity) / Fraction(mechanism.grid_step)) ** 2
        found = []
        for slot in slots:
            for trial in range(2):
                one = rng.normal(size=5) * 10.0 ** rng.integers(-2, 12)
                if trial == 0:
                    one[4] = 5.0
                    other = -one if relation == "replace one" else np.zeros(5)
                else:
                    other = np.zeros(5) if relation == "zero-out" else rng.normal(size=5)
                rounds = moved(mechanism, slot, one, other, seed=slot)
                assert not any(np.any(r) for r in rounds[: slot // mechanism.batch])
                found.append(sum(squared(r) for r in rounds))
        assert max(found) <= allowed
        assert max(found) >= Fraction(0.998) * allowed  # nothing is charged for that cannot happen
        # without the norm of the column, or the factor of the relation, it would not be covered
        assert (max(found) > single) == (noise != "independent")
        assert max(found) > Fraction(mechanism.clip_norm / mechanism.grid_step) ** 2 or (
            relation == "zero-out" and noise == "independent"
        )


# --- the noise --------------------------------------------------------------------------------------------------------


def before(mechanism: GaussianSum, source: Any) -> Any:
    """Its noise as compiled code has it."""
    return mechanism.drawn_before(source) if source.secure else mechanism.bind(source)


def noises(mechanism: GaussianSum, source: Any) -> np.ndarray:
    """``(steps, dimension)``: of sums of nobody."""
    bound = before(mechanism, source)
    return np.stack([np.asarray(mechanism.scaled(jnp.asarray(bound.draw(t)))) for t in range(mechanism.steps)])


def scale_accepted(draws: np.ndarray, std: float) -> bool:
    statistic = float(np.sum((draws / std) ** 2))
    return bool(chi2.ppf(LEVEL, draws.size) <= statistic <= chi2.ppf(1.0 - LEVEL, draws.size))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("noise", KINDS)
def test_the_noise_has_the_stated_scale_and_another_is_rejected(source, noise):
    mechanism = user_sum(parts=((2000, 0.9), (1, 0.2)), noise=noise, relation="replace one", steps=8)
    found = noises(mechanism, source)
    white = Correlation(noise).whitened(found)
    for rows in (white, white[0], white[-1]):
        assert scale_accepted(rows, mechanism.noise_std)
        for wrong in (2.0 / 3.0, 1.5):
            assert not scale_accepted(rows, wrong * mechanism.noise_std)
    for a, b in ((white[0], white[1]), (white[2], white[5]), (white[:, :-1].ravel(), white[:, 1:].ravel())):
        assert abs(np.corrcoef(a, b)[0, 1]) < 5.0 / math.sqrt(len(a))
    # what was independent no longer is
    assert (abs(np.corrcoef(found[3], found[4])[0, 1]) > 0.2) == (noise != "independent")


def test_prefix_errors_have_the_covariance_of_dense_matrices():
    steps, mechanisms = 6, {kind: user_sum(parts=((60_000, 1.0),), noise=kind) for kind in KINDS}
    sums = np.tril(np.ones((steps, steps)))
    for kind, mechanism in mechanisms.items():
        column = np.zeros(steps)
        column[: Correlation(kind).bands(steps)] = Correlation(kind).coefficients(steps)
        dense = np.array([[column[t - s] if t >= s else 0.0 for s in range(steps)] for t in range(steps)])
        factor = mechanism.noise_std * sums @ np.linalg.inv(dense)
        wanted = factor @ factor.T
        prefix = np.cumsum(noises(mechanism, SOURCES[1]), axis=0)
        found = prefix @ prefix.T / mechanism.dimension
        scale = np.sqrt(np.outer(np.diag(wanted), np.diag(wanted)))
        assert np.max(np.abs(found - wanted) / scale) < 7.0 / math.sqrt(mechanism.dimension)


@pytest.mark.parametrize(("steps", "dimension", "most"), [(100, 400, 0.35), (1000, 50, 0.15)])
def test_prefix_sums_are_far_less_noisy_at_the_same_guarantee(steps, dimension, most):
    """Measured on what is drawn for releases: RMS error of what an iterate sums up."""
    error = {}
    for kind in ("independent", "square-root"):
        mechanism = user_sum(parts=((dimension, 1.0),), steps=steps, noise=kind)
        assert mechanism.event() == events.gaussian(4.0)
        prefix = np.cumsum(noises(mechanism, SOURCES[1]), axis=0)
        error[kind] = float(np.sqrt(np.mean(prefix**2)))
        exact = float(np.sqrt(np.mean(np.arange(1, steps + 1)))) * Correlation(kind).prefix_error(steps)
        assert error[kind] / (4.0 * exact) == pytest.approx(1.0, abs=4.0 / math.sqrt(dimension))
    ratio = error["square-root"] / error["independent"]
    print(f"T = {steps}: prefix error {ratio:.4f} of independent noise")
    assert ratio <= most
    assert Correlation("square-root").prefix_error(steps) <= most


@pytest.mark.parametrize("noise", [*KINDS, "banded:9"])
def test_in_order_is_the_same_noise_and_each_step_comes_once(noise):
    mechanism = user_sum(noise=noise)
    for source in SOURCES:
        bound, stream = before(mechanism, source), mechanism.in_order(source)
        for t in range(6):
            np.testing.assert_array_equal(stream.draw(t), bound.draw(t))
            with pytest.raises(DprlError, match="in order"):
                stream.draw(t)
        with pytest.raises(DprlError, match="in order"):
            stream.draw(6)
        draws = np.stack([bound.draw(t) for t in range(6)])
        assert len(np.unique(draws)) == 30
        assert "rows" not in repr(bound)
        assert "key" not in repr(bound)
        # a step that was left out is drawn all the same, for those after it
        resumed = mechanism.in_order(source)
        np.testing.assert_array_equal(resumed.draw(2), draws[2])
        np.testing.assert_array_equal(resumed.draw(5), draws[5])
        if noise == "independent" and not source.secure:
            continue
        # what is beyond the dimension is nothing, and beyond the steps there is no noise
        np.testing.assert_array_equal(bound.draw(1, 16), np.append(draws[1], np.zeros(11)))
        for step in (-1, 6, 7):
            assert np.all(np.asarray(bound.draw(step)) == np.iinfo(np.int64).min)


def test_it_compiles_batches_and_scans_as_it_runs():
    mechanism = user_sum(noise="banded:3")
    keys = jnp.arange(8, dtype=jnp.uint32).reshape(4, 2)
    vectors = jnp.asarray(np.random.default_rng(3).normal(size=(6, 3, 5)))

    def run(key: Any) -> Any:
        bound = mechanism.bind(SeededNoise(key))

        def one(carry: Any, t: Any) -> tuple[Any, Any]:
            total = mechanism.clipped_sum(vectors[t], jnp.ones(3, dtype=bool))
            return carry, mechanism.release(total, bound.draw(t))

        return jax.lax.scan(one, 0, jnp.arange(6))[1]

    together = jax.jit(jax.vmap(run))(keys)
    for key, found in zip(keys, together, strict=True):
        stream = mechanism.in_order(SeededNoise(key))
        for t in range(6):
            total = total_of(mechanism, vectors[t], np.ones(3, dtype=bool))
            np.testing.assert_array_equal(mechanism.release(jnp.asarray(total), stream.draw(t)), found[t])


def test_in_floating_point_it_is_the_same_but_for_rounding():
    vectors = np.random.default_rng(0).normal(size=(50, 5)) * np.geomspace(0.01, 3.0, 50)[:, None]
    vectors = vectors.astype(np.float32)
    vectors[7, 0], vectors[8, 4] = np.inf, np.nan
    included = np.arange(50) % 7 > 0
    steps = jnp.arange(6, dtype=jnp.uint32)
    for noise in KINDS:
        mechanism = user_sum(noise=noise)
        fast = mechanism.in_float()

        @jax.jit
        def both(key: Any, mechanism: Any = mechanism, fast: Any = fast) -> Any:
            return [jax.vmap(m.bind(SeededNoise(key)).draw)(steps) for m in (mechanism, fast)]

        exact, rough = both(SOURCES[0].key)
        np.testing.assert_allclose(rough, np.asarray(exact) * mechanism.grid_step, atol=1e-7)
    assert (fast.dimension, fast.steps, fast.batch) == (5, 6, 3)
    exact = total_of(mechanism, vectors, included) * mechanism.grid_step
    np.testing.assert_allclose(total_of(fast, vectors, included), exact, atol=5e-6)
    with pytest.raises(DprlError, match="cannot be released"):
        fast.event()
    # of other multipliers at once, and none
    several = jax.jit(jax.vmap(lambda z: mechanism.in_float(noise_multiplier_override=z).bind(SOURCES[0]).draw(3)))
    found = several(jnp.array([0.0, 4.0, 8.0]))
    assert not np.any(found[0])
    np.testing.assert_allclose(found[2], 2.0 * found[1])
    np.testing.assert_allclose(found[1], rough[3])
    unclipped = mechanism.unclipped()
    assert not unclipped.certifies
    np.testing.assert_array_equal(unclipped.bind(SOURCES[0]).draw(3), fast.bind(SOURCES[0]).draw(3))
    total = total_of(unclipped, vectors, included & (np.arange(50) > 8))
    np.testing.assert_allclose(total, vectors[9:][included[9:]].sum(0), rtol=1e-4)


# --- what it says -----------------------------------------------------------------------------------------------------


def test_what_it_costs_and_says():
    for relation, clips in (("zero-out", 1.0), ("replace one", 2.0)):
        mechanism = user_sum(relation=relation, parts=((10, 0.5),), noise="square-root")
        assert mechanism.sensitivity == 0.5 * clips
        assert mechanism.event() == events.gaussian(4.0)
        column = math.sqrt(sum((math.comb(2 * k, k) / 4**k) ** 2 for k in range(6)))
        assert mechanism.column_norm == pytest.approx(column, rel=1e-8)
        assert mechanism.column_norm > column
        assert mechanism.noise_std == pytest.approx(4.0 * 0.5 * clips * column, rel=1e-8)
        assert mechanism.delta(0.7) == events.sampler_delta(0.7, 60)
        row = mechanism.describe(USER_SUMS, "gradients")
        assert row["steps"] * row["dimension"] == 60
        assert row["sensitivity"] * row["column_norm"] * row["noise_multiplier"] == pytest.approx(row["std"])
        assert row["relation"] == relation
    epochs = user_sum(noise="independent", epochs=3)
    assert epochs.event() == events.poisson_gaussian(1.0, 4.0, 3)
    assert epochs.noise_std == 4.0 * epochs.sensitivity
    assert epochs.delta(0.7) == events.sampler_delta(0.7, 30)
    assert epochs.describe(USER_SUMS, "gradients")["epochs"] == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"relation": "add or remove one"}, "relation"),
        ({"batch": None}, "relation"),
        ({"batch": None, "relation": "add or remove one"}, "independent noise"),
        ({"batch": None, "relation": "add or remove one", "sampling_rate": 0.1}, "independent noise"),
        ({"batch": None, "relation": "add or remove one", "noise": "independent", "epochs": 2}, "no epochs"),
        ({"sampling_rate": 0.5}, "not sampled"),
        ({"steps": 1, "multipliers": (4.0,) * 6, "noise_multiplier": 0.0}, "no schedule"),
        ({"noise_multiplier_override": 2.0}, "floating point"),
        ({"parts": ()}, "coordinates"),
        ({"parts": ((0, 1.0),)}, "coordinates"),
        ({"parts": ((2**22, 1.0), (1, 1.0))}, "coordinates"),
        ({"parts": ((3, 0.0),)}, "clip norm"),
        ({"parts": ((3, math.nan),)}, "clip norm"),
        ({"steps": 0}, "at least 1"),
        ({"batch": 0}, "at least 1"),
        ({"batch": 2**28 + 1}, "units"),
        ({"noise": "brown"}, "noise must be"),
        ({"epochs": 0}, "multiple of the epochs"),
        ({"epochs": 4, "noise": "independent"}, "multiple of the epochs"),
        ({"epochs": 2}, "take part once"),
        ({"noise_multiplier": 1e-3}, "multiplier"),
        ({"noise_multiplier": 5e3, "noise": "independent"}, "multiplier"),
        ({"noise_multiplier": math.nan}, "multiplier|exact"),
    ],
)
def test_what_cannot_be_released_is_refused(changes, message):
    with pytest.raises(DprlError, match=message):
        user_sum(**changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "of which one more person alters one"),
        ({"relation": "replace one"}, "The relation replace one needs a source of numbered places"),
        (
            {"batch": None, "relation": "add or remove one", "noise": "independent", "sampling_rate": 0.5},
            "to which one more person adds one unit",
        ),
    ],
)
def test_a_source_that_does_not_fit_the_relation_is_refused(changes, words):
    """By the mechanism itself, and by both loops before anybody is asked."""
    mechanism = user_sum(**changes)

    class Units:
        units = 9

        def __init__(self, *stability: str) -> None:
            self.stability = stability

    other = "adds one unit" if mechanism.batch else "alters one place"
    mechanism.check_source(Units(mechanism.stability))
    mechanism.check_source(Units(other, mechanism.stability))
    program: Any = type("Program", (), {"stages": (Stage("one", mechanism),)})()
    noise = SOURCES[0]
    for refused in (
        lambda: mechanism.check_source(Units(other)),
        lambda: engine.run_steps(program, 0, mechanism, noise, Units(other), None),
        lambda: engine.run_steps_on_host(program, 0, mechanism, noise, Units(other), None),  # type: ignore[arg-type]
    ):
        with pytest.raises(DprlError, match=words):
            refused()
