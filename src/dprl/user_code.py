"""Calls of code that users bring, such as policies and streams of people, on what is private.

Whatever such code raises may quote a row. It need not be an Exception: a panic in a library of Rust's is none, and
``sys.exit(text)`` prints its text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
S = TypeVar("S")


def quietly(call: Callable[[], T], otherwise: S) -> T | S:
    """What ``call`` returns, or ``otherwise`` where it raises, whatever it raises; nothing of that is kept.

    Only Ctrl-C passes, without its text. It is raised outside of the handler: inside, what was raised first would stay
    attached to it.
    """
    try:
        return call()
    except KeyboardInterrupt:
        pass
    except BaseException:  # what it says belongs to the rows
        return otherwise
    raise KeyboardInterrupt
