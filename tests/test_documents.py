"""Documents say what the algorithms' entries say."""

from __future__ import annotations

import pytest
from benchmarks import documents

MADE = documents.made()


@pytest.mark.parametrize("path", MADE)
def test_documents_are_up_to_date(path):
    assert (documents.ROOT / path).read_text(encoding="utf-8") == MADE[path], "run make docs"
