"""What the suite runs is what a release runs: the same numbers, bit for bit, from the front door."""

from __future__ import annotations

import numpy as np
import pytest

import dprl
from dprl.audits.conformance import evaluation as conformance
from dprl.mechanisms.noise import SecureNoise

from .cases import CASES, suite


@pytest.mark.parametrize("case", CASES)
def test_front_door_gives_the_suites_numbers(case, monkeypatch):
    name, setting = case
    algorithm, plan = suite(name), suite(name).plan(setting)
    monkeypatch.setattr(SecureNoise, "fresh", classmethod(lambda cls: cls(bytes(32))))
    columns = algorithm.columns(14, 1)
    release = dprl.evaluate(
        dprl.read_log(columns, bounds=plan.bounds),
        dict(zip("ab", conformance._POLICIES, strict=True)),
        conformance._BUDGET,
        algorithm=algorithm.config(setting),
        features="columns" if plan.features is None else plan.features.name,
    )
    # the suite reads the log under its own bounds, and tightens them where a setting has others
    expected = algorithm.run(setting, dprl.read_log(columns, bounds=algorithm.bounds).load(), SecureNoise(bytes(32)))
    assert [e.value for e in release.values.values()] == expected["values"].tolist()
    assert [list(e.interval) for e in release.values.values()] == expected["intervals"].tolist()
    assert (release.value_function is None) == ("value function" not in expected)
    if release.value_function is not None:
        np.testing.assert_array_equal(release.value_function.theta, expected["value function"].astype(np.float64))
