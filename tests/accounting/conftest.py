"""A fresh ledger of one dataset, ``trial``, with epsilon 1 and delta 1e-5 per person."""

from __future__ import annotations

import pytest

from dprl.accounting.budget import Budget
from dprl.accounting.ledger import Ledger


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path):
    return Ledger.create(path, "trial", Budget(1.0, 1e-5), "person", "add or remove one")
