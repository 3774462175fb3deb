"""A keyed fingerprint of a log's rows, by which a ledger notices that it has seen the rows under another name.

The fingerprint covers the parts that every log has and that every request reads the same way: observation, action and
reward. It leaves out identifiers, because the same rows may be exported with others; next observations, because they
are mostly derived; and target probabilities, because they belong to a question. It also leaves out behaviour
probabilities, time steps and flags: whether these are read, or filled in, depends on the request (a public behaviour
policy, a horizon of 1), and the same people's rows must be recognised whatever is asked about them.

Each row is hashed to 128 bits under a secret key, the hashes are summed modulo 2^64 in two halves, and the sums with
the number of rows go through keyed BLAKE2b. So neither the order of rows, nor the order of columns in a file, nor the
file format, nor any bound matters, and a row that stands twice counts twice.

The fingerprint protects against forgetting: a file that was copied, converted, shuffled or given to a second person
who declares it anew. It does not stop somebody who changes, rounds, adds or drops a row, which changes the fingerprint.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np

from dprl.errors import require

PARTS = ("observation", "action", "reward")

_HALVES = 2
_BLOCK = 1 << 15  # rows that are hashed at a time, so that they stay in a processor's cache


def fingerprint(blocks: Iterable[Mapping[str, Any]], secret: bytes) -> str | None:
    """Return the fingerprint of a log's rows, 64 hexadecimal digits; None where there is no row.

    Neither the cut of the rows into blocks nor the order of the blocks matters. So a log may be larger than memory.

    Args:
        blocks: each with ``observation`` ``(R, d)`` or ``(R,)``, ``action`` ``(R,)`` or ``(R, k)`` and ``reward``
            ``(R,)``, numbers with NaN for what could not be read; other columns are ignored. A number counts by its
            float64 value: 1, 1.0 and true are the same, all NaNs are the same, and 0.0 and -0.0 are the same.
        secret: key of 32 bytes.

    Raises:
        DprlError: a part is missing, holds no numbers, or differs from another part in length; or two blocks differ in
            their number of components.
    """
    rows, totals, widths = 0, np.zeros(_HALVES, dtype=np.uint64), set()
    key = cache(partial(_words, secret))
    for columns in blocks:
        parts = {name: _table(name, columns) for name in PARTS}
        length = len(parts["reward"])
        even = all(len(table) == length for table in parts.values())
        require(even, "The columns of a log must have one length before they can be claimed.")
        if not length:
            continue
        widths.add(tuple(table.shape[1] for table in parts.values()))
        require(len(widths) == 1, "The blocks of a log must have the same columns before they can be claimed.")
        rows += length
        totals += _sums(parts, key)
    if not rows:
        return None
    message = rows.to_bytes(8, "big") + totals.astype(">u8").tobytes()
    return hashlib.blake2b(message, key=secret, digest_size=32, person=b"dprl rows").hexdigest()


def _sums(parts: Mapping[str, np.ndarray], key: Callable[[str], np.ndarray]) -> np.ndarray:
    """Return ``(2,)`` sums of the hashes of all rows, modulo 2^64; ``key`` returns the hash key for a label."""
    totals = np.zeros(_HALVES, dtype=np.uint64)
    for start in range(0, len(parts["reward"]), _BLOCK):
        row: Any = 0
        for name, table in parts.items():
            for i, word in enumerate(_canonical(table[start : start + _BLOCK])):
                row += _mixed(word, key(f"{name} {i}"))
        totals += _mixed(row, key("row")).sum(axis=1)  # arrays wrap, silently
    return totals


def _table(name: str, columns: Mapping[str, Any]) -> np.ndarray:
    require(name in columns, f"A log is claimed by its columns {', '.join(PARTS)}; {name} is missing.")
    values = np.asarray(columns[name])
    of_numbers = values.ndim in (1, 2) and values.dtype.kind in "buif"
    require(of_numbers, f"A log is claimed by columns of numbers, one row per transition; {name} is none.")
    return values.reshape(len(values), -1) if len(values) else np.zeros((0, 1))


def _canonical(table: np.ndarray) -> np.ndarray:
    """Return rows ``(R, d)`` as bits ``(d, R)`` of float64, with one zero and one NaN."""
    with np.errstate(all="ignore"):  # a signalling NaN would cause a warning
        values = np.array(table.T, dtype=np.float64, order="C")
        values[np.isnan(values)] = np.nan
        values += 0.0  # -0.0 becomes 0.0
    return values.view(np.uint64)


def _words(secret: bytes, label: str) -> np.ndarray:
    """Return three words per half, ``(3, 2, 1)``; the last two are odd, so that multiplying by them loses nothing."""
    words = np.empty((3, _HALVES, 1), dtype=np.uint64)
    for half in range(_HALVES):
        label_of_half = f"{label} {half}".encode()
        digest = hashlib.blake2b(label_of_half, key=secret, digest_size=24, person=b"dprl words").digest()
        words[:, half, 0] = np.frombuffer(digest, dtype="<u8")
    words[1:] |= np.uint64(1)
    return words


def _mixed(word: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Return 64-bit words permuted by each half of a key: xor, then two rounds of multiplication and shift."""
    word = word ^ key[0]
    for factor in key[1:]:
        word ^= word >> np.uint64(32)
        word *= factor
        word ^= word >> np.uint64(29)
    return word
