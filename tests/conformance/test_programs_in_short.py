"""Every program in short, on one small log: it draws what it declares. The slow tests try every setting."""

from __future__ import annotations

import numpy as np
import pytest

from dprl.mechanisms.noise import SecureNoise

from .cases import QUICK, check_event, recorded, suite
from .walks import walks

NOISE = SecureNoise(bytes(32))


@pytest.mark.parametrize(("name", "setting"), QUICK)
def test_the_event_is_that_of_what_is_drawn(name, setting):
    conformance = suite(name)
    columns = walks(conformance, 60, 4)
    lengths = np.bincount(columns["episode_id"])
    # walks of one length, so that little is compiled
    kept = np.isin(columns["episode_id"], np.flatnonzero(lengths == conformance.bounds.horizon)[:6])
    tape = recorded(conformance, setting, {name: values[kept] for name, values in columns.items()}, NOISE)
    check_event(conformance, setting, tape)
    assert all(np.isfinite(x).all() for x in tape.results.values())
