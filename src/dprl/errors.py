"""The errors that a user is meant to read, and the collector of mistakes. A leaf: everything may import it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any


class DprlError(ValueError):
    """A request that cannot be honoured, in one sentence: what is wrong, where, what to do.

    The command line prints the sentence and exits with 2. A message is made of public facts only (column names, types,
    flags, declared bounds): never a value, a count or an identifier read from the rows.
    """


class UnreadableError(DprlError):
    """A file that is missing, is not a regular file, or holds no strict JSON; nothing in it was checked."""


class OverspendError(DprlError):
    """The ledger holds less budget than the release asks for."""


class WrongOptionsError(DprlError):
    """Several mistakes of one request, each in one sentence; the command line prints one per line.

    Attributes:
        sentences: what is wrong, in the order in which it was found.
    """

    def __init__(self, sentences: Iterable[str]) -> None:
        self.sentences = tuple(sentences)
        super().__init__("\n".join(self.sentences))


class Mistakes:
    """Collector of everything that is wrong with a request, so that all mistakes are reported at once.

    Attributes:
        found: the sentences so far.
    """

    def __init__(self) -> None:
        self.found: list[str] = []

    def add(self, error: DprlError | str) -> None:
        """Note a mistake, or each of several; a sentence that was noted before is not repeated."""
        sentences = error.sentences if isinstance(error, WrongOptionsError) else (str(error),)
        self.found.extend(s for s in sentences if s not in self.found)

    def attempt(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what ``function`` returns; where it raises a :class:`DprlError`, note the mistake and return None."""
        try:
            return function(*arguments)
        except DprlError as error:
            self.add(error)
            return None

    def check(self) -> None:
        """Raise the mistakes that were found, if any: a single one as a :class:`DprlError`, several together."""
        if self.found:
            raise DprlError(self.found[0]) if len(self.found) == 1 else WrongOptionsError(self.found)


def require(condition: object, sentence: str) -> None:
    """Raise a :class:`DprlError` with this sentence where the condition does not hold."""
    if not condition:
        raise DprlError(sentence)


@contextmanager
def explained(failure: str) -> Iterator[None]:
    """Turn an error of the operating system into a sentence: the failure, such as ``a.txt cannot be read``, and why."""
    try:
        yield
    except OSError as error:
        raise DprlError(f"{failure}: {error.strerror or error}.") from error
