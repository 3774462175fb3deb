"""The ledger: exact sums, one winner among many, and a clear refusal of anything that is not sound."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.accounting import ledger_file
from dprl.accounting.budget import Budget
from dprl.accounting.intents import intents_path
from dprl.accounting.ledger import Amount, Ledger
from dprl.accounting.ledger_schema import KNOWN, VERSION
from dprl.errors import DprlError, OverspendError

RELATION = "add or remove one"
DIGEST = "ab" * 32
TOKEN = "cd" * 16


def charge(ledger: Ledger, epsilon: float = 0.1, delta: float = 1e-6, token: object = None, **changes: str) -> int:
    asked = {"dataset": "trial", "unit": "person", "relation": RELATION, "purpose": "test"} | changes
    names = asked["unit"], asked["relation"], asked["purpose"]
    return ledger.charge(asked["dataset"], Budget(epsilon, delta), *names, token=token)  # type: ignore[arg-type]


def execute(ledger: Ledger, *statements: str) -> None:
    with ledger_file.writing(ledger.path) as opened:
        for statement in statements:
            opened.db.execute(statement)


def test_the_tables_are_what_they_were():
    """SQLite keeps their text, by which a ledger is known: each version's is never changed."""
    known = repr({version: sorted(map(sorted, schemas)) for version, schemas in KNOWN.items()})
    assert (
        hashlib.sha256(known.encode()).hexdigest() == "c608e96f0df1dd1a24e1509e3acded804977a4e4f7539608af523de574c33bef"
    )


# --- sums -------------------------------------------------------------------------------------------------------


def test_ten_tenths_are_one_exactly(ledger):
    ids = [charge(ledger) for _ in range(10)]
    assert ids == list(range(1, 11))
    assert ledger.remaining("trial") == Amount(Decimal(0), Decimal(0))
    assert ledger.spent("trial") == Amount(Decimal(1), Decimal("1e-5"))
    with pytest.raises(OverspendError, match="epsilon 0 and delta 0 left for 'trial'"):
        charge(ledger, 1e-12, 1e-15)


def test_an_overspend_says_what_is_left_and_spends_nothing(ledger):
    charge(ledger, 0.7, 1e-6)
    for epsilon, delta in [(0.31, 1e-6), (0.1, 9.1e-6), (1e9, 0.5), (0.3000000000000001, 1e-6)]:
        with pytest.raises(OverspendError, match=r"epsilon 0\.3 and delta 9e-6 left"):
            charge(ledger, epsilon, delta)
    assert ledger.remaining("trial") == Amount(Decimal("0.3"), Decimal("9e-6"))
    charge(ledger, 0.3, 9e-6)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.floats(1e-300, 0.6), st.floats(1e-300, 6e-6)), min_size=1, max_size=5))
def test_the_sum_never_exceeds_the_budget(tmp_path_factory, charges):
    ledger = Ledger.create(tmp_path_factory.mktemp("l") / "l.db", "trial", Budget(1.0, 1e-5), "person", RELATION)
    left, accepted = [Fraction(1), Fraction("1e-5")], 0
    for asked in charges:
        after = [have - Fraction(repr(part)) for have, part in zip(left, asked, strict=True)]
        try:
            charge(ledger, *asked)
        except OverspendError:
            assert min(after) < 0
        else:
            assert min(after) >= 0
            left, accepted = after, accepted + 1
    assert len(ledger.history("trial")) == accepted


# --- what is kept -----------------------------------------------------------------------------------------------


def test_a_charge_is_spent_before_it_is_finished(ledger):
    charge_id = charge(ledger, purpose="four arms")
    (entry,) = ledger.history("trial")
    assert (entry.purpose, entry.digest, entry.finished) == ("four arms", None, None)
    assert ledger.spent("trial").epsilon == Decimal("0.1")
    ledger.commit(charge_id, DIGEST)
    ledger.commit(charge_id, DIGEST)
    (entry,) = ledger.history()
    assert entry.digest == DIGEST
    assert entry.finished is not None
    assert ledger.spent("trial").epsilon == Decimal("0.1")
    with pytest.raises(DprlError, match="another release"):
        ledger.commit(charge_id, "cd" * 32)
    with pytest.raises(DprlError, match="no charge 99"):
        ledger.commit(99, DIGEST)
    for bad in ("ab", "AB" * 32, "zz" * 32, None):
        with pytest.raises(DprlError, match="64 hexadecimal"):
            ledger.commit(charge_id, bad)  # type: ignore[arg-type]


