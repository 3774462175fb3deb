"""Every program in short, on one small log: the slow tests hold the same at length, in every setting."""

from __future__ import annotations

import numpy as np
import pytest

from dprl.accounting import events
from dprl.audits.record_replay import Recorder, compare
from dprl.mechanisms.noise import SecureNoise

from .cases import QUICK, emitted, load, same_event, suite

NOISE = SecureNoise(bytes(32))


def logs(conformance):
    """Walks of one length, so that little is compiled; and the same with the last one absent, alone, or broken."""
    columns = conformance.columns(60, 4)
    lengths = np.bincount(columns["episode_id"])
    kept = np.flatnonzero(lengths == conformance.bounds.horizon)[:6]
    full = {name: values[np.isin(columns["episode_id"], kept)] for name, values in columns.items()}
    mine, floats = full["episode_id"] == kept[-1], {name: values.astype(np.float64) for name, values in full.items()}
    rest, alone = ({name: values[rows] for name, values in full.items()} for rows in (~mine, mine))
    changed = [
        {**full, name: np.where(mine, cell, floats[name])}
        for name, cell in (("reward", np.nan), ("behavior_prob", 1e-6), ("observation", 1e308))
    ]
    return full, rest, alone, changed


@pytest.mark.parametrize(("name", "setting"), QUICK)
def test_a_release_and_its_neighbours(name, setting):
    conformance, recorder = suite(name), Recorder()
    full, rest, alone, changed = logs(conformance)

    def tape(columns):
        log = load(conformance, columns)
        return recorder.record(lambda noise, wrap: conformance.run(setting, log, noise, wrap), NOISE)

    without = tape(rest)
    # the event is that of what was asked of the noise source, and of what was released
    declared, mechanisms = conformance.event(setting), conformance.mechanisms(setting)
    assert declared == events.compose([m.event() for m in mechanisms.values()])
    assert same_event(declared, emitted(conformance, setting, without.calls))
    assert without.mechanisms == list(mechanisms.values())
    assert all(np.isfinite(x).all() for x in without.results.values())
    # one unit more moves no sum by more than the sensitivity, and what is made of the sums is made of them alone
    with_it = tape(full)
    assert compare(without, with_it).problems == ()
    assert compare(without, with_it).largest > 0.0
    for columns in changed:
        assert compare(without, tape(columns)).problems == ()
    # what it adds is the same number whoever else is there
    by_itself = tape(alone)
    for place, mechanism in enumerate(without.mechanisms):
        for a, b, c in zip(*(t.entries[place] for t in (with_it, without, by_itself)), strict=True):
            moved = (np.array(a.total, dtype=object) - np.array(b.total, dtype=object)).tolist()
            if mechanism.sampling_rate == 1.0:
                assert moved == list(c.total)
