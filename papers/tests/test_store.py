"""Finished cells on disk: whole or not there, and found again by what determines them."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from dprl.errors import DprlError
from dprl_papers.harness.store import Store, address

KEY = {"method": "zero", "units": 10, "epsilon": None}


def test_what_is_saved_is_read_again(tmp_path):
    store = Store(tmp_path / "out", "004")
    assert store.read(KEY) is None
    store.save(KEY, {"rmse": [0.25]}, 1.5)
    assert Store(tmp_path / "out", "004").read(KEY) == {"rmse": [0.25]}
    assert store.read(KEY | {"units": 11}) is None


def test_the_address_is_of_the_content():
    assert address(KEY) == address(dict(reversed(KEY.items())))
    assert address(KEY) != address(KEY | {"units": 11})


@pytest.mark.parametrize("damage", [b"", b"{", b'{"schema": "other"}', b"[]", "half"])
def test_a_damaged_file_is_computed_again(tmp_path, damage):
    store = Store(tmp_path, "004")
    store.save(KEY, {"rmse": [0.25]}, 1.5)
    (file,) = (tmp_path / "cells").iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2] if damage == "half" else damage)
    assert store.read(KEY) is None
    store.save(KEY, {"rmse": [0.25]}, 1.5)
    assert file.read_bytes() == whole


def test_a_file_of_another_cell_is_not_taken(tmp_path):
    store = Store(tmp_path, "004")
    store.save(KEY, {"rmse": [0.25]}, 1.5)
    (file,) = (tmp_path / "cells").iterdir()
    file.write_text(json.dumps(json.loads(file.read_text()) | {"key": KEY | {"units": 99}}))
    assert store.read(KEY) is None


def test_nothing_is_half_written(tmp_path, monkeypatch):
    """A write that fails leaves what was there, and no file beside it."""
    store = Store(tmp_path, "004")
    store.save(KEY, {"rmse": [0.25]}, 1.5)

    def fails(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(KeyboardInterrupt):
        store.save(KEY, {"rmse": [0.5]}, 1.5)
    monkeypatch.undo()
    assert store.read(KEY) == {"rmse": [0.25]}
    assert len(list((tmp_path / "cells").iterdir())) == 1


def test_folders_that_are_not_ours(tmp_path):
    full = tmp_path / "full"
    full.mkdir()
    (full / "thesis.tex").write_text("x")
    with pytest.raises(DprlError, match="is not a folder of this command"):
        Store(full, "004")
    assert [p.name for p in full.iterdir()] == ["thesis.tex"]
    with pytest.raises(DprlError, match="is not a folder of this command"):
        Store(full / "thesis.tex", "004")
    Store(tmp_path / "other", "005")
    with pytest.raises(DprlError, match="is of paper 005"):
        Store(tmp_path / "other", "004")
    (tmp_path / "other" / "reproduction.json").write_text("{")
    with pytest.raises(DprlError, match="is not a folder of this command"):
        Store(tmp_path / "other", "005")
    empty = tmp_path / "empty"
    empty.mkdir()
    Store(empty, "004")


def test_what_is_kept_is_computed_once(tmp_path):
    """Tuples, arrays and dataclasses come back as JSON has them, the first time too."""
    store, calls = Store(tmp_path, "004"), []

    def compute():
        calls.append(1)
        return {"values": np.array([0.5, 1.0]), "at": (1, None)}

    assert [store.kept(KEY, compute) for _ in range(2)] == [{"values": [0.5, 1.0], "at": [1, None]}] * 2
    assert calls == [1]
    store.kept(KEY | {"units": 11}, compute)
    assert calls == [1, 1]


def test_seconds_are_those_of_a_part_alone_and_count_once(tmp_path, monkeypatch):
    clock = itertools.count()
    timer = SimpleNamespace(process_time=lambda: float(next(clock) ** 2))
    monkeypatch.setattr("dprl_papers.harness.store.time", timer)
    store = Store(tmp_path, "004")
    inner = lambda: store.kept({"function": "a.inner"}, lambda: 1)  # from 1 to 4 on the clock  # noqa: E731
    store.kept({"function": "a.outer"}, lambda: inner() + inner())  # from 0 to 9
    assert {made["what"]: made["seconds"] for made in store.asked.values()} == {"inner": 3.0, "outer": 6.0}


def test_a_worker_without_the_folder_computes_and_leaves_nothing(tmp_path):
    store = Store(tmp_path / "out", "004")
    shutil.rmtree(tmp_path / "out")
    assert store.kept(KEY, lambda: (1,)) == [1]
    assert not (tmp_path / "out").exists()
