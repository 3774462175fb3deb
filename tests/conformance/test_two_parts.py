"""One more person, with the others' coins fixed: in the first part the choice may move, in the second the values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dprl.audits.conformance.sample_split import BEST, LEARN
from dprl.audits.people import ROWS, PeopleWithTrajectories, without
from dprl.audits.record_replay import SEED, Recorder, compare
from dprl.data.readers import read_log
from dprl.mechanisms.noise import SeededNoise

AMPLE = replace(LEARN.budget, epsilon=16.0)  # at which values of so few people are not refused for their noise
CASES = [
    pytest.param(suite, setting, id=f"{suite.algorithm.name}-{setting}")
    for suite in (BEST, LEARN)
    for setting in suite.algorithm.settings
]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(("suite", "setting"), CASES)
def test_one_more_person_moves_the_sums_of_one_part(suite, setting, first):
    bounds = replace(suite.bounds, **suite.algorithm.settings[setting].facts)
    people, everybody = PeopleWithTrajectories(bounds, trajectories=2, persons=True), range(bounds.units)
    coins = suite.plan(setting).first.split.in_first(SeededNoise.from_seed(SEED), bounds.units)
    moved = []
    for place in np.flatnonzero(coins == first)[:2]:
        for kind in ("the largest rewards and ratios", "the smallest rewards"):
            recorder = Recorder()

            def record(present, *different, missing=None, recorder=recorder):
                log = read_log(people.columns(present, *different), bounds=bounds, unit="person")
                return recorder.record(suite.releasing(setting, log, AMPLE), missing)

            fewer = record(without(everybody, place), missing=place)
            found = compare(fewer, more := record(everybody, place, ROWS[kind]))
            assert found.problems == ()
            for number in range(len(fewer.mechanisms)):
                pairs = zip(fewer.entries[number], more.entries[number], strict=True)
                if any(one.total != two.total for one, two in pairs):
                    assert (number == 0) == first  # the first mechanism is that of the first part
                    moved.append(found.largest)
    assert max(moved) > 0.2
