"""A certificate is sealed and written in one way, or not at all."""

from __future__ import annotations

import math
import os

import pytest

import dprl
from dprl.accounting.certificate import canonical_json, seal, sha256_file, versions
from dprl.errors import DprlError
from dprl.files import write_atomically

CONTENT = {"schema": "dprl.certificate/1", "epsilon": 1.0}


def test_sealing_changes_neither_its_argument_nor_the_folder(tmp_path):
    content = dict(CONTENT)
    (tmp_path / "a").write_bytes(b"a")
    sealed = seal(content, tmp_path, ["a"])
    assert content == CONTENT
    assert os.listdir(tmp_path) == ["a"]
    assert sealed["artifacts"] == {"a": "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"}
    assert sha256_file(tmp_path / "a") == sealed["artifacts"]["a"]
    assert seal(sealed, tmp_path, ["a"]) == sealed
    assert seal(sealed | {"epsilon": 2.0}, tmp_path, ["a"])["digest"] != sealed["digest"]


@pytest.mark.parametrize("name", ["missing", "../up", "a/b", "certificate.json", "statement.json", "", ".."])
def test_sealing_refuses_what_it_cannot_certify(tmp_path, name):
    with pytest.raises(DprlError, match="cannot be certified"):
        seal(CONTENT, tmp_path, [name])


def test_canonical_json_is_one_spelling():
    assert canonical_json({"b": 1, "a": {"d": 0.1, "c": "ä"}}) == b'{"a":{"c":"\\u00e4","d":0.1},"b":1}'
    assert canonical_json({"a": 1, "b": 2}) == canonical_json({"b": 2, "a": 1})
    for bad in ({"a": math.nan}, {"a": math.inf}, {"a": object()}, {"a": {1, 2}}):
        with pytest.raises(DprlError, match="plain JSON"):
            canonical_json(bad)


def test_writing_is_all_or_nothing(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(DprlError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]
    with pytest.raises(DprlError, match="cannot be written"):
        write_atomically(tmp_path / "nowhere" / "file", b"x")


def test_versions_name_what_the_numbers_depend_on():
    found = versions()
    assert set(found) == {"dprl", "python", "jax", "dp_accounting", "numpy"}
    assert found["dp_accounting"] == "0.6.0"
    assert found["dprl"] == dprl.__version__
