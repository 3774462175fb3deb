"""What every test shares: a calibration cache of its own, and no deadline for property tests."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

from hypothesis import settings

settings.register_profile("dprl", deadline=None, print_blob=True)
settings.load_profile("dprl")

# Calibrations are remembered on disk: between the tests of a session, and never in the user's own cache. Some plans are
# made while tests are collected, so it is set here and not in a fixture. Workers inherit the folder of who starts them.
if "DPRL_TESTS_CACHE" not in os.environ:
    os.environ["DPRL_TESTS_CACHE"] = tempfile.mkdtemp(prefix="dprl-tests-")
    atexit.register(shutil.rmtree, os.environ["DPRL_TESTS_CACHE"], ignore_errors=True)
os.environ["XDG_CACHE_HOME"] = os.environ["DPRL_TESTS_CACHE"]
