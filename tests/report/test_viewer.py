"""The page of all test episodes: its data, and what a reader sees in a browser, opened from a file."""

import json
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver

from pipeline_lib.environments.coding.task import METRICS
from pipeline_lib.report.viewer import MOST_TEXT, link, write_viewer
from tests.report.build import experiment, to_read
from tests.report.test_page_in_browser import chromium


@pytest.fixture(scope="module")
def viewer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("viewer")
    write_viewer("Two teams <b>", to_read(), "tests_passed", experiment().info, METRICS, folder)
    return folder


def data(folder: Path, name: str) -> Any:
    return json.loads((folder / "episodes" / name).read_text().partition("=")[2])


def test_every_episode_is_there_with_its_numbers_and_its_texts_lie_in_a_file_of_their_own(viewer: Path) -> None:
    index = data(viewer, "index.js")
    teams = to_read()
    assert [len(team["rows"]) for team in index["teams"]] == [len(team.episodes) for team in teams] == [6, 6, 6]
    assert [(team["name"], team["seed"], team["step"]) for team in index["teams"]] == [
        ("base", None, None), ("selected", 0, 40), ("selected", 1, 41),
    ]  # fmt: skip
    assert index["base"] == 0 and index["problems"] == ["p0", "p1", "p2"]
    assert index["teams"][1]["rows"][2] == [1, 0, 2.0, 1.0, 1, 1, "passed"], "a success, by the metric that says so"
    assert index["teams"][1]["rows"][0] == [0, 0, 1.5, 0.5, 0, 1, "failed"]
    assert index["teams"][1]["rows"][5] == [2, 1, None, None, None, 1, "lost"]
    for number, team in enumerate(teams):
        told = data(viewer, f"{number}.js")
        assert [one.get("turns", [[""]])[0][0].replace("�", "\x1b") for one in told] == [
            record.shown["turns"][0][0] if record.shown else "" for record in team.episodes
        ]
    assert told[0]["terms"] == {"tests": 1.0} and told[0]["schemes"] == ["fallback"]
    assert link("a b") == "episodes.html#team=a%20b"


def test_long_texts_are_cut_and_control_characters_are_gone(tmp_path: Path) -> None:
    teams = to_read()
    teams[0].episodes[0].shown["text"] = "\x1b[2J" + "x" * 2 * MOST_TEXT
    write_viewer("t", teams, "tests_passed", experiment().info, METRICS, tmp_path)
    text = data(tmp_path, "0.js")[0]["text"]
    assert len(text) < MOST_TEXT + 50 and "more characters)" in text and "\x1b" not in text
    write_viewer("t", [], "tests_passed", experiment().info, METRICS, tmp_path / "none")
    assert not (tmp_path / "none").exists(), "without episodes there is no page"


def rows(browser: webdriver.Chrome) -> list[str]:
    return browser.execute_script(
        "return [...document.querySelectorAll('#list tbody tr')].map(r => r.cells[0].innerText)"
    )


def show(browser: webdriver.Chrome, viewer: Path, address: str) -> list[str]:
    browser.get("about:blank")
    browser.get(f"{(viewer / 'episodes.html').as_uri()}#{address}")
    done = "const look = () => document.querySelector('#one *') ? arguments[0]() : setTimeout(look, 20);look()"
    browser.execute_async_script(done)
    return rows(browser)


@pytest.mark.service
def test_a_reader_finds_every_failure_and_reads_it_beside_the_base(viewer: Path) -> None:
    with chromium() as browser:
        assert len(show(browser, viewer, "")) == 18
        assert show(browser, viewer, "team=selected&show=failed") == [
            f"p{p} #{k}\n\nselected, seed 0, step 40" for p, k in ((0, 0), (0, 1), (2, 0))
        ]
        one = browser.execute_script("return document.getElementById('one').innerText")
        for text in ("helper is told", "write aux", "<script>selected 0 0 0", "<script>base None 0 0", "✗ assert",
                     "got def aux", "sum of all turns", "1.500", "Schemes: fallback"):  # fmt: skip
            assert text in one, text
        base = len(show(browser, viewer, "team=base"))
        compared = "return [...document.querySelectorAll('#list tbody tr')].map(r => r.cells[2].innerText)"
        assert len(set(browser.execute_script(compared))) == 1 < base, "the base is not compared with itself"
        assert "the base's mean on this problem: " in one
        assert len(show(browser, viewer, "show=lost")) == 1 and len(show(browser, viewer, "show=worse")) == 1
        assert len(show(browser, viewer, "seed=1")) == 6 and len(show(browser, viewer, "step=40")) == 6
        assert len(show(browser, viewer, "problem=p1")) == 6
        assert show(browser, viewer, "text=selected 1 2 1") == ["p2 #1\n\nselected, seed 1, step 41"]
        assert show(browser, viewer, "team=selected&sort=gain")[0].startswith("p0 #0\n\nselected, seed 1"), (
            "+100 points"
        )
        assert show(browser, viewer, "sort=loss")[0] == "p2 #0\n\nselected, seed 0, step 40"
        assert browser.execute_script("return document.title") == "Two teams <b>"
        show(browser, viewer, "team=nobody")
        browser.execute_script("document.querySelector('select[name=show]').value = 'failed'; form.oninput()")
        errors = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
        assert errors == []


@pytest.mark.service
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_window_and_an_opened_episode_is_in_it(viewer: Path, width: int) -> None:
    frame = viewer / f"frame-{width}.html"
    frame.write_text(f'<iframe src="episodes.html" style="border:0;width:{width}px;height:900px"></iframe>')
    with chromium() as browser:
        browser.get(frame.as_uri())
        browser.switch_to.frame(0)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        assert len(rows(browser)) == 18
        browser.execute_async_script(
            "document.querySelectorAll('#list tbody tr')[9].onclick().then(() => setTimeout(arguments[0], 300))"
        )
        assert browser.execute_script("return one.getBoundingClientRect().top / innerHeight") < 0.5
