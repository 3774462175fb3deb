"""All kinds of report as a reader sees them, in headless Chromium: nothing is cut, and axe finds nothing amiss.

With ``DPRL_PICTURES=docs/images`` (``make pictures``) the first screens that pages show are written there.
"""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .kinds import KINDS, others

pytestmark = pytest.mark.slow

VIEWS = {"light": (1000, 1300, "light"), "dark": (1000, 1300, "dark"), "phone": (400, 1300, "light")}
WIDTHS = (320, 400, 600, 720, 800, 1000)
CUT = """() => [...document.querySelectorAll('main *, .banner *')].filter(each => {
  const box = each.getBoundingClientRect(), region = each.closest('[tabindex]')
  return !region && !each.closest('thead') && (box.right > innerWidth + 0.5 || box.left < -0.5)
}).map(each => `${each.tagName} ${each.className.baseVal ?? each.className}: ${each.textContent.slice(0, 60)}`)"""
"""What stands past the edge of the window, where nothing scrolls that a keyboard reaches."""
SMALL = """() => [...document.querySelectorAll('svg[viewBox] text')].filter(each => {
  const {a, b} = each.getScreenCTM(), size = parseFloat(getComputedStyle(each).fontSize) * Math.hypot(a, b)
  return each.getBoundingClientRect().height > 0 && size < 8
}).map(each => each.textContent)"""
"""Text of charts that is drawn smaller than eight pixels."""

SCROLLED = """each => new Promise(done => {
  const look = n => each.scrollLeft > 0 || !n ? done(each.scrollLeft) : requestAnimationFrame(() => look(n - 1))
  look(300)
})"""
"""How far a region was scrolled, within 300 frames."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    driver = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser: dprl[browser]")
    pytest.importorskip("axe_playwright_python", reason="axe checks accessibility: dprl[browser]")
    found = [path for name in ("chromium", "chromium-headless-shell", "google-chrome") if (path := shutil.which(name))]
    if not found:
        pytest.skip("there is no Chromium here: install chromium, such as with apt")
    with driver.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found[0], args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def pages(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    del browser  # no release is made where nobody looks
    pytest.importorskip("lifelines")
    folder = tmp_path_factory.mktemp("pages")
    for kind in KINDS:
        kind(folder)
    return {kind.__name__: folder / kind.__name__ / "report.html" for kind in KINDS} | others(folder)


NAMES = [*(kind.__name__ for kind in KINDS), "protector", "warning"]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", NAMES)
def test_it_is_accessible(browser: Any, pages: dict[str, Path], name: str, view: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    width, height, scheme = VIEWS[view]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, bypass_csp=True)
    page = context.new_page()
    page.goto(pages[name].as_uri())
    found = Axe().run(page).response
    told = [(each["id"], each["help"], [node["target"] for node in each["nodes"]]) for each in found["violations"]]
    assert told == []
    assert len(found["passes"]) > 15  # axe did run
    shown = view == ("phone" if name == "protector" else "light") and name != "warning"
    if shown and (folder := os.environ.get("DPRL_PICTURES")):
        image = pytest.importorskip("PIL.Image", reason="Pillow writes the pictures")
        picture = image.open(io.BytesIO(page.screenshot())).convert("RGB").quantize(96)
        picture.save(Path(folder) / f"report-{name}-{view}.png", optimize=True)
        if name == "trial":
            picture.crop((0, 0, width, 830)).save(Path(folder) / "report.png", optimize=True)
    context.close()


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_cut_at_any_width(browser: Any, pages: dict[str, Path], name: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(pages[name].as_uri())
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(CUT) == [], width
        assert page.evaluate(SMALL) == [], width
    context.close()


def test_what_is_too_wide_scrolls_by_keyboard_and_says_so(browser: Any, pages: dict[str, Path]) -> None:
    context = browser.new_context(viewport={"width": 800, "height": 900})
    page = context.new_page()
    page.goto(pages["warning"].as_uri())
    region = page.locator(".table[tabindex]").first
    assert region.evaluate("each => each.scrollWidth > each.clientWidth")
    assert region.locator(".hint").is_visible()
    region.focus()
    page.keyboard.press("ArrowRight")
    assert region.evaluate(SCROLLED) > 0
    context.close()
