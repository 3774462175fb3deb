"""What every test shares: a calibration cache of its own, and no deadline for property tests."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

settings.register_profile("dprl", deadline=None, print_blob=True)
settings.load_profile("dprl")


@pytest.fixture(scope="session", autouse=True)
def _calibration_cache(tmp_path_factory):
    """Calibrations are remembered on disk: between the tests of a session, and never in the user's own cache."""
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before
