"""docs/extending.md is followed to the letter: its files go into a copy of the library, and run there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```\w+\n(?:# |<!-- )(?P<path>[\w/.-]+)(?: -->)?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
MOST = {"An algorithm": 4, "A mechanism": 5, "An environment": 2, "A figure": 1}


def chapters() -> dict[str, list[tuple[str, str]]]:
    """Paths and what is written there, by what is added."""
    page = (ROOT / "docs" / "extending.md").read_text()
    parts = re.split(rf"^## ({'|'.join(MOST)})\n", page, flags=re.MULTILINE)
    return {title: BLOCK.findall(text) for title, text in zip(parts[1::2], parts[2::2], strict=True)}


def test_it_takes_as_many_files_as_are_promised():
    assert {title: len({path for path, _ in files}) for title, files in chapters().items()} == MOST


@pytest.mark.parametrize("title", MOST)
def test_what_is_changed_is_still_there(title):
    for path, text in chapters()[title]:
        changed = (ROOT / path).exists()
        assert changed == text.startswith(" ")
        if changed:
            assert _kept(text) in (ROOT / path).read_text()


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """A copy of the library with all that the page adds."""
    root = tmp_path_factory.mktemp("extended")
    for folder in ("src", "papers", "tests", "docs", "verify", "benchmarks"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__", ".papers"))
    shutil.copy(ROOT / "pyproject.toml", root)
    for path, text in (file for files in chapters().values() for file in files):
        target = root / path
        if text.startswith(" "):
            text = target.read_text().replace(_kept(text), _changed(text))
        target.write_text(text)
    _run(root, "benchmarks.documents")
    return root


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "pytest -q tests/evaluation/test_cell_means.py tests/mechanisms/test_count_sum.py",
        "pytest -q tests/conformance/test_algorithms.py tests/conformance/test_released_neighbours.py -k cell-means",
        "pytest -q tests/verifiers/test_alone.py papers/tests/test_spec.py",
        "pytest -q tests/accounting/test_strict_verification.py -k only_algorithms",
        "dprl check src/dprl/evaluation/cell_means.py --trials 2000",
        "dprl simulate machine --out machine.parquet --episodes 20",
        "dprl reproduce 004 --quick --figure small-logs --out drawn",
    ],
)
def test_what_it_says_runs(copied, command):
    _run(copied, command)


def _run(root: Path, command: str) -> None:
    paths = os.pathsep.join(str(root / folder) for folder in ("src", "papers/src"))
    ran = subprocess.run(
        [sys.executable, "-m", *command.split()],
        cwd=root,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def _kept(change: str) -> str:
    return "".join(line[1:] for line in change.splitlines(keepends=True) if line.startswith(" "))


def _changed(change: str) -> str:
    return "".join(line[1:] for line in change.splitlines(keepends=True))