def test_datasets_are_apart(ledger, path):
    Ledger.create(path, "cohort", Budget(2.0, 1e-6), "person", RELATION)
    charge(ledger)
    ledger.charge("cohort", Budget(2.0, 1e-6), "person", RELATION, "")
    assert [d.name for d in Ledger.open(path).datasets()] == ["cohort", "trial"]
    assert ledger.remaining("cohort").epsilon == 0
    assert ledger.remaining("trial").epsilon == Decimal("0.9")
    assert [c.dataset for c in ledger.history()] == ["trial", "cohort"]


def test_a_budget_is_never_declared_twice(ledger, path):
    with pytest.raises(DprlError, match="already has a dataset 'trial'"):
        Ledger.create(path, "trial", Budget(5.0, 1e-5), "person", RELATION)
    assert ledger.remaining("trial").epsilon == 1


def test_the_file_is_the_curators_alone(ledger, path):
    charge(ledger)
    for file in (path, intents_path(path)):
        assert stat.S_IMODE(os.stat(file).st_mode) == 0o600


# --- refusals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataset": "other"}, "no dataset 'other'"),
        ({"dataset": "\udcff"}, "no dataset"),
        ({"dataset": ["trial"]}, "no dataset"),
        ({"unit": "trajectory"}, "privacy unit 'person'"),
        ({"unit": "patient"}, "must be one of: person, trajectory"),
        ({"relation": "replace one"}, "relation 'add or remove one'"),
        ({"relation": "none"}, "relation must be one of"),
        ({"purpose": "two\nlines"}, "printable"),
        ({"purpose": "x" * 501}, "printable"),
    ],
)
def test_refuses_what_does_not_compose(ledger, changes, message):
    with pytest.raises(DprlError, match=message):
        charge(ledger, **changes)
    assert ledger.history() == []


@pytest.mark.parametrize(
    "name", ["", "a\0b", "x" * 201, "trial ", " trial", "tri  al", "cafe\u0301", "\ufb01", "a\u200bb"]
)
def test_refuses_a_dataset_without_a_proper_name(path, name):
    """Nor one that looks like another."""
    with pytest.raises(DprlError):
        Ledger.create(path, name, Budget(1.0, 1e-5), "person", RELATION)
    assert not path.exists()


@pytest.mark.parametrize("name", ["caf\u00e9", "trial 2, arm A", "\u8a66\u9a13"])
def test_takes_a_name_in_any_language(path, name):
    assert Ledger.create(path, name, Budget(1.0, 1e-5), "person", RELATION).remaining(name).epsilon == 1


def damage_page(path):
    content = bytearray(path.read_bytes())
    content[4096:8192] = b"\xff" * 4096
    path.write_bytes(bytes(content))


def remove_both(path):
    path.unlink()
    intents_path(path).unlink()


def after(statement):
    """A database on which this was executed."""

    def spoil(path):
        with closing(sqlite3.connect(path)) as db, db:
            db.execute(statement)

    return spoil


def foreign_database(path):
    path.unlink()
    after("CREATE TABLE charge (id)")(path)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (remove_both, "There is no ledger at"),
        (lambda path: path.write_bytes(b"not a database at all" * 100), "is not a dprl ledger"),
        (damage_page, "is damaged"),
        (lambda path: os.truncate(path, 5000), "is damaged"),
        (foreign_database, "is not a dprl ledger"),
        (after(f"PRAGMA user_version = {VERSION + 1}"), "newer version of dprl"),
        (after("PRAGMA user_version = 1"), "development version of dprl"),
        (lambda path: os.link(path, path.with_name("second.db")), "second name, a hard link"),
        (after("DROP TRIGGER charge_within_budget"), "is damaged"),
        (lambda path: path.write_bytes(b""), "is not a dprl ledger"),
        (lambda path: path.chmod(0o400), "is read-only"),
    ],
)
def test_refuses_a_file_that_is_not_sound(ledger, path, spoil, message):
    spoil(path)
    for call in (lambda: Ledger.open(path), lambda: charge(ledger), lambda: ledger.commit(1, DIGEST), ledger.history):
        with pytest.raises(DprlError, match=message) as caught:
            call()
        assert str(caught.value).count("\n") == 0


