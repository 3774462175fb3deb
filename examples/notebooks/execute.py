"""Execute notebooks and store what they print: all of this folder, or those that are named."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent


def execute(path: Path) -> nbformat.NotebookNode:
    """Return a notebook with the outputs of this run; whatever a cell raises is raised here."""
    book = nbformat.read(path, as_version=4)
    client = NotebookClient(book, timeout=120, resources={"metadata": {"path": str(path.parent)}}, record_timing=False)
    client.execute()
    return book


if __name__ == "__main__":
    for each in map(Path, sys.argv[1:]) if len(sys.argv) > 1 else sorted(HERE.glob("*.ipynb")):
        nbformat.write(execute(each), each)
