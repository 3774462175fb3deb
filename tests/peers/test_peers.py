"""Libraries beside dprl, in an environment of their own: their logs and policies are taken as they are, and their
estimators agree with dprl's to ten digits on the same log.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import dprl

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "requirements.txt"
TORCH = "torch==2.13.0"  # with its dependencies, which differ from machine to machine
UNREACHABLE = re.compile("NewConnectionError|NameResolutionError|ConnectTimeoutError|ReadTimeoutError|ProxyError")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def python() -> Path:
    """The interpreter of an environment that sees what is installed for dprl behind what the peers bring."""
    key = hashlib.sha256(REQUIREMENTS.read_bytes() + TORCH.encode() + sys.version.encode()).hexdigest()[:16]
    folder = HERE.parents[1] / ".cache" / f"peers-{key}"
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", folder], check=True)
        site = next((folder / "lib").glob("python*/site-packages"))
        (site / "dprl_needs.pth").write_text(sysconfig.get_path("purelib") + "\n")
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-input"]
        for wanted in ([TORCH], ["--no-deps", "--ignore-requires-python", "--requirement", str(REQUIREMENTS)]):
            done = subprocess.run([*pip, *wanted], capture_output=True, text=True)
            if done.returncode and UNREACHABLE.search(done.stderr):
                pytest.skip("The peers' packages are not installed, and the package registry cannot be reached.")
            assert done.returncode == 0, done.stderr
        ready.touch()
    return python


@pytest.mark.parametrize("peer", ["obp", "scope_rl", "models", "tables"])
def test_peer(python, peer):
    inside = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--noconftest"]
    env = {**os.environ, "PYTHONPATH": str(Path(dprl.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*inside, HERE / f"real_{peer}.py"], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
