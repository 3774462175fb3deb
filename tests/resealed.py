"""A certificate that somebody changed and sealed again: only what it says can give it away."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dprl.accounting.certificate import digest, sha256_file, to_bytes


def reseal(results: Path, change: Callable[[Any], object]) -> Path:
    """Change the content of a certificate in its place, and make its digests fit again: its files may have changed."""
    path = results / "certificate.json"
    content = json.loads(path.read_bytes())
    change(content)
    content["artifacts"] = {name: sha256_file(results / name) for name in content["artifacts"]}
    content["digest"] = digest(content)
    path.write_bytes(to_bytes(content))
    return results


def resealed(results: Path, copy: Path, change: Callable[[Any], object]) -> Path:
    """Return a copy of a results folder, whose certificate was changed and sealed again."""
    return reseal(Path(shutil.copytree(results, copy)), change)
