"""The intents beside the ledger: what was interrupted or rolled back stays spent, and no other file is taken."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.accounting import ledger_file
from dprl.accounting.budget import Budget
from dprl.accounting.intents import Intent, intents_path
from dprl.accounting.ledger import Amount, Ledger
from dprl.errors import DprlError, OverspendError

from .test_ledger import CHARGE, DIGEST, RELATION, after, charge


def enter_and_stop(path: Path, entry: Intent) -> None:
    """Everything but the commit, as when Ctrl-C comes in between."""
    with ledger_file.writing(path) as opened:
        opened.enter(entry)
        raise KeyboardInterrupt


def interrupted(ledger: Ledger, epsilon: float = 0.1, token: str = "cd" * 16) -> None:
    with pytest.raises(KeyboardInterrupt):
        enter_and_stop(
            ledger.path,
            Intent(
                "charge", "trial", repr(epsilon), "1e-06", "person", RELATION, "2001-02-03T04:05:06Z", "test", token
            ),
        )


def refused(ledger: Ledger, message: str) -> None:
    """Every way to the ledger ends in this one sentence, and nothing is written."""
    before = {file.name: file.read_bytes() for file in ledger.path.parent.iterdir()}
    for call in (
        lambda: Ledger.open(ledger.path),
        lambda: charge(ledger),
        lambda: ledger.commit(1, DIGEST),
        lambda: ledger.spent("trial"),
        ledger.history,
        lambda: Ledger.create(ledger.path, "another", Budget(1.0, 1e-5), "person", RELATION),
    ):
        with pytest.raises(DprlError, match=message) as caught:
            call()
        assert str(caught.value).count("\n") == 0
    assert {file.name: file.read_bytes() for file in ledger.path.parent.iterdir()} == before


# --- interrupted ------------------------------------------------------------------------------------------------


def test_an_intent_without_a_charge_is_spent(ledger):
    charge(ledger)
    interrupted(ledger)
    assert ledger.spent("trial") == Amount(Decimal("0.2"), Decimal("2e-6"))
    first, second = ledger.history()
    assert (first.settled, second.digest, second.created) == (None, None, "2001-02-03T04:05:06Z")
    assert second.settled is not None
    assert charge(ledger) == 3
    assert len(ledger.history()) == 3


def test_a_resumed_run_finds_its_interrupted_charge(ledger):
    interrupted(ledger, 0.6, "ef" * 16)
    assert charge(ledger, 0.6, token="ef" * 16) == 1  # a second one of 0.6 would not fit
    ledger.commit(1, DIGEST)
    assert [c.digest for c in ledger.history()] == [DIGEST]


def test_an_interrupted_charge_counts_against_the_budget_at_once(ledger):
    interrupted(ledger, 0.6)
    with pytest.raises(OverspendError, match=r"epsilon 0\.4 "):
        charge(ledger, 0.5)
    charge(ledger, 0.4)
    assert ledger.remaining("trial").epsilon == 0


def test_what_is_settled_is_on_disk_first(ledger, path, monkeypatch):
    interrupted(ledger)
    synced = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append((os.fstat(file).st_ino, len(committed(path)))))
    assert len(ledger.history()) == 1
    assert synced == [(intents_path(path).stat().st_ino, 0)]
    assert len(committed(path)) == 1


def committed(path: Path) -> list[tuple[int]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT id FROM charge").fetchall()


def test_an_interrupted_declaration_is_entered(ledger, path):
    with pytest.raises(KeyboardInterrupt):
        enter_and_stop(path, Intent("dataset", "cohort", "0.5", "1e-06", "person", RELATION, "2001-02-03T04:05:06Z"))
    assert [(d.name, d.budget.epsilon) for d in ledger.datasets()] == [("cohort", Decimal("0.5")), ("trial", 1)]
    with pytest.raises(DprlError, match="already has a dataset 'cohort'"):
        Ledger.create(path, "cohort", Budget(5.0, 1e-5), "person", RELATION)


@pytest.mark.parametrize("kept", [1, 40, -1, "a power cut"])
def test_a_torn_last_line_is_cut_off(ledger, path, kept):
    """So is one that lost a block to a power cut."""
    charge(ledger)
    sound = intents_path(path).read_bytes()
    interrupted(ledger)
    line = intents_path(path).read_bytes()[len(sound) :]
    intents_path(path).write_bytes(sound + (line[:kept] if isinstance(kept, int) else bytes(60) + line[60:]))
    assert ledger.spent("trial").epsilon == Decimal("0.1")
    assert intents_path(path).read_bytes() == sound
    assert charge(ledger) == 2


# --- rolled back ------------------------------------------------------------------------------------------------


def test_an_older_copy_of_the_database_gets_no_budget_back(ledger, path):
    ledger.commit(charge(ledger, 0.1, token="01" * 16), DIGEST)
    shutil.copy(path, path.with_name("copy"))
    assert charge(ledger, 0.2, token="02" * 16) == 2
    Ledger.create(path, "cohort", Budget(3.0, 1e-5), "person", RELATION)
    ledger.commit(charge(ledger, 0.3, dataset="cohort", token="03" * 16), DIGEST)
    before = ledger.history()
    os.replace(path.with_name("copy"), path)

    assert ledger.remaining("trial").epsilon == Decimal("0.7")
    assert ledger.remaining("cohort").epsilon == Decimal("2.7")
    after = ledger.history()
    assert [(c.id, c.token, c.amount, c.dataset) for c in after] == [
        (c.id, c.token, c.amount, c.dataset) for c in before
    ]
    assert [c.settled is not None for c in after] == [False, True, True]
    assert [c.digest for c in after] == [DIGEST, None, None]  # that they were finished is in the database alone
    assert charge(ledger, 0.3, dataset="cohort", token="03" * 16) == 3
    ledger.commit(3, DIGEST)


def test_a_database_that_was_cut_back_to_nothing_declared_is_filled_again(path):
    ledger_file.create(path)
    shutil.copy(path, path.with_name("copy"))
    ledger = Ledger.create(path, "trial", Budget(1.0, 1e-5), "person", RELATION)
    charge(ledger, 0.7)
    os.replace(path.with_name("copy"), path)
    assert ledger.remaining("trial").epsilon == Decimal("0.3")


def test_older_intents_are_refused(ledger, path):
    charge(ledger)
    old = intents_path(path).read_bytes()
    charge(ledger)
    intents_path(path).write_bytes(old)
    refused(ledger, "are not those that the ledger .* goes with")


def test_a_deleted_database_is_not_made_anew(ledger, path):
    charge(ledger)
    path.unlink()
    refused(ledger, "is gone, but its intents are still there")
    path.touch()  # nor where an empty file stands in its place
    with pytest.raises(DprlError, match="is gone, but its intents"):
        Ledger.create(path, "trial", Budget(1.0, 1e-5), "person", RELATION)


@pytest.mark.parametrize("size", [None, 30, 530], ids=["without intents", "in its first line", "after it"])
def test_a_creation_that_was_cut_off_can_be_repeated(tmp_path, path, size):
    if size is not None:
        ledger_file.create(tmp_path / "other.db")
        intents_path(path).write_bytes(intents_path(tmp_path / "other.db").read_bytes()[:size])
    path.touch(0o600)
    Ledger.create(path, "trial", Budget(1.0, 1e-5), "person", RELATION)
    assert Ledger.open(path).remaining("trial").epsilon == 1


def test_a_file_that_is_no_intents_is_not_overwritten(path):
    intents_path(path).write_text("notes of mine\n")
    with pytest.raises(DprlError):
        Ledger.create(path, "trial", Budget(1.0, 1e-5), "person", RELATION)
    assert intents_path(path).read_text() == "notes of mine\n"


# --- not the file that belongs here -----------------------------------------------------------------------------


def edit_committed(file):
    file.write_bytes(file.read_bytes().replace(b'"0.1"', b'"0.2"', 1))


def swap_lines(file):
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:-2], lines[-1], lines[-2]]))


def edit_unmatched(file):
    head, _, tail = file.read_bytes().rstrip(b"\n").rpartition(b"\n")
    file.write_bytes(head + b"\n" + tail.replace(b'"0.1"', b'"0.0"') + b"\n")


def repeat_unmatched(file):
    file.write_bytes(file.read_bytes() + file.read_bytes().splitlines(keepends=True)[-1])


def foreign(file):
    other = Ledger.create(file.with_name("other.db"), "trial", Budget(1.0, 1e-5), "person", RELATION)
    for _ in range(3):
        charge(other)
    shutil.copy(intents_path(other.path), file)


def link_symbolically(file):
    file.rename(file.with_name("elsewhere"))
    file.symlink_to(file.with_name("elsewhere"))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (os.unlink, "are missing"),
        (lambda file: os.truncate(file, 0), "shortened, edited or older"),
        (lambda file: os.truncate(file, file.stat().st_size - 500), "shortened, edited or older"),
        (edit_committed, "shortened, edited or older"),
        (swap_lines, "shortened, edited or older"),
        (edit_unmatched, "shortened, edited or older"),
        (repeat_unmatched, "shortened, edited or older"),
        (foreign, "belongs to another ledger"),
        (lambda file: os.link(file, file.with_name("second")), "plain file without a second name"),
        (link_symbolically, "cannot be opened"),
        (lambda file: file.chmod(0o400), "are read-only"),
    ],
)
def test_refuses_intents_that_are_not_sound(ledger, path, spoil, message):
    charge(ledger)
    charge(ledger)
    interrupted(ledger)
    spoil(intents_path(path))
    refused(ledger, message)


def test_refuses_a_folder_in_place_of_the_intents(ledger, path):
    intents_path(path).unlink()
    intents_path(path).mkdir()
    for call in (lambda: charge(ledger), ledger.history):
        with pytest.raises(DprlError, match="cannot be opened"):
            call()


def test_refuses_a_database_with_more_entries_than_intents(ledger, path):
    after(f"{CHARGE} ('{'ee' * 16}', 'trial', 1, '0.1', '1e-9', '', '')")(path)
    with pytest.raises(DprlError, match="is damaged"):
        charge(ledger)


# --- two ways to one ledger -------------------------------------------------------------------------------------


def test_a_symbolic_link_leads_to_the_same_intents(ledger, path, tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "link.db").symlink_to(path)
    linked = Ledger.open(tmp_path / "far" / "link.db")
    charge(linked, 0.6)
    interrupted(linked, 0.3)
    assert ledger.remaining("trial").epsilon == Decimal("0.1")
    assert sorted(p.name for p in (tmp_path / "far").iterdir()) == ["link.db"]
    (tmp_path / "loop.db").symlink_to(tmp_path / "loop.db")
    with pytest.raises(DprlError):
        Ledger.open(tmp_path / "loop.db")


# --- all of it, in any order ------------------------------------------------------------------------------------

STEPS = st.one_of(
    st.tuples(st.sampled_from(["charge", "interrupt"]), st.sampled_from([0.1, 0.25, 0.4]), st.integers(0, 9)),
    st.tuples(st.sampled_from(["copy", "put back", "tear", "look"]), st.just(0.0), st.integers(0, 9)),
)


@settings(max_examples=15, deadline=None)
@given(st.lists(STEPS, min_size=5, max_size=15))
def test_any_course_of_events_spends_what_was_asked_for_once(tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("l") / "ledger.db"
    ledger = Ledger.create(path, "trial", Budget(1.0, 1e-5), "person", RELATION)
    shutil.copy(path, path.with_name("copy"))
    known: dict[str, Decimal] = {}  # token -> amount, in the order of charging
    for kind, amount, number in steps:
        token, exact = f"{number:032x}", Decimal(repr(amount))
        fits = sum(known.values()) + exact <= 1
        if kind == "copy":
            ledger.history()  # settles
            shutil.copy(path, path.with_name("copy"))
        elif kind == "put back":
            shutil.copy(path.with_name("copy"), path)
        elif kind == "tear":
            with open(intents_path(path), "ab") as file:
                file.write(b'{"n": 7, "kind": "cha'[: 2 * number + 1])
        elif kind == "interrupt" and token not in known and fits:
            interrupted(ledger, amount, token)
            known[token] = exact
        elif kind == "charge":
            try:
                assert charge(ledger, amount, token=token) == [*known, token].index(token) + 1
            except OverspendError:
                assert token not in known
                assert not fits
            except DprlError:
                assert known[token] != exact
            else:
                assert known.setdefault(token, exact) == exact
                assert sum(known.values()) <= 1
        elif kind == "look":
            assert ledger.spent("trial").epsilon == sum(known.values())
    assert [(c.token, c.amount.epsilon) for c in ledger.history()] == list(known.items())
