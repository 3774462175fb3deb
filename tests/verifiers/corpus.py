"""A corpus of results folders, good and bad: real releases of two versions, and what somebody may have made of them.

``stored/VERSION.tar.xz`` holds what that version of dprl wrote, byte for byte: one folder for every algorithm, privacy
unit and kind of file. The files are never made again, for a certificate that was handed out cannot be either.
``scheduled`` and ``greedy`` are by an algorithm of the tests, whose noise changes from step to step.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import json
import re
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dprl.accounting import events
from dprl.accounting.accountant import epsilon_of
from dprl.accounting.certificate import digest, to_bytes

STORED = Path(__file__).parent / "stored"
VERSIONS = ("0.1.0", "0.2.0")
DATA = ("estimate.json", "training.json")


def unpacked(version: str, folder: Path) -> dict[str, Path]:
    """Return the results folders that a version wrote, by name, unpacked into ``folder``."""
    with tarfile.open(STORED / f"{version}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return {found.name: found for found in sorted(folder.iterdir())}


def own_file(folder: Path) -> Path:
    """Return the certificate or statement of a folder."""
    return next(folder / name for name in ("certificate.json", "statement.json") if (folder / name).exists())


def content_of(folder: Path) -> Any:
    """Return the certificate or statement of a folder as JSON."""
    return json.loads(own_file(folder).read_bytes())


def data_file(folder: Path) -> Path:
    """Return the file of a folder that says what came out."""
    return next(folder / name for name in DATA if (folder / name).exists())


def put(folder: Path, content: Any, data: dict[str, Any]) -> None:
    """Write a certificate with fitting digests; ``data`` are fields to change in the file that says what came out."""
    path = data_file(folder)
    path.write_text(json.dumps(json.loads(path.read_bytes()) | data))
    content["artifacts"] = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest() if (folder / name).exists() else found
        for name, found in content["artifacts"].items()
    }
    content.pop("signature", None)
    content["digest"] = digest(content)
    own_file(folder).write_bytes(to_bytes(content))


# --- changes to what a certificate says, sealed again: only its sense can give them away ------------------------------

Content = dict[str, Any]
Change = Callable[[Content], object]


def innermost(event: Content, field: str) -> Content:
    """Return the first event, from the outside inwards, that has a field; raise where none has."""
    if field in event:
        return event
    inner = event.get("events") or [event["event"]]
    return innermost(inner[0], field)


def scaled(place: Callable[[Content], Content], field: str, factor: float) -> Change:
    def change(content: Content) -> None:
        found = place(content)
        found[field] = type(found[field])(found[field] * factor)

    return change


def _row(content: Content) -> Content:
    return content["mechanisms"][0]


def restated(factor: float) -> Change:
    """Less noise, in the event and in its row alike, and the epsilon that goes with it."""

    def change(content: Content) -> None:
        found = innermost(content["event"], "noise_multiplier")
        found["noise_multiplier"] *= factor
        content["mechanisms"][0]["noise_multiplier"] *= factor
        found = _recomputed(json.dumps(content["event"], sort_keys=True), content["delta_of_event"])
        content["epsilon_of_event"] = found

    return change


@functools.cache
def _recomputed(event: str, delta: float) -> float:
    return epsilon_of(events.from_json(json.loads(event)), delta)


def claims(factor: float) -> Change:
    """A claim of another epsilon, in every place."""

    def change(content: Content) -> None:
        content["epsilon"] *= factor
        if content["ledger"]:
            content["ledger"]["epsilon"] = content["epsilon"]

    return change


def claims_all(factor: float) -> Change:
    def change(content: Content) -> None:
        claims(factor)(content)
        content["epsilon_of_event"] *= factor

    return change


def recomposed(content: Content) -> None:
    """Parts of the people as if all did everything, or what all did as if it were of parts."""
    event = content["event"]
    inner = event.get("events") or [event, event]
    kind = "Composed" if event["type"] == "Parallel" else "Parallel"
    content["event"] = {"type": kind, "events": inner}


def _units(count: int) -> Change:
    def change(content: Content) -> None:
        public = content["assumed_public"]
        if "bounds" in public:
            public["bounds"]["units"] = count
        elif "units" in public:
            public["units"] = count
        else:
            public["hyper_parameters"]["people"]["value"] = count

    return change


SENSES: dict[str, Change] = {
    "claims 10% less": claims(0.9),
    "claims a millionth less": claims(1.0 - 1e-6),
    "claims twice as much": claims(2.0),
    "claims 10% less, and so does the event": claims_all(0.9),
    "claims no epsilon": lambda c: c.update(epsilon=0.0),
    "claims no delta": lambda c: c.update(delta=0.0),
    "claims nothing": lambda c: c.update(epsilon=None, delta=None),
    "more noise in the event": scaled(lambda c: innermost(c["event"], "noise_multiplier"), "noise_multiplier", 1.1),
    "more noise in the row": scaled(_row, "noise_multiplier", 1.1),
    "more noise in both": restated(1.05),
    "less noise in both": restated(0.9),
    "fewer steps in the event": scaled(lambda c: innermost(c["event"], "count"), "count", 0.5),
    "a hundred steps more in the row": lambda c: _row(c).update(steps=_row(c)["steps"] + 100),
    "steps that are no number": lambda c: _row(c).update(steps=True),
    "coordinates that are none": lambda c: _row(c).update(dimension=-5),
    "a billion coordinates": lambda c: _row(c).update(dimension=10**9),
    "a thousand times the coordinates": scaled(_row, "dimension", 1000),
    "a grid of three halves": scaled(_row, "grid_step", 1.5),
    "a grid that is twice as coarse": scaled(_row, "grid_step", 2.0),
    "half the sampling rate": scaled(_row, "sampling_rate", 0.5),
    "a share of one tenth": lambda c: _row(c).update(share=0.1),
    "a smaller clip norm": scaled(_row, "clip_norm", 0.9),
    "a smaller sensitivity": scaled(_row, "sensitivity", 0.9),
    "a smaller standard deviation": scaled(_row, "std", 0.9),
    "a smaller column norm": scaled(_row, "column_norm", 0.9),
    "a larger share of candidates": lambda c: _row(c).update(candidates=_row(c)["candidates"] + 1),
    "a larger rate of coins": scaled(_row, "rate", 1.01),
    "a mechanism of no known name": lambda c: _row(c).update(name="Laplace noise"),
    "no mechanism": lambda c: c["mechanisms"].clear(),
    "one mechanism twice": lambda c: c["mechanisms"].append(copy.deepcopy(c["mechanisms"][0])),
    "an event of no known type": lambda c: c["event"].update(type="Laplace"),
    "no event": lambda c: c.update(event=None),
    "an event composed otherwise": recomposed,
    "an event that is a whole number": lambda c: innermost(c["event"], "noise_multiplier").update(noise_multiplier=3),
    "an event without noise": lambda c: innermost(c["event"], "noise_multiplier").update(noise_multiplier=1e-200),
    "another order of the filter": lambda c: c["event"].update(order=c["event"]["order"] + 1),
    "another epsilon of the event": scaled(lambda c: c, "epsilon_of_event", 0.99),
    "another, larger epsilon of the event": scaled(lambda c: c, "epsilon_of_event", 1.01),
    "all of delta for the event": lambda c: c.update(delta_of_event=c["delta"]),
    "nothing for the sampler": lambda c: c.update(delta_sampler=0.0),
    "a delta that is none": lambda c: c.update(delta_of_event=1.5),
    "another unit": lambda c: c.update(privacy_unit="person" if c["privacy_unit"] != "person" else "trajectory"),
    "transitions": lambda c: c.update(privacy_unit="transition"),
    "reward functions": lambda c: c.update(privacy_unit="reward function"),
    "households": lambda c: c.update(privacy_unit="household"),
    "another relation": lambda c: c.update(neighbouring_relation="replace one"),
    "a relation of no meaning": lambda c: c.update(neighbouring_relation="somehow near"),
    "a billion units": _units(10**9),
    "no units": _units(0),
    "secure noise that is not": lambda c: c["noise"].update(secure=False),
    "another status": lambda c: c.update(status="as published"),
    "a statement's schema": lambda c: c.update(schema="dprl.statement/1"),
    "a schema of tomorrow": lambda c: c.update(schema="dprl.certificate/2"),
    "of version 0.1.0": lambda c: c["versions"].update(dprl="0.1.0"),
    "of version 9.0.0": lambda c: c["versions"].update(dprl="9.0.0"),
    "of no version": lambda c: c["versions"].pop("dprl"),
    "made on no day": lambda c: c.update(created="2026-02-30T10:00:00Z"),
    "one field more": lambda c: c.update(private=True),
    "one field less": lambda c: c.pop("released"),
    "one field more in a row": lambda c: _row(c).update(more=1),
    "nothing unprotected": lambda c: c["not_protected"].clear(),
    "another learner": lambda c: c["assumed_public"]["learner"].update(rounds=99),
    "a huge number": lambda c: c["assumed_public"].update(more=10**18),
    "other words": lambda c: c.update(released="Something else."),
}
"""What a sealed certificate may say instead; where a change finds nothing to change, there is no such case."""

DATAS: dict[str, dict[str, Any]] = {
    "another epsilon came out": {"epsilon": 0.5},
    "an algorithm of nobody": {"algorithm": "magic"},
    "another status came out": {"status": "as published"},
    "a choice of nobody": {"choice": {"policy": "a", "of": 2, "share": 0.5}},
}
"""What the file beside the certificate may say instead."""

# --- changes to files -------------------------------------------------------------------------------------------------


def _bytes(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda folder: own_file(folder).write_bytes(change(own_file(folder).read_bytes()))


def _other(folder: Path) -> Path:
    return folder / "report.html"


def _both(folder: Path) -> None:
    for name in ("certificate.json", "statement.json"):
        (folder / name).write_bytes(own_file(folder).read_bytes())


FILES: dict[str, Callable[[Path], object]] = {
    "one digit of epsilon": _bytes(lambda raw: re.sub(rb'("epsilon": [0-9.]*)[0-9]', rb"\g<1>7", raw)),
    "cut in half": _bytes(lambda raw: raw[: len(raw) // 2]),
    "empty": _bytes(lambda raw: b""),
    "not a number": _bytes(lambda raw: raw.replace(b'"epsilon": ', b'"epsilon": NaN, "more": ', 1)),
    "beyond every number": _bytes(lambda raw: raw.replace(b'"epsilon": ', b'"epsilon": 1e999, "more": ', 1)),
    "a number of 400 digits": _bytes(lambda raw: raw.replace(b'"delta": ', b'"delta": 1' + b"0" * 400 + b', "x": ', 1)),
    "a key twice": _bytes(lambda raw: raw.replace(b'{\n  "acc', b'{\n  "epsilon": 1e-9,\n  "acc', 1)),
    "a list": _bytes(lambda raw: b"[" + raw + b"]"),
    "nested without end": _bytes(lambda raw: b'{"a":' * 10_000 + b"1" + b"}" * 10_000),
    "spelled otherwise": _bytes(lambda raw: json.dumps(json.loads(raw)).encode()),
    "no last line": _bytes(lambda raw: raw.rstrip(b"\n")),
    "no digest at all": _bytes(lambda raw: to_bytes(json.loads(raw) | {"digest": "0" * 64})),
    "another file is not there": lambda folder: _other(folder).unlink(),
    "another file was changed": lambda folder: _other(folder).write_bytes(_other(folder).read_bytes() + b" "),
    "a file too many": lambda folder: (folder / "notes.txt").write_text("mine"),
    "another file is a link": lambda folder: (_other(folder).unlink(), _other(folder).symlink_to("/dev/null")),
    "a certificate and a statement": _both,
    "no certificate": lambda folder: own_file(folder).unlink(),
    "a link in its place": lambda folder: (
        (own_file(folder).rename(folder.parent / "away"), None)
        and (folder / "certificate.json").symlink_to(folder.parent / "away")
    ),
    "no folder": shutil.rmtree,
}


def cases(bases: dict[str, Path], scratch: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name and the folder of each case: every base as it is, then with every change that it has room for.

    A folder is good until the next one is asked for.
    """
    for name, base in bases.items():
        yield name, base
        for title, change in SENSES.items():
            content = copy.deepcopy(content_of(base))
            try:
                change(content)
            except (KeyError, IndexError, TypeError, AttributeError):
                continue
            if content == content_of(base):
                continue
            folder = Path(shutil.copytree(base, scratch / "case"))
            put(folder, content, {x: content[x] for x in ("epsilon", "delta", "status")})
            yield f"{name}: {title}", folder
            shutil.rmtree(folder)
        for title, data in DATAS.items():
            folder = Path(shutil.copytree(base, scratch / "case"))
            put(folder, content_of(base), data)
            yield f"{name}: {title}", folder
            shutil.rmtree(folder)
        for title, act in FILES.items():
            folder = Path(shutil.copytree(base, scratch / "case"))
            act(folder)
            yield f"{name}: {title}", folder
            shutil.rmtree(folder, ignore_errors=True)
