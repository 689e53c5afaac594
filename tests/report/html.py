"""The page of a made-up experiment, built and read back."""

from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

from pipeline_lib.report.data import ReportData
from pipeline_lib.report.page import build_report

VOID = {"meta", "link", "br", "wbr", "img", "hr", "input"}


class Document(HTMLParser):
    """Collects ids and text, and notices tags that do not match."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: Counter[str] = Counter()
        self.tags: Counter[str] = Counter()
        self.links: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        values = dict(attrs)
        self.ids.update([values["id"]] if values.get("id") else [])
        self.links += [v for k, v in attrs if k in ("href", "src", "xlink:href") and v]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "title"):
            self.text += data


def build(data: ReportData, folder: Path) -> tuple[str, Document]:
    build_report(data, folder / "index.html")
    page = (folder / "index.html").read_text(encoding="utf-8")
    document = Document()
    document.feed(page)
    assert document.open == []
    return page, document
