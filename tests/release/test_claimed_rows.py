"""The rows from which a policy is learned are claimed in the ledger: they have one name, and so one budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow.parquet as pq
import pytest

import dprl
from dprl.accounting.ledger import Ledger
from dprl.engine import unit_source
from dprl.release.pipeline import Purpose, ReleaseRequest, release
from dprl.release.results import ReleaseResults

from ..environments.visits import bounds, file_and_parts, visits

BUDGET = dprl.Budget(1.0, 1e-5)


@pytest.fixture
def ledger(tmp_path) -> Ledger:
    for name in ("shop", "copy"):
        made = Ledger.create(tmp_path / "l.db", name, dprl.Budget(9.0, 9e-5), "person", "zero out one")
    return made


def test_the_same_rows_under_another_name_are_refused(tmp_path, ledger, monkeypatch):
    """From a file, shuffled, in parts and from arrays; before the first person is asked, and the charge stays."""
    file, parts = file_and_parts(tmp_path, visits(120, 40, bad=False))
    table = pq.read_table(file)
    (tmp_path / "shuffled").mkdir()
    pq.write_table(table.take(np.random.default_rng(0).permutation(120)), tmp_path / "shuffled" / file.name)
    seen, paid = (
        np.column_stack([table.column(f"{part}_{i}") for i in range(n)])
        for part, n in (("observation", 2), ("reward", 3))
    )
    asked: list[int] = []
    clipped = unit_source._block_sum
    monkeypatch.setattr(unit_source, "_block_sum", lambda *given: asked.append(1) or clipped(*given))

    def train(source: Any, name: str) -> Any:
        options: dict[str, Any] = {"ledger": ledger, "dataset": name, "algorithm": dprl.DPPG(steps=2)}
        own: dict[str, Any] = {"bounds": bounds(40)} if isinstance(source, str) else {}
        return dprl.train(source, BUDGET, **options, **own)

    arrays = dprl.Bandit.of_arrays(seen, paid, bounds(40), table.column("person_id").to_pylist())
    sources = (f"bandit:{file}", f"bandit:{parts}", f"bandit:{tmp_path}/shuffled/{file.name}", arrays)
    train(sources[0], "shop")
    asked.clear()
    for number, source in enumerate(sources, 1):
        with pytest.raises(dprl.DprlError, match="under another name than 'copy'"):
            train(source, "copy")
        assert len(ledger.history("copy")) == number
        assert not asked
    # the name that they have may have them again, read by the same object too
    for source in sources:
        train(source, "shop")
    train(arrays, "shop")
    assert len(ledger.history("shop")) == 6


@dataclass(frozen=True)
class Nothing(ReleaseResults):
    document_name = "nothing.json"
    files: ClassVar = {}


def test_what_is_read_without_a_claim_is_never_released(ledger):
    """A mistake of ours, and nothing may come of it; a release without rows claims none."""

    def through(read: Any) -> Any:
        return release(
            ReleaseRequest(budget=dprl.Budget(0.5, 1e-6)),
            {},
            (ledger, "shop"),
            Purpose("person", "zero out one", "test"),
            {},
            read=read,
            make=lambda rows, folder: seen.append(rows) or Nothing(document={}),
            restore=lambda path: Nothing(document={}),
        )

    seen: list[Any] = []
    with pytest.raises(RuntimeError, match="without being claimed"):
        through(lambda claim: [1, 2])
    assert not seen
    assert through(None).certificate["ledger"]["charge"] == 2
    assert len(ledger.history()) == 2
