"""Write tensors to a safetensors file, whose bytes depend on its content only, and read such files back. A leaf."""

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
"""Most bytes of a file that is read; a network of dprl takes some megabytes."""
Tensors: TypeAlias = dict[str, np.ndarray]
Metadata: TypeAlias = dict[str, str]
T = TypeVar("T")


class MisfitError(ValueError):
    """Contents of a file that make no sense; the error message for the user may repeat this error's text."""


def to_bytes(tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> bytes:
    """Return the bytes of a file with ``tensors``, in the dtypes that they have, and ``metadata`` in its header."""
    from safetensors.numpy import save

    raw = save({name: np.ascontiguousarray(t) for name, t in tensors.items()}, dict(metadata))
    # safetensors writes the metadata in an order that changes from call to call
    end = 8 + int.from_bytes(raw[:8], "little")
    header = json.dumps(json.loads(raw[8:end]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + raw[end:]


def read(path: Path, what: str) -> tuple[Tensors, Metadata]:
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
    tensors, metadata = read(path, what)
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
