"""What processes that were killed left behind is removed by the next, and what is in use or somebody else's is not."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from dprl.data.partition import partition
from dprl.files import temporary_folder

from .data.logs_in_files import TABLE, write

HOLDS = """
import sys, time
from pathlib import Path
from dprl.files import temporary_folder
with temporary_folder(sys.argv[1], Path(sys.argv[2])) as folder:
    (folder / "private").write_text("rows")
    print(folder.name, flush=True)
    time.sleep(600)
"""
PARTITIONS = """
import sys, time
from dprl.data import partition as module
write_part = module._write_part
def slowly(*arguments):
    part = write_part(*arguments)
    print("a part is there", flush=True)
    time.sleep(600)
module._write_part = slowly
module.partition(sys.argv[1], "person_id", 3, sys.argv[2])
"""


@contextmanager
def process(program: str, *arguments: object):
    """One that runs and has said something; gives it and what it said. It is killed at the end."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            yield running, running.stdout.readline().strip()
        finally:
            running.kill()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_folder_is_removed_at_the_end(tmp_path):
    def use() -> None:
        with temporary_folder("a-", tmp_path) as folder:
            assert folder.stat().st_mode & 0o777 == 0o700
            (folder / "private").write_text("rows")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        use()
    assert names(tmp_path) == set()


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path):
    with process(HOLDS, "a-", tmp_path) as (killed, left), process(HOLDS, "a-", tmp_path) as (_, in_use):
        assert names(tmp_path) == {left, in_use}
        killed.kill()
        killed.wait()
        assert (tmp_path / left / "private").exists()
        with temporary_folder("b-", tmp_path) as folder:  # of another prefix
            assert names(tmp_path) == {left, in_use, folder.name}
        with temporary_folder("a-", tmp_path) as folder:
            assert names(tmp_path) == {in_use, folder.name}
            assert (tmp_path / in_use / "private").exists()
        assert names(tmp_path) == {in_use}


def test_what_is_not_ours_stays(tmp_path):
    """A link to a folder, a name that we give to none, and what was never locked, as it may be made this moment."""
    for name in ("elsewhere", "a-mine", "a-12345678", "a-0000000_"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine").touch()
    for name in ("elsewhere", "a-mine"):
        (tmp_path / name / "dprl.lock").touch()
    (tmp_path / "a-0000000_" / "dprl.lock").symlink_to(tmp_path / "elsewhere" / "mine")
    (tmp_path / "a-87654321").symlink_to("elsewhere")
    before = sorted(tmp_path.rglob("*"))
    with temporary_folder("a-", tmp_path):
        pass
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_what_another_user_left_stays(tmp_path):
    for name, owner in (("a-12345678", os.geteuid() + 1), ("a-87654321", os.geteuid())):
        (tmp_path / name).mkdir()
        (tmp_path / name / "dprl.lock").touch()
        os.chown(tmp_path / name, owner, -1)
    with temporary_folder("a-", tmp_path):
        pass
    assert names(tmp_path) == {"a-12345678"}


def test_a_partition_that_was_killed(tmp_path):
    """Its rows are removed by the next one into the same folder."""
    log, out = write(TABLE, tmp_path / "log.parquet"), tmp_path / "parts"
    with process(PARTITIONS, log, out) as (killed, said):
        assert said == "a part is there"
        (left,) = names(tmp_path) - {log.name}
        killed.kill()
        killed.wait()
    assert list((tmp_path / left).rglob("*.arrow"))
    partition(log, "person_id", 3, tmp_path / "others")
    assert names(tmp_path) == {log.name, left, "others"}
    parts, _ = partition(log, "person_id", 3, out)
    assert names(tmp_path) == {log.name, "others", "parts"}
    parts.check()
    assert names(out) == names(tmp_path / "others")
