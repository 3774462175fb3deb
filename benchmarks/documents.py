"""Write the parts of the documents that follow from the algorithms' entries and from the command line: ``make docs``.

docs/algorithms.md and docs/reference/engine.md have tables between marks; both verifiers have the algorithms' names;
docs/options.md is written as a whole. A test compares these files. The page of the command line is made when the site
is built.
"""

from __future__ import annotations

import dataclasses
import re
import textwrap
import typing
from collections.abc import Iterable
from pathlib import Path

import typer
from typer.testing import CliRunner

from dprl.cli import app
from dprl.config import documented, words_of
from dprl.engine.columns import ALWAYS, COEFFICIENTS, COLUMNS
from dprl.registry import ALGORITHMS, DEFAULT, LEARNING, Entry, entries_of_others

ROOT = Path(__file__).parents[1]
TABLES, COLUMNS_PAGE, OPTIONS = "docs/algorithms.md", "docs/reference/engine.md", "docs/options.md"
VERIFIERS = "src/dprl/accounting/verification.py", "verify/dprl_verify.py"


def tables() -> dict[str, str]:
    """Return mark -> the table that stands below it."""
    kinds = {"private rewards": "reward function", "people": "user"}
    return {
        "algorithms": algorithms(ALGORITHMS.values()),
        "baselines": algorithms(entries_of_others().values()),
        "columns": columns(),
        **{mark: algorithms(e for e in LEARNING.values() if e.unit == unit) for mark, unit in kinds.items()},
    }


def algorithms(entries: Iterable[Entry]) -> str:
    """Return a table with a row for each algorithm. Its links are relative to docs/."""
    rows = [
        f"| `{e.name}` | {e.summary} | {e.source.replace('(docs/', '(')} | [proof](proofs/{e.name}.md) |"
        for e in sorted(entries, key=lambda e: e.name != DEFAULT)
    ]
    return "\n".join(["| Algorithm | By | Source | Proof |", "|---|---|---|---|", *rows])


def columns() -> str:
    """Return a table with a row for each column that a program may ask for, with the products that end with it."""
    rows = []
    for name, column in COLUMNS.items():
        products = [f"`{p}`" for p, factors in COEFFICIENTS.items() if len(factors) > 1 and factors[-1] == name]
        always = "yes" if name in ALWAYS else ""
        rows.append(f"| `{name}` | {column.meaning} | {always} | {', '.join(products)} |")
    heads = "| Column | In each row | Always there | Products that end with it |"
    return "\n".join([heads, "|---|---|---|---|", *rows])


def certified_names() -> str:
    """Return the lines of a verifier that name the algorithms of which it accepts a certificate."""
    each = textwrap.fill(", ".join(f'"{name}"' for name in ALGORITHMS), 115, break_on_hyphens=False)
    learning = ", ".join(f'"{name}"' for name in LEARNING)
    return f"EVALUATING = (\n{textwrap.indent(each, '    ')},\n)  # fmt: skip\nLEARNING = ({learning})\n"


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
    """Return a default as a run file writes it."""
    if value is None:
        return "-"
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


def command_line() -> str:
    """Return the page of the command line: the whole help of every command."""
    runner, parts = (
        CliRunner(),
        ["# Command line\n\nWhat `dprl COMMAND --help all` prints. Options of an algorithm: [options](../options.md)."],
    )
    with typer.Context(group := typer.main.get_command(app), info_name="dprl") as context:
        for name in group.list_commands(context):  # type: ignore[attr-defined]
            command = group.get_command(context, name)  # type: ignore[attr-defined]
            for words in [[name, sub] for sub in getattr(command, "commands", ())] or [[name]]:
                said = runner.invoke(app, [*words, "--help", "all"], prog_name="dprl", terminal_width=100)
                if said.exit_code:
                    raise RuntimeError(f"dprl {' '.join(words)} --help all: exit code {said.exit_code}")
                parts.append(f"## dprl {' '.join(words)}\n\n```text\n{said.stdout.strip()}\n```")
    return "\n\n".join(parts) + "\n"


def made() -> dict[str, str]:
    """Return path -> the text that the document should have."""
    pages = {path: (ROOT / path).read_text(encoding="utf-8") for path in (TABLES, COLUMNS_PAGE)}
    for mark, table in tables().items():
        between, new = rf"(?<=<!-- {mark} -->\n).*?(?=<!-- end -->)", (table + "\n").replace("\\", r"\\")
        pages = {path: re.sub(between, new, page, flags=re.DOTALL) for path, page in pages.items()}
    for path in VERIFIERS:
        between = r"(?<=# names: written by make docs\n).*?(?=# end\n)"
        code = (ROOT / path).read_text(encoding="utf-8")
        pages[path] = re.sub(between, certified_names(), code, count=1, flags=re.DOTALL)
    head = "# Options\n\nWritten by `make docs` from the configurations of the algorithms. Do not edit.\n"
    sections = [options(e) for e in (*ALGORITHMS.values(), *LEARNING.values(), *entries_of_others().values())]
    return {**pages, OPTIONS: "\n\n".join([head.rstrip(), *sections]) + "\n"}


def main() -> None:
    """Write the documents."""
    for path, text in made().items():
        (ROOT / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
