"""A page as tests read it: its text, its tags and the rows of its tables."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = {"meta", "br"}


def value_of(text: str) -> float:
    """A number as the page writes it."""
    superscripts = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹\N{MINUS SIGN}", "-0123456789-")
    return float(text.replace("\xa0×\xa010", "e").translate(superscripts).replace(",", ""))


class Page(HTMLParser):
    """Checks nesting while it collects the text, the tags and the cells of every table row."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.words = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        assert not {name for name, _ in attrs} & {"src", "onclick", "onload"}
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" in self.open or "title" in self.open:
            return
        self.words += data
        if self.rows and ("td" in self.open or "th" in self.open):
            self.rows[-1][-1] += data

    @property
    def names(self) -> list[str]:
        return [tag for tag, _ in self.tags]

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", self.words)

    def cells(self, name: str) -> list[list[str]]:
        """The rows that begin with ``name``, in order of the page."""
        return [row for row in self.rows if row and row[0] == name]