def test_refuses_a_folder_and_a_missing_folder(tmp_path):
    with pytest.raises(DprlError, match="cannot be read"):
        Ledger.open(tmp_path)
    with pytest.raises(DprlError, match="cannot be created"):
        Ledger.create(tmp_path / "nowhere" / "l.db", "trial", Budget(1.0, 1e-5), "person", RELATION)


@pytest.mark.parametrize(
    ("unit", "relation"), [("trajectory", RELATION), ("person", "replace one"), ("trajectory", "zero out one")]
)
def test_a_ledger_keeps_one_unit_and_one_relation(ledger, path, unit, relation):
    with pytest.raises(DprlError, match="keeps the unit 'person' and the relation 'add or remove one'"):
        Ledger.create(path, "cohort", Budget(1.0, 1e-5), unit, relation)
    assert [d.name for d in ledger.datasets()] == ["trial"]


def test_transitions_have_a_ledger_of_their_own(path):
    ledger = Ledger.create(path, "trial", Budget(1.0, 1e-5), "transition", RELATION)
    assert charge(ledger, unit="transition") == 1
    with pytest.raises(DprlError, match="privacy unit 'transition'"):
        charge(ledger, unit="trajectory")


@contextmanager
def tables_of(version, place=0):
    """Within this block ledgers are made as by a version; at place 1 before there were transitions, at 2 rewards."""
    with pytest.MonkeyPatch.context() as before:
        before.setattr(ledger_file, "SCHEMA", KNOWN[version][place])
        before.setattr(ledger_file, "VERSION", version)
        yield


REWARDS = "reward functions at most 0.01 apart"


@pytest.mark.parametrize(("version", "place"), [(2, 1), (2, 2), (3, 1), (3, 2)])
def test_new_units_need_tables_that_know_them(tmp_path, version, place):
    """An older ledger opens and goes on with its own units; an empty one refuses the new one."""
    with tables_of(version, place):
        ledger = Ledger.create(tmp_path / "earlier.db", "trial", Budget(1.0, 1e-5), "person", RELATION)
        ledger_file.create(tmp_path / "empty.db")
    assert len({tables for version in KNOWN.values() for tables in version}) == 6
    assert charge(Ledger.open(ledger.path)) == 1
    for unit, relation in (("transition", RELATION), ("reward function", REWARDS)):
        with pytest.raises(DprlError, match=f"declare 'tutor' by '{unit}' .* in a ledger of its own"):
            Ledger.create(ledger.path, "tutor", Budget(1.0, 1e-4), unit, relation)
    with pytest.raises(DprlError, match="before dprl knew the unit 'reward function': declare 'tutor' in a new one"):
        Ledger.create(tmp_path / "empty.db", "tutor", Budget(1.0, 1e-4), "reward function", REWARDS)
    assert Ledger.open(tmp_path / "empty.db").datasets() == []


def test_reward_functions_of_one_radius_a_ledger(tmp_path):
    path, budget = tmp_path / "l.db", Budget(1.0, 1e-4)
    ledger = Ledger.create(path, "tutor", budget, "reward function", REWARDS)
    assert charge(ledger, 0.6, dataset="tutor", unit="reward function", relation=REWARDS) == 1
    with pytest.raises(OverspendError):
        charge(ledger, 0.6, dataset="tutor", unit="reward function", relation=REWARDS)
    wider = REWARDS.replace("0.01", "0.02")
    with pytest.raises(DprlError, match=f"relation '{REWARDS}'; a release by relation '{wider}'"):
        charge(ledger, 0.1, dataset="tutor", unit="reward function", relation=wider)
    with pytest.raises(DprlError, match="in a ledger of its own"):
        Ledger.create(path, "other", budget, "reward function", wider)
    for unit, relation in (
        ("reward function", RELATION), ("reward function", "reward functions"), ("person", REWARDS),
        ("reward function", REWARDS + " "), ("reward function", REWARDS.replace("0.01", "0.010")),
    ):  # fmt: skip
        with pytest.raises(DprlError, match="neighbouring relation"):
            Ledger.create(tmp_path / "other.db", "tutor", budget, unit, relation)
    # nor do the tables take it from others
    with closing(sqlite3.connect(path)) as db, db, pytest.raises(sqlite3.IntegrityError):
        db.execute("INSERT INTO dataset SELECT 'x', epsilon, delta, unit, ?, created FROM dataset", (RELATION,))


