"""The tables of documents that the algorithms' entries say: ``make docs`` writes them, and a test compares them.

README.md has them between marks; docs/options.md is made whole.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Iterable
from pathlib import Path

from dprl.config import documented, words_of
from dprl.registry import ALGORITHMS, DEFAULT, LEARNING, Entry, of_others

ROOT = Path(__file__).parents[1]
README, OPTIONS = "README.md", "docs/options.md"


def tables() -> dict[str, str]:
    """Return the tables of README.md by their marks."""
    kinds = {"private rewards": "reward function", "people": "user"}
    return {
        "algorithms": algorithms(ALGORITHMS.values()),
        "baselines": algorithms(of_others().values()),
        **{mark: algorithms(e for e in LEARNING.values() if e.unit == unit) for mark, unit in kinds.items()},
    }


def algorithms(entries: Iterable[Entry]) -> str:
    """Return a table with a row for each algorithm."""
    rows = [
        f"| `{e.name}` | {e.summary} | {e.source} | [proof](docs/proofs/{e.name}.md) |"
        for e in sorted(entries, key=lambda e: e.name != DEFAULT)
    ]
    return "\n".join(["| Algorithm | By | Source | Proof |", "|---|---|---|---|", *rows])


def options(entry: Entry) -> str:
    """Return the section of docs/options.md about one algorithm."""
    kind, hints = entry.load_config(), typing.get_type_hints(entry.load_config())
    said = documented(kind)
    rows = [
        f"| `{field.name}` | `{plain(field.default)}` | {words_of(hints[field.name])} | {said[field.name]} |"
        for field in dataclasses.fields(kind)
        if field.name != "provenance"
    ]
    head = [f"## {entry.name}", "", "| Option | Default | Value | Meaning |", "|---|---|---|---|"]
    return "\n".join([*head, *rows])


def plain(value: object) -> str:
    """Return a default as a run file says it."""
    if value is None:
        return "-"
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


def made() -> dict[str, str]:
    """Return the documents as they should be, by their paths."""
    readme = (ROOT / README).read_text(encoding="utf-8")
    for mark, table in tables().items():
        between = rf"(?<=<!-- {mark} -->\n).*?(?=<!-- end -->)"
        readme = re.sub(between, (table + "\n").replace("\\", r"\\"), readme, flags=re.DOTALL)
    head = "# Options\n\nWritten by `make docs` from the configurations of the algorithms. Do not edit.\n"
    sections = [options(e) for e in (*ALGORITHMS.values(), *LEARNING.values(), *of_others().values())]
    return {README: readme, OPTIONS: "\n\n".join([head.rstrip(), *sections]) + "\n"}


def main() -> None:
    """Write the documents."""
    for path, text in made().items():
        (ROOT / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
