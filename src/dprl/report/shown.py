"""What a notebook shows of a release, a plan, a certificate or an audit: pages made of public and released numbers."""

from __future__ import annotations

import html
import re
import tempfile
import webbrowser
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path

from dprl.errors import DprlError
from dprl.files import write_atomically
from dprl.report.render import REPORT

_HEIGHT = 480  # of a page whose frame the notebook does not let grow
_SECTION = re.compile("^.*?</section>", re.DOTALL)
_FIGURES = re.compile("<figure>.*?</figure>", re.DOTALL)


@dataclass(frozen=True)
class Page:
    """A page of HTML that needs nothing else; a notebook shows it in a frame, so that neither styles the other."""

    text: str = field(repr=False)

    def _repr_html_(self) -> str:
        grows = "this.style.height = this.contentDocument.documentElement.scrollHeight + 'px'"
        return (
            f'<iframe srcdoc="{html.escape(self.text)}" title="dprl" onload="{grows}" '
            f'style="width: 100%; height: {_HEIGHT}px; border: 0"></iframe>'
        )

    def save(self, path: str | Path) -> Path:
        """Write the page into a file and return its path."""
        path = Path(path)
        if not path.absolute().parent.is_dir():
            raise DprlError(f"Cannot write {str(path)!r}: there is no such folder.")
        write_atomically(path, self.text.encode())
        return path


class Shown(ABC):
    """Something that has a page: a notebook shows the first section of it."""

    @abstractmethod
    def _page(self) -> str:
        """Return the whole page."""

    def _repr_html_(self) -> str:
        return _only(self._page(), _SECTION)._repr_html_()

    def plot(self) -> Page:
        """Return the charts of the page's first section, for a notebook to show or to be saved."""
        return _only(_only(self._page(), _SECTION).text, _FIGURES)

    def report(self, path: str | Path | None = None, *, show: bool = True) -> Path:
        """Write the whole page, open it in a browser, and return its path.

        Args:
            path: file for the page; by default one in a new temporary folder, which stays.
            show: whether a browser is asked to open it.

        Raises:
            DprlError: the file cannot be written.
        """
        place = Path(tempfile.mkdtemp(prefix="dprl-")) / REPORT if path is None else path
        written = Page(self._page()).save(place)
        if show:
            webbrowser.open(written.absolute().as_uri())
        return written


def _only(page: str, parts: re.Pattern[str]) -> Page:
    """Return a page with its styles and warnings, and of what is on it only the parts that match."""
    before, _, main = page.partition("<main>")
    return Page(f"{before}<main>{''.join(parts.findall(main))}</main></body></html>")