# --- tokens -----------------------------------------------------------------------------------------------------


def test_the_same_token_is_charged_once(ledger, path):
    Ledger.create(path, "cohort", Budget(1.0, 1e-5), "person", RELATION)
    charge_id = charge(ledger, 0.6, token=TOKEN)
    assert charge(ledger, 0.6, token=TOKEN) == charge_id  # a second one of 0.6 would not fit
    ledger.commit(charge_id, DIGEST)
    assert charge(ledger, 0.6, token=TOKEN, purpose="resumed") == charge_id
    assert [(c.token, c.purpose) for c in ledger.history()] == [(TOKEN, "test")]
    for changes in ({"epsilon": 0.5}, {"delta": 2e-6}, {"dataset": "cohort"}):
        with pytest.raises(DprlError, match="another dataset or amount"):
            charge(ledger, **{"epsilon": 0.6} | changes, token=TOKEN)
    with pytest.raises(DprlError, match="privacy unit 'person'"):
        charge(ledger, 0.6, token=TOKEN, unit="trajectory")
    assert len(ledger.history()) == 1


@pytest.mark.parametrize("token", ["", "ab", "AB" * 16, "zz" * 16, 7])
def test_refuses_what_is_no_token(ledger, token):
    with pytest.raises(DprlError, match="32 hexadecimal digits"):
        charge(ledger, token=token)
    assert ledger.history() == []


def test_a_token_is_made_where_none_is_given(ledger):
    charge(ledger)
    charge(ledger)
    first, second = (c.token for c in ledger.history())
    assert first != second
    assert len(first) == len(second) == 32


def test_sqlite_failures_are_one_sentence(ledger, monkeypatch):
    many = [f"INSERT INTO dataset VALUES ('{i:0190}', '1', '0.1', 'person', '{RELATION}', '')" for i in range(100)]
    with pytest.raises(DprlError, match="disk is full"):
        execute(ledger, "PRAGMA max_page_count = 1", *many)  # as many as there are
    with pytest.raises(DprlError, match="read-only"):
        execute(ledger, "PRAGMA query_only = ON", many[0])
    monkeypatch.setattr(ledger_file, "BUSY_SECONDS", 0.05)
    with ledger_file.writing(ledger.path), pytest.raises(DprlError, match="in use by another process"):
        charge(ledger)
    assert [d.name for d in ledger.datasets()] == ["trial"]


# --- the table defends itself -----------------------------------------------------------------------------------


CHARGE = "INSERT INTO charge (token, dataset, sequence, epsilon, delta, purpose, created) VALUES"


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM charge",
        "DELETE FROM dataset",
        "UPDATE charge SET epsilon = '0.01'",
        "UPDATE charge SET dataset = 'x'",
        "UPDATE dataset SET epsilon = '100'",
        f"{CHARGE} ('{TOKEN}', 'trial', 2, '0.6', '1e-9', '', '')",
        f"{CHARGE} ('{TOKEN}', 'trial', 2, '0.1', '1e-5', '', '')",
        f"{CHARGE} ('{TOKEN}', 'trial', 1, '0.1', '1e-9', '', '')",
        f"{CHARGE} ('{TOKEN}', 'trial', 3, '0.1', '1e-9', '', '')",
        f"{CHARGE} ('{TOKEN}', 'trial', 2, '-1', '1e-9', '', '')",
        f"{CHARGE} ('{TOKEN}', 'none', 1, '0.1', '1e-9', '', '')",
        "INSERT INTO dataset VALUES ('y', '1', '1e-5', 'patient', 'add or remove one', '')",
        "INSERT INTO dataset VALUES ('y', '1', '1', 'person', 'add or remove one', '')",
        "INSERT INTO dataset VALUES ('y', '1', '1e-5', 'trajectory', 'add or remove one', '')",
        "INSERT INTO dataset VALUES ('y', '1', '1e-5', 'person', 'replace one', '')",
        "INSERT INTO charge (token, dataset, sequence, epsilon, delta, purpose, created) "
        "SELECT token, 'trial', 2, '0.1', '1e-9', '', '' FROM charge",
        "UPDATE charge SET token = 'ee'",
        "UPDATE charge SET settled = 'now'",
        "DELETE FROM book",
        "UPDATE book SET entries = entries - 1, size = size + 1",
        "UPDATE book SET size = size - 1, entries = entries + 1",
        "UPDATE book SET secret = zeroblob(32)",
    ],
)
def test_the_schema_refuses_what_the_code_never_asks(ledger, statement):
    charge(ledger, 0.5, 5e-6)
    before = ledger.history(), ledger.datasets()
    with pytest.raises(DprlError, match="refuses the entry"):
        execute(ledger, statement)
    assert (ledger.history(), ledger.datasets()) == before


