"""One log as a file and in parts under the same name, and what is released of it, for the tests of engines."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import dprl
from dprl.data.partition import partition

from ..sample_log import BOUNDS, Columns, columns, write_parquet
from .resumable import BUDGET, Trial

ALGORITHMS: dict[str, Any] = {
    "gpope": dprl.GPOPE(steps=5, sampling_rate=0.7),
    "gpope, everybody": dprl.GPOPE(steps=3, sampling_rate=1.0),
    "importance-sampling": dprl.ImportanceSampling(),
    "private-lstd": dprl.PrivateLSTD(),
    "adassp": dprl.AdaSSP(),
    "dptd": dprl.DPTD(steps=3),
    "doubly-robust": dprl.DoublyRobust(),
    "recommended": dprl.Recommended(),
}
# what stands for the others where there is little time
FAST = ("gpope", "importance-sampling")


def log_and_parts(folder: Path, parts: int = 3, log: Columns | None = None, by: str = "person_id") -> tuple[Path, Path]:
    """A Parquet file and a folder of parts of the same name, for the name stands in a release."""
    folder.mkdir(exist_ok=True)
    file = write_parquet(columns() if log is None else log, folder / "log.parquet")
    (folder / "in_parts").mkdir()
    partition(file, by, parts, folder / "in_parts" / file.name)
    return file, folder / "in_parts" / file.name


def release(log: Path, algorithm: Any, **options: Any) -> dict[str, Any]:
    """Every artifact of a release, but for the time and what follows from it."""
    asked = {"target_policy": "uniform", "bounds": BOUNDS, "person": "person_id", "algorithm": algorithm, "seed": 1}
    made = dprl.evaluate(str(log), budget=BUDGET, **asked | options)
    with tempfile.TemporaryDirectory() as folder:
        made.save(Path(folder, "results"))
        return contents(Path(folder, "results"))


def contents(out: Path) -> dict[str, Any]:
    """What is in the folder of a release; the page repeats it, with the time."""
    found: dict[str, Any] = {p.name: p.read_bytes() for p in out.iterdir()}
    page = found.pop("report.html")
    assert page
    sealed = json.loads(found.pop("certificate.json", None) or found.pop("statement.json"))
    digests = {name: digest for name, digest in sealed.pop("artifacts").items() if name != "report.html"}
    rest = {name: x for name, x in sealed.items() if name not in ("created", "digest", "certificate")}
    return found | rest | {"artifacts": digests}


class PartsTrial(Trial):
    """One private request of a log in parts in one folder, which may be made again and again."""

    def __init__(self, folder: Path, log: Path) -> None:
        super().__init__(folder, str(log))

    def finish(self, **changes: Any) -> dict[str, Any]:
        """Make the request and save it; returns what is in its folder."""
        super().finish(**changes)
        return contents(self.out)
