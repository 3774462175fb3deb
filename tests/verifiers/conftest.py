"""The verifier of one file as a module, and what each version wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ..modules import module_of
from .corpus import VERSIONS, unpacked

SCRIPT = Path(__file__).parents[2] / "verify" / "dprl_verify.py"


@pytest.fixture(scope="session")
def alone() -> Any:
    return module_of(SCRIPT)


@pytest.fixture(scope="session")
def stored(tmp_path_factory) -> dict[str, dict[str, Path]]:
    return {version: unpacked(version, tmp_path_factory.mktemp(f"of {version}")) for version in VERSIONS}
