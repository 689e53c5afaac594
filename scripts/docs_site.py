"""Hooks of mkdocs: pages outside of docs/ become pages of the site.

README.md becomes the first page.  CHANGELOG.md, CONTRIBUTING.md, the results of `make bench`, and the notebooks with
their outputs are added.  Links are changed so that they lead to the same pages in the site as in the repository.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

from scripts.notebook_page import page as notebook_page
from scripts.settings_reference import page as settings_page

ROOT = Path(__file__).parents[1]
PAGES = {"README.md": "index.md", "CHANGELOG.md": "CHANGELOG.md", "CONTRIBUTING.md": "CONTRIBUTING.md"}

_LINK = re.compile(r"(\]\()([^)\s#]+)")


def on_config(config: Any) -> Any:
    """Add to the navigation what somebody wrote and did not put there."""
    listed = set(re.findall(r"[\w.-]+\.md", str(config["nav"])))
    if more := sorted(path.name for path in (ROOT / "docs").glob("*.md") if path.name not in listed):
        config["nav"].append({"More": more})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the repository's root, the reference of the settings, the notebooks and the measurements."""
    files.append(File.generated(config, "settings.md", content=settings_page()))
    for source, target in PAGES.items():
        text = _LINK.sub(_from_root, (ROOT / source).read_text(encoding="utf-8"))
        files.append(File.generated(config, target, content=text))
    for path in sorted((ROOT / "docs/notebooks").glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=notebook_page(path)))
    for path in sorted((ROOT / "benchmarks/results").glob("*.*")):
        name = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn links of pages in docs/ that lead out of it, and of measurements that lead into it."""
    if page.file.src_uri.startswith("benchmarks/"):
        return _LINK.sub(lambda found: found[1] + found[2].replace("../../docs/", "../../"), markdown)
    return markdown if page.file.generated_by else _LINK.sub(_from_docs, markdown)


def _from_root(found: re.Match[str]) -> str:
    link = found[2]
    return found[1] + _page_of(PAGES.get(link, link.removeprefix("docs/")))


def _from_docs(found: re.Match[str]) -> str:
    link = found[2]
    return found[1] + (PAGES.get(link[3:], link[3:]) if link.startswith("../") else _page_of(link))


def _page_of(link: str) -> str:
    """Return the page that a notebook is in the site."""
    return f"{link.removesuffix('.ipynb')}.md" if link.endswith(".ipynb") else link