RACE = """
import sys, time
from dprl.accounting.budget import Budget
from dprl.accounting.ledger import Ledger
from dprl.errors import OverspendError
ledger = Ledger.open(sys.argv[1])
sys.stdin.read()  # until all are ready
try:
    ledger.charge("trial", Budget(0.2, 1e-6), "person", "add or remove one", "race")
except OverspendError:
    print("refused")
else:
    print("charged")
"""


def test_of_eight_processes_exactly_five_succeed(ledger, path):
    pipes: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    started = [subprocess.Popen([sys.executable, "-c", RACE, str(path)], **pipes, text=True) for _ in range(8)]
    for process in started:
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    said = [process.communicate(timeout=60) for process in started]
    assert sorted(out.strip() for out, _ in said) == ["charged"] * 5 + ["refused"] * 3, said
    assert ledger.remaining("trial").epsilon == 0
    assert [c.id for c in ledger.history("trial")] == [1, 2, 3, 4, 5]


def test_threads_may_share_a_ledger(ledger):
    def spend(_: int) -> int:
        try:
            return charge(ledger, 0.2)
        except OverspendError:
            return 0

    with ThreadPoolExecutor(8) as pool:
        ids = sorted(pool.map(spend, range(8)))
    assert ids == [0, 0, 0, 1, 2, 3, 4, 5]
    assert ledger.remaining("trial").epsilon == 0


# --- what a charge is bound to ----------------------------------------------------------------------------------


@pytest.fixture(params=sorted(KNOWN))
def of_version(request, tmp_path):
    """A ledger that was made by this dprl, or before there were bindings."""
    with tables_of(request.param):
        ledger = Ledger.create(tmp_path / "of_version.db", "trial", Budget(1.0, 1e-5), "person", RELATION)
        charge(ledger)
    return ledger


def test_a_charge_is_bound_once(of_version):
    ledger, second = of_version, charge(of_version)
    assert ledger.bind(1, "a" * 64)
    assert ledger.bind(second, "b" * 64)
    for _ in range(2):
        assert Ledger.open(ledger.path).bind(1, "a" * 64)
        assert not Ledger.open(ledger.path).bind(1, "b" * 64)
    assert str(ledger.spent("trial").epsilon) == "0.2"
    with pytest.raises(DprlError, match="no charge 3"):
        ledger.bind(3, "a" * 64)
    with pytest.raises(DprlError, match="64 hexadecimal digits"):
        ledger.bind(1, "rows")


def test_a_binding_outlives_an_older_copy_of_the_database(ledger):
    number = charge(ledger)
    older = ledger.path.read_bytes()
    assert ledger.bind(number, "a" * 64)
    ledger.path.write_bytes(older)
    assert not Ledger.open(ledger.path).bind(number, "b" * 64)


@pytest.mark.parametrize("change", ["DELETE FROM binding", "UPDATE binding SET content = content"])
def test_a_binding_is_never_taken_back(ledger, change):
    ledger.bind(charge(ledger), "a" * 64)
    with pytest.raises(DprlError, match="a binding is never"):
        execute(ledger, change)


def test_a_first_creation_waits_for_another_one(tmp_path, monkeypatch):
    """Of two processes that make the same new file, the one that comes second; SQLite itself would not wait."""
    path = tmp_path / "new.db"
    path.touch(0o600)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            other.rollback()

    monkeypatch.setattr(ledger_file.time, "sleep", sleep)
    ledger = Ledger.create(path, "trial", Budget(1.0, 1e-5), "person", RELATION)
    other.close()
    assert len(waits) == 3
    assert [d.name for d in ledger.datasets()] == ["trial"]
