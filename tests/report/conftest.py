"""The sample artifacts, and folders sealed the way a release seals them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dprl.report import render

SAMPLE = Path(__file__).parent / "sample"
Seal = Callable[..., Path]


@pytest.fixture
def estimate() -> dict[str, Any]:
    return json.loads((SAMPLE / "estimate.json").read_text(encoding="utf-8"))


@pytest.fixture
def certificate() -> dict[str, Any]:
    return json.loads((SAMPLE / "certificate.json").read_text(encoding="utf-8"))


@pytest.fixture
def statement(certificate: dict[str, Any]) -> dict[str, Any]:
    """The certificate's fields, for a run whose noise came from a seed."""
    noise = {"secure": False, "source": "seeded generator"}
    return {**certificate, "schema": "dprl.statement/1", "status": "not private", "noise": noise}


@pytest.fixture
def seal(tmp_path: Path) -> Seal:
    """Writes estimate, report and certificate (or statement) into a folder, each listed by its SHA-256."""

    def write(estimate: dict[str, Any], certificate: dict[str, Any]) -> Path:
        results = tmp_path / "results"
        results.mkdir()
        files = {
            "estimate.json": json.dumps(estimate).encode(),
            "report.html": render(estimate, certificate).encode(),
        }
        for name, content in files.items():
            (results / name).write_bytes(content)
        sealed = {
            **certificate,
            "created": "2026-11-21T12:00:00Z",
            "artifacts": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
            "digest": "0" * 64,
            "signature": {"algorithm": "Ed25519", "public_key": "AA", "value": "BB"},
        }
        kind = "certificate" if certificate["schema"].startswith("dprl.certificate") else "statement"
        (results / f"{kind}.json").write_text(json.dumps(sealed, sort_keys=True), encoding="utf-8")
        return results

    return write


@pytest.fixture
def results(seal: Seal, estimate: dict[str, Any], certificate: dict[str, Any]) -> Path:
    """The sample's folder."""
    return seal(estimate, certificate)
