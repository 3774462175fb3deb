"""How a command may end besides well and by a mistake."""

from __future__ import annotations


class StoppedError(Exception):
    """Ctrl-C; the words say what is left."""


class UnprintedReleaseError(Exception):
    """The release is in its folder, and standard output refuses what is said of it."""
