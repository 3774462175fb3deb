"""Files that somebody else may have made: regular files of bounded size, JSON with one meaning, and tensors. A leaf.

Tensors stand in safetensors files, whose bytes depend on their content only.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np

from dprl.bounds import Interval
from dprl.errors import DprlError, UnreadableError

MOST_JSON_BYTES = 2**25
"""Most bytes of a JSON file of a release. Most files have some hundred kilobytes. An estimate with linear projections
on eight covariates has 26 kilobytes per value and difference; there is room for a thousand of these."""
MOST_DEPTH = 32
"""Most levels of nested lists and objects; files that dprl writes have eight."""
_MOST_NUMBER = 2**63
MOST_TENSOR_BYTES = 2**31
"""Most bytes of a file of tensors; a network of dprl takes some megabytes."""
Tensors: TypeAlias = dict[str, np.ndarray]
Metadata: TypeAlias = dict[str, str]
T = TypeVar("T")


class MisfitError(ValueError):
    """Contents of a file that make no sense; the error message for the user may repeat this error's text."""


def read_regular(path: str | Path, most: int = MOST_JSON_BYTES, links: bool = False) -> bytes:
    """Return the bytes of a regular file of at most ``most`` bytes.

    A pipe or a device is refused without being waited for, and so is a link unless ``links`` are allowed.

    Raises:
        UnreadableError: the file cannot be read, is not regular or is too large; one sentence that names the file.
    """
    if not links and os.path.islink(path):
        raise UnreadableError(f"{printable_name(path)} is a link, not a regular file.")
    raw, follow = b"", 0 if links else os.O_NOFOLLOW
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | follow)
        try:
            status = os.fstat(descriptor)
            regular = stat.S_ISREG(status.st_mode)
            if regular and status.st_size <= most:
                with os.fdopen(descriptor, "rb", closefd=False) as file:
                    raw = file.read(most + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise UnreadableError(f"{printable_name(path)} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise UnreadableError(f"{printable_name(path)} is not a file name.") from error
    if not regular:
        raise UnreadableError(f"{printable_name(path)} is not a regular file.")
    if max(status.st_size, len(raw)) > most:  # the file may have grown meanwhile
        raise UnreadableError(f"{printable_name(path)} is larger than any such file that dprl writes.")
    return raw


def strict_object(name: str | Path, raw: bytes) -> dict[str, Any]:
    """Parse ``raw`` as a JSON object in UTF-8 that every reader understands alike.

    Duplicate keys, NaN, infinity, numbers beyond double precision, whole numbers beyond 64 bits and more than
    :data:`MOST_DEPTH` levels are refused.

    >>> strict_object("a.json", b'{"a": [1, 0.5]}')
    {'a': [1, 0.5]}
    >>> strict_object("a.json", b'{"a": 1, "a": 2}')
    Traceback (most recent call last):
    dprl.errors.UnreadableError: a.json is not strict JSON.

    Args:
        name: name of the file, for messages.
        raw: bytes of the file.
    """
    try:
        content = json.loads(
            raw.decode("utf-8"), object_pairs_hook=_once, parse_constant=_finite, parse_float=_finite, parse_int=_whole
        )
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"{printable_name(name)} is not strict JSON.") from error
    if not isinstance(content, dict):
        raise UnreadableError(f"{printable_name(name)} is not a JSON object.")
    level: list[Any] = [content]
    for _ in range(MOST_DEPTH):
        level = [x for node in level for x in (node.values() if isinstance(node, dict) else node)]
        level = [x for x in level if isinstance(x, dict | list)]
    if level:
        raise UnreadableError(f"{printable_name(name)} is not strict JSON: it is nested too deeply.")
    return content


def read_json_result(path: str | Path, file: str, what: str, made_of: Callable[[dict[str, Any]], T]) -> T:
    """Return what ``made_of`` makes of the JSON of a released file.

    Args:
        path: path of the file, or of the results folder in which it is called ``file``.
        file: name of the file in a results folder.
        what: what the file holds, in words.
        made_of: function that makes the result; it raises a ValueError where the file is of another version.

    Raises:
        DprlError: the file cannot be read, or is not of a version that this dprl reads.
    """
    path = Path(path)
    path = path / file if path.is_dir() else path
    try:
        return made_of(strict_object(path, read_regular(path, links=True)))
    except UnreadableError as error:
        raise DprlError(f"Cannot read {what} in {path.name!r}: it is missing or damaged.") from error
    except (KeyError, TypeError, ValueError) as error:
        raise DprlError(f"{path.name!r} holds no {what} of a version that this dprl reads.") from error


def printable_name(path: str | Path) -> str:
    """Return a file's name as a message prints it: quoted in ASCII where a terminal would not show all characters."""
    text = os.fspath(path)
    return text if text.isprintable() else ascii(text)


def _once(items: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(items)
    if len(found) != len(items):
        raise ValueError("a key stands twice")
    return found


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("out of range")
    return value


def _whole(text: str) -> int:
    value = int(text) if len(text) <= 20 else _MOST_NUMBER
    if abs(value) >= _MOST_NUMBER:
        raise ValueError("out of range")
    return value


# --- tensors ------------------------------------------------------------------------------------------------------


def tensors_to_bytes(tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> bytes:
    """Return the bytes of a file with ``tensors``, in the dtypes that they have, and ``metadata`` in its header."""
    from safetensors.numpy import save

    raw = save({name: np.ascontiguousarray(t) for name, t in tensors.items()}, dict(metadata))
    # safetensors writes the metadata in an order that changes from call to call
    end = 8 + int.from_bytes(raw[:8], "little")
    header = json.dumps(json.loads(raw[8:end]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + raw[end:]


def read_tensors(path: Path, what: str) -> tuple[Tensors, Metadata]:
    """Return tensors and metadata of a file that somebody else may have made.

    Args:
        path: path of the file.
        what: what the file holds, for the message, such as "a policy".

    Raises:
        DprlError: the file is missing or damaged.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        raw = read_regular(path, MOST_TENSOR_BYTES, links=True)
        length = int.from_bytes(raw[:8], "little")
        metadata = strict_object(path, raw[8 : 8 + length]).get("__metadata__", {})
        tensors = load(raw)
    except (DprlError, SafetensorError, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise DprlError(f"Cannot read {what} from {path.name!r}: it is missing or damaged.") from error
    return tensors, metadata if isinstance(metadata, dict) else {}


def read_tensor_result(
    path: str | Path, file: str, what: str, misfit: str, made_of: Mapping[str, Callable[[Tensors, Metadata], T]]
) -> T:
    """Return what a released file holds.

    Args:
        path: path of the file, or of the results folder in which it is called ``file``.
        file: name of the file in a results folder.
        what: what the file holds, for the message, such as "a policy".
        misfit: what the message says is wrong where the contents make no sense.
        made_of: by the schema that a file may name, the function that makes the result from tensors and metadata.

    Raises:
        DprlError: the file is missing or damaged, or names another schema.
    """
    path = Path(path)
    path = path / file if path.is_dir() else path
    tensors, metadata = read_tensors(path, what)
    if metadata.get("schema") not in made_of:
        raise DprlError(f"{path.name!r} is not {what} of a version that this dprl reads.")
    try:
        return made_of[metadata["schema"]](tensors, metadata)
    except (KeyError, TypeError, ValueError, RecursionError, OverflowError, DprlError) as error:
        wrong = error if isinstance(error, MisfitError) else misfit
        raise DprlError(f"{path.name!r} is damaged: {wrong}.") from error


def intervals(text: str) -> tuple[Interval, ...]:
    """Return the ends of the intervals in a file's metadata; raises ValueError or TypeError where there are none."""
    found = tuple((float(low), float(high)) for low, high in json.loads(text))
    if not found or not all(-math.inf < low <= high < math.inf for low, high in found):
        raise ValueError
    return found
