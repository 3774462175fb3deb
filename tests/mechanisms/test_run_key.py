"""The stored key: drawn once, kept to its owner, and different for every use."""

from __future__ import annotations

import hashlib
import itertools
import os
import stat

import numpy as np
import pytest

from dprl.errors import DprlError
from dprl.mechanisms import keystream
from dprl.mechanisms.noise import SecureNoise
from dprl.mechanisms.run_key import RunKey


@pytest.fixture
def path(tmp_path):
    return tmp_path / "key"


def test_what_is_stored_is_what_is_loaded(path):
    made, loaded = RunKey.create(path), RunKey.load(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(path.read_bytes()) == 32
    assert made.mac(b"x") == loaded.mac(b"x")
    for step in (0, 7):
        np.testing.assert_array_equal(
            made.noise(b"x").gaussian(step, 5, 2.0**30), loaded.noise(b"x").gaussian(step, 5, 2.0**30)
        )
        np.testing.assert_array_equal(
            made.noise(b"x").participation_mask(step, 50, 0.3), loaded.noise(b"x").participation_mask(step, 50, 0.3)
        )


def test_mode_does_not_follow_the_umask(path):
    before = os.umask(0o000)
    try:
        RunKey.create(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_two_keys_have_nothing_in_common(tmp_path):
    a, b = RunKey.create(tmp_path / "a"), RunKey.create(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() != (tmp_path / "b").read_bytes()
    assert a.mac(b"x") != b.mac(b"x")
    assert not np.array_equal(a.noise(b"x").gaussian(0, 20, 2.0**30), b.noise(b"x").gaussian(0, 20, 2.0**30))
    assert a != b
    assert a != RunKey.load(tmp_path / "a")  # by identity alone


def test_noise_and_macs_come_from_different_keys(path):
    """Neither is the key itself, and no MAC that is written beside the noise is a key of the noise."""
    key = RunKey.create(path)
    stored = path.read_bytes()
    draw = key.noise(b"x").gaussian(0, 20, 2.0**30)
    for known in (stored, key.mac(b""), key.mac(b"x"), key.mac(b"dprl-run-noise")):
        assert not np.array_equal(SecureNoise(known).gaussian(0, 20, 2.0**30), draw)
    assert key.mac(b"a") != key.mac(b"b")
    purposes = (b"dprl-run-noise", b"dprl-run-mac")
    subkeys = [hashlib.blake2b(key=stored, person=purpose, digest_size=32).digest() for purpose in purposes]
    source = hashlib.blake2b(b"x", key=subkeys[0], digest_size=32).digest()
    np.testing.assert_array_equal(SecureNoise(source).gaussian(0, 20, 2.0**30), draw)
    assert not np.array_equal(SecureNoise(subkeys[0]).gaussian(0, 20, 2.0**30), draw)
    assert key.mac(b"a") == hashlib.blake2b(b"a", key=subkeys[1], digest_size=32).digest()
    assert stored not in (key.mac(b""), key.mac(stored))


def test_noise_for_other_things_has_nothing_in_common(path):
    key = RunKey.create(path)
    draws = [key.noise(bound).gaussian(0, 20, 2.0**30) for bound in (b"x", b"y", b"")]
    for a, b in itertools.combinations(draws, 2):
        assert not np.array_equal(a, b)


def test_it_is_not_printed(path):
    key = RunKey.create(path)
    for text in (repr(key), str(key), f"{key}", repr(key.noise(b"x"))):
        assert "b'" not in text
        assert path.read_bytes().hex() not in text


def test_a_key_is_never_written_over(path):
    RunKey.create(path)
    before = path.read_bytes()
    with pytest.raises(DprlError, match="File exists"):
        RunKey.create(path)
    assert path.read_bytes() == before


def test_file_and_folder_are_on_disk_before_it_is_used(path, monkeypatch):
    synced = []
    real = os.fsync

    def fsync(file):
        synced.append(stat.S_IFMT(os.fstat(file).st_mode))
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)
    RunKey.create(path)
    assert synced == [stat.S_IFREG, stat.S_IFDIR]


def test_no_secure_source_no_key(path, monkeypatch):
    def none(_):
        raise NotImplementedError

    monkeypatch.setattr(keystream.secrets, "token_bytes", none)
    with pytest.raises(DprlError, match="no secure randomness"):
        RunKey.create(path)
    assert not path.exists()
    monkeypatch.setattr(keystream.secrets, "token_bytes", bytes)
    with pytest.raises(DprlError, match="gave zeros"):
        RunKey.create(path)
    assert not path.exists()


DAMAGE = {
    "other mode": (lambda p: p.chmod(0o640), "mode is not 0600"),
    "executable": (lambda p: p.chmod(0o700), "mode is not 0600"),
    "too short": (lambda p: p.write_bytes(bytes(31)), "32 bytes"),
    "too long": (lambda p: p.write_bytes(bytes(33)), "32 bytes"),
    "empty": (lambda p: p.write_bytes(b""), "32 bytes"),
    "missing": (lambda p: p.unlink(), "No such file"),
    "a link": (lambda p: p.symlink_to(p.rename(p.with_name("elsewhere"))), "cannot be read"),
    "a second name": (lambda p: p.with_name("second").hardlink_to(p), "one name"),
    "a folder": (lambda p: (p.unlink(), p.mkdir(mode=0o600)), r"cannot be read|one name"),
    "a pipe": (lambda p: (p.unlink(), os.mkfifo(p, 0o600)), "cannot be read|one name"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_another_file_is_refused(path, kind):
    RunKey.create(path)
    damage, words = DAMAGE[kind]
    damage(path)
    with pytest.raises(DprlError, match=words):
        RunKey.load(path)


def test_another_owner_is_refused(path, monkeypatch):
    RunKey.create(path)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(DprlError, match="another user"):
        RunKey.load(path)


def test_a_full_disk_leaves_a_sentence(path, monkeypatch):
    monkeypatch.setattr(os, "write", lambda file, content: 7)
    with pytest.raises(DprlError, match="disk is full"):
        RunKey.create(path)
