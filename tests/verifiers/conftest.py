"""The verifier of one file as a module, and what each version wrote."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from .corpus import VERSIONS, unpacked

SCRIPT = Path(__file__).parents[2] / "verify" / "dprl_verify.py"


@pytest.fixture(scope="session")
def alone() -> Any:
    spec = importlib.util.spec_from_file_location("dprl_verify", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def stored(tmp_path_factory) -> dict[str, dict[str, Path]]:
    return {version: unpacked(version, tmp_path_factory.mktemp(f"of {version}")) for version in VERSIONS}
