"""``python -m benchmarks.lines``: count the lines of code of each folder, without blanks, comments and docstrings."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("src/dprl", "papers/src", "tests")
NOT_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def lines_of(source: str) -> int:
    """Return the number of lines that hold code.

    >>> lines_of("# why\\n\\ndef f():\\n    '''What.'''\\n    return 1  # one\\n")
    2
    """
    held = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NOT_CODE:
            held |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            held -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(held)


def main() -> None:
    for top in ROOMS:
        rooms: dict[str, dict[Path, int]] = defaultdict(dict)
        for path in sorted((ROOT / top).rglob("*.py")):
            inside = path.relative_to(ROOT / top).parts
            rooms[inside[0] if len(inside) > 1 else "."][path] = lines_of(path.read_text(encoding="utf-8"))
        if not rooms:
            continue
        print(f"{top:26} {'lines':>7} {'files':>6}  largest")
        for name, files in sorted(rooms.items(), key=lambda room: -sum(room[1].values())):
            largest = sorted(files, key=lambda path: -files[path])[:3]
            shown = ", ".join(f"{path.relative_to(ROOT / top / name)} {files[path]}" for path in largest)
            print(f"  {name:24} {sum(files.values()):7,} {len(files):6}  {shown}")
        print(f"  {'all':24} {sum(sum(f.values()) for f in rooms.values()):7,} {sum(map(len, rooms.values())):6}\n")


if __name__ == "__main__":
    main()
