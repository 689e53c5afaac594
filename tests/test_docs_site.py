"""The documentation builds as a site, its links lead somewhere, and no page of it asks the network for anything."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import needs

ROOT = Path(__file__).parents[1]
_LOADS = re.compile(
    r'<(?:script|img|iframe)[^>]+src="(https?:)?//|<link[^>]+href="(https?:)?//[^>]+stylesheet|@import url'
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "site"
    done = subprocess.run(  # without --quiet, with which mkdocs counts no warnings and --strict stops at none
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)],
        cwd=ROOT,
        env=os.environ
        | {"NO_MKDOCS_2_WARNING": "1", "http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_of_the_docs_is_in_the_site_and_the_readme_begins_it(site: Path):
    first = (site / "index.html").read_text()
    for path in (ROOT / "docs").glob("*.md"):
        assert (site / f"{path.stem}.html").is_file(), path.name
        assert f'href="{path.stem}.html"' in first, f"{path.name} is not in the navigation"
    assert "make pipeline" in first
    assert "learning_rate" in (site / "settings.html").read_text()


def test_pages_link_to_files_that_are_there_and_load_nothing_from_elsewhere(site: Path):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 15
    for page in pages:
        text = page.read_text()
        assert not _LOADS.search(text), f"{page.name}: {_LOADS.search(text)}"
        if page.name == "404.html":  # its links begin at the root of a server
            continue
        for link in re.findall(r'(?:href|src)="([^"#?:]+)[#"?]', text):
            assert (page.parent / link).exists(), f"{page.relative_to(site)} links to {link}"


@needs("browser")
def test_the_search_works_in_pages_that_are_files(site: Path, tmp_path: Path):
    for page in ("index.html", "notebooks/quick-start.html"):
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
        command += ["--virtual-time-budget=20000", "--dump-dom", f"{(site / page).as_uri()}?q=philosophers"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
        assert re.search(r"md-search-result__meta\">\d+ matching documents", done.stdout), page
