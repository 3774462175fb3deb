"""Releases with one key stay what they were, in their first eight numbers.

The recorded digests are of all bytes, whose last digits are a processor's: they are for who compares two commits on
one machine.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from .releases import RECORDED, cases, released

pytestmark = pytest.mark.slow
CASES = {name: case for name, *case in cases()}


def test_every_setting_is_recorded():
    assert set(json.loads(RECORDED.read_text())) == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_release_is_what_it_was(name):
    was, found = json.loads(RECORDED.read_text())[name], released(*CASES[name])
    np.testing.assert_allclose(found["numbers"], was["numbers"], rtol=1e-9, atol=1e-12)
