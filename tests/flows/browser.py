"""A real browser (Chromium, driven by its own driver), as a person would use it."""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, TimeoutException, WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tests.needs import require

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--window-size=1800,1000",
)


class Browser:
    """A browser window; every wait fails with a screenshot."""

    def __init__(self, driver: webdriver.Chrome, pictures: Path) -> None:
        self.driver = driver
        self.pictures = pictures

    def open(self, url: str) -> None:
        self.driver.get(url)

    def picture(self, name: str) -> Path:
        """Save what the window shows as ``<name>.png``."""
        self.pictures.mkdir(parents=True, exist_ok=True)
        path = self.pictures / f"{name}.png"
        self.driver.save_screenshot(str(path))
        return path

    def wait(self, condition: Callable[[], object], what: str, timeout_s: float = 180.0) -> None:
        """Wait until ``condition()`` is true."""

        def holds(_: object) -> bool:
            try:
                return bool(condition())
            except (StaleElementReferenceException, LookupError):
                return False

        try:
            WebDriverWait(self.driver, timeout_s, poll_frequency=0.5).until(holds)
        except WebDriverException:
            pytest.fail(f"{what}: not in {self.driver.current_url}, see {self.picture('failed')}\n{self.text()[:3000]}")

    def see(self, *texts: str, timeout_s: float = 180.0) -> None:
        """Wait until the page shows every text."""
        for text in texts:
            self.wait(lambda text=text: text in self.text(), f"text {text!r}", timeout_s)

    def text(self) -> str:
        return str(self.driver.execute_script("return document.body.innerText"))

    def find(self, xpath: str) -> WebElement:
        """Return the first visible element; LookupError if there is none."""
        for element in self.driver.find_elements(By.XPATH, xpath):
            if element.is_displayed():
                return element
        raise LookupError(xpath)

    def click(self, xpath: str) -> None:
        self.wait(lambda: self.find(xpath), xpath)
        element = self.find(xpath)
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()

    def submit(self, xpath: str) -> None:
        """Click a form's button until the form is gone: while it checks what was filled in last, it takes no click."""
        for _ in range(3):
            self.click(xpath)
            with contextlib.suppress(TimeoutException):
                WebDriverWait(self.driver, 20, poll_frequency=0.5).until(lambda _: not self.shows(xpath))
                return
        pytest.fail(f"the form does not go: {xpath}, see {self.picture('failed')}\n{self.text()[:3000]}")

    def shows(self, xpath: str) -> bool:
        with contextlib.suppress(LookupError, StaleElementReferenceException):
            return bool(self.find(xpath))
        return False

    def fill(self, element: WebElement, text: str) -> None:
        """Replace what a field holds."""
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()
        element.send_keys(Keys.CONTROL, "a")
        element.send_keys(text)

    def field(self, description: str) -> WebElement:
        """Return the field of a Prefect form that has this help text."""
        label = self.find(f"//p[normalize-space()='{description}']/preceding-sibling::label")
        return self.driver.find_element(By.ID, str(label.get_attribute("for")))


@contextlib.contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Open a window with a profile of its own; pictures go to ``SYMPOSIUM_PICTURES`` or ``folder``."""
    require("browser")
    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in (*FLAGS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(flag)
    window = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    window.set_page_load_timeout(120)
    try:
        yield Browser(window, Path(os.environ.get("SYMPOSIUM_PICTURES", folder / "pictures")))
    finally:
        window.quit()
