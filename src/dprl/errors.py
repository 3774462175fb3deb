"""The one error a user is meant to read. A leaf: everything may import it."""

from __future__ import annotations


class DprlError(ValueError):
    """A request that cannot be honoured, in one sentence: what is wrong, where, what to do.

    The command line prints the sentence and exits with 2. A message is made of public facts alone (column
    names, types, flags, declared bounds): never a value, a count or an identifier read from the rows.
    """


class OverspendError(DprlError):
    """The ledger holds less budget than the release asks for."""
