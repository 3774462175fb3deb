"""The sum and its norm under a filter: what is admitted, what is drawn, and how far one unit moves it."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dprl.accounting.renyi_filter import NORM_ROUNDING, WHOLE, effective_multiplier
from dprl.errors import DprlError
from dprl.mechanisms.arithmetic import MAX_UNITS, grid_step
from dprl.mechanisms.filtered_sum import FilteredGaussianSum
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SecureNoise, SeededNoise

SUM = FilteredGaussianSum(
    parts=((5, 0.7),), noise_multiplier=3.0, sampling_rate=0.1, steps=30, levels=(2.0, 3.0, 9.0),
    norm_multiplier=6.0, order=12, budget=0.1,
)  # fmt: skip
STEP = grid_step(0.7)


@pytest.mark.parametrize("kind", ["plain", "traced"])
def test_the_filter_admits_what_fits_and_nothing_else(kind):
    """Hundreds of proposals of an adversary, against exact integers."""
    admit = jax.jit(SUM.admit) if kind == "traced" else SUM.admit
    costs, rng, proposals = SUM.costs, np.random.default_rng(0), 120 if kind == "traced" else 50
    assert min(costs) > 0
    for sequence in range(4):
        spent, refused = 0, set()
        for level in rng.integers(-2, 5, proposals) if sequence else np.zeros(proposals, dtype=int):
            admitted, after = admit(spent, int(level))
            fits = 0 <= level < 3 and spent + costs[level] <= WHOLE
            assert bool(admitted) == fits
            assert int(after) == (spent + costs[level] if fits else spent) <= WHOLE
            spent = int(after)
            refused |= set() if fits else {int(level)}
        assert {0, 1, 2} & refused
        assert spent > WHOLE - max(costs)
    # to the last unit, and no further
    assert bool(admit(WHOLE - costs[0], 0)[0])
    assert not bool(admit(WHOLE - costs[0] + 1, 0)[0])


def test_no_cost_rounds_to_nothing_and_large_ones_never_fit():
    tiny = dataclasses.replace(SUM, levels=(1900.0,), sampling_rate=1e-6)
    assert tiny.costs[0] >= 1
    large = dataclasses.replace(SUM, levels=(0.05, 3.0))
    assert large.costs[0] == WHOLE + 1
    assert not bool(large.admit(0, 0)[0])
    assert bool(large.admit(0, 1)[0])


@pytest.mark.parametrize("source", ["secure", "seeded"])
def test_each_level_draws_its_own_noise_and_the_norm_its_own(source):
    wide = dataclasses.replace(SUM, parts=((4000, 0.7),))
    noise = SecureNoise.fresh() if source == "secure" else SeededNoise.from_seed(2)

    def accepts(draws: np.ndarray, std: float) -> bool:
        squares = np.square(draws * STEP / std)
        return bool(1e-6 < stats.chi2.cdf(squares.sum(), squares.size) < 1.0 - 1e-6)

    for level, z in enumerate(wide.levels):
        draw = np.asarray(wide.draw(noise, 3, level=level))
        assert draw.shape == (4001,)
        assert [accepts(draw[:-1], factor * z * 0.7) for factor in (2 / 3, 1.0, 3 / 2)] == [False, True, False]
    small = dataclasses.replace(SUM, parts=((1, 0.7),))
    if source == "secure":
        norms = np.array([np.asarray(small.draw(noise, step, level=1))[-1] for step in range(250)])
    else:
        steps = jnp.arange(2000, dtype=jnp.uint32)
        norms = np.asarray(jax.vmap(lambda step: small.draw(noise, step, level=1))(steps))[:, -1]
    assert [accepts(norms, factor * 6.0 * 0.7) for factor in (2 / 3, 1.0, 3 / 2)] == [False, True, False]
    # of equal noise too the two are drawn apart
    equal = dataclasses.replace(small, levels=(6.0,))
    pairs = np.array([np.asarray(equal.draw(noise, step, level=0)) for step in range(8)])
    assert not np.any(pairs[:, 0] == pairs[:, 1])
    with pytest.raises(DprlError, match="drawn at a level"):
        SUM.draw(noise, 0)
    with pytest.raises(DprlError, match="chosen on the way"):
        SUM.on_grid_at(0)


def test_a_traced_level_draws_what_the_number_draws():
    noise = SeededNoise.from_seed(4)
    traced = jax.jit(lambda step, level: SUM.draw(noise, step, 16, level=level))
    for level in range(3):
        ours = np.asarray(SUM.draw(noise, 7, level=level))
        theirs = np.asarray(traced(jnp.uint32(7), jnp.int64(level)))
        assert np.array_equal(ours[:5], theirs[:5])
        assert ours[5] == theirs[16]


def exact_norm(total: np.ndarray) -> int:
    """Twice the norm in grid points, rounded down."""
    return math.isqrt(4 * sum(int(x) ** 2 for x in total))


def test_the_norm_is_right_and_one_unit_moves_it_by_the_clip_norm_at_most():
    """In exact integers, on sums of few units and of as many as an int64 holds."""
    rng = np.random.default_rng(3)
    plain = GaussianSum(parts=((5, 0.7),), noise_multiplier=1.0)
    limit, largest = 0.7 / STEP, 0.0
    answer, clipped = jax.jit(SUM.answer), jax.jit(plain.clipped_sum)
    for size in (0.0, 1.0, 1e2, 1e6, 2.0**27):
        for _ in range(20):
            base = rng.normal(size=5)
            total = np.trunc(base / np.linalg.norm(base) * size * limit).astype(np.int64)
            # along the sum, against it, or anywhere
            for v in (base, -base, rng.normal(size=5)):
                unit = np.asarray(clipped(jnp.asarray(9.0 * v)[None], jnp.ones(1, dtype=bool)))
                without, beside = (np.asarray(answer(jnp.asarray(t))) for t in (total, total + unit))
                assert np.array_equal(beside[:-1] - without[:-1], unit)
                assert abs(2 * int(beside[-1]) - exact_norm(total + unit)) <= limit * NORM_ROUNDING
                moved = abs(int(beside[-1]) - int(without[-1]))
                assert moved <= limit * (1.0 + NORM_ROUNDING)
                largest = max(largest, moved / limit)
                # over their noise together: what the filter is charged
                distance = math.hypot(*(unit / limit / 3.0), moved / limit / 6.0)
                assert distance <= 1.0 / effective_multiplier(3.0, 6.0)
    assert largest > 0.999  # the bound is met: the square of the norm would be far beyond


def test_the_norm_of_more_people_than_may_be_declared_is_cut():
    """Rounding is charged for up to 2^28 people; of more, one unit moves the released norm no further."""
    clip, most = 0.7 / STEP, MAX_UNITS * 0.7 / STEP
    rng = np.random.default_rng(3)
    for people in (0.5, 1.0 - 1e-12, 1.0, 1.0 + 1e-12, 2.0, 3.9):
        direction = rng.normal(size=5)
        total = np.array(people * most * direction / np.linalg.norm(direction), dtype=np.int64)
        unit = np.array(clip * total / np.linalg.norm(total.astype(float)), dtype=np.int64)
        norms = [int(SUM.answer(jnp.asarray(x))[-1]) for x in (total, total + unit, total - unit)]
        assert max(norms) <= most + 1.0
        assert max(norms) - min(norms) <= 2.0 * clip * (1.0 + NORM_ROUNDING)
        if people < 0.9:
            assert abs(norms[0] - people * most) < clip * NORM_ROUNDING


def test_released_numbers_rows_and_refusals():
    noise = SeededNoise.from_seed(0)
    total = jnp.arange(5, dtype=jnp.int64) << 32
    released = SUM.release(total, SUM.draw(noise, 0, level=2))
    assert released.shape == (SUM.released,) == (6,)
    np.testing.assert_allclose(
        released - SUM.scaled(SUM.draw(noise, 0, level=2)), SUM.scaled(SUM.answer(total)), rtol=1e-12
    )
    assert SUM.draws == 6 * 30
    (row,) = SUM.rows("a", "b")
    assert (row["dimension"], row["steps"], row["levels"], row["order"]) == (6, 30, [2.0, 3.0, 9.0], 12)
    for changes in ({"levels": ()}, {"levels": (1.0,) * 65}, {"levels": (1e-3,)}, {"norm_multiplier": 1e-3},
                    {"parts": ((2**16 + 1, 0.7),)}, {"order": 1}, {"budget": 0.0}):  # fmt: skip
        with pytest.raises(DprlError):
            dataclasses.replace(SUM, **changes)
