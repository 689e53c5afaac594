from __future__ import annotations

import contextlib
import dataclasses
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver

from pipeline_lib.environments.coding.metrics import METRICS
from pipeline_lib.evaluation.selection import select
from pipeline_lib.report import training_figures
from pipeline_lib.report.data import ReportData
from pipeline_lib.report.page import build_report
from pipeline_lib.report.to_read import RULE, to_read
from tests.evaluation.build import constant_team, summarise_test, team
from tests.report.build import EVALUATE, VERDICT, experiment, shown

VOID = {"meta", "link", "br", "img", "hr", "input"}


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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module")
def built(folder: Path) -> tuple[str, Document]:
    return build(experiment(), folder)


def test_the_page_stands_alone(built: tuple[str, Document]) -> None:
    page, document = built
    assert "script" not in document.tags and "link" not in document.tags and "img" not in document.tags
    assert all(link.startswith("#") for link in document.links)
    addresses = set(re.findall(r"https?://[^\"' )<]+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, not a place
    assert "default-src 'none'" in page and "@import" not in page and "url(http" not in page


def test_ids_are_unique_and_every_reference_has_a_target(built: tuple[str, Document]) -> None:
    page, document = built
    assert [name for name, count in document.ids.items() if count > 1] == []
    targets = {link[1:] for link in document.links} | set(re.findall(r"url\(#([^)]+)\)", page))
    assert targets <= set(document.ids)


def test_the_verdict_comes_first(built: tuple[str, Document]) -> None:
    _, document = built
    order = ["IMPROVED", "held-out problems", "before (base)", "Each training run", "Learning", "Every checkpoint"]
    order += ["against the others", "Problem by problem", "How the team works together", "Cost", "Reward audit", "Plan"]
    places = [document.text.index(text, document.text.index("How to read this") + 1) for text in order]
    assert places == sorted(places)
    assert "This is the only look at the test split that this repository knows of." in document.text
    assert "Hedges' g" in document.text and "p < 10⁻⁶" in document.text.replace("\N{NO-BREAK SPACE}", " ")


def test_every_figure_comes_in_two_widths_with_its_numbers(built: tuple[str, Document]) -> None:
    page, _ = built
    figures = re.findall(r'<figure id="([^"]+)">(.*?)</figure>', page, flags=re.S)
    assert [name for name, _ in figures] == [
        "learning", "terms", "lengths", "sweep", "checkpoints", "effects", "problems", "behaviour", "time",
    ]  # fmt: skip
    for _, content in figures:
        assert content.count("<svg") == 2
        assert 'role="img" aria-label="' in content
        assert "<table>" in content and content.count("<tr>") > 2
    for label in ("training step", "reward (weighted)", "tokens per action", "difference in points", "seconds"):
        assert f">{label}<" in page or f"{label}</text>" in page, label


def test_selected_and_last_checkpoints_are_marked(built: tuple[str, Document]) -> None:
    page, document = built
    chosen = experiment().selection["seeds"]["1"]["step"]
    assert f"step {chosen} of seed 1" in document.text
    assert "last checkpoint</text>" in page and "selected</text>" in page


def test_the_same_data_give_the_same_bytes(built: tuple[str, Document], tmp_path: Path) -> None:
    assert build(experiment(), tmp_path)[0] == built[0]


def test_a_bare_run_has_a_page_too(tmp_path: Path) -> None:
    full = experiment(seeds=1)
    data = ReportData("one seed", {0: [{"step": 1}]}, full.selection, full.verdict)
    _, document = build(data, tmp_path)
    assert "1 training run: a statement about other runs needs at least 3" in document.text
    assert "Learning" not in document.text and "Reward audit" not in document.text


def test_baseline_protocols_are_shown_with_what_must_be_known_of_them(
    built: tuple[str, Document], tmp_path: Path
) -> None:
    page, document = built
    discussion = "untrained one-round discussion"
    for text in (f"against {discussion}", "untrained agents read 1 draft.", "correction for 5 comparisons"):
        assert text in document.text.replace("\N{NO-BREAK SPACE}", " ")
    assert "prompts too long" not in document.text
    full = experiment()
    teams = {**full.verdict["teams"]}
    teams[discussion] = {**teams[discussion], "details": {**teams[discussion]["details"], "unread": 0.014}}
    page, document = build(dataclasses.replace(full, verdict={**full.verdict, "teams": teams}), tmp_path)
    assert "prompts too long to answer" in document.text
    (row,) = re.findall(rf"<tr><td[^>]*>{discussion}</td>(.*?)</tr>", page[page.index("One test episode") :], re.S)
    assert ">0.014<" in row


def degenerate(metric: str, selected: list, base: list) -> ReportData:
    evaluate = EVALUATE.model_copy(update={"metric": metric})
    selection = select({0: {10: selected, 20: selected}}, base, evaluate, VERDICT)
    verdict = summarise_test(
        {0: selected}, base, {0: selected}, {}, {0: 10}, {0: 20}, evaluate, VERDICT, metrics=METRICS
    )
    return ReportData("degenerate", {0: []}, selection.to_json(), verdict, metrics=METRICS)


@pytest.mark.parametrize(
    ("selected", "base", "metric", "words"),
    [
        (constant_team([1.0] * 20), constant_team([0.0] * 20), "tests_passed", "no interval"),
        (constant_team([2.0] * 20, 2, False), team([0.2] * 20, 2, 0), "reward", "same in every recorded respect"),
        (team([0.5], 4, 0), team([0.2], 4, 1), "tests_passed", "All problems belong to one family"),
        (team([5.0] * 9, 2, 0), team([2.0] * 9, 2, 1), "reward", "IMPROVED"),
    ],
)
def test_degenerate_results_have_a_page(selected: list, base: list, metric: str, words: str, tmp_path: Path) -> None:
    page, document = build(degenerate(metric, selected, base), tmp_path)
    assert words in document.text.replace("\N{NO-BREAK SPACE}", " ")
    assert "nan" not in re.sub(r"<[^>]+>", "", page).lower().split()
    assert "The plan was not followed: there was no plan" in document.text


def test_guards_and_deviations_are_shown_and_text_is_escaped(tmp_path: Path) -> None:
    full = experiment()
    selection = {**full.selection, "notes": ["training seed 0: no checkpoint passes the guards"]}
    seed = dict(selection["seeds"]["0"])
    seed["curve"] = [{**seed["curve"][0], "faults": ["programs that parse is 10.0 %"]}, *seed["curve"][1:]]
    selection["seeds"] = {**selection["seeds"], "0": seed}
    changed = "the plan was changed after look 1 at this test split: alpha from 0.01 to 0.05"
    plan = {"followed": False, "deviations": ["margin: planned 0.2"], "changed": [changed], "plan": "x"}
    row = {**full.verdict["looks"]["history"][0], "look": 2, "words": "alpha from 0.01 to 0.05"}
    looks = {**full.verdict["looks"], "count": 2, "number": 2, "sentence": "This is look 2 of 2; p = 0.04."}
    looks["history"] = [*looks["history"], row]
    verdict = {**full.verdict, "plan": plan, "looks": looks}
    hostile = {"name": "<script>alert(1)</script>", "identity": {"<b>": "<i>"}}
    page, document = build(dataclasses.replace(full, selection=selection, verdict=verdict, **hostile), tmp_path)
    assert "<script>" not in page and "<i>" not in page
    assert "<script>alert(1)</script>" in document.text
    text = document.text.replace("\N{NO-BREAK SPACE}", " ")
    assert "The plan was not followed: margin: planned 0.2." in text
    assert "The plan was changed after look 1 at this test split: alpha from 0.01 to 0.05." in text
    assert "This is look 2 of 2; p = 0.04." in text and "only look" not in text
    assert text.count("2026-01-01 10:00") == 2, "a row for each look"
    assert "Step 10 of seed 0: programs that parse is 10.0" in document.text.replace("\N{NO-BREAK SPACE}", " ")
    assert "Training seed 0: no checkpoint passes the guards." in document.text


@contextlib.contextmanager
def chromium() -> Iterator[webdriver.Chrome]:
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("needs chromium and chromedriver (Debian packages chromium and chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in ("--headless=new", "--no-sandbox", "--window-size=1400,1000", "--allow-file-access-from-files"):
        options.add_argument(argument)
    browser = webdriver.Chrome(options, webdriver.ChromeService(driver))
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
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        shown = browser.execute_script(
            "return [...document.querySelectorAll('figure svg')].filter(s => s.getBoundingClientRect().width > 0)"
            ".map(s => [s.getBoundingClientRect().width, s.parentElement.className])"
        )
        assert len(shown) == 9
        assert {name for _, name in shown} == {"narrow" if width < 640 else "wide"}
        assert all(0.8 * min(width, 760) < size <= width for size, _ in shown)
        smallest = browser.execute_script(
            "return Math.min(...[...document.querySelectorAll('figure svg text')]"
            ".filter(t => t.getBoundingClientRect().height > 0).map(t => t.getBoundingClientRect().height))"
        )
        assert smallest >= 8  # pixels: nothing in a figure is too small to read


@pytest.mark.service
def test_on_paper_plan_and_identity_are_unfolded_and_links_are_gone(folder: Path, built: tuple[str, Document]) -> None:
    folded = (
        "return [...document.querySelectorAll('details.block table, details.block pre')].map(e => e.checkVisibility())"
    )
    with chromium() as browser:
        browser.get((folder / "index.html").as_uri())
        on_screen = browser.execute_script(folded)
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        on_paper = browser.execute_script(folded)
        navigation = browser.execute_script("return document.querySelector('nav').checkVisibility()")
    assert len(on_paper) == 4
    assert all(on_paper) and not any(on_screen)
    assert not navigation


def first_episodes(count: int = 9) -> dict[str, list[dict[str, Any]]]:
    """Episodes of a base that fails everything and of a team that differs from problem to problem."""
    made: dict[str, list[dict[str, Any]]] = {"base": [], "selected": []}
    passed = [0.5, 1.0, 0.0, 0.5, 0.5, 0.5, 1.0, 0.5, 0.5]
    for place in range(count):
        for team_name, value in (("base", 0.25 if place == 2 else 0.0), ("selected", passed[place])):
            text = f"def aux(xs):\n    return '<script>{team_name} {place}\x1b'"
            details = {"status": "passed" if value == 1 else "timeout" if place == 4 else "failed"}
            details |= {"schemes": ["fallback"]} if place >= 7 else {}
            made[team_name].append(
                {
                    "problem": f"p{place}", "family": "f", "sample": 0, "reward": 1.0 + value - place / 100, "turns": 1,
                    "terms": {"tests": value}, "metrics": {"tests_passed": value}, "tokens": 9, "details": details,
                    "shown": shown(text, value == 1),
                }
            )  # fmt: skip
    return made


def test_episodes_to_read_are_picked_by_the_rule_that_the_page_states(tmp_path: Path):
    data = dataclasses.replace(experiment(1), first_episodes=first_episodes(), about="Task: x. Tested on a day.")
    found = {
        title: item.problem for item in to_read(data.first_episodes, "tests_passed", data.info) for title in item.titles
    }
    assert found == {
        "greatest gain": "p1",
        "greatest loss": "p2",
        "best": "p1",
        "worst": "p2",
        "typical": "p0",
        "fails: failed": "p0",
        "fails: timeout": "p4",
        "scheme: fallback": "p7",
    }
    _, document = build(data, tmp_path)
    assert RULE in document.text and "Task: x. Tested on a day." in document.text
    for problem in set(found.values()):
        assert f": {problem}, " in document.text
    assert "p3" not in document.text and "p8" not in document.text
    assert "greatest gain, best: p1, 0.0 % \u2192 100.0 %" in " ".join(document.text.split())


def test_what_agents_wrote_stays_text_on_the_page(tmp_path: Path):
    page, document = build(dataclasses.replace(experiment(1), first_episodes=first_episodes()), tmp_path)
    assert document.tags["script"] == 0 and "<script>selected 1" in document.text
    assert "\x1b" not in page and '<span class="k">def</span>' in page
    without, _ = build(experiment(1), tmp_path)
    assert "Episodes to read" not in without


def test_a_baseline_that_never_earns_a_term_is_said_to_be_on_another_scale():
    data = experiment(1)
    assert "In no step" not in training_figures.learning(data).caption
    alone = [{**row, "terms/cooperation": 0.0} for row in data.baseline_train["single-agent GRPO"][0]]
    caption = training_figures.learning(
        dataclasses.replace(data, baseline_train={"single-agent GRPO": {0: alone}})
    ).caption
    assert "In no step did single-agent GRPO earn anything for cooperation, as the team did" in caption
