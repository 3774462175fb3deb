"""The journal alone: what it gives back, what it cuts off and what it refuses."""

from __future__ import annotations

import os
from itertools import pairwise

import numpy as np
import pytest

from dprl.errors import DprlError
from dprl.mechanisms.run_key import RunKey
from dprl.protocols import NO_JOURNAL
from dprl.release.journal import FolderJournal

KEY, ORIGIN = RunKey(bytes(range(32))), bytes(32)
STEPS = [("a", 0, 3), ("b", 0, 70), ("b", 1, 70), ("b", 2, 70)]
LENGTHS = [16 + 8 * dimension + 32 for _, _, dimension in STEPS]


def points(stream: str, step: int, dimension: int) -> np.ndarray:
    seed = [ord(stream), step]
    return np.random.default_rng(seed).integers(-(2**62), 2**62, dimension)


def write(path, steps=STEPS, key=KEY, origin=ORIGIN) -> list[tuple[str, int]]:
    """Go through ``steps``; returns those that had to be computed."""
    journal, computed = FolderJournal(path, key, origin), []
    for stream, step, dimension in steps:

        def compute(stream=stream, step=step, dimension=dimension):
            computed.append((stream, step))
            return points(stream, step, dimension)

        got = journal.stream(stream).step(step, dimension, compute)
        np.testing.assert_array_equal(got, points(stream, step, dimension))
        assert got.dtype == np.int64
    journal.close()
    return computed


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal"


def test_what_was_kept_is_not_computed(path):
    assert write(path, STEPS[:2]) == [("a", 0), ("b", 0)]
    assert write(path) == [("b", 1), ("b", 2)]
    assert write(path) == []
    assert path.stat().st_size == sum(LENGTHS)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_step_is_on_disk_before_it_is_handed_out(path, monkeypatch):
    synced, fsync = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(os.fstat(file).st_size), fsync(file)))
    journal = FolderJournal(path, KEY, ORIGIN)
    for number, (stream, step, dimension) in enumerate(STEPS):
        journal.stream(stream).step(step, dimension, lambda: points("a", 0, dimension))  # noqa: B023
        assert synced[-1] == sum(LENGTHS[: number + 1])


@pytest.mark.parametrize("kept", range(len(STEPS)))
def test_a_torn_last_record_is_cut_off(path, kept):
    write(path)
    whole = path.read_bytes()
    start = sum(LENGTHS[:kept])
    for length in (1, 15, 17, 40, LENGTHS[kept] - 1):
        path.write_bytes(whole[: start + length])
        assert len(write(path)) == len(STEPS) - kept
        assert path.read_bytes() == whole


def test_a_last_record_with_a_sector_that_never_came_is_cut_off(path):
    write(path)
    whole = path.read_bytes()
    start, end = sum(LENGTHS[:3]), len(whole)
    first = -(-start // 512) * 512
    for hole in ((start, end), (first, end), (start, first), (first, first + 512)):
        raw = bytearray(whole)
        raw[slice(*hole)] = bytes(min(hole[1], end) - hole[0])
        path.write_bytes(bytes(raw))
        assert write(path) == [("b", 2)]
        assert path.read_bytes() == whole


@pytest.mark.parametrize("record", range(len(STEPS)))
def test_a_changed_bit_is_refused(path, record):
    write(path)
    whole = path.read_bytes()
    start = sum(LENGTHS[:record])
    for at in (0, 7, 8, 15, 16, 30, LENGTHS[record] - 33, LENGTHS[record] - 32, LENGTHS[record] - 1):
        raw = bytearray(whole)
        raw[start + at] ^= 4
        path.write_bytes(bytes(raw))
        with pytest.raises(DprlError, match="tampered with"):
            write(path)
        assert path.read_bytes() == bytes(raw)


def pieces(whole: bytes) -> list[bytes]:
    ends = np.cumsum([0, *LENGTHS])
    return [whole[a:b] for a, b in pairwise(ends)]


@pytest.mark.parametrize("order", [[0, 2, 1, 3], [0, 1, 3], [0, 1, 1, 2, 3], [1, 2, 3], [0, 2, 3], [0, 3, 3, 3]])
def test_records_are_not_swapped_repeated_or_left_out(path, order):
    write(path)
    parts = pieces(path.read_bytes())
    path.write_bytes(b"".join(parts[i] for i in order))
    with pytest.raises(DprlError, match="tampered with"):
        write(path)


def test_records_belong_to_their_key_data_stream_and_step(path):
    write(path)
    for other in (
        {"key": RunKey(bytes(32))},
        {"origin": b"x" * 32},
        {"steps": [("c", 0, 3), *STEPS[1:]]},
        {"steps": [("a", 1, 3), *STEPS[1:]]},
        {"steps": [("a", 0, 4), *STEPS[1:]]},
    ):
        with pytest.raises(DprlError, match="tampered with"):
            write(path, **other)


def test_only_grid_points_are_kept(path):
    journal = FolderJournal(path, KEY, ORIGIN).stream("a")
    for wrong in (np.zeros(3), np.zeros(2, dtype=np.int64), np.zeros((3, 1), dtype=np.int64)):
        with pytest.raises(TypeError, match="grid points"):
            journal.step(0, 3, lambda: wrong)  # noqa: B023
    assert path.stat().st_size == 0


def test_a_link_is_not_followed(path):
    path.symlink_to(path.with_name("elsewhere"))
    with pytest.raises(DprlError, match="cannot be written"):
        write(path)


def test_no_journal_computes_every_time():
    calls = []
    for _ in range(2):
        assert NO_JOURNAL.stream("a").step(0, 1, lambda: calls.append(1) or 5) == 5
    assert len(calls) == 2
