"""A small Ray cluster for the tests of a module, and a policy that tells who asked it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from ..release.in_parts import log_and_parts
from ..sample_log import BOUNDS_TOML

SLOWLY = """
import os, sys, time
from pathlib import Path
import numpy as np

WORKER = "default_worker" in sys.argv[0]

def even(states):
    if WORKER:
        with open(Path(__file__).parent / "asked", "a") as file:
            file.write(f"{os.getpid()} {len(states)}\\n")
        time.sleep(SECONDS)
    return np.full((len(states), 2), 0.5)

class Indiscreet(BaseException):
    pass

def says_what_it_sees(states):
    if WORKER:
        print("of a row", *states[0].tolist(), file=sys.stderr)
        raise Indiscreet(f"of a row {states[0].tolist()}")
    return np.full((len(states), 2), 0.5)
"""


class Policies:
    """A file of policies that take their time in workers, and how often they were asked there."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.path = folder / "policies.py"
        self.path.write_text(SLOWLY.replace("SECONDS", str(seconds)))

    def __getitem__(self, name: str) -> str:
        return f"{self.path}:{name}"

    def asked(self) -> Counter[int]:
        """How often for so many rows."""
        lines = (self.path.parent / "asked").read_text().splitlines()
        return Counter(int(line.split()[1]) for line in lines)


@pytest.fixture
def policies(tmp_path):
    return lambda seconds=0.0: Policies(tmp_path, seconds)


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    return log_and_parts(tmp_path_factory.mktemp("logs"))


@pytest.fixture(scope="module")
def cluster():
    """Of five processors, on this machine; the folder of its logs."""
    from dprl.release.engines.cluster import cluster, import_ray

    ray = import_ray()
    with cluster(ray, 5, None):
        yield Path(ray._private.worker._global_node.get_session_dir_path())


def write_bounds(folder: Path) -> Path:
    path = folder / "bounds.toml"
    path.write_text(BOUNDS_TOML)
    return path
