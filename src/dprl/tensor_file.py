"""Tensors in a safetensors file of which the same content gives the same bytes. A leaf."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np


def to_bytes(tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> bytes:
    """The file: ``tensors`` in the types that they have, and ``metadata`` in its header."""
    from safetensors.numpy import save

    raw = save({name: np.ascontiguousarray(t) for name, t in tensors.items()}, dict(metadata))
    # the library writes the metadata in an order that changes from call to call
    end = 8 + int.from_bytes(raw[:8], "little")
    header = json.dumps(json.loads(raw[8:end]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + raw[end:]
