"""A release to interrupt, and the same one uninterrupted."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dprl.cli import main
from dprl.data.readers import Log

from .resumable import STEPS, Trial, fix_key, records


@pytest.fixture
def said(capsys):
    """Lines that ``dprl ARGUMENTS`` prints: of its errors, where it is to end with another code than 0."""

    def run(*arguments: object, code: int = 0) -> list[str]:
        with pytest.raises(SystemExit) as stop:
            main([*map(str, arguments)])
        assert (stop.value.code or 0) == code
        told = capsys.readouterr()
        return (told.err if code else told.out).splitlines()

    return run


@pytest.fixture
def fixed_key(monkeypatch):
    fix_key(monkeypatch)


@pytest.fixture
def no_row_is_read(monkeypatch):
    """From when it is called."""

    def read(*_):
        raise AssertionError("a row was read")

    return lambda: monkeypatch.setattr(Log, "load", read)


@pytest.fixture
def trial(tmp_path):
    return Trial(tmp_path / "trial")


@pytest.fixture(scope="session")
def reference(tmp_path_factory):
    """What comes out, with the fixed key, of a release that is never interrupted; and its journal."""
    with pytest.MonkeyPatch.context() as patch:
        fix_key(patch)
        trial = Trial(tmp_path_factory.mktemp("reference") / "trial")
        release = trial.evaluate()
        journal = (trial.run / "journal").read_bytes()
        release.save(trial.out)
    assert len(records(journal)) == STEPS + 1
    assert len(b"".join(records(journal))) + 32 * (STEPS + 1) == len(journal)
    return SimpleNamespace(contents=trial.contents(), journal=journal)
