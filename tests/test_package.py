"""What is published: a source distribution and a wheel that install and run outside of the checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

from dprl import __version__

ROOT = Path(__file__).parents[1]


def run(*command, where):
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    ran = subprocess.run([*map(str, command)], cwd=where, env=outside, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_the_version_is_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    cited = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), flags=re.MULTILINE)
    assert cited is not None
    assert {project["version"], cited.group(1)} == {__version__}


def test_on_windows_one_sentence_says_why_not():
    lines = "import sys; sys.platform = 'win32'\ntry: import dprl\nexcept ImportError as error: print(error)"
    said = run(sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r})\n{lines}", where=ROOT)
    assert "not on Windows" in said
    assert "Windows Subsystem for Linux" in said


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tools")
    venv.create(folder, with_pip=True)
    run(folder / "bin/python", "-m", "pip", "install", "--quiet", "build", "twine", where=folder)
    return folder / "bin/python"


@pytest.fixture(scope="module")
def built(tools, tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    run(tools, "-m", "build", "--outdir", out, ROOT, where=out)
    return sorted(out.iterdir(), key=lambda path: path.suffix)


@pytest.mark.slow
def test_both_pass_the_checks_of_an_index(tools, built):
    assert [path.suffix for path in built] == [".gz", ".whl"]
    run(tools, "-m", "twine", "check", "--strict", *built, where=built[0].parent)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [".gz", ".whl"])
def test_it_installs_and_runs_outside_of_the_checkout(built, kind, tmp_path):
    venv.create(tmp_path / "venv", with_pip=True)
    python, dprl = tmp_path / "venv/bin/python", tmp_path / "venv/bin/dprl"
    package = next(path for path in built if path.suffix == kind)
    run(python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", package, where=tmp_path)
    assert run(dprl, "--version", where=tmp_path) == run(python, "-m", "dprl", "--version", where=tmp_path)
    assert __version__ in run(dprl, "--version", where=tmp_path)
    run(dprl, "simulate", "chain", "--episodes", "300", "--out", "log.parquet", where=tmp_path)
    run(
        dprl, "evaluate", "log.parquet", "--bounds", "log.bounds.toml", "--target-policy", "uniform", "--epsilon", "1",
        "--delta", "1e-5", "--out", "out", where=tmp_path,
    )  # fmt: skip
    assert "epsilon 1, delta 1e-05 per trajectory" in run(dprl, "verify", "out", where=tmp_path)
    assert (tmp_path / "out/report.html").stat().st_size > 10_000
