"""Evenly spaced rows of a unit: which they are is that unit's own affair, and none is preferred."""

from __future__ import annotations

import numpy as np
import pytest

from dprl.engine.rows import Rows, subsample_rows


def made(lengths: list[int], seed: int = 0, usable: float = 1.0, starts: bool = False) -> Rows:
    """Units of these lengths; a row's reward says which it is."""
    rng, n = np.random.default_rng(seed), sum(lengths)
    weight = np.append(rng.uniform(0.5, 1.5, n) * (rng.random(n) < usable), 0.0).astype(np.float32)
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int64)
    columns = {"states": np.append(rng.normal(size=(n, 2)), np.zeros((1, 2)), axis=0).astype(np.float32)}
    if starts:
        columns["start"] = np.zeros(n + 1, np.float32)
        columns["start"][offsets[:-1]] = 1.0
    place = np.append(np.concatenate([np.arange(k) for k in lengths] or [np.zeros(0)]), -1.0)
    empty = np.zeros((n + 1, 0), np.float32)
    columns |= {"phi": empty, "delta_phi": empty, "reward": place.astype(np.float32), "weight": weight}
    return Rows(columns, offsets)


def unit(rows: Rows, number: int) -> list[np.ndarray]:
    mine = slice(rows.offsets[number], rows.offsets[number + 1])
    names = ("reward", "weight", "states", "start")
    return [rows.columns[name][mine] for name in names if name in rows.columns]


@pytest.mark.parametrize("starts", [False, True])
def test_weights_add_up_rows_are_evenly_spaced_and_nobody_else_matters(starts: bool):
    lengths = [1, 40, 7, 8, 9, 200, 31]
    rows = made(lengths, usable=0.8, starts=starts)
    few = subsample_rows(rows, 8)
    assert subsample_rows(rows, None) is rows
    assert few.reward[-1] == -1.0  # the padding stays last
    for i, length in enumerate(lengths):
        (place, weight, *_), (_, before, *_) = unit(few, i), unit(rows, i)
        assert len(place) <= 8
        assert weight.sum() == pytest.approx(before.sum(), rel=1e-6)
        # a first row is kept for its return, once, and how many are kept does not depend on the hash
        assert not starts or (place[0] == 0 and unit(few, i)[3].tolist() == [1.0] + [0.0] * (len(place) - 1))
        used = place[weight > 0].astype(int)
        counted = np.flatnonzero(before > 0)
        assert len(used) == min(len(counted), 8 - starts)
        assert len(place) == len(used) + (starts and (len(counted) > 7 or before[0] == 0.0))
        rank = np.searchsorted(counted, used)
        spacing = np.diff(np.append(rank, rank[0] + len(counted)))
        assert spacing.max() - spacing.min() <= 1, length
        np.testing.assert_allclose(weight[weight > 0] / before[used], weight.sum() / before[used].sum(), rtol=1e-5)
    # to the last bit what the unit alone would have, and in another order of the log
    for i in range(len(lengths)):
        mine = np.append(np.arange(rows.offsets[i], rows.offsets[i + 1]), len(rows.reward) - 1)
        alone = Rows(rows.mapped(lambda x, mine=mine: x[mine]), np.array([0, lengths[i]]))
        for a, b in zip(unit(few, i), unit(subsample_rows(alone, 8), 0), strict=True):
            np.testing.assert_array_equal(a, b)


def test_every_row_is_as_likely_the_last_one_too():
    """4,000 units of 10 rows of which 3 are kept: each count is binomial with probability 0.3."""
    units = 4000
    few = subsample_rows(made([10] * units, seed=3), 3)
    counts = np.bincount(few.reward[:-1].astype(int), minlength=10)
    assert counts.sum() == 3 * units
    assert np.abs(counts - 0.3 * units).max() < 4.5 * np.sqrt(units * 0.3 * 0.7)


def test_units_without_rows_that_count():
    rows = made([3, 0, 5], usable=0.0)
    assert subsample_rows(rows, 2).offsets.tolist() == [0, 0, 0, 0]
    nobody = subsample_rows(made([], starts=True), 2)
    assert (nobody.offsets.tolist(), nobody.weight.tolist()) == ([0], [0.0])
