"""What charts are drawn with: an element tree, which escapes names and keeps the markup well formed."""

from __future__ import annotations

import unicodedata
from xml.etree import ElementTree as ET

from markupsafe import Markup

FONT = 13.0


def new_svg(width: float, height: float, title: str) -> ET.Element:
    """An empty chart of this size, in pixels, with its name for those who do not see it."""
    box = f"0 0 {px(width)} {px(height)}"
    svg = ET.Element("svg", {"viewBox": box, "width": px(width), "height": px(height), "role": "img"})
    ET.SubElement(svg, "title").text = title
    return svg


def svg_width(svg: ET.Element) -> float:
    """Width of a chart in its own units."""
    return float(svg.attrib["width"])


def draw_line(parent: ET.Element, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
    """A line of the style sheet's class ``kind``."""
    ET.SubElement(parent, "line", {"x1": px(x1), "y1": px(y1), "x2": px(x2), "y2": px(y2), "class": kind})


def draw_circle(parent: ET.Element, x: float, y: float, radius: float, kind: str) -> None:
    """A dot of the style sheet's class ``kind``."""
    ET.SubElement(parent, "circle", {"cx": px(x), "cy": px(y), "r": px(radius), "class": kind})


def draw_text(parent: ET.Element, x: float, y: float, text: str, kind: str, anchor: str = "start") -> ET.Element:
    """Text of the style sheet's class ``kind``; ``anchor`` is start, middle or end."""
    element = ET.SubElement(parent, "text", {"x": px(x), "y": px(y), "class": kind, "text-anchor": anchor})
    element.text = text
    return element


def px(value: float) -> str:
    """A number of pixels as it is written, to a hundredth."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def markup(svg: ET.Element) -> Markup:
    """The chart as it stands in a page."""
    return Markup(ET.tostring(svg, encoding="unicode"))


def text_width(text: str, size: float = FONT) -> float:
    """A generous estimate in pixels: the reader's font is not known here, and a label must never be cut."""
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


def fit_text(text: str, room: float) -> str:
    """``text``, cut where it would be wider than ``room`` pixels."""
    if text_width(text) <= room:
        return text
    while text and text_width(text + "…") > room:
        text = text[:-1]
    return text.rstrip() + "…"
