"""The fingerprint of rows: the same whatever form they come in, another one for other rows, and claimed once."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from dprl.accounting import fingerprint as module
from dprl.accounting.budget import Budget
from dprl.accounting.fingerprint import fingerprint
from dprl.accounting.ledger import Ledger
from dprl.bounds import Bounds
from dprl.cli.ledger import ledger_app
from dprl.data.readers import read_log
from dprl.errors import DprlError

RELATION = "add or remove one"
SECRET = bytes(range(32))
WIDE = Bounds(
    units=100,
    horizon=20,
    reward=(-10.0, 10.0),
    observation=((-10.0, 10.0), (-10.0, 10.0)),
    actions=3,
    max_importance_ratio=5.0,
)
NARROW = Bounds(
    units=7, horizon=2, reward=(0.0, 0.1), observation=((0.0, 0.1), (0.0, 0.1)), actions=2, max_importance_ratio=1.0
)


def columns(rows: int = 200, seed: int = 0) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    return {
        "observation": draw.normal(size=(rows, 2)),
        "action": draw.integers(0, 3, rows),
        "reward": draw.normal(size=rows).round(3),
    }


def of(log: dict[str, np.ndarray], secret: bytes = SECRET) -> str | None:
    return fingerprint([log], secret)


def table(seed: int = 0) -> pa.Table:
    known = columns(seed=seed)
    episodes = np.arange(200) // 5
    return pa.table(
        {
            "episode_id": [f"e{i}" for i in episodes],
            "t": np.arange(200) % 5,
            "observation_0": known["observation"][:, 0],
            "observation_1": known["observation"][:, 1],
            "action": known["action"],
            "reward": known["reward"],
            "behavior_prob": np.full(200, 0.5),
            "terminated": np.arange(200) % 5 == 4,
        }
    )


def seen(source, bounds: Bounds = WIDE, **options) -> str | None:
    found: list[str | None] = []
    read_log(source, bounds=bounds, **options).load(lambda raw: found.append(fingerprint([raw], SECRET)))
    (content,) = found
    return content


# --- what makes no difference -----------------------------------------------------------------------------------


def test_the_form_of_a_log_makes_no_difference(tmp_path):
    log = table()
    pq.write_table(log, tmp_path / "log.parquet")
    pa_csv.write_csv(log, tmp_path / "log.csv")
    lists = log.drop_columns(["observation_0", "observation_1"]).append_column(
        "states", pa.array(columns()["observation"].tolist())
    )
    shuffled = log.take(np.random.default_rng(1).permutation(200)).select(list(reversed(log.column_names)))
    ids = log.set_column(0, "episode", pa.array(np.arange(200) // 5 + 1000)).append_column(
        "person_id", pa.array(["p"] * 200)
    )
    memory = {name: log.column(name).to_pylist() for name in log.column_names}
    content = seen(log)
    assert content == of(columns())
    for source in (tmp_path / "log.parquet", tmp_path / "log.csv", lists, shuffled, ids, memory):
        assert seen(source) == content
    assert seen(log, NARROW) == content
    assert seen(ids, unit="person") == content
    assert seen(log.drop_columns(["behavior_prob"]), behavior_policy=lambda states: None) == content
    assert seen(log.append_column("target", log.column("reward")), target_columns=["target"]) == content


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 60), st.integers(0, 2**32))
def test_the_order_of_rows_makes_no_difference(rows, seed):
    log = columns(rows, seed)
    order = np.random.default_rng(seed).permutation(rows)
    assert of({name: values[order] for name, values in log.items()}) == of(log)


def test_numbers_count_by_their_value():
    log = columns()
    log["reward"][:3] = [0.0, np.nan, 1.0]
    other = {name: values.copy() for name, values in log.items()}
    other["reward"][0] = -0.0
    other["reward"][1] = np.uint64(0xFFF0000000000123).view(np.float64)  # another NaN
    other["action"] = other["action"].astype(np.float64)[:, None]
    assert of(other) == of(log)


def test_many_blocks_of_rows_are_one_log():
    log = columns(70_000)
    order = np.random.default_rng(1).permutation(70_000)
    assert of({name: values[order] for name, values in log.items()}) == of(log)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 60), st.lists(st.integers(0, 60), max_size=6), st.randoms(use_true_random=False))
def test_how_rows_are_cut_into_blocks_makes_no_difference(rows, cuts, random):
    log = columns(rows)
    ends = sorted(min(cut, rows) for cut in cuts)
    blocks = [
        {name: values[a:b] for name, values in log.items()} for a, b in zip([0, *ends], [*ends, rows], strict=True)
    ]
    random.shuffle(blocks)
    assert fingerprint(iter(blocks), SECRET) == of(log)
    assert fingerprint(iter([*blocks, columns(1, 9)]), SECRET) != of(log)


def test_no_rows_have_no_fingerprint():
    for blocks in ([], [columns(0)], [columns(0), columns(0)]):
        assert fingerprint(blocks, SECRET) is None


def test_blocks_of_other_columns_are_refused():
    wide = columns()
    wide["observation"] = np.zeros((200, 3))
    for blocks in ([columns(), wide], [wide, columns()], [columns(), {"reward": np.zeros(1)}]):
        with pytest.raises(DprlError):
            fingerprint(blocks, SECRET)


# --- what makes one ---------------------------------------------------------------------------------------------


def test_every_cell_every_row_and_the_key_count():
    log = columns(50)
    known = {of(log), of(log, bytes(32))}
    for name, values in log.items():
        for row in range(50):
            for cell in range(values[row].size):
                other = {n: v.copy() for n, v in log.items()}
                other[name][row].flat[cell] = 7 if values.ndim == 1 else np.nextafter(values[row][cell], 9.0)
                if values.ndim == 1:
                    other[name][row] += 7
                known.add(of(other))
    for count in range(1, 50):
        known.add(of({name: values[:count] for name, values in log.items()}))  # fewer rows
        known.add(of({name: np.concatenate([values, values[:count]]) for name, values in log.items()}))  # repeated
    assert len(known) == 2 + 50 * 4 + 49 * 2


def test_cells_that_change_places_count():
    log = columns(50)
    swapped = log | {"observation": log["observation"][:, ::-1]}
    mixed = log | {"reward": np.roll(log["reward"], 1)}
    exchanged = log | {"reward": log["action"], "action": log["reward"]}
    assert len({of(log), of(swapped), of(mixed), of(exchanged)}) == 4


def test_bits_look_drawn_at_random():
    # 2,000 fingerprints of logs of one row that differ in one cell: every bit is one about half of the time
    prints = [
        of({"observation": np.zeros((1, 1)), "action": np.zeros(1), "reward": np.array([i])}) for i in range(2000)
    ]
    assert len(set(prints)) == 2000
    bits = np.unpackbits(np.array([list(bytes.fromhex(p or "")) for p in prints], dtype=np.uint8), axis=1)
    assert np.all(np.abs(bits.mean(axis=0) - 0.5) < 6 * 0.5 / np.sqrt(2000))


def test_refuses_what_are_no_columns():
    log, reward = columns(), columns()["reward"]
    with pytest.raises(DprlError, match="reward is missing"):
        of({name: log[name] for name in ("observation", "action")})
    for wrong, message in ((reward[:-1], "one length"), (reward.astype(str), "none"), (reward.astype(object), "none")):
        with pytest.raises(DprlError, match=message):
            of(log | {"reward": wrong})


def test_rows_are_hashed_a_block_at_a_time(monkeypatch):
    """One pass over a component of a block, whatever the number of rows: a million take a second, not minutes."""
    calls, rows = [], 3 * module._BLOCK + 1
    honest = module._mixed
    monkeypatch.setattr(module, "_mixed", lambda word, key: calls.append(word.shape[-1]) or honest(word, key))
    log = {"observation": np.zeros((rows, 8)), "action": np.zeros(rows), "reward": np.zeros(rows)}
    of(log)
    assert len(calls) == 4 * (8 + 1 + 1 + 1)
    assert sum(calls) == rows * 11


# --- claims -----------------------------------------------------------------------------------------------------


@pytest.fixture
def ledger(tmp_path):
    for name in ("trial", "cohort"):
        Ledger.create(tmp_path / "ledger.db", name, Budget(1.0, 1e-5), "person", RELATION)
    return Ledger.open(tmp_path / "ledger.db")


def test_the_same_rows_are_refused_under_another_name(ledger):
    ledger.claim("trial", columns())
    ledger.claim("trial", columns())
    ledger.claim("trial", columns(201))  # a dataset that grows
    ledger.claim("cohort", columns(seed=1))
    for rows in (200, 201):
        with pytest.raises(DprlError, match="under another name than 'cohort'") as caught:
            ledger.claim("cohort", columns(rows))
        assert "trial" not in str(caught.value)
    with pytest.raises(DprlError, match="under another name than 'trial'"):
        ledger.claim("trial", columns(seed=1))
    assert ledger.spent("trial").epsilon == 0
    with pytest.raises(DprlError, match="no dataset 'none'"):
        ledger.claim("none", columns())


def test_an_empty_log_claims_nothing(ledger):
    ledger.claim("trial", columns(0))
    ledger.claim("cohort", columns(0))


def test_another_ledger_has_another_key(ledger, tmp_path):
    other = Ledger.create(tmp_path / "other.db", "trial", Budget(1.0, 1e-5), "person", RELATION)
    ledger.claim("trial", columns())
    other.claim("trial", columns())
    assert stored(ledger).isdisjoint(stored(other))
    assert len(stored(ledger)) == len(stored(other)) == 1


def stored(ledger: Ledger, what: str = "fingerprint FROM claim") -> set:
    with closing(sqlite3.connect(ledger.path)) as db:
        return {row[0] for row in db.execute(f"SELECT {what}")}


def test_nothing_that_is_shown_holds_a_fingerprint_or_the_key(ledger):
    ledger.claim("trial", columns())
    ledger.charge("trial", Budget(0.1, 1e-6), "person", RELATION, "")
    (secret,) = stored(ledger, "secret FROM book")
    run = CliRunner().invoke
    shown = [run(ledger_app, [c, str(ledger.path), *j]).stdout for c in ("show", "history") for j in ([], ["--json"])]
    shown += [repr(ledger), repr(ledger.history()), repr(ledger.datasets())]
    shown.append(ledger.path.with_name("ledger.db.intents").read_text())
    for text in shown:
        assert text
        for hidden in (*stored(ledger), secret.hex()):
            assert hidden not in text


def test_trajectories_in_memory_are_inspected_as_they_are(ledger):
    known = read_log(table(), bounds=WIDE).load()
    assert seen(known, None) == of({n: getattr(known, n) for n in ("observation", "action", "reward")})
    assert seen(known, None) == seen(table())  # nothing was clamped, cut or dropped


def test_blocks_are_claimed_as_the_rows_they_are(ledger):
    log = columns()
    ledger.claim("cohort", log)
    blocks = [{name: values[i::3] for name, values in log.items()} for i in range(3)]
    ledger.claim("cohort", iter(blocks))
    assert len(stored(ledger)) == 1
    with pytest.raises(DprlError, match="under another name"):
        ledger.claim("trial", iter(blocks))
    ledger.claim("trial", blocks[:2])  # other rows


def test_what_inspect_raises_ends_the_loading(ledger):
    ledger.claim("cohort", columns())
    with pytest.raises(DprlError, match="under another name"):
        read_log(table(), bounds=WIDE).load(lambda raw: ledger.claim("trial", raw))
