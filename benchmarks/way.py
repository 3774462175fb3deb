"""``python -m benchmarks.way``: print the files that one release enters, and how often it goes back to a file.

``dprl evaluate --algorithm gpope`` runs on the shipped trial, charged to a ledger, under a profiler. Functions of the
library count once, in the order in which they are first entered. A move is a step from one file to another in that
order. The move goes back if the file was visited before.
"""

from __future__ import annotations

import inspect
import sys
import tempfile
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import dprl
from benchmarks.harness import ROOT
from dprl.accounting.budget import Budget
from dprl.accounting.ledger import Ledger

HOME = Path(dprl.__file__).parent
EXAMPLES = ROOT / "examples"


def release(folder: Path) -> None:
    """Release one policy's value for the trial's patients, by the command line."""
    from dprl.cli import main

    main([
        "evaluate", str(folder / "log.parquet"), "--bounds", str(EXAMPLES / "actg175_bounds.toml"), "--unit", "person",
        "--person-column", "person_id", "--epsilon", "1", "--delta", "1e-5", "--algorithm", "gpope",
        "--target-policy", f"{EXAMPLES / 'actg175_policy.py'}:treat_low_cd4", "--out", str(folder / "release"),
        "--ledger", str(folder / "ledger.db"), "--dataset", "trial",
    ])  # fmt: skip


def entered(call: Any, *arguments: Any) -> list[CodeType]:
    """Return the library's functions in the order in which ``call`` first enters them."""
    seen: dict[CodeType, None] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        # leaves out the bodies of modules and classes, and comprehensions
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<"):
            seen.setdefault(code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call(*arguments)
    except SystemExit as end:
        if end.code:
            raise
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return [code for code in seen if HOME in Path(code.co_filename).parents]


def main() -> None:
    sys.path.insert(0, str(EXAMPLES))
    from actg175 import write_log  # type: ignore[import-not-found]

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_log(folder / "log.parquet")
        Ledger.create(folder / "ledger.db", "trial", Budget(1.0, 1e-5), "person", "add or remove one")
        functions = entered(release, folder)
    way = [code.co_filename for code in functions]
    moves = [(place, file) for place, file in enumerate(way) if place and way[place - 1] != file]
    back = sum(file in way[:place] for place, file in moves)
    files = list(dict.fromkeys(way))
    print(*(str(Path(file).relative_to(HOME)) for file in files), sep="\n")
    print(f"{len(files)} files, {len(functions)} functions, {len(moves)} moves, {back} back")


if __name__ == "__main__":
    main()
