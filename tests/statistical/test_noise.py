"""Both noise sources: the right distribution, with power against a wrong one, and draws that depend on nothing else.

Every test that accepts the stated scale also shows that it would reject another. A correct source fails a test with a
probability of at most 1e-6, half of it on either side.
"""

from __future__ import annotations

import itertools
import struct
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binom, chi2, kstest, norm

from dprl.errors import DprlError
from dprl.mechanisms import keystream
from dprl.mechanisms import noise as noise_module
from dprl.mechanisms.noise import SecureNoise, SeededNoise

LEVEL = 5e-7
STD = 3.0 * 2.0**32
SOURCES = {
    "secure": lambda seed: SecureNoise(bytes([seed]) * 32),
    "seeded": SeededNoise.from_seed,
}


@pytest.fixture(params=SOURCES)
def make(request):
    return SOURCES[request.param]


def scale_accepted(draws: np.ndarray, std: float) -> bool:
    """Two-sided chi-square test of the variance at a known mean of zero."""
    statistic = float(np.sum((draws.astype(np.float64) / std) ** 2))
    return chi2.ppf(LEVEL, len(draws)) <= statistic <= chi2.ppf(1.0 - LEVEL, len(draws))


def shape_accepted(draws: np.ndarray, std: float, cells: int = 200) -> bool:
    """Chi-square over cells that round(N(0, std^2)) fills equally often, with edges halfway between whole numbers."""
    edges = np.round(norm.ppf(np.arange(1, cells) / cells) * std) + 0.5
    probability = np.diff(np.r_[0.0, norm.cdf(edges / std), 1.0])
    observed = np.bincount(np.searchsorted(edges, draws), minlength=cells)
    expected = probability * len(draws)
    return float(np.sum((observed - expected) ** 2 / expected)) <= chi2.ppf(1.0 - LEVEL, cells - 1)


@pytest.mark.parametrize("wrong", [0.95, 1.0 / 0.95, 2.0 / 3.0, 1.5])
def test_scale_is_accepted_and_another_is_rejected(make, wrong):
    draws = np.asarray(make(1).gaussian(0, 40_000, STD))
    assert draws.dtype == np.int64
    assert scale_accepted(draws, STD)
    assert not scale_accepted(draws, wrong * STD)


@pytest.mark.parametrize("std", [2.0**24, 2.0**31 * 1.37, 2.0**44])
def test_shape_is_that_of_a_rounded_normal(make, std):
    draws = np.asarray(make(2).gaussian(3, 200_000, std))
    assert shape_accepted(draws, std)
    assert not shape_accepted(draws, 0.95 * std)
    assert kstest(draws / std, norm.cdf).pvalue > LEVEL
    assert kstest(draws / (0.95 * std), norm.cdf).pvalue < LEVEL
    # the same variance with other tails is told apart too
    uniform = np.random.default_rng(0).uniform(-1, 1, len(draws)) * 3**0.5 * std
    assert not shape_accepted(uniform, std)


def test_tails_are_there(make):
    draws = np.abs(np.asarray(make(4).gaussian(0, 400_000, STD)))
    for cut in (3.0, 4.0):
        p, count = 2.0 * norm.sf(cut), int(np.sum(draws > cut * STD))
        assert binom.ppf(LEVEL, len(draws), p) <= count <= binom.ppf(1.0 - LEVEL, len(draws), p)


def correlated(a: np.ndarray, b: np.ndarray) -> bool:
    a, b = (np.asarray(x, dtype=np.float64) for x in (a, b))
    return abs(float(np.corrcoef(a, b)[0, 1])) > norm.isf(LEVEL / 2) / len(a) ** 0.5


