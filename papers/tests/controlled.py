"""The tiny plugin with a method that writes down who asked it, and does what a file beside it says."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from papers.tests.tiny import PLUGIN, SPEC, tiny_request

from dprl_papers.harness.plugin import load_plugin
from dprl_papers.harness.reproduce import PROVENANCE
from dprl_papers.harness.runner import Request
from dprl_papers.harness.spec import parse

CONTROLLED = PLUGIN.replace("values=mean_reward", "values=controlled").replace(
    "METHODS = (",
    """
def controlled(problem, key):
    import os, signal
    from pathlib import Path

    from dprl.errors import DprlError

    here = Path(__file__).parent
    with open(here / "asked", "a") as file:
        file.write(f"{os.getpid()} {problem.setting.units} {problem.seed}\\n")
    told = (here / "told").read_text() if (here / "told").exists() else ""
    if told == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if told == "refuse":
        raise DprlError("The log has no rewards.")
    if told == "fail":
        raise KeyError("reward")
    return mean_reward(problem, key)


METHODS = (""",
    1,
)
assert CONTROLLED != PLUGIN


_SECONDS = re.compile(rb'"seconds": [0-9.e+-]+')


class Controlled:
    """The plugin in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.path = folder, folder / "tiny_plugin.py"
        self.path.write_text(CONTROLLED)

    def tell(self, told: str) -> None:
        (self.folder / "told").write_text(told)

    def lines(self) -> list[list[int]]:
        """Process, trajectories and seed of each time that it was asked."""
        file = self.folder / "asked"
        return [[int(x) for x in line.split()] for line in file.read_text().splitlines()] if file.exists() else []

    def asked(self) -> Counter[tuple[int, int]]:
        """How often it was asked for so many trajectories and a seed; begins anew."""
        found = Counter((units, seed) for _, units, seed in self.lines())
        (self.folder / "asked").unlink(missing_ok=True)
        return found

    def processes(self) -> set[int]:
        return {pid for pid, *_ in self.lines()}

    def request(self, **options: Any) -> Request:
        """Figure 1 of the tiny specification, two trials in one group; ten cells."""
        return tiny_request(parse(SPEC, "tiny.toml"), load_plugin(self.path), **{"figure": "1", "trials": 2, **options})


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but the times, which cells and figures have within, too."""
    files = (p for p in folder.rglob("*") if p.is_file() and p.name != PROVENANCE and p.parent.name != "locks")
    return {p.relative_to(folder).as_posix(): without_seconds(p.read_bytes()) for p in files}


def without_seconds(content: bytes) -> bytes:
    """What was measured by the clock is no result."""
    return _SECONDS.sub(b"", content)
