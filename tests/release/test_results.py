"""A release is written all or nothing, into a folder of its own."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys

import numpy as np
import pytest

import dprl
from dprl.accounting import certificate, verification
from dprl.accounting.certificate import load_private
from dprl.files import temporary_folder
from dprl.release import results
from dprl.release.results import check_folder

from ..interruption import interrupted
from ..sample_log import BOUNDS, columns


@pytest.fixture(scope="module")
def release():
    return dprl.evaluate(
        columns(), "uniform", dprl.Budget(1.0, 1e-5), bounds=BOUNDS, algorithm=dprl.GPOPE(steps=2), seed=None
    )


def test_what_is_written_is_what_was_released(tmp_path, release):
    paths = release.save(tmp_path / "new" / "folder")
    assert set(paths) == {"estimate.json", "value_function.safetensors", "report.html", "certificate.json"}
    assert all(p.parent == tmp_path / "new" / "folder" and p.is_file() for p in paths.values())
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["folder"]
    function = dprl.load_value_function(tmp_path / "new" / "folder")
    states = np.random.default_rng(0).uniform((0, -5), (10, 5), (20, 2))
    np.testing.assert_array_equal(function(states), release.value_function(states))
    assert verification.verify(tmp_path / "new" / "folder").private
    assert stat.S_IMODE((tmp_path / "new" / "folder").stat().st_mode) == 0o755


@pytest.mark.parametrize("name", ["results", "./results", "results/", "a/../results"])
def test_names_of_folders(tmp_path, monkeypatch, release, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    release.save(name)
    assert (tmp_path / "results" / "certificate.json").is_file()


def test_the_working_folder_itself(tmp_path, monkeypatch, release):
    inner = tmp_path / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    release.save(".")
    assert (inner / "certificate.json").is_file()


SAVE_AND_BE_KILLED = """
import os, signal, sys
from dprl.release import results
results.render = lambda *_: ""
results.seal = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
results.save_release("estimate.json", {}, {}, {}, sys.argv[1])
"""


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_has_is_not(tmp_path, release):
    with temporary_folder(".results.", tmp_path) as living:
        subprocess.run([sys.executable, "-c", SAVE_AND_BE_KILLED, tmp_path / "results"], check=False)
        (left,) = {p for p in tmp_path.iterdir() if p != living}
        assert (left / "release" / "estimate.json").exists()
        check_folder(tmp_path / "results")
        assert set(tmp_path.iterdir()) == {living}
        release.save(tmp_path / "results")
        assert set(tmp_path.iterdir()) == {living, tmp_path / "results"}


def listing(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


@pytest.mark.parametrize("call", ["write_atomically", "seal", "write", "render"])
@pytest.mark.parametrize("empty_folder", [True, False])
def test_a_failure_leaves_nothing_behind(tmp_path, monkeypatch, release, call, empty_folder):
    def failed(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(results, call, failed)
    if empty_folder:
        (tmp_path / "results").mkdir()
    before = listing(tmp_path)
    with pytest.raises(dprl.DprlError, match="No space left on device"):
        release.save(tmp_path / "results")
    assert listing(tmp_path) == before


def test_an_interruption_leaves_nothing_behind(tmp_path, release):
    with interrupted(results, "seal"), pytest.raises(KeyboardInterrupt):
        release.save(tmp_path / "results")
    assert listing(tmp_path) == []


def test_a_folder_that_is_filled_meanwhile_is_not_written_over(tmp_path, monkeypatch, release):
    """Between the check and the rename somebody else writes into the folder."""
    folder = tmp_path / "results"

    def late(*arguments):
        folder.mkdir()
        (folder / "theirs").write_text("keep me")
        return certificate.write(*arguments)

    monkeypatch.setattr(results, "write", late)
    with pytest.raises(dprl.DprlError, match="Cannot write"):
        release.save(folder)
    assert listing(tmp_path) == ["results", "results/theirs"]


@pytest.mark.parametrize("make", ["full", "file", "below a file", "link", "dangling link", "long name", "kernel"])
def test_folders_that_are_refused_before_anything_is_spent(tmp_path, make):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "dangling link").symlink_to("nowhere")
    places = {"below a file": "file/results", "long name": "x" * 300, "kernel": "/proc/results"}
    before = listing(tmp_path)
    with pytest.raises(dprl.DprlError):
        check_folder(tmp_path / places.get(make, make))
    assert listing(tmp_path) == before


def test_looking_leaves_no_trace(tmp_path):
    assert check_folder(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    (tmp_path / "empty").mkdir()
    check_folder(tmp_path / "empty")
    assert listing(tmp_path) == ["empty"]


def test_keys_are_looked_at_before_anything_is_spent(tmp_path):
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    def pem(key, encryption):
        path = tmp_path / "key.pem"
        path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
        return path

    load_private(pem(Ed25519PrivateKey.generate(), NoEncryption()))
    for wrong in (
        pem(Ed25519PrivateKey.generate(), BestAvailableEncryption(b"secret")),
        pem(generate_private_key(SECP256R1()), NoEncryption()),
    ):
        with pytest.raises(dprl.DprlError, match="not an Ed25519 private key"):
            load_private(wrong)
    with pytest.raises(dprl.DprlError, match="Cannot read the signing key"):
        load_private(tmp_path)
