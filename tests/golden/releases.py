"""What every algorithm releases, in every setting, with one key: recorded before the code is moved, compared after.

A change that is meant to change bytes records them again, and says here why. So far, of 0.2.0: evaluations release the
number of people who are there beside the values, one coordinate more; dp-pg's default step size follows from what was
released; the default's values follow its value function where products of ratios are cut; of several steps an action
without support in a stratum no longer takes the weights of the others with it; dp-gld keeps its iterates in the box;
stratified hands out its model of the probabilities, which is what is compared; the default off policy is TD of a table
where noise is small, and on policy TD, which does not go far, or statistics follow its check; dp-pg's baseline has .35
of the clip, its released policy is sharpened, and in episodes its vectors have a statistic of their length;
functional-q with a path for each action takes expected noise from the differences of actions; doubly robust values are
taken around each unit's own baseline; the default gives its values .45 of the budget, and steps of dp-pg in episodes
are divided by second moments of the policy's features; stratified has a setting with subgroups.
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

from dprl.audits.conformance.reward_functions import Walk, learned_from, ways_of
from dprl.audits.conformance.users import UNITS, Users
from dprl.audits.people import PeopleWithTrajectories
from dprl.data.readers import read_log
from dprl.engine.program import ValuesConfig
from dprl.registry import Entry, auditable_entries

RECORDED = Path(__file__).parent / "releases.json"
_SEED = 7


def cases() -> Iterator[tuple[str, Entry, str]]:
    """A name, the algorithm and its setting."""
    for entry in auditable_entries().values():
        for setting in entry.load().settings:
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
    if isinstance(config, ValuesConfig) or config.around_function:
        budget = replace(budget, epsilon=16.0)
    log = PeopleWithTrajectories(bounds, trajectories=2, persons=True).columns(list(range(UNITS)), None, None)
    return suite.releasing(setting, read_log(log, bounds=bounds, unit="person"), budget)(_SEED)


def _of_users(entry: Entry, setting: str, folder: Path) -> Mapping[str, np.ndarray]:
    suite = entry.load_conformance()
    facts = suite.facts(setting)
    source = "stream" if facts.action is not None or facts.horizon == 0 else "arrays"
    found = Users(suite, setting, source, folder).trained_on(range(UNITS))(_SEED)
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
    found = learned_from(_Walk(ends=0.2, declares=ways_of(config)[1]), suite.budget, config)(_SEED)
    return {"learned" if name == "q" else name: value for name, value in found.items()}


_RELEASED = {"unit of the log": _of_log, "user": _of_users, "reward function": _of_rewards}


def record() -> None:
    """Write what is released now; digits of digests are those of this kind of processor."""
    RECORDED.write_text(json.dumps({name: released(*case) for name, *case in cases()}, indent=1) + "\n")


if __name__ == "__main__":
    record()
