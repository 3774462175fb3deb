"""Public bounds: read from TOML, and refused in one sentence when they are not sound."""

from __future__ import annotations

import pytest

from dprl.data.bounds_file import read_bounds
from dprl.errors import DprlError

from ..sample_log import BOUNDS, BOUNDS_TOML


def test_bounds_of_every_form_are_the_same(tmp_path):
    path = tmp_path / "bounds.toml"
    path.write_text(BOUNDS_TOML)
    marked = tmp_path / "marked.toml"
    marked.write_text(BOUNDS_TOML, encoding="utf-8-sig")  # as editors on Windows save it
    for source in (path, str(path), marked, BOUNDS, BOUNDS.as_dict()):
        assert read_bounds(source) == BOUNDS


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("units = ", "not valid TOML"),
        ("my units = 3", "not valid TOML: .*; a name with a space or a sign in it stands in quotes"),
        ("units = " + "9" * 5000, "not valid TOML"),
        ("reward = " + "[" * 2000 + "]" * 2000, "not valid TOML"),
        (b"\xff\xfe", "is not text"),
        ("", "units is missing"),
        (BOUNDS_TOML + "gamma = 1\n", "unknown name 'gamma'"),
        (BOUNDS_TOML.replace("60", '"many"'), "units must be a whole number"),
    ],
)
def test_a_file_that_is_not_sound(tmp_path, text, words):
    path = tmp_path / "bounds.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DprlError, match=words) as error:
        read_bounds(path)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize(
    ("source", "words"),
    [("absent.toml", "Cannot read the bounds file"), (None, "missing"), ("infer", "never inferred"), (5, "are a TOML")],
)
def test_what_is_no_file(tmp_path, monkeypatch, source, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DprlError, match=words):
        read_bounds(source)
    with pytest.raises(DprlError, match="Cannot read the bounds file"):
        read_bounds(tmp_path)


@pytest.mark.parametrize("content", [b"t,reward\n0,1\n", b"\xff\x00", b"units = 3\n"])
@pytest.mark.parametrize("name", ["log.csv", "log.PARQUET"])
def test_a_log_is_not_read_as_bounds(tmp_path, name, content):
    """One sentence whatever its rows say."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DprlError) as found:
        read_bounds(tmp_path / name)
    assert str(found.value) == f"{name!r} is a log, not a bounds file: name a TOML file."
