"""Cells of a column as numbers or as codes of identifiers; conversion succeeds whatever the cells hold.

Where pandas is installed, Arrow imports it to make a scalar from a Python number, or a NumPy array from an Arrow array.
That takes half a second of a small release. So this module makes scalars from buffers, and passes arrays by DLPack.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dprl.data.memory import NUMBER, TRUTH, UNTRUTH
from dprl.data.schema import comparable, is_text

_NAN = pa.Array.from_buffers(pa.float64(), 1, [None, pa.py_buffer(np.full(1, np.nan))])[0]


def numbers(column: pa.ChunkedArray) -> np.ndarray:
    """Return ``(R,)`` float64, NaN for cells that are not numbers; true and false are 1 and 0, also in text."""
    if is_text(column.type):
        good = pc.match_substring_regex(column, NUMBER)  # type: ignore[attr-defined]
        truth = pc.match_substring_regex(column, TRUTH)  # type: ignore[attr-defined]
        known = pc.or_(truth, pc.match_substring_regex(column, UNTRUTH))  # type: ignore[attr-defined]
        flags = pc.if_else(known, pc.cast(pc.cast(truth, pa.int8()), column.type), pa.nulls(1, column.type)[0])  # type: ignore[attr-defined]
        text = pc.if_else(good, column, flags)  # type: ignore[attr-defined]
        text = pc.utf8_trim_whitespace(text)  # type: ignore[attr-defined]  # it may refuse bytes that are not a number
        column = pc.cast(text, pa.float64())
    values = pc.cast(column, pa.float64(), safe=False)
    return np.from_dlpack(one_array(pc.fill_null(values, _NAN)))


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return the chunks of a column as one array."""
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def lists(column: pa.ChunkedArray, size: int) -> np.ndarray:
    """Return ``(R, size)`` float64 of a column of lists, NaN in a row whose list has another length."""
    array = one_array(column)
    out = np.full((len(array), size), np.nan)
    right = pc.list_value_length(array).to_numpy(zero_copy_only=False) == size  # type: ignore[attr-defined]
    chosen = array.filter(pa.array(right))
    flat = pc.cast(chosen.flatten(), pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    out[right] = flat.reshape(-1, size)
    return out


def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column with its values in place of indices into a dictionary."""
    return pc.cast(column, column.type.value_type) if pa.types.is_dictionary(column.type) else column


def identifiers(column: pa.ChunkedArray, kind: pa.DataType | None = None) -> pa.ChunkedArray:
    """Return identifiers in a comparable type, by default the widest of their own kind; null where one is missing."""
    column = pc.cast(plain(column), kind or comparable(column.type))
    if pa.types.is_floating(column.type):
        column = pc.add(column, 0.0)  # type: ignore[attr-defined]  # -0.0 is 0.0
        finite = pc.is_finite(column)  # type: ignore[attr-defined]
        column = pc.if_else(finite, column, pa.nulls(1, column.type)[0])  # type: ignore[attr-defined]
    return column


def identifier_codes(column: pa.ChunkedArray) -> np.ndarray:
    """Return codes of identifiers in the order of their values, -1 for missing; the order of rows does not matter."""
    column = identifiers(column)
    if pa.types.is_null(column.type):
        return np.full(len(column), -1, dtype=np.int64)
    encoded = one_array(column).dictionary_encode()
    ranks = np.from_dlpack(pc.rank(encoded.dictionary, sort_keys="ascending")).astype(np.int64)  # type: ignore[attr-defined]
    indices = np.nan_to_num(numbers(pa.chunked_array([encoded.indices])), nan=-1.0).astype(np.int64)
    return np.append(ranks - 1, -1)[indices]  # the last entry is the code of a missing identifier
