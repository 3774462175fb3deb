"""Spoiled copies of good artifacts: values of another kind in every place of a JSON, and files that are none."""

from __future__ import annotations

import copy
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dprl.errors import DprlError


def nested(depth: int) -> Any:
    """A list in a list in a list."""
    found: Any = []
    for _ in range(depth):
        found = [found]
    return found


def composed(depth: int) -> Any:
    """A privacy event inside of an event inside of an event."""
    found: Any = {"type": "Gaussian", "noise_multiplier": 2.0}
    for _ in range(depth):
        found = {"type": "SelfComposed", "count": 1, "event": found}
    return found


VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**62, -(2**70), 10**400, 0.0, -0.5, 1e-320, 1e308, -1e308, "", "x", "1", "\0", "a\0b",
    "\ud800", "\n\x1b[2J", "../x", "a" * 100_000, [], [None], [[]], {}, {"a": 1}, [1] * 3000, nested(20), nested(200),
    composed(20), composed(200), "9999-99-99", "Gaussian vector", {"type": "Composed", "events": []},
)  # fmt: skip
RAW: tuple[bytes, ...] = (
    b"", b"\0" * 100, b"\xff\xfe", b"[" * 200_000, b'{"a":' * 200_000, b"[]", b"null", b'"x"', b"1" * 6000, b"{",
    b'{"a": 1, "a": 2}', b'{"a": NaN}', b'{"a": 1e999}', b'{"a": 1' + b"0" * 5000 + b"}", b'{"schema": []}',
    b'{"\\ud800": "\\u0000"}', b"\x93NUMPY\x01\x00v\x00", (2**62).to_bytes(8, "little") + b"{}",
)  # fmt: skip


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON but its root."""
    for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def spoiled(content: Any, rng: random.Random, count: int) -> Iterator[Any]:
    """Copies of ``content``, each with one or two of its places changed, removed or renamed."""
    known = list(places(content))
    for _ in range(count):
        changed = copy.deepcopy(content)
        for path in rng.sample(known, rng.choice((1, 1, 1, 2))):
            node: Any = changed
            try:
                for key in path[:-1]:
                    node = node[key]
                value = copy.deepcopy(rng.choice(VALUES))
                how = rng.randrange(8)
                if how == 0:
                    del node[path[-1]]
                elif how == 1 and isinstance(node, dict) and isinstance(value, str):
                    node[value] = node.pop(path[-1])
                else:
                    node[path[-1]] = value
            except (KeyError, IndexError, TypeError):  # the first change took the second one's place away
                continue
        yield changed


def flipped(raw: bytes, rng: random.Random, count: int) -> Iterator[bytes]:
    """Copies of ``raw``, each with up to eight bytes changed, or cut."""
    for _ in range(count):
        changed = bytearray(raw)
        for _ in range(rng.randint(1, 8)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        yield bytes(changed[: rng.randrange(len(changed))] if rng.randrange(6) == 0 else changed)


def dumped(content: Any) -> bytes:
    """As anybody may write it: also numbers that no reader takes."""
    return json.dumps(content, sort_keys=True, indent=2).encode()


def no_files(path: Path) -> Iterator[str]:
    """Put in the place of a file, one after the other: a pipe, links, a folder, a hole of a terabyte, nothing."""

    def away() -> None:
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        elif os.path.lexists(path):
            path.unlink()

    def hole() -> None:
        path.touch()
        os.truncate(path, 2**40)

    makers: dict[str, Callable[[], object]] = {
        "a pipe": lambda: os.mkfifo(path),
        "a link to a device": lambda: path.symlink_to("/dev/zero"),
        "a link to itself": lambda: path.symlink_to(path.name),
        "a folder": path.mkdir,
        "a hole": hole,
        "nothing": lambda: None,
    }
    for name, make in makers.items():
        away()
        make()
        yield name
    away()


def one_sentence(call: Callable[[], object]) -> bool:
    """Whether ``call`` was refused: in one clear sentence, or else not at all."""
    try:
        call()
    except DprlError as error:
        said = str(error)
        assert "\n" not in said
        assert said.endswith(".")
        assert said.isprintable(), ascii(said)
        assert len(said) < 1000
        return True
    return False
