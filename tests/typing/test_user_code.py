"""A type checker finds what is wrong in users' code, and nothing in what is right."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dprl

CODE = Path(__file__).parent / "user_code.py"


@pytest.mark.slow
def test_the_wrong_lines_are_errors_and_no_others(tmp_path):
    source = str(Path(dprl.__file__).parents[1])
    shutil.copy(CODE, tmp_path)
    asked = {"extraPaths": [source], "typeCheckingMode": "basic"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(asked))
    call = [sys.executable, "-m", "pyright", "--outputjson", "--project", tmp_path, "--pythonpath", sys.executable]
    done = subprocess.run(call, capture_output=True, text=True)
    errors = [found for found in json.loads(done.stdout)["generalDiagnostics"] if found["severity"] == "error"]
    marked = {number for number, line in enumerate(CODE.read_text().splitlines(), 1) if "# wrong" in line}
    found = {error["range"]["start"]["line"] + 1 for error in errors}
    assert found == marked, [error["message"] for error in errors]
