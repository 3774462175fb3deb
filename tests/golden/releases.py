"""What every algorithm releases, in every setting, with one key: recorded before the code is moved, compared after.

A change that is meant to change bytes records them again, and says here why. So far: evaluations release the number of
people who are there beside the values, one coordinate more (0.2.0).
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dprl.audits.conformance.reward_functions import Walk
from dprl.audits.log_neighbours import handed_out
from dprl.audits.neighbours import LogOf
from dprl.audits.reward_neighbours import ways_of
from dprl.audits.user_neighbours import UNITS, Crowd, Users
from dprl.data.readers import read_log
from dprl.evaluation.importance_sampling import ImportanceSampling
from dprl.registry import Entry, audited
from dprl.release.evaluate import evaluate
from dprl.release.train import train

RECORDED = Path(__file__).parent / "releases.json"
_SEED = 7


def cases() -> Iterator[tuple[str, Entry, str]]:
    """A name, the algorithm and its setting."""
    for entry in audited().values():
        for setting in entry.load_conformance().settings:
            yield f"{entry.name}: {setting}", entry, setting


def released(entry: Entry, setting: str) -> dict[str, Any]:
    """A digest of all that is handed out, and the numbers themselves, for another processor's last digits."""
    with tempfile.TemporaryDirectory(prefix="dprl-golden-") as folder:
        found = _RELEASED[entry.unit](entry, setting, Path(folder))
    digest = hashlib.sha256(b"".join(name.encode() + found[name].tobytes() for name in sorted(found)))
    return {"digest": digest.hexdigest(), "numbers": _numbers(found)}


def _numbers(found: Mapping[str, np.ndarray]) -> list[float]:
    if "learned" in found:
        array = np.frombuffer(found["learned"][-32:].tobytes(), np.float32)
    elif "theta" in found:
        array = found["theta"].ravel()
    else:
        array = [target["value"] for target in json.loads(found["estimate"].tobytes())["targets"]]
    return [float(x) for x in array[:8]]


def _of_log(entry: Entry, setting: str, folder: Path) -> Mapping[str, np.ndarray]:
    del folder
    suite, chosen = entry.load_conformance(), entry.load().settings[setting]
    bounds = replace(suite.bounds, **{"units": UNITS, **chosen.facts})
    config, budget = chosen.config, suite.budget
    if isinstance(config, ImportanceSampling) or config.around_function:
        budget = replace(budget, epsilon=16.0)
    log = LogOf(bounds, trajectories=2, persons=True).columns(list(range(UNITS)), None, None)
    release = evaluate(
        read_log(log, bounds=bounds, unit="person"),
        list(suite.policies),
        budget,
        algorithm=config,
        features=chosen.features,
        seed=_SEED,
    )
    function = {} if release.value_function is None else {"theta": release.value_function.theta}
    return handed_out({"estimate": release.estimate, "certificate": release.certificate}, **function)


def _of_users(entry: Entry, setting: str, folder: Path) -> Mapping[str, np.ndarray]:
    facts = entry.load_conformance().facts(setting)
    source = "stream" if facts.action is not None or facts.horizon == 0 else "arrays"
    found = Users(entry, setting, source, folder).trained_on(Crowd(range(UNITS)))(_SEED)
    return {"learned" if name == "policy" else name: value for name, value in found.items()}


class _Walk(Walk):
    """With the public model of the first recording: moves of 64 sizes, by the points between which they end."""

    def transition_matrix(self, points: np.ndarray) -> np.ndarray:
        sizes = (np.arange(64) + 0.5) / 64.0 / 4.0
        cells, count = len(points) - 1, len(points)
        out = np.zeros((2, count, count))
        for action, moves in enumerate((-sizes, sizes)):
            for move in moves:
                place = np.clip(points + move, 0.0, 1.0) * cells
                left = np.minimum(np.floor(place), cells - 1).astype(int)
                np.add.at(out[action], (np.arange(count), left), 1.0 + left - place)
                np.add.at(out[action], (np.arange(count), left + 1), place - left)
        return out / out.sum(2, keepdims=True)


def _of_rewards(entry: Entry, setting: str, folder: Path) -> Mapping[str, np.ndarray]:
    del folder
    suite = entry.load_conformance()
    config = suite.config(setting)
    release = train(_Walk(ends=0.2, declares=ways_of(config)[1]), suite.budget, algorithm=config, seed=_SEED)
    learned = np.frombuffer(release.q_function.to_bytes(), np.uint8)
    return handed_out({"training": release.training, "certificate": release.certificate}, learned=learned)


_RELEASED = {"unit of the log": _of_log, "user": _of_users, "reward function": _of_rewards}


def record() -> None:
    """Write what is released now; digits of digests are those of this kind of processor."""
    RECORDED.write_text(json.dumps({name: released(*case) for name, *case in cases()}, indent=1) + "\n")


if __name__ == "__main__":
    record()
