"""Files that somebody else may have made are refused in a sentence that says what they are."""

from __future__ import annotations

import os

import pytest

from dprl.errors import UnreadableError
from dprl.untrusted_files import read_regular


@pytest.fixture
def made(tmp_path):
    (tmp_path / "file").write_bytes(b"{}")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("link", "is a link, not a regular file"),
        ("pipe", "is not a regular file"),
        (".", "is not a regular file"),
        ("absent", "cannot be read: No such file or directory"),
        ("a\0b", "is not a file name"),
    ],
)
def test_what_is_no_regular_file_is_named_as_what_it_is(made, name, words):
    with pytest.raises(UnreadableError, match=f"{words}.$"):
        read_regular(made / name)


def test_a_file_is_read_up_to_its_largest_size_and_a_link_where_links_are_allowed(made):
    assert read_regular(made / "file", most=2) == read_regular(made / "link", links=True) == b"{}"
    with pytest.raises(UnreadableError, match="is larger than any such file"):
        read_regular(made / "file", most=1)
