"""What every test shares: one thread for products of matrices, a calibration cache, no deadline for property tests."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

from hypothesis import settings

# Two workers fill two cores. Threads of OpenBLAS that wait for each other there cost some 80 times what a product costs
# on one. It is read when NumPy is imported, which is later, and inherited by the processes that tests start.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

settings.register_profile("dprl", deadline=None, print_blob=True)
settings.load_profile("dprl")

# Calibrations are remembered on disk: between the tests of a session, and never in the user's own cache. Some plans are
# made while tests are collected, so it is set here and not in a fixture. Workers inherit the folder of who starts them.
if "DPRL_TESTS_CACHE" not in os.environ:
    os.environ["DPRL_TESTS_CACHE"] = tempfile.mkdtemp(prefix="dprl-tests-")
    atexit.register(shutil.rmtree, os.environ["DPRL_TESTS_CACHE"], ignore_errors=True)
os.environ["XDG_CACHE_HOME"] = os.environ["DPRL_TESTS_CACHE"]