def test_steps_streams_and_coordinates_are_independent(make):
    source = make(5)
    draws = {
        (name, step): np.asarray(stream.gaussian(step, 20_000, STD))
        for name, stream in (("", source), ("a", source.stream("a")), ("b", source.stream("b")))
        for step in (0, 1, 2, 1000)
    }
    for x, y in itertools.combinations(draws.values(), 2):
        assert not correlated(x, y)
        # dependence without correlation would show in the squares
        assert not correlated(x.astype(np.float64) ** 2, y.astype(np.float64) ** 2)
        assert not np.array_equal(x, y)
    one = draws["", 0]
    for lag in (1, 2, 7, 10_000):
        assert not correlated(one[:-lag], one[lag:])
    assert correlated(one, one + draws["", 1] // 10)


def test_coins_and_gaussians_of_a_step_are_independent(make):
    source = make(6)
    coins, draws = source.participation_mask(9, 20_000, 0.5), source.gaussian(9, 20_000, STD)
    assert not correlated(np.asarray(coins), np.asarray(draws))
    assert not correlated(np.asarray(coins), np.abs(np.asarray(draws)))


def test_a_draw_is_a_function_of_key_stream_and_step():
    for make in SOURCES.values():
        for draw in (
            lambda s, step: s.gaussian(step, 64, STD),
            lambda s, step: s.participation_mask(step, 64, 0.5),
        ):
            first = np.asarray(draw(make(7), 3))
            # whatever else was drawn before
            source = make(7)
            draw(source, 4)
            source.stream("elsewhere").gaussian(3, 5, STD)
            np.testing.assert_array_equal(first, np.asarray(draw(source, 3)))
            np.testing.assert_array_equal(
                np.asarray(draw(make(7).stream("x"), 3)), np.asarray(draw(make(7).stream("x"), 3))
            )
            for other in (draw(make(7), 4), draw(make(8), 3), draw(make(7).stream("x"), 3)):
                assert not np.array_equal(first, np.asarray(other))


def test_fresh_sources_share_nothing():
    a, b = SecureNoise.fresh(), SecureNoise.fresh()
    assert scale_accepted(a.gaussian(0, 20_000, STD), STD)
    assert not np.array_equal(a.gaussian(0, 64, STD), b.gaussian(0, 64, STD))
    assert "_key" not in repr(a)


@pytest.mark.parametrize("counts", [(5, 6), (16, 17), (63, 64), (1000, 1016)])
def test_a_person_more_does_not_shift_the_coins_of_the_others(counts):
    """A unit's coin in a release is a function of key, step and the unit's place alone."""
    source = SOURCES["secure"](9)
    fewer, more = (source.participation_mask(2, n, 0.3) for n in counts)
    np.testing.assert_array_equal(fewer, more[: len(fewer)])


@pytest.mark.parametrize("rate", [0.5, 0.05, 0.02])
def test_coins_fall_at_the_rate(make, rate):
    trials, source = 1_000_000, make(10)
    count = sum(int(np.sum(np.asarray(source.participation_mask(step, trials // 4, rate)))) for step in range(4))

    def accepted(p: float) -> bool:
        return binom.ppf(LEVEL, trials, p) <= count <= binom.ppf(1.0 - LEVEL, trials, p)

    assert accepted(rate)
    assert not accepted(0.9 * rate)
    assert not accepted(1.1 * rate)


@pytest.mark.parametrize("rate", [1e-30, 1e-9, 1.0 / 3.0, 0.3, 1.0 - 2.0**-53])
def test_a_coin_is_never_likelier_than_the_rate(monkeypatch, rate):
    """A coin is `word < floor(rate 2^b)` for a uniform b-bit word: at the largest word that counts, and one above."""
    limit = int(rate * 2.0**64)
    assert limit / 2**64 <= rate
    words = np.array([max(limit, 1) - 1, limit, 2**64 - 1], dtype=np.uint64)
    monkeypatch.setattr("dprl.mechanisms.noise.keystream.words", lambda key, tag, index, block, count: words[:count])
    np.testing.assert_array_equal(SecureNoise(b"1" * 32).participation_mask(0, 3, rate), [limit > 0, False, False])


def test_everybody_takes_part_at_rate_one(make):
    assert np.asarray(make(11).participation_mask(0, 1000, 1.0)).all()


def test_uniform_index_is_uniform(make):
    source, count = make(12), 7
    if isinstance(source, SeededNoise):
        indices = jax.vmap(lambda step: source.uniform_index(step, count))(jnp.arange(2_100, dtype=jnp.uint32))
    else:
        indices = [source.uniform_index(step, count) for step in range(2_100)]
    drawn = np.bincount(np.asarray(indices), minlength=count)
    assert len(drawn) == count
    assert float(np.sum((drawn - 300.0) ** 2 / 300.0)) <= chi2.ppf(1.0 - LEVEL, count - 1)


def test_seeded_noise_is_the_same_traced_and_mapped():
    keys = jnp.array([[0, 1], [2, 3], [5, 8]], dtype=jnp.uint32)
    mapped = jax.jit(jax.vmap(lambda key: SeededNoise(key).stream("s").gaussian(jnp.uint32(4), 10, STD)))(keys)
    for key, row in zip(keys, mapped, strict=True):
        # compiled or not, a float32 logarithm may end in another digit
        np.testing.assert_allclose(SeededNoise(key).stream("s").gaussian(4, 10, STD), row, rtol=1e-5)


def test_only_the_secure_source_says_so():
    assert SecureNoise.fresh().secure
    assert not SeededNoise.from_seed(1).secure
    assert "not a private release" in SeededNoise.from_seed(1).describe()


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5, True, None])
def test_bad_seeds_are_refused(seed):
    with pytest.raises(DprlError, match="seed"):
        SeededNoise.from_seed(seed)


def test_seeds_use_all_their_bits():
    keys = {tuple(np.asarray(SeededNoise.from_seed(s).key)) for s in (0, 1, 2**31, 2**32, 2**32 + 1, 2**62)}
    assert len(keys) == 6


@pytest.mark.parametrize("error", [NotImplementedError, OSError])
def test_no_secure_randomness_means_no_release(monkeypatch, error):
    def missing(count):
        raise error

    monkeypatch.setattr("dprl.mechanisms.keystream.secrets.token_bytes", missing)
    with pytest.raises(DprlError, match="no secure randomness"):
        SecureNoise.fresh()


@pytest.mark.parametrize("given", [bytes(32), b"", b"short", b"1" * 31, b"1" * 33])
def test_a_system_that_gives_no_randomness_is_refused(monkeypatch, given):
    monkeypatch.setattr("dprl.mechanisms.keystream.secrets.token_bytes", lambda count: given)
    with pytest.raises(DprlError, match=r"zeros|32 bytes"):
        SecureNoise.fresh()


@pytest.mark.parametrize("key", [b"1" * 31, b"1" * 33, b"", "1" * 32, None, bytearray(b"1" * 32)])
def test_a_key_of_another_size_or_kind_is_refused(key):
    with pytest.raises(DprlError, match="32 bytes"):
        SecureNoise(key)


STEPS = [(0, 1), (0, 40), (250, 20), (255, 2), (256, 256), (4090, 12), (65_530, 12), (2**40, 3)]


@pytest.mark.parametrize(("first", "steps"), STEPS)
def test_a_block_holds_the_draws_of_its_steps(first, steps):
    """Whatever block a step is drawn in, its draws are the same: a run that resumes finds them again."""
    source = SecureNoise(b"block".ljust(32))
    numbers = range(first, first + steps)
    for dimension in (1, 16, 78, 5000):
        if dimension > 100 and steps > 20:
            continue
        rows = source.block(first, steps, dimension, STD)
        np.testing.assert_array_equal(rows, [source.gaussian(s, dimension, STD) for s in numbers])
        filled = np.zeros((steps, 3, dimension), dtype=np.int64)
        source.block(first, steps, dimension, STD, filled[:, 1])
        np.testing.assert_array_equal(filled[:, 1], rows)
        assert not filled[:, [0, 2]].any()
    np.testing.assert_array_equal(
        source.uniform_indices(first, steps, 11), [source.uniform_index(s, 11) for s in numbers]
    )


def test_a_scan_that_pads_its_draws_sees_those_of_the_host():
    source = SecureNoise(b"padded".ljust(32))
    for dimension in (1, 15, 65, 78, 79, 80, 4090, 5000, 20_001):
        padded = source.gaussian(3, -(-dimension // 16) * 16, STD)
        np.testing.assert_array_equal(source.gaussian(3, dimension, STD), padded[:dimension])


@pytest.mark.parametrize("share", [0.3, 0.9, 1.0])
def test_a_row_with_too_few_spares_is_filled_from_the_step_alone(monkeypatch, share):
    """Rejections, far more than there are: no draw is lost, repeated or taken from another step."""
    source = SecureNoise(b"spares".ljust(32))
    honest, refused = noise_module.propose, set[int]()

    def reject_more(words, table):
        values, rejected = honest(words, table)
        # by the words alone, so that the same proposals are rejected whoever asks; further ones come as a single row
        uniform = (words[:, 1] >> np.uint64(40)).ravel() / 2.0**24
        also = np.flatnonzero(uniform < (share if len(words) > 1 else 0.3))
        rejected = np.union1d(rejected, also)
        refused.update(values.ravel()[rejected].tolist())
        return values, rejected

    monkeypatch.setattr(noise_module, "propose", reject_more)
    rows = source.block(0, 30, 80, STD)
    assert len(np.unique(rows)) == rows.size
    assert not refused.intersection(rows.ravel().tolist())
    np.testing.assert_array_equal(rows, source.block(0, 40, 80, STD)[:30])
    np.testing.assert_array_equal(rows[:, :70], source.block(0, 30, 70, STD))


def test_every_pattern_of_rejections():
    """Rows of five draws and three spares, all 256 patterns, side by side and alone: draws are accepted proposals, each
    once; an accepted one stays in its place; fewer draws are the first of more."""
    patterns = np.array(list(itertools.product((True, False), repeat=8)))
    values = np.arange(patterns.size).reshape(patterns.shape)

    def arranged(rows: slice, dimension: int) -> np.ndarray:
        out = np.full((len(patterns[rows]), dimension), -1)
        lacking = noise_module._arrange(values[rows], np.flatnonzero(~patterns[rows]), 5, out)
        for row, columns in lacking.items():
            out[row, columns] = -2
        return out

    whole = arranged(slice(None), 5)
    for i, (row, accepted) in enumerate(zip(whole, patterns, strict=True)):
        numbers = np.flatnonzero(accepted)
        spares = [x for x in numbers if x >= 5] + [None] * 5
        expected = [x if accepted[x] else spares.pop(0) for x in range(5)]
        assert row.tolist() == [-2 if x is None else i * 8 + x for x in expected]
        np.testing.assert_array_equal(arranged(slice(i, i + 1), 5)[0], row)
    for dimension in range(5):
        np.testing.assert_array_equal(arranged(slice(None), dimension), whole[:, :dimension])


def test_threads_draw_what_one_draws():
    source = SecureNoise(b"threads".ljust(32))
    starts, dimensions = range(0, 2_000, 100), (80, 5_000)
    alone = [source.block(first, 7, d, STD) for first in starts for d in dimensions]
    with ThreadPoolExecutor(4) as pool:
        together = pool.map(lambda x: source.block(x[0], 7, x[1], STD), itertools.product(starts, dimensions))
        for a, b in zip(alone, together, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dimension", [80, 5_000])
def test_another_standard_deviation_is_another_draw(dimension):
    """Made of the same words, the noise of one release could be all but subtracted with the other's."""
    source = SecureNoise(b"scales".ljust(32))
    one, other = (source.gaussian(3, dimension, std) for std in (STD, 2.0 * STD))
    assert not correlated(one, other)


def test_no_two_draws_share_any_keystream(monkeypatch):
    """Every stretch of keystream that is read, by key and nonce: those of different purposes and steps are disjoint."""
    taken: dict[tuple, list[tuple[int, int, tuple]]] = {}
    honest, asked = keystream.read, None

    def recorded(key, tag, index, block, out):
        start = block * keystream.BLOCK_BYTES
        taken.setdefault((key, tag, index), []).append((start, start + out.nbytes, asked))
        honest(key, tag, index, block, out)

    monkeypatch.setattr(keystream, "read", recorded)
    source = SecureNoise(b"addresses".ljust(32))
    for step in (0, 1, 2, 255, 256, 4095, 4096, 65_535, 65_536, 2**32, 2**33):
        for width in (1, 16, 17, 80, 4096, 4097, 20_000):
            asked = ("gaussian", -(-width // 16) * 16, step)
            source.gaussian(step, width, STD)
            key = source._subkey(1, struct.pack("<d", STD))
            noise_module._further(key, asked[1], step, 10, noise_module.table(STD))
        for count in (1, 1000):
            asked = ("coins", step)
            source.participation_mask(step, count, 0.5)
    assert len(taken) > 80
    for stretches in taken.values():
        for (start, stop, one), (begin, end, other) in itertools.combinations(stretches, 2):
            assert one == other or stop <= begin or end <= start


def test_indices_share_no_words():
    source = SecureNoise(b"indices".ljust(32))
    whole = source.uniform_indices(0, 10_000, 2**32 - 1)
    assert len(np.unique(whole)) > 9_990
    with pytest.raises(ValueError, match="count"):
        source.uniform_index(0, 2**32)
