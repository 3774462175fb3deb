"""What charts are drawn with: an element tree, which escapes names and keeps the markup well formed."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from xml.etree import ElementTree as ET

from markupsafe import Markup


def new_svg(width: float, height: float, title: str) -> ET.Element:
    """Return an empty chart of this size, in pixels, with its name for those who do not see it."""
    box = f"0 0 {px(width)} {px(height)}"
    svg = ET.Element("svg", {"viewBox": box, "width": px(width), "height": px(height), "role": "img"})
    ET.SubElement(svg, "title").text = title
    return svg


def draw(parent: ET.Element, tag: str, kind: str, **attributes: float | str) -> ET.Element:
    """Draw an element of the style sheet's class ``kind``, with numbers in pixels, and return it."""
    written = {name: value if isinstance(value, str) else px(value) for name, value in attributes.items()}
    return ET.SubElement(parent, tag, {**written, "class": kind})


def draw_line(parent: ET.Element, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
    """Draw a straight line of the style sheet's class ``kind``."""
    draw(parent, "line", kind, x1=x1, y1=y1, x2=x2, y2=y2)


def draw_path(parent: ET.Element, points: Iterable[tuple[float, float]], kind: str, close: bool = False) -> None:
    """Draw straight lines from point to point, and back to the first where ``close`` is set."""
    d = "".join(f"{'L' if i else 'M'}{px(x)} {px(y)}" for i, (x, y) in enumerate(points))
    draw(parent, "path", kind, d=d + "Z" * close)


def draw_text(parent: ET.Element, x: float, y: float, text: str, kind: str, anchor: str = "start") -> ET.Element:
    """Draw text of the style sheet's class ``kind`` and return it; ``anchor`` is start, middle or end."""
    element = draw(parent, "text", kind, x=x, y=y)
    element.set("text-anchor", anchor)
    element.text = text
    return element


def px(value: float) -> str:
    """Return a number of pixels as it is written, to a hundredth."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def markup(svg: ET.Element) -> Markup:
    """Return the chart as it stands in a page."""
    return Markup(ET.tostring(svg, encoding="unicode"))


def text_width(text: str, size: float = 13.0) -> float:
    """Return a generous estimate in pixels, for the reader's font is not known and a label must never be cut."""
    ems = 0.0
    for character in text:
        if unicodedata.east_asian_width(character) in "WF":
            ems += 1.05
        elif character in "ijl.,()'| ":
            ems += 0.36
        elif character in "MW@mw%":
            ems += 0.95
        else:
            ems += 0.72 if character.isupper() else 0.63
    return ems * size
