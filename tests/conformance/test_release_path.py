"""What the suite runs is what a release runs: the same numbers, bit for bit, from the front door."""

from __future__ import annotations

import numpy as np
import pytest

import dprl
from dprl.algorithms.evaluation import conformance
from dprl.mechanisms.noise import SecureNoise

SUITES = (conformance.GPOPE_CONFORMANCE, conformance.IMPORTANCE_CONFORMANCE)


@pytest.mark.parametrize(("suite", "setting"), [(s, setting) for s in SUITES for setting in s.settings])
def test_front_door_gives_the_suites_numbers(suite, setting, monkeypatch):
    monkeypatch.setattr(SecureNoise, "fresh", classmethod(lambda cls: cls(bytes(32))))
    log = dprl.read_log(suite.columns(14, 1), bounds=suite.bounds)
    release = dprl.evaluate(
        log,
        dict(zip("ab", conformance._POLICIES, strict=True)),
        conformance._BUDGET,
        algorithm=suite.config(setting),
        features=suite.features.get(setting, "columns"),
    )
    expected = suite.run(setting, log.load(), SecureNoise(bytes(32)))
    assert [e.value for e in release.values.values()] == expected["values"].tolist()
    assert [list(e.interval) for e in release.values.values()] == expected["intervals"].tolist()
    assert (release.value_function is None) == ("value function" not in expected)
    if release.value_function is not None:
        np.testing.assert_array_equal(release.value_function.theta, expected["value function"].astype(np.float64))
