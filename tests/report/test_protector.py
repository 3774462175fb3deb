"""The page of a protector: its numbers, its curves, and nothing that breaks it."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from dprl.report.pages import protector_page

FACTS = {
    "algorithm": "gpope",
    "architecture": {"scheduler": "public", "hidden": 20},
    "hand": {"steps": 100, "step_sizes": [0.1, 0.4]},
    "ranges": {"horizon": [12.0, 30.0]},
    "provenance": {"public": True, "tasks": "<b>chains</b>", "epsilon": 0.5, "delta": 1e-5, "family": {"units": 300}},
}
LOG = [
    {"epoch": 0.0, "validation": 1.0, "validation_loss": 0.4, "hand_loss": 0.4, "worst_ratio": 1.0},
    {"epoch": 25.0, "validation": 0.7, "validation_loss": 0.25, "hand_loss": 0.4, "worst_ratio": 1.234},
    {"epoch": 50.0, "validation": 0.8, "validation_loss": 0.31, "hand_loss": 0.4, "worst_ratio": 1.9},
]


def svgs(page: str) -> list[ET.Element]:
    return [ET.fromstring("<svg" + part.split("</svg>")[0] + "</svg>") for part in page.split("<svg")[1:]]


def test_it_shows_what_was_kept_and_what_it_serves():
    page = protector_page(FACTS, LOG, [1.2, 1.2, 0.8, 0.8], "ab" * 32)
    assert page == protector_page(FACTS, LOG, [1.2, 1.2, 0.8, 0.8], "ab" * 32)
    # of the best validation, not of the last
    assert "1.234" in page
    assert "1.9<" not in page
    assert "12 to 30" in page
    assert "ab" * 32 in page
    assert "&lt;b&gt;chains" in page
    assert "<b>" not in page
    learning, noise = svgs(page)
    assert len(learning.findall("path")) == 2
    assert len(noise.findall("path")) == 1
    assert "http" not in page.replace("http-equiv", "")


def test_gaps_are_no_errors():
    for facts, log in (({}, []), ({"provenance": 3, "hand": None}, [{"validation": None}, {}]), (FACTS, LOG[:1])):
        assert not svgs(protector_page(facts, log, None, ""))
