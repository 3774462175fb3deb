"""The front door: every name is there, and opening it loads nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

import dprl

HEAVY = (
    "jax",
    "numpy",
    "pyarrow",
    "dp_accounting",
    "scipy",
    "matplotlib",
    "pandas",
    "cryptography",
    "sqlite3",
    "jinja2",
)


def loaded_after(code: str) -> set[str]:
    """Top-level modules of a fresh interpreter that ran ``code``."""
    script = f"import sys\ntry:\n    {code}\nexcept SystemExit:\n    pass\nprint('|', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return {name.partition(".")[0] for name in done.stdout.partition("|")[2].split()}


def test_every_name_is_there():
    assert set(dir(dprl)) == {*dprl.__all__, "__version__"}
    for name in dprl.__all__:
        found = getattr(dprl, name)
        assert found.__name__ == name
    assert issubclass(dprl.OverspendError, dprl.DprlError)


def test_an_unknown_name():
    with pytest.raises(AttributeError, match="no attribute 'evaluatee'"):
        dprl.evaluatee  # noqa: B018


@pytest.mark.parametrize("code", ["import dprl", "from dprl.cli import main; main(['--help'])"])
def test_nothing_heavy_is_loaded(code):
    modules = loaded_after(code)
    assert "dprl" in modules
    assert not modules & set(HEAVY)


def test_the_probe_sees_what_is_loaded():
    assert "numpy" in loaded_after("import dprl; dprl.read_log")
