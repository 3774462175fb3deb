"""The reachability attack: outputs that one dataset can give and its neighbour cannot (Mironov 2012).

An output that the neighbour cannot give betrays the dataset with certainty, whatever epsilon says.
"""

from __future__ import annotations

import numpy as np

from dprl.mechanisms.rounded_gaussian import WORDS, propose, table


def words_for(draws: np.ndarray, std: float) -> np.ndarray:
    """``(count, 2)`` uint64 words from which the sampler would draw these integers, read off its own table.

    The words are the first of those that choose the draw's bin, which accepts whatever can be, and its place in it.
    A draw in a bin without weight, or beyond the last, gets words that give something else.
    """
    made = table(std)
    bins = draws >> made.width_bits
    sign = bins < 0
    index = np.minimum(np.where(sign, -1 - bins, bins), len(made.thresholds) - 1)
    first = np.concatenate([[np.uint64(0)], made.thresholds])[index] | (sign.astype(np.uint64) << np.uint64(63))
    second = (draws - (bins << made.width_bits)).astype(np.uint64)
    return np.stack([first, second], axis=1)


def unreachable_on_grid(draws: np.ndarray, std: float) -> np.ndarray:
    """Booleans: which integers the sampler cannot draw, by running it on the words that should give them."""
    words = words_for(draws, std).T.reshape(1, WORDS, len(draws)).copy()
    values, rejected = propose(words, table(std))
    reached = values[0] == draws
    reached[rejected] = False
    return ~reached


def unreachable_in_float64(outputs: np.ndarray, total: float, std: float, around: int = 4) -> np.ndarray:
    """Booleans: which outputs ``total + normal * std`` cannot give in float64, whatever double the normal is.

    The only doubles that could are next to ``(output - total) / std``; ``around`` of them on both sides are tried.
    """
    below = (outputs - total) / std
    above, reached = below.copy(), np.zeros(len(outputs), dtype=bool)
    for _ in range(around + 1):
        reached |= (total + below * std == outputs) | (total + above * std == outputs)
        below, above = np.nextafter(below, -np.inf), np.nextafter(above, np.inf)
    return ~reached
