"""Commands that other distributions add, and what is said where none does."""

from __future__ import annotations

import pytest

from dprl import added
from dprl.errors import DprlError


def test_a_command_of_papers_is_listed_and_found(dprl):
    assert "reproduce" in added.names(added.COMMANDS)
    assert dprl("reproduce", "--list").code == 0


def test_without_the_distribution_it_is_one_sentence(dprl, monkeypatch):
    monkeypatch.setattr(added.metadata, "entry_points", lambda **_: ())
    found = dprl("reproduce", "004")
    assert found.err == (
        "error: dprl reproduce needs the distribution dprl-papers: pip install ./papers in the sources of dprl.\n"
    )
    assert "reproduce" not in dprl("--help").out
    with pytest.raises(DprlError, match="dprl-papers"):
        added.calibrated("gpope", "as-published")


def test_what_nobody_knows_is_no_command(dprl):
    found = dprl("reproduces")
    assert (found.code, found.out) == (2, "")
    assert "dprl has no command 'reproduces': did you mean reproduce?" in found.err
