"""Tensors in a safetensors file of which the same content gives the same bytes, and such files read back. A leaf."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np

from dprl.errors import DprlError
from dprl.protocols import Interval
from dprl.strict_json import read_regular, strict_object

MOST_BYTES = 2**31
"""Of a file that is read; a network of dprl has some megabytes."""
Tensors: TypeAlias = dict[str, np.ndarray]
Metadata: TypeAlias = dict[str, str]
T = TypeVar("T")


class MisfitError(ValueError):
    """What is wrong with the contents of a file, in words that its message may repeat."""


def to_bytes(tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> bytes:
    """Return the file: ``tensors`` in the types that they have, and ``metadata`` in its header."""
    from safetensors.numpy import save

    raw = save({name: np.ascontiguousarray(t) for name, t in tensors.items()}, dict(metadata))
    # the library writes the metadata in an order that changes from call to call
    end = 8 + int.from_bytes(raw[:8], "little")
    header = json.dumps(json.loads(raw[8:end]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + raw[end:]


def read(path: Path, what: str) -> tuple[Tensors, Metadata]:
    """Return tensors and metadata of a file that somebody else may have made.

    Args:
        path: of the file.
        what: is in it, for the message, such as "a policy".

    Raises:
        DprlError: there is none, or it is damaged.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        raw = read_regular(path, MOST_BYTES, links=True)
        length = int.from_bytes(raw[:8], "little")
        metadata = strict_object(path, raw[8 : 8 + length]).get("__metadata__", {})
        tensors = load(raw)
    except (DprlError, SafetensorError, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise DprlError(f"Cannot read {what} from {path.name!r}: it is missing or damaged.") from error
    return tensors, metadata if isinstance(metadata, dict) else {}


def read_back(
    path: str | Path, file: str, what: str, misfit: str, made_of: Mapping[str, Callable[[Tensors, Metadata], T]]
) -> T:
    """Return what a released file holds.

    Args:
        path: of the file, or of the results folder in which it is called ``file``.
        file: its name there.
        what: is in it, for the message, such as "a policy".
        misfit: what is wrong where the contents make no sense, for the message.
        made_of: what is made of tensors and metadata, by the schema that the file names.

    Raises:
        DprlError: there is no such file, or it is damaged.
    """
    path = Path(path)
    path = path / file if path.is_dir() else path
    tensors, metadata = read(path, what)
    if metadata.get("schema") not in made_of:
        raise DprlError(f"{path.name!r} is not {what} of a version that this dprl reads.")
    try:
        return made_of[metadata["schema"]](tensors, metadata)
    except (KeyError, TypeError, ValueError, RecursionError, OverflowError, DprlError) as error:
        wrong = error if isinstance(error, MisfitError) else misfit
        raise DprlError(f"{path.name!r} is damaged: {wrong}.") from error


def intervals(text: str) -> tuple[Interval, ...]:
    """Return the ends of intervals that a file's metadata hold; raises ValueError or TypeError where they are none."""
    found = tuple((float(low), float(high)) for low, high in json.loads(text))
    if not found or not all(-math.inf < low <= high < math.inf for low, high in found):
        raise ValueError
    return found
