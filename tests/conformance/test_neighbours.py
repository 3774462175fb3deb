"""Every algorithm on the smallest logs and on garbage: see test_released_neighbours.py for the others.

The fast tests have the same of three algorithms in short: tests/mutations/checks.py, and the faults that they catch.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dprl.audits.record_replay import Recorder, record_replay
from dprl.engine import loop as engine
from dprl.mechanisms import arithmetic
from dprl.mechanisms.arithmetic import clip_to_grid
from dprl.mechanisms.noise import SecureNoise, SeededNoise

from .cases import CASES, ENTRIES, recorded, released, totals, without
from .walks import mechanisms_of, walks

pytestmark = pytest.mark.slow
NAN, HUGE = float("nan"), 1e308
SEEDED, SECURE = SeededNoise.from_seed(11), SecureNoise(bytes(32))


@pytest.fixture(params=CASES, scope="module")
def case(request):
    name, setting = request.param
    return ENTRIES[name].load_conformance(), setting


def replace(columns, unit, **cells):
    mine = columns["episode_id"] == unit
    return {n: np.where(mine, cells[n], v.astype(np.float64)) if n in cells else v for n, v in columns.items()}


def compare(case, first, second, noise, **how):
    return record_replay(*(released(*case, columns) for columns in (first, second)), noise=noise, **how)


def test_contributions_add_up(case):
    """Exactly: what a unit adds to a sum is the same number whoever else is in the log, and alone in it.

    Along the same released outputs. A last digit that differed would be multiplied by the number of units.
    With fewer people noise would leave no cell of a stratum large enough.
    """
    if any(m.sampling_rate < 1.0 for m in mechanisms_of(*case).values()):
        pytest.skip("in batches of its own a unit that is alone has another coin")
    full, recorder = walks(case[0], 200, 4), Recorder()

    def sums(columns):
        return [np.array(total, dtype=object) for total in totals(recorded(*case, columns, SECURE, recorder))]

    everybody = sums(full)
    for unit in (0, 8):
        rest, alone = sums(without(full, unit)), sums({n: v[full["episode_id"] == unit] for n, v in full.items()})
        for a, b, c in zip(everybody, rest, alone, strict=True):
            assert (a - b).tolist() == c.tolist()
            assert any(c)


@pytest.mark.parametrize("noise", [SEEDED, SECURE], ids=["seeded", "secure"])
def test_an_empty_log_against_one_unit(case, noise):
    full = walks(case[0], 1, 5)
    assert compare(case, full, without(full, 0), noise).problems == ()
    assert compare(case, without(full, 0), full, noise).problems == ()


CELL = st.sampled_from([0.0, 1.0, 2.0, -1.0, 0.5, 1e-300, 1e6, 1e101, NAN, np.inf, -np.inf, HUGE])


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_garbage(case, data):
    conformance = case[0]
    full = walks(conformance, 5, data.draw(st.integers(0, 2)))
    rows = int((full["episode_id"] == 4).sum())
    cells = {
        name: data.draw(st.lists(CELL, min_size=rows, max_size=rows))
        for name in ("reward", "observation", "behavior_prob", "action", "terminated", "t")
        if data.draw(st.booleans())
    }
    changed = {n: v.astype(np.float64) if n in cells else v.copy() for n, v in full.items()}
    for name, values in cells.items():
        changed[name][full["episode_id"] == 4] = values
    assert compare(case, changed, without(full, 4), SeededNoise.from_seed(data.draw(st.integers(0, 9)))).problems == ()


def test_the_check_sees_vectors_that_are_too_long(case, monkeypatch):
    """The suite itself is tried: the same run with vectors that are thirty times as long after the clip."""
    conformance, setting = case
    if setting != next(iter(conformance.algorithm.settings)):
        pytest.skip("once for each algorithm")
    monkeypatch.setattr(arithmetic, "clip_to_grid", lambda vectors, *clip: 30 * clip_to_grid(vectors, *clip))
    engine._accumulate.clear_cache()  # what is compiled has the clip in it
    full = walks(conformance, 9, 4)
    found = compare(case, full, without(full, 8), SEEDED)
    engine._accumulate.clear_cache()
    assert found.largest > 1.0
    assert any("more than the sensitivity" in problem for problem in found.problems)
