"""Run the commands shown in the documents and write their outputs there: ``python -m benchmarks.console [PAGE ...]``.

Each page is one session in a new folder. In a block of the language ``console`` each line that begins with ``$ `` is
run, and its output is written below it. A comment before a block changes what is done:

* ``<!-- file: NAME -->``: the block is written to that file, so that later commands find it;
* ``<!-- setup: COMMAND -->``: the command is run, but the page does not show it;
* ``<!-- noisy -->``: not only numbers but words differ between runs, so that a check compares nothing;
* ``<!-- not run: REASON -->``: the block is neither run nor changed.

Where an output on the page ends with ``...``, the new output is cut to the same number of lines.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
_PIECE = re.compile(
    r"(?:^<!-- (?P<mark>file: \S+|setup: [^\n]+|noisy|not run: [^\n]+) -->\n)?"
    r"(?:^```(?P<language>[\w-]*)[^\n]*\n(?P<body>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
_EXACT = ("dprl plan", "dprl calibrate", "dprl simulate", "dprl data", "cat ")


@dataclass(frozen=True)
class Command:
    """A command of a page, the output that the page shows, and the output of the run.

    Attributes:
        text: the command.
        said: the output on the page.
        printed: the output of the run.
        noisy: whether words differ between runs.
    """

    text: str
    said: str
    printed: str
    noisy: bool

    def as_said(self) -> bool:
        """Return whether the output is the one on the page. Numbers are ignored where noise or time can change them."""
        if self.noisy:
            return True
        if self.text.startswith(_EXACT):
            return self.said == self.printed
        return _masked(self.said) == _masked(self.printed)


def pages() -> list[Path]:
    """Return the pages with at least one command that is run."""
    found = (path for path in sorted((ROOT / "docs").rglob("*.md")) if not {"generated", "_build"} & {*path.parts})
    return [path for path in [ROOT / "README.md", *found] if any(_commands_of(path.read_text(encoding="utf-8")))]


def run(text: str) -> tuple[str, list[Command]]:
    """Run a page's commands one after another in a new folder; return the page with new outputs, and the commands."""
    ran: list[Command] = []
    with tempfile.TemporaryDirectory() as folder:

        def anew(piece: re.Match[str]) -> str:
            mark, language, body = piece["mark"] or "", piece["language"], piece["body"]
            if mark.startswith("setup: "):
                _print_of(mark.removeprefix("setup: "), folder)
            if mark.startswith("file: ") and body:
                path = Path(folder, mark.removeprefix("file: "))
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(body, encoding="utf-8")
            if language != "console" or mark.startswith("not run"):
                return piece[0]
            new = [
                Command(command, said, _as_long_as(said, _print_of(command, folder)), mark == "noisy")
                for command, said in _parts(body)
            ]
            ran.extend(new)
            return piece[0].replace(body, "".join(f"$ {one.text}\n{one.printed}" for one in new))

        return _PIECE.sub(anew, text), ran


def _commands_of(text: str) -> Iterator[str]:
    for piece in _PIECE.finditer(text):
        if piece["language"] == "console" and not (piece["mark"] or "").startswith("not run"):
            yield from (command for command, _ in _parts(piece["body"]))


def _parts(body: str) -> Iterator[tuple[str, str]]:
    """Yield each command with the output below it. A command continues after a line that ends with a backslash."""
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command = re.match(r"(?:[^\n]*\\\n)*[^\n]*", part)
        assert command is not None
        yield command[0], part[command.end() + 1 :]


def _print_of(command: str, folder: str) -> str:
    paths = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "100", "DPRL_DOCS": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=os.environ | paths, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    if done.returncode not in (0, 2):  # 2 is the exit code of a refused request, and pages show refusals
        raise RuntimeError(f"{command}\nended with exit code {done.returncode}:\n{done.stdout}")
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.replace(f"{folder}/", "").splitlines())


def _as_long_as(said: str, printed: str) -> str:
    lines = said.splitlines(keepends=True)
    return (
        "".join([*printed.splitlines(keepends=True)[: len(lines) - 1], "...\n"]) if lines[-1:] == ["...\n"] else printed
    )


def _masked(text: str) -> str:
    without = re.sub(r"\b[0-9a-f]{12,}\b|[−-]?\d[\d.,:TZ]*(?:e[+-]?\d+)?", "#", text)
    return " ".join(without.split())


def main() -> None:
    """Run the commands of the named pages, or of all pages, and write their outputs into the pages."""
    for path in [Path(name).resolve() for name in sys.argv[1:]] or pages():
        text = path.read_text(encoding="utf-8")
        new, ran = run(text)
        path.write_text(new, encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {len(ran)} commands, {sum(not one.as_said() for one in ran)} said otherwise")


if __name__ == "__main__":
    main()
