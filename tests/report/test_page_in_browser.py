"""The page as a browser shows and prints it."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver

from tests.needs import require
from tests.report.html import Document


@contextlib.contextmanager
def chromium() -> Iterator[webdriver.Chrome]:
    require("browser")
    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for argument in ("--headless=new", "--no-sandbox", "--window-size=1400,1000", "--allow-file-access-from-files"):
        options.add_argument(argument)
    browser = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        yield browser
    finally:
        browser.quit()


@pytest.mark.service
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_overflows_in_a_real_browser(width: int, folder: Path, built: tuple[str, Document]) -> None:
    """Measured inside Chromium: the page is as wide as the window, and the figures of one width are shown."""
    frame = folder / f"frame-{width}.html"  # a window is never narrower than 500 px; a frame may be
    frame.write_text(f'<iframe src="index.html" style="border:0;width:{width}px;height:900px"></iframe>')
    with chromium() as browser:
        browser.get(frame.as_uri())
        browser.switch_to.frame(0)
        short = browser.execute_script("return document.documentElement.scrollHeight")
        assert short < (6000 if width < 640 else 4500), "what is not asked for is folded"
        browser.execute_script("document.querySelectorAll('details.part').forEach(part => part.open = true)")
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        shown = browser.execute_script(
            "return [...document.querySelectorAll('figure svg')].filter(s => s.getBoundingClientRect().width > 0)"
            ".map(s => [s.getBoundingClientRect().width, s.parentElement.className])"
        )
        assert len(shown) == built[1].tags["figure"] >= 10
        assert {name for _, name in shown} == {"narrow" if width < 640 else "wide"}
        assert all(0.8 * min(width, 760) < size <= width for size, _ in shown)
        cut = browser.execute_script(
            "return [...document.querySelectorAll('.scroll, pre')]"
            ".filter(e => e.checkVisibility() && e.scrollWidth > e.clientWidth + 1).map(e => e.textContent)"
        )
        assert cut == [], "a table or a text is wider than its place"
        smallest = browser.execute_script(
            "return Math.min(...[...document.querySelectorAll('figure svg text')]"
            ".filter(t => t.getBoundingClientRect().height > 0).map(t => t.getBoundingClientRect().height))"
        )
        assert smallest >= 8  # pixels: nothing in a figure is too small to read


@pytest.mark.service
def test_on_paper_plan_and_identity_are_unfolded_and_links_are_gone(folder: Path, built: tuple[str, Document]) -> None:
    folded = (
        "return [...document.querySelectorAll('#run details table, #run details pre')].map(e => e.checkVisibility())"
    )
    with chromium() as browser:
        browser.get((folder / "index.html").as_uri())
        on_screen = browser.execute_script(folded)
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        on_paper = browser.execute_script(folded)
        navigation = browser.execute_script("return document.querySelector('nav').checkVisibility()")
        size = {"width": 680, "height": 900, "deviceScaleFactor": 1, "mobile": False}  # A4 without its margins
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        width = browser.execute_script("return document.documentElement.scrollWidth")
    assert width <= 680, "paper cannot be scrolled"
    assert len(on_paper) == 4
    assert all(on_paper) and not any(on_screen)
    assert not navigation


@pytest.mark.service
def test_a_link_unfolds_what_it_leads_to(folder: Path, built: tuple[str, Document]):
    shown = "return document.querySelector('#training figure').checkVisibility()"
    with chromium() as browser:
        browser.get((folder / "index.html").as_uri())
        assert not browser.execute_script(shown)
        browser.execute_script("document.querySelector('nav a[href=\"#training\"]').click()")
        assert browser.execute_script(shown)
